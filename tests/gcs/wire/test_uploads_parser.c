/* Lists of multipart uploads: what the service answers with, and what nobody should. */
#include "gcs/wire/uploads_parser.h"
#include "tests/support/test.h"

#define BEGIN                                                                                      \
    "<?xml version='1.0' encoding='UTF-8'?><ListMultipartUploadsResult "                           \
    "xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
#define END "</ListMultipartUploadsResult>"

static void *memory;
static struct rg_uploads_page *page;
static const char *problem;

/* Into a block that is no larger than it has to be. */
static int parse(const char *body)
{
    size_t size = rg_uploads_page_size_bound(strlen(body));
    free(memory);
    memory = malloc(size);
    problem = NULL;
    return rg_uploads_page_parse(body, strlen(body), memory, size, &page, &problem);
}

static void test_a_page(void)
{
    RG_CHECK_EQ(
        parse(BEGIN "<Bucket>b</Bucket><KeyMarker/><UploadIdMarker></UploadIdMarker>"
                    "<NextKeyMarker>a&amp;b</NextKeyMarker>"
                    "<NextUploadIdMarker>id-2</NextUploadIdMarker><MaxUploads>2</MaxUploads>"
                    "<IsTruncated>true</IsTruncated>"
                    "<Upload><Key>a/\xc3\xa4</Key><UploadId>id-1</UploadId><Owner><ID>x</ID>"
                    "<Key>no</Key></Owner><Initiated>2026-11-01T10:00:00.000Z</Initiated></Upload>"
                    "<Upload><UploadId>id-2</UploadId><Key>a&amp;<!-- c -->b</Key></Upload>"
                    "<CommonPrefixes><Prefix>p</Prefix></CommonPrefixes>" END),
        0);
    RG_CHECK_EQ(page->count, 2);
    RG_CHECK_STR(page->uploads[0].object, "a/\xc3\xa4");
    RG_CHECK_STR(page->uploads[0].id, "id-1");
    RG_CHECK_STR(page->uploads[0].initiated, "2026-11-01T10:00:00.000Z");
    RG_CHECK_STR(page->uploads[1].object, "a&b");
    RG_CHECK_STR(page->uploads[1].id, "id-2");
    RG_CHECK(page->uploads[1].initiated == NULL);
    RG_CHECK_STR(page->next_key_marker, "a&b");
    RG_CHECK_STR(page->next_id_marker, "id-2");
}

static void test_an_empty_page(void)
{
    RG_CHECK_EQ(parse(BEGIN "<NextKeyMarker/><IsTruncated>false</IsTruncated>" END), 0);
    RG_CHECK_EQ(page->count, 0);
    RG_CHECK(page->next_key_marker == NULL && page->next_id_marker == NULL);
    RG_CHECK_EQ(parse(BEGIN "<NextKeyMarker>a</NextKeyMarker>"
                            "<NextUploadIdMarker>i</NextUploadIdMarker>"
                            "<IsTruncated>false</IsTruncated>" END),
                0);
    RG_CHECK(page->next_key_marker == NULL && page->next_id_marker == NULL);
    RG_CHECK_EQ(parse(BEGIN "<NextKeyMarker>a</NextKeyMarker>" END), 0);
    RG_CHECK_STR(page->next_key_marker, "a");
    /* It is not the end, and nobody could go on. */
    RG_CHECK_EQ(parse(BEGIN "<IsTruncated>true</IsTruncated>" END), -EBADMSG);
    RG_CHECK_STR(problem, "is not the last page, and does not say where the next begins");
}

/* As many as a body can have, each as short as it can be. */
static void test_the_block_is_large_enough(void)
{
    char body[20000];
    size_t size = (size_t)sprintf(body, "<ListMultipartUploadsResult>");
    for (int i = 0; i < 300; i++) {
        size += (size_t)sprintf(body + size, "<Upload><Key>%c</Key><UploadId>i</UploadId></Upload>",
                                'a' + i % 26);
    }
    sprintf(body + size, END);
    RG_CHECK_EQ(parse(body), 0);
    RG_CHECK_EQ(page->count, 300);
    for (int i = 0; i < 300; i++) {
        RG_CHECK_EQ(page->uploads[i].object[0], 'a' + i % 26);
        RG_CHECK_STR(page->uploads[i].id, "i");
    }
    size = (size_t)sprintf(body, "<ListMultipartUploadsResult><Upload><UploadId>i</UploadId><Key>");
    memset(body + size, 'k', 10000);
    sprintf(body + size + 10000, "</Key></Upload>" END);
    RG_CHECK_EQ(parse(body), 0);
    RG_CHECK_EQ(strlen(page->uploads[0].object), 10000);
}

static void test_what_is_refused(void)
{
    static const struct {
        const char *body, *problem;
    } rows[] = {
        {"", "is not XML"},
        {"{}", "is not XML"},
        {BEGIN, "is not XML"},
        {"<ListBucketResult/>", "is no list of multipart uploads"},
        {"<?xml version='1.0' encoding='ISO-8859-1'?><ListMultipartUploadsResult><Upload><Key>"
         "\xe4\xe4\xe4\xe4\xe4\xe4</Key><UploadId>i</UploadId></Upload>" END,
         "is not XML"},
        {"<!DOCTYPE a><ListMultipartUploadsResult/>", "has a document type"},
        {BEGIN "<Upload/>" END, "has an upload without a name or an id"},
        {BEGIN "<Upload><Key>a</Key></Upload>" END, "has an upload without a name or an id"},
        {BEGIN "<Upload><Key></Key><UploadId>i</UploadId></Upload>" END,
         "has an upload without a name or an id"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(parse(rows[i].body), -EBADMSG);
        RG_CHECK_STR(problem, rows[i].problem);
    }
    char deep[2000] = "<ListMultipartUploadsResult>";
    for (int i = 0; i < 40; i++) {
        strcat(deep, "<a>");
    }
    RG_CHECK_EQ(parse(deep), -EBADMSG);
    RG_CHECK_STR(problem, "is too deep");
    free(memory);
    memory = NULL;
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_page),
        RG_TEST(test_an_empty_page),
        RG_TEST(test_the_block_is_large_enough),
        RG_TEST(test_what_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
