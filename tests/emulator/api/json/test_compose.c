/* Objects out of objects. */
#include "emulator/api/json/compose.h"

#include "emulator/wire/checksum.h"
#include "tests/emulator/driver.h"

static void compose(const char *target, const char *json)
{
    rg_driver_send(api, &reply, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                   target, strlen(json), json);
}

static void check_object(const char *path, const char *text)
{
    char hash[32] = "crc32c=";
    rg_reply_format_crc32c(hash + 7, rg_checksum_extend(0, text, strlen(text)));
    get(path);
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_STR(reply.body.data, text);
    check_field("x-goog-hash", hash);
}

static void test_sources_are_joined_in_their_order(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a", "one ");
    put_xml("/bucket/b", "two ");
    put_xml("/bucket/c", "");
    compose(
        "/storage/v1/b/bucket/o/x%2Fy/compose?ifGenerationMatch=0",
        "{\"sourceObjects\":[{\"name\":\"a\"},{\"name\":\"c\"},{\"name\":\"b\"},{\"name\":\"a\"}"
        "],\"destination\":{\"contentType\":\"t/x\",\"metadata\":{\"k\":\"v\"}}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"name\":\"x/y\"");
    check_body_has("\"componentCount\":4");
    check_body_has("\"contentType\":\"t/x\"");
    check_body_has("\"metadata\":{\"k\":\"v\"}");
    check_object("/bucket/x/y", "one two one ");
    check_field("x-goog-component-count", "4");
    /* A composite one as a source, and onto one of the sources. */
    compose("/storage/v1/b/bucket/o/a/compose",
            "{\"sourceObjects\":[{\"name\":\"a\"},{\"name\":\"x/y\"}]}");
    check_body_has("\"componentCount\":5");
    check_object("/bucket/a", "one one two one ");
    close_api();
}

static void test_parts_have_one_storage_class(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a", "one ");
    compose("/storage/v1/b/bucket/o/a/rewriteTo/b/bucket/o/b", "{\"storageClass\":\"NEARLINE\"}");
    compose("/storage/v1/b/bucket/o/x/compose",
            "{\"sourceObjects\":[{\"name\":\"a\"},{\"name\":\"b\"}]}");
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("destination storage class STANDARD from source components that have different "
                   "storage classes (NEARLINE)");
    compose("/storage/v1/b/bucket/o/x/compose", "{\"sourceObjects\":[{\"name\":\"b\"}],"
                                                "\"destination\":{\"storageClass\":\"NEARLINE\"}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"storageClass\":\"NEARLINE\"");
    close_api();
}

static void test_a_composite_object_has_no_md5(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a", "one ");
    /* Not even one of a single source, and what is said of its MD5 is not looked at. */
    compose("/storage/v1/b/bucket/o/x/compose",
            "{\"sourceObjects\":[{\"name\":\"a\"}],"
            "\"destination\":{\"md5Hash\":\"1B2M2Y8AsgTpgAmY7PhCfg==\"}}");
    RG_CHECK_EQ(reply.status, 200);
    check_md5("x", NULL);
    compose("/storage/v1/b/bucket/o/x/rewriteTo/b/bucket/o/y", "");
    check_body_has("\"componentCount\":1");
    check_md5("y", NULL);
    close_api();
}

static void test_the_resource_that_is_replaced_describes_no_bytes(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a", "one ");
    compose("/storage/v1/b/bucket/o/a/compose",
            "{\"sourceObjects\":[{\"name\":\"a\"}],\"destination\":{\"name\":\"other\",\"crc32c\":"
            "\"AAAAAA==\",\"size\":\"7\",\"contentLanguage\":\"de\"}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"name\":\"a\"");
    check_body_has("\"contentLanguage\":\"de\"");
    check_body_lacks("contentType");
    get("/storage/v1/b/bucket/o/a");
    check_body_lacks("contentType");
    check_object("/bucket/a", "one ");
    check_field("content-type", "application/octet-stream");
    close_api();
}

