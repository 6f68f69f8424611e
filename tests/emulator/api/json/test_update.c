/* Descriptions that PATCH and PUT change. */
#include "emulator/api/json/update.h"

#include "tests/emulator/driver.h"

static void change(const char *method, const char *target, const char *json)
{
    rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                   method, target, strlen(json), json);
}

static void test_patch_changes_what_it_names(void)
{
    char generation[32], now[32];
    open_api(NULL, 0);
    put_with_metadata();
    get("/storage/v1/b/bucket/o/o");
    json_member("generation", generation, sizeof(generation));
    change("PATCH", "/storage/v1/b/bucket/o/o",
           "{\"metadata\":{\"one\":null,\"three\":\"drei \xc3\xa4\"},\"cacheControl\":null,"
           "\"contentType\":\"a/b\",\"contentEncoding\":\"gzip\"}");
    RG_CHECK_EQ(reply.status, 200);
    for (int i = 0; i < 2; i++) {
        check_body_has("\"metadata\":{\"two\":\"2\",\"three\":\"drei \xc3\xa4\"}");
        check_body_has("\"contentType\":\"a/b\"");
        check_body_has("\"contentEncoding\":\"gzip\"");
        check_body_has("\"metageneration\":\"2\"");
        check_body_has("\"size\":\"4\"");
        check_body_lacks("cacheControl");
        json_member("generation", now, sizeof(now));
        RG_CHECK_STR(now, generation);
        get("/storage/v1/b/bucket/o/o");
    }
    rg_driver_send(api, &reply,
                   "POST /storage/v1/b/bucket/o/o HTTP/1.1\r\nHost: h\r\n"
                   "X-HTTP-Method-Override: PATCH\r\nContent-Length: 17\r\n\r\n"
                   "{\"metadata\":null}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_lacks("metadata\":");
    check_body_has("\"metageneration\":\"3\"");
    close_api();
}

static void test_put_replaces_the_description(void)
{
    open_api(NULL, 0);
    put_with_metadata();
    change("PUT", "/storage/v1/b/bucket/o/o", "{\"metadata\":{\"x\":\"y\"}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"metadata\":{\"x\":\"y\"}");
    check_body_has("\"contentType\":\"application/octet-stream\"");
    check_body_lacks("cacheControl");
    get("/bucket/o");
    RG_CHECK_STR(reply.body.data, "data");
    close_api();
}

static void test_changes_have_conditions(void)
{
    open_api(NULL, 0);
    put_with_metadata();
    change("PATCH", "/storage/v1/b/bucket/o/o?ifMetagenerationMatch=2", "{}");
    RG_CHECK_EQ(reply.status, 412);
    change("PATCH", "/storage/v1/b/bucket/o/o?ifMetagenerationNotMatch=1", "{}");
    RG_CHECK_EQ(reply.status, 412);
    change("PATCH", "/storage/v1/b/bucket/o/o?ifMetagenerationMatch=1", "{}");
    RG_CHECK_EQ(reply.status, 200);
    change("PATCH", "/storage/v1/b/bucket/o/o?generation=1", "{}");
    RG_CHECK_EQ(reply.status, 404);
    change("PATCH", "/storage/v1/b/bucket/o/other", "{}");
    RG_CHECK_EQ(reply.status, 404);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"metadata\":1}",
                                      "{\"metadata\":{\"a\":1}}",
                                      "{\"cacheControl\":7}",
                                      "{\"contentType\":\"a\\nb\"}",
                                      "{\"contentType\":3}"};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        change("PATCH", "/storage/v1/b/bucket/o/o", bad[i]);
        RG_CHECK_EQ(reply.status, 400);
    }
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_patch_changes_what_it_names),
        RG_TEST(test_put_replaces_the_description),
        RG_TEST(test_changes_have_conditions),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
