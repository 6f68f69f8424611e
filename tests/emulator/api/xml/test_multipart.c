/* Multipart uploads: parts in any order, replaced, listed, joined, refused, aborted. */
#include "emulator/api/xml/multipart.h"

#include "tests/emulator/driver.h"

#define PART_SIZE RG_XML_MULTIPART_PART_SIZE_MIN

static char upload_id[64];
static char etags[4][64]; /* of the parts, by number */

static void open_large_api(void)
{
    driver_memory_max = RG_MIB(64);
    open_api(NULL, 0);
}

static void initiate(const char *path, const char *headers)
{
    rg_driver_send(api, &reply,
                   "POST %s?uploads HTTP/1.1\r\nHost: h\r\n%sContent-Length: 0\r\n\r\n", path,
                   headers);
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("http://s3.amazonaws.com/doc/2006-03-01/");
    const char *at = strstr(reply.body.data, "<UploadId>");
    RG_CHECK(at != NULL);
    snprintf(upload_id, sizeof(upload_id), "%.32s", at + strlen("<UploadId>"));
}

/* Sends a part of `size` bytes of one letter. */
static void put_part(const char *path, unsigned number, char letter, size_t size,
                     const char *headers)
{
    char *request = malloc(size + 1024);
    RG_CHECK(request != NULL);
    int head_size = snprintf(request, 1024,
                             "PUT %s?partNumber=%u&uploadId=%s HTTP/1.1\r\nHost: h\r\n%s"
                             "Content-Length: %zu\r\n\r\n",
                             path, number, upload_id, headers, size);
    memset(request + head_size, letter, size);
    rg_driver_reply_fini(&reply);
    rg_driver_exchange(api, request, (size_t)head_size + size, 100000, &reply);
    free(request);
    if (reply.status == 200 && number < RG_ARRAY_LEN(etags)) {
        snprintf(etags[number], sizeof(etags[number]), "%.60s", rg_driver_field(&reply, "etag"));
        RG_CHECK(rg_driver_field(&reply, "x-goog-hash") != NULL);
    }
}

/* Ends the upload with two parts. */
static void complete(const char *path, unsigned first, const char *first_etag, unsigned second,
                     const char *second_etag)
{
    char body[1024];
    snprintf(body, sizeof(body),
             "<CompleteMultipartUpload><Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>"
             "<Part><ETag>%s</ETag><PartNumber>%u</PartNumber></Part></CompleteMultipartUpload>",
             first, first_etag, second_etag, second);
    rg_driver_send(api, &reply,
                   "POST %s?uploadId=%s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s", path,
                   upload_id, strlen(body), body);
}

static void test_parts_become_an_object(void)
{
    open_large_api();
    initiate("/bucket/a%2Fb", "Content-Type: text/x\r\nx-goog-meta-k: v\r\n");
    put_part("/bucket/a%2Fb", 2, 'b', 100, "");
    put_part("/bucket/a%2Fb", 1, 'x', 10, ""); /* Replaced below. */
    put_part("/bucket/a%2Fb", 1, 'a', PART_SIZE, "");
    RG_CHECK_EQ(reply.status, 200);
    get("/bucket/a/b");
    RG_CHECK_EQ(reply.status, 404);
    complete("/bucket/a%2Fb", 1, etags[1], 2, etags[2]);
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("<CompleteMultipartUploadResult");
    check_body_has("<Key>a/b</Key>");
    RG_CHECK(rg_driver_field(&reply, "x-goog-generation") != NULL);
    get("/bucket/a/b");
    RG_CHECK_EQ(reply.body.size, PART_SIZE + 100);
    RG_CHECK_EQ(reply.body.data[0], 'a');
    RG_CHECK_EQ(reply.body.data[PART_SIZE - 1], 'a');
    RG_CHECK_EQ(reply.body.data[PART_SIZE], 'b');
    check_field("content-type", "text/x");
    check_field("x-goog-meta-k", "v");
    rg_driver_send(api, &reply,
                   "GET /bucket/a/b HTTP/1.1\r\nHost: h\r\nRange: bytes=%zu-%zu\r\n\r\n",
                   PART_SIZE - 2, PART_SIZE + 1);
    RG_CHECK_STR(reply.body.data, "aabb");
    complete("/bucket/a%2Fb", 1, etags[1], 2, etags[2]); /* The answer was lost. */
    RG_CHECK_EQ(reply.status, 404);
    check_body_has("<Code>NoSuchUpload</Code>");
    close_api();
}