static void test_conditions_and_generations_of_compose(void)
{
    char generation[32], json[512];
    open_api(NULL, 0);
    put_xml("/bucket/a", "one");
    get("/storage/v1/b/bucket/o/a");
    json_member("generation", generation, sizeof(generation));
    snprintf(json, sizeof(json),
             "{\"sourceObjects\":[{\"name\":\"a\",\"generation\":\"%s\",\"objectPreconditions\":"
             "{\"ifGenerationMatch\":\"%s\"}}]}",
             generation, generation);
    compose("/storage/v1/b/bucket/o/x/compose?ifGenerationMatch=0", json);
    RG_CHECK_EQ(reply.status, 200);
    compose("/storage/v1/b/bucket/o/x/compose?ifGenerationMatch=0", json);
    RG_CHECK_EQ(reply.status, 412);
    compose("/storage/v1/b/bucket/o/x/compose",
            "{\"sourceObjects\":[{\"name\":\"a\",\"objectPreconditions\":"
            "{\"ifGenerationMatch\":5}}]}");
    RG_CHECK_EQ(reply.status, 412);
    compose("/storage/v1/b/bucket/o/x/compose",
            "{\"sourceObjects\":[{\"name\":\"a\",\"generation\":5}]}");
    RG_CHECK_EQ(reply.status, 404);
    check_object("/bucket/x", "one");
    close_api();
}

static void test_what_cannot_be_composed(void)
{
    static const struct {
        const char *json, *message;
        unsigned status;
    } rows[] = {
        {"", "at least one", 400},
        {"{\"sourceObjects\":[]}", "at least one", 400},
        {"{\"sourceObjects\":[{}]}", "not well described", 400},
        {"{\"sourceObjects\":[{\"name\":\"none\"}]}", "bucket/none", 404},
        {"{\"sourceObjects\":[{\"name\":\"a\",\"generation\":\"x\"}]}", "not well", 400},
        {"{\"sourceObjects\":[{\"name\":\"a\"}],\"destination\":3}", "JSON", 400},
    };
    char many[2048] = "{\"sourceObjects\":[";
    open_api(NULL, 0);
    put_xml("/bucket/a", "one");
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        compose("/storage/v1/b/bucket/o/x/compose", rows[i].json);
        RG_CHECK_EQ(reply.status, rows[i].status);
        check_body_has(rows[i].message);
    }
    for (int i = 0; i < 33; i++) {
        strcat(many, i > 0 ? ",{\"name\":\"a\"}" : "{\"name\":\"a\"}");
    }
    strcat(many, "]}");
    compose("/storage/v1/b/bucket/o/x/compose", many);
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("exceeds the maximum (32)");
    compose("/storage/v1/b/absent-bucket/o/x/compose", rows[3].json);
    RG_CHECK_EQ(reply.status, 404);
    get("/bucket/x");
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_sources_may_be_deleted(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/a", "one ");
    put_xml("/bucket/b", "two");
    compose("/storage/v1/b/bucket/o/a/compose?deleteSourceObjects=true",
            "{\"sourceObjects\":[{\"name\":\"a\"},{\"name\":\"b\"}]}");
    RG_CHECK_EQ(reply.status, 200);
    check_object("/bucket/a", "one two"); /* The version that was read is gone, not this. */
    get("/bucket/b");
    RG_CHECK_EQ(reply.status, 404);
    close_api();
}

static void test_synthetic_objects_are_composed_too(void)
{
    static const char *const sets[] = {"bucket/s-:2:1000"};
    open_api(sets, 1);
    compose("/storage/v1/b/bucket/o/x/compose",
            "{\"sourceObjects\":[{\"name\":\"s-00000000\"},{\"name\":\"s-00000001\"}]}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"size\":\"2000\"");
    get("/bucket/x");
    RG_CHECK_EQ(reply.body.size, 2000);
    char hash[32] = "crc32c=";
    rg_reply_format_crc32c(hash + 7, rg_checksum_extend(0, reply.body.data, 2000));
    check_field("x-goog-hash", hash);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sources_are_joined_in_their_order),
        RG_TEST(test_parts_have_one_storage_class),
        RG_TEST(test_a_composite_object_has_no_md5),
        RG_TEST(test_the_resource_that_is_replaced_describes_no_bytes),
        RG_TEST(test_conditions_and_generations_of_compose),
        RG_TEST(test_what_cannot_be_composed),
        RG_TEST(test_sources_may_be_deleted),
        RG_TEST(test_synthetic_objects_are_composed_too),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
