/* XML that the service answers with, and XML that nobody should. */
#include "gcs/wire/xml_answer.h"
#include "tests/support/test.h"

static int parse(const char *body, struct rg_xml_answer *out_answer)
{
    return rg_xml_answer_parse(body, strlen(body), out_answer);
}

static void test_elements_of_interest(void)
{
    struct rg_xml_answer answer;
    RG_CHECK_EQ(parse("<?xml version='1.0' encoding='UTF-8'?>\n<InitiateMultipartUploadResult "
                      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n<Bucket>b</Bucket>"
                      "<UploadId>a&amp;b<!-- c -->c</UploadId><UploadId>second</UploadId>"
                      "</InitiateMultipartUploadResult>",
                      &answer),
                0);
    RG_CHECK_STR(answer.root, "InitiateMultipartUploadResult");
    RG_CHECK_STR(answer.upload_id, "a&bc");
    RG_CHECK_EQ(parse("<x:Error xmlns:x='y'><x:Code>InternalError</x:Code>"
                      "<x:Message>try again</x:Message></x:Error>",
                      &answer),
                0);
    RG_CHECK_STR(answer.root, "Error");
    RG_CHECK_STR(answer.code, "InternalError");
    RG_CHECK_STR(answer.message, "try again");
    RG_CHECK_STR(answer.upload_id, "");
}

static void test_what_is_refused(void)
{
    static const char *const bodies[] = {
        "",          "hello",       "<a>",
        "<a></b>",   "<a/><b/>",    "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
        "{\"a\":1}", "<a>\xff</a>",
    };
    struct rg_xml_answer answer;
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        RG_CHECK_EQ(parse(bodies[i], &answer), -EBADMSG);
    }
}

static void test_limits(void)
{
    struct rg_xml_answer answer;
    char body[4 * RG_XML_TEXT_SIZE_MAX];
    for (int size = RG_XML_TEXT_SIZE_MAX - 1; size <= RG_XML_TEXT_SIZE_MAX; size++) {
        snprintf(body, sizeof(body), "<a><UploadId>%0*d</UploadId></a>", size, 0);
        RG_CHECK_EQ(parse(body, &answer), size < RG_XML_TEXT_SIZE_MAX ? 0 : -EBADMSG);
    }
    for (int depth = RG_XML_DEPTH_MAX; depth <= RG_XML_DEPTH_MAX + 1; depth++) {
        size_t size = 0;
        for (int i = 0; i < depth; i++) {
            size += (size_t)sprintf(body + size, "<a>");
        }
        for (int i = 0; i < depth; i++) {
            size += (size_t)sprintf(body + size, "</a>");
        }
        RG_CHECK_EQ(parse(body, &answer), depth <= RG_XML_DEPTH_MAX ? 0 : -EBADMSG);
    }
    snprintf(body, sizeof(body), "<a%0*d/>", RG_XML_NAME_SIZE_MAX, 0);
    RG_CHECK_EQ(parse(body, &answer), -EBADMSG);
}

static void test_text_is_escaped(void)
{
    char out[32];
    size_t size = 0;
    RG_CHECK(rg_xml_append_text(out, sizeof(out), &size, "\"a<b>&c\""));
    RG_CHECK_MEM(out, size, "\"a&lt;b&gt;&amp;c\"", 18);
    size = sizeof(out) - 4;
    RG_CHECK(!rg_xml_append_text(out, sizeof(out), &size, "&"));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_elements_of_interest),
        RG_TEST(test_what_is_refused),
        RG_TEST(test_limits),
        RG_TEST(test_text_is_escaped),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