static void test_what_was_put_together_of_parts_has_no_md5(void)
{
    open_large_api();
    initiate("/bucket/o", "");
    put_part("/bucket/o", 1, 'a', 3, "Content-MD5: R7zlx09Yn0hn29V+nKn4CA==\r\n");
    RG_CHECK_EQ(reply.status, 200);
    char body[256];
    snprintf(body, sizeof(body),
             "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
             "</CompleteMultipartUpload>",
             etags[1]);
    rg_driver_send(api, &reply,
                   "POST /bucket/o?uploadId=%s HTTP/1.1\r\nHost: h\r\n"
                   "Content-Length: %zu\r\n\r\n%s",
                   upload_id, strlen(body), body);
    RG_CHECK_EQ(reply.status, 200);
    check_md5("o", NULL);
    close_api();
}

static void test_a_wrong_list_of_parts_is_refused(void)
{
    open_large_api();
    initiate("/bucket/o", "");
    put_part("/bucket/o", 1, 'a', 1000, "");
    put_part("/bucket/o", 2, 'b', 1000, "");
    complete("/bucket/o", 2, etags[2], 1, etags[1]);
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("<Code>InvalidPartOrder</Code>");
    complete("/bucket/o", 1, etags[1], 1, etags[1]);
    check_body_has("<Code>InvalidPartOrder</Code>");
    complete("/bucket/o", 1, etags[1], 3, etags[2]);
    check_body_has("<Code>InvalidPart</Code>");
    complete("/bucket/o", 1, etags[2], 2, "\"0\"");
    check_body_has("<Code>InvalidPart</Code>");
    complete("/bucket/o", 1, etags[1], 2, etags[2]);
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("<Code>EntityTooSmall</Code>");
    complete("/bucket/o", 1, etags[1], 2, "<");
    check_body_has("<Code>MalformedXML</Code>");
    put_part("/bucket/o", 1, 'a', PART_SIZE, "");
    char bare[64]; /* Quotes may be missing. */
    snprintf(bare, sizeof(bare), "%.*s", (int)strlen(etags[2]) - 2, etags[2] + 1);
    complete("/bucket/o", 1, etags[1], 2, bare);
    RG_CHECK_EQ(reply.status, 200); /* None of it ended the upload. */
    close_api();
}

