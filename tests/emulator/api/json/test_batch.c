/* Many calls in one request. */
#include "emulator/api/json/batch.h"

#include "tests/emulator/driver.h"

static void batch(const char *body)
{
    rg_driver_send(
        api, &reply,
        "POST /batch/storage/v1 HTTP/1.1\r\nHost: h\r\n"
        "Content-Type: multipart/mixed; boundary=\"b1\"\r\nContent-Length: %zu\r\n\r\n%s",
        strlen(body), body);
}

static void test_each_call_is_answered_for_itself(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a%2Fb", "data");
    batch("--b1\r\nContent-Type: application/http\r\nContent-ID: <x+1>\r\n\r\n"
          "DELETE /storage/v1/b/bucket/o/a%2Fb HTTP/1.1\r\nAccept: */*\r\n\r\n\r\n"
          "--b1\r\nContent-Type: application/http\r\nContent-ID: <x+2>\r\n\r\n"
          "DELETE /storage/v1/b/bucket/o/none HTTP/1.1\r\nHost: other\r\n\r\n"
          "--b1\r\nContent-ID: <x+3>\r\n\r\n"
          "POST /storage/v1/b HTTP/1.1\r\nContent-Type: application/json\r\n"
          "Content-Length: 999\r\n\r\n{\"name\":\"made-here\"}\r\n"
          "--b1--\r\n");
    RG_CHECK_EQ(reply.status, 200);
    const char *type = rg_driver_field(&reply, "content-type");
    RG_CHECK(type != NULL && strncmp(type, "multipart/mixed; boundary=batch_", 32) == 0);
    const char *first = strstr(reply.body.data, "Content-ID: <response-x+1>\r\n\r\nHTTP/1.1 204");
    const char *second = strstr(reply.body.data, "Content-ID: <response-x+2>\r\n\r\nHTTP/1.1 404");
    const char *third = strstr(reply.body.data, "Content-ID: <response-x+3>\r\n\r\nHTTP/1.1 200");
    RG_CHECK(first != NULL && second > first && third > second);
    check_body_has("No such object: bucket/none");
    check_body_has("\"name\":\"made-here\"");
    get("/bucket/a%2Fb");
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

/* What the whole says of who pays, its parts say, too. */
static void test_the_payer_of_a_batch(void)
{
    static const char body[] = "--b1\r\n\r\nDELETE /storage/v1/b/bucket/o/o HTTP/1.1\r\n\r\n"
                               "--b1--\r\n";
    open_api(NULL, 0);
    put_xml("/bucket/o", "data");
    send_json("PATCH", "/storage/v1/b/bucket", "{\"billing\":{\"requesterPays\":true}}");
    batch(body);
    check_body_has("HTTP/1.1 400");
    check_body_has("requester pays");
    rg_driver_send(api, &reply,
                   "POST /batch/storage/v1 HTTP/1.1\r\nHost: h\r\nx-goog-user-project: p\r\n"
                   "Content-Type: multipart/mixed; boundary=b1\r\nContent-Length: %zu\r\n\r\n%s",
                   strlen(body), body);
    check_body_has("HTTP/1.1 204");
    close_api();
}

static void test_lines_may_end_in_lf_and_targets_be_absolute(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/o", "data");
    batch("--b1\nContent-Type: application/http\n\n"
          "PATCH https://h/storage/v1/b/bucket/o/o HTTP/1.1\nContent-Type: application/json\n\n"
          "{\"metadata\":{\"k\":\"v\"}}\n"
          "--b1\nContent-Type: application/http\n\nGET /storage/v1/b/bucket/o/o\n\n--b1--");
    RG_CHECK_EQ(reply.status, 200);
    const char *at = strstr(reply.body.data, "\"metadata\":{\"k\":\"v\"}");
    RG_CHECK(at != NULL && strstr(at + 1, "\"metadata\":{\"k\":\"v\"}") != NULL);
    close_api();
}

static void test_what_a_batch_refuses(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/o", "data");
    batch("--b1\r\n\r\nGET /storage/v1/b/bucket/o/o?alt=media HTTP/1.1\r\n\r\n"
          "--b1\r\n\r\nGET /bucket/o HTTP/1.1\r\n\r\n"
          "--b1\r\n\r\nnonsense\r\n"
          "--b1\r\n\r\n\r\n"
          "--b1\r\n\r\nPOST /batch/storage/v1 HTTP/1.1\r\n\r\n--b1--");
    RG_CHECK_EQ(reply.status, 200);
    int count = 0;
    for (const char *at = reply.body.data; (at = strstr(at, "HTTP/1.1 400")) != NULL; at++) {
        count++;
    }
    RG_CHECK_EQ(count, 5);
    batch("--b1\r\n\r\nGET /storage/v1/b HTTP/1.1\r\n\r\n");
    RG_CHECK_EQ(reply.status, 400);
    batch("");
    RG_CHECK_EQ(reply.status, 400);
    rg_driver_send(api, &reply,
                   "POST /batch/storage/v1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 400);
    char *many = calloc(1, 101 * 64 + 16);
    for (int i = 0; i < 101; i++) {
        strcat(many, "--b1\r\n\r\nGET /storage/v1/b HTTP/1.1\r\n\r\n");
    }
    strcat(many, "--b1--");
    batch(many);
    RG_CHECK_EQ(reply.status, 400);
    free(many);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_call_is_answered_for_itself),
        RG_TEST(test_the_payer_of_a_batch),
        RG_TEST(test_lines_may_end_in_lf_and_targets_be_absolute),
        RG_TEST(test_what_a_batch_refuses),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
