/* Retry tests are made, told and deleted; what is none is refused. */
#include "emulator/faults/retry_control.h"
#include "emulator/faults/retry_tests.h"
#include "tests/emulator/faults/retry_case.h"

static void send_as_test(const char *method, const char *target, const char *fields)
{
    rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\nx-retry-test-id: %s\r\n%s\r\n",
                   method, target, id, fields);
}

static void test_the_control_interface(void)
{
    char first[64];
    open_api(NULL, 0);
    make_test("storage.objects.get", "return-503");
    strcpy(first, id);
    check_body_has("\"instructions\":{\"storage.objects.get\":[\"return-503\"]}");
    check_body_has("\"completed\":false,\"transport\":\"HTTP\"");
    make_test("storage.objects.list", "stall-for-3s-after-256K");
    RG_CHECK(strcmp(first, id) != 0);
    get("/retry_tests");
    check_body_has(first);
    check_body_has(id);
    rg_driver_send(api, &reply, "DELETE /retry_test/%s HTTP/1.1\r\nHost: h\r\n\r\n", first);
    RG_CHECK_EQ(reply.status, 200);
    get("/retry_tests");
    RG_CHECK(strstr(reply.body.data, first) == NULL);
    check_body_has(id);
    rg_driver_send(api, &reply, "DELETE /retry_test/%s HTTP/1.1\r\nHost: h\r\n\r\n", first);
    RG_CHECK_EQ(reply.status, 404);
    get("/retry_test/none");
    RG_CHECK_EQ(reply.status, 404);
    strcpy(id, first);
    send_as_test("GET", "/bucket/x", "");
    RG_CHECK_EQ(reply.status, 404);
    check_body_has("retry test");
    rg_driver_send(api, &reply, "PUT /retry_tests HTTP/1.1\r\nHost: h\r\n\r\n");
    RG_CHECK_EQ(reply.status, 405);
    close_api();
}

static void test_what_is_no_retry_test(void)
{
    static const char *const bodies[] = {
        "",
        "[]",
        "{",
        "{\"instructions\":3}",
        "{\"instructions\":{\"storage.objects.eat\":[\"return-503\"]}}",
        "{\"instructions\":{\"\":[\"return-503\"]}}",
        "{\"instructions\":{\"storage.objects.get\":[3]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"return-\"]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"return-99\"]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"return-600\"]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"return-503 \"]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"return-503-after-K\"]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"return-503-after-99999999999999999999K\"]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"stall-for-3601s-after-1K\"]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"return-broken-stream-after-1\"]}}",
        "{\"instructions\":{\"storage.objects.get\":[\"redirect-send-token-T\"]}}",
    };
    open_api(NULL, 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(bodies); i++) {
        post_test(bodies[i]);
        if (reply.status != 400) {
            rg_test_fail(__FILE__, __LINE__, "%s: %u", bodies[i], reply.status);
        }
    }
    get("/retry_tests");
    RG_CHECK_STR(reply.body.data, "{\"retry_test\":[]}");
    close_api();
}

static void test_there_is_an_end_to_how_many(void)
{
    open_api(NULL, 0);
    struct rg_text json = {0};
    rg_text_append_str(&json, "{\"instructions\":{\"storage.objects.get\":[\"return-503\"");
    for (int i = 1; i < RG_RETRY_INSTRUCTIONS_MAX; i++) {
        rg_text_append_str(&json, ",\"return-503\"");
    }
    rg_text_append_str(&json, "]}}");
    rg_text_append(&json, "", 1);
    post_test(json.data);
    RG_CHECK_EQ(reply.status, 200);
    json.size -= 4;
    rg_text_append_str(&json, ",\"return-503\"]}}");
    rg_text_append(&json, "", 1);
    post_test(json.data);
    RG_CHECK_EQ(reply.status, 400);
    rg_text_fini(&json);
    for (int i = 1; i < RG_RETRY_TESTS_MAX; i++) {
        make_test("storage.objects.get", "return-503");
    }
    post_test("{\"instructions\":{}}");
    RG_CHECK_EQ(reply.status, 413);
    rg_driver_send(api, &reply, "DELETE /retry_test/%s HTTP/1.1\r\nHost: h\r\n\r\n", id);
    make_test("storage.objects.get", "return-503");
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_control_interface),
        RG_TEST(test_what_is_no_retry_test),
        RG_TEST(test_there_is_an_end_to_how_many),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