static void test_hashes_of_a_part_are_checked(void)
{
    open_large_api();
    initiate("/bucket/o", "");
    put_part("/bucket/o", 1, 'a', 3, "x-goog-hash: crc32c=NkFNdA==\r\n");
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("<Code>BadDigest</Code>");
    put_part("/bucket/o", 1, 'a', 3, "Content-MD5: AAAAAAAAAAAAAAAAAAAAAA==\r\n");
    RG_CHECK_EQ(reply.status, 400);
    put_part("/bucket/o", 1, 'a', 3, "Content-MD5: R7zlx09Yn0hn29V+nKn4CA==\r\n");
    RG_CHECK_EQ(reply.status, 200);
    put_part("/bucket/o", 0, 'a', 3, "");
    RG_CHECK_EQ(reply.status, 400);
    put_part("/bucket/o", 10001, 'a', 3, "");
    RG_CHECK_EQ(reply.status, 400);
    put_part("/bucket/p", 1, 'a', 3, ""); /* of another object */
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_parts_and_uploads_are_listed(void)
{
    char target[256];
    open_large_api();
    put_xml("/bucket/other", "x");
    initiate("/bucket/o", "");
    put_part("/bucket/o", 3, 'c', 3, "");
    put_part("/bucket/o", 1, 'a', 1, "");
    snprintf(target, sizeof(target), "/bucket/o?uploadId=%s&max-parts=1", upload_id);
    get(target);
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("<PartNumber>1</PartNumber>");
    check_body_has("<IsTruncated>true</IsTruncated>");
    check_body_has("<NextPartNumberMarker>1</NextPartNumberMarker>");
    snprintf(target, sizeof(target), "/bucket/o?uploadId=%s&part-number-marker=1", upload_id);
    get(target);
    check_body_has("<PartNumber>3</PartNumber>");
    check_body_has("<Size>3</Size>");
    check_body_has("<IsTruncated>false</IsTruncated>");
    get("/bucket?uploads");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has(upload_id);
    get("/bucket?uploads&prefix=x");
    RG_CHECK(strstr(reply.body.data, upload_id) == NULL);
    close_api();
}

/* Three of one name and one of another, by pages of two. */
static void test_uploads_are_listed_by_pages(void)
{
    char first[64], target[512], *at;
    open_large_api();
    put_xml("/bucket/other", "x");
    initiate("/bucket/z", "");
    for (int i = 0; i < 3; i++) {
        initiate("/bucket/a%26b", "");
    }
    get("/bucket?uploads&max-uploads=2");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("<IsTruncated>true</IsTruncated>");
    check_body_has("<NextKeyMarker>a&amp;b</NextKeyMarker>");
    RG_CHECK(strstr(reply.body.data, "<Key>z</Key>") == NULL);
    at = strstr(reply.body.data, "<NextUploadIdMarker>");
    RG_CHECK(at != NULL && sscanf(at, "<NextUploadIdMarker>%32[0-9a-f]<", first) == 1);
    snprintf(target, sizeof(target),
             "/bucket?uploads&max-uploads=2&key-marker=a%%26b&upload-id-marker=%s", first);
    get(target);
    check_body_has("<IsTruncated>false</IsTruncated>");
    at = strstr(reply.body.data, "<Key>a&amp;b</Key>");
    RG_CHECK(at != NULL && strstr(at + 1, "<Key>a&amp;b</Key>") == NULL);
    RG_CHECK(strstr(at, "<Key>z</Key>") != NULL);
    char *id = strstr(at, "<UploadId>");
    RG_CHECK(id != NULL && strncmp(id + strlen("<UploadId>"), first, 32) > 0);
    /* A name alone passes over all of its uploads; an id alone is nothing. */
    get("/bucket?uploads&key-marker=a%26b");
    RG_CHECK(strstr(reply.body.data, "<Key>a&amp;b</Key>") == NULL);
    check_body_has("<Key>z</Key>");
    get("/bucket?uploads&upload-id-marker=ffff");
    check_body_has("<Key>a&amp;b</Key>");
    get("/bucket?uploads&max-uploads=x");
    RG_CHECK_EQ(reply.status, 400);
    get("/no-such-bucket?uploads");
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_an_abort_gives_everything_back(void)
{
    open_large_api();
    for (int i = 0; i < 3; i++) { /* More than there is room for, were it kept. */
        initiate("/bucket/o", "");
        for (unsigned part = 1; part <= 8; part++) {
            put_part("/bucket/o", part, 'a', PART_SIZE, "");
            RG_CHECK_EQ(reply.status, 200);
        }
        rg_driver_send(api, &reply, "DELETE /bucket/o?uploadId=%s HTTP/1.1\r\nHost: h\r\n\r\n",
                       upload_id);
        RG_CHECK_EQ(reply.status, 204);
        put_part("/bucket/o", 1, 'a', 10, "");
        RG_CHECK_EQ(reply.status, 404);
    }
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_parts_become_an_object),
        RG_TEST(test_what_was_put_together_of_parts_has_no_md5),
        RG_TEST(test_a_wrong_list_of_parts_is_refused),
        RG_TEST(test_hashes_of_a_part_are_checked),
        RG_TEST(test_parts_and_uploads_are_listed),
        RG_TEST(test_uploads_are_listed_by_pages),
        RG_TEST(test_an_abort_gives_everything_back),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
