/* Every step of an upload has its name, and nothing else has one. */
#include "emulator/request/upload_step.h"
#include "tests/support/test.h"

static enum rg_upload_step step_of(const char *verb, const char *target, const char *fields)
{
    static struct rg_api_request request;
    struct rg_h1_head head;
    char text[512];
    int size =
        snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: h\r\n%s\r\n", verb, target, fields);
    RG_CHECK_EQ(rg_h1_parse_request(&head, text, (size_t)size, 0), size);
    RG_CHECK_EQ(rg_api_request_parse(&request, &head), 0);
    return rg_upload_step_of(&request);
}

static void test_requests_and_their_steps(void)
{
#define JSON "/upload/storage/v1/b/bucket/o?"
    static const struct {
        const char *verb, *target, *fields, *name;
    } rows[] = {
        {"POST", JSON "uploadType=multipart", "", "single"},
        {"POST", JSON "uploadType=media&name=x", "", "single"},
        {"PUT", "/bucket/x", "", "single"},
        {"POST", JSON "uploadType=resumable&name=x", "", "start"},
        {"POST", "/bucket/x", "x-goog-resumable: start\r\n", "start"},
        {"PUT", JSON "upload_id=1", "Content-Range: bytes 0-9/*\r\n", "chunk"},
        {"PUT", JSON "upload_id=1", "", "chunk"},
        {"PUT", "/bucket/x?upload_id=1", "", "chunk"},
        {"PUT", JSON "upload_id=1", "Content-Range: bytes */*\r\n", "query"},
        {"PUT", JSON "upload_id=1", "Content-Range: bytes */7\r\n", "query"},
        {"DELETE", JSON "uploadType=resumable&upload_id=1", "", "cancel"},
        {"POST", "/bucket/x?uploads", "", "begin"},
        {"PUT", "/bucket/x?partNumber=1&uploadId=1", "", "part"},
        {"POST", "/bucket/x?uploadId=1", "", "complete"},
        {"DELETE", "/bucket/x?uploadId=1", "", "abort"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        enum rg_upload_step step = step_of(rows[i].verb, rows[i].target, rows[i].fields);
        RG_CHECK(step != RG_UPLOAD_STEP_NONE);
        RG_CHECK_EQ(step, rg_upload_step_find(rows[i].name));
    }
}

static void test_other_requests(void)
{
    static const char *const rows[][3] = {
        {"GET", "/bucket/x?uploadId=1", ""},
        {"GET", "/bucket?uploads", ""},
        {"GET", "/bucket/x", ""},
        {"PUT", "/bucket/x", "x-goog-copy-source: /b/y\r\n"},
        {"POST", "/storage/v1/b/bucket/o/x/compose", ""},
        {"DELETE", "/storage/v1/b/bucket/o/x", ""},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(step_of(rows[i][0], rows[i][1], rows[i][2]), RG_UPLOAD_STEP_NONE);
    }
    RG_CHECK_EQ(rg_upload_step_find("all"), RG_UPLOAD_STEP_NONE);
    RG_CHECK_EQ(rg_upload_step_find(""), RG_UPLOAD_STEP_NONE);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_requests_and_their_steps),
        RG_TEST(test_other_requests),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
