/* What the service would do and the emulator does not is refused. */
#include "emulator/api/unsupported.h"

#include "tests/emulator/driver.h"

static void test_parameters_and_fields_that_mean_something(void)
{
    static const struct {
        const char *target, *fields;
        unsigned status;
    } rows[] = {
        {"/bucket/o?response-content-type=x", "", 501},
        {"/bucket/o?versionId=1", "", 501},
        {"/bucket?acl", "", 501},
        {"/bucket?lifecycle", "", 501},
        {"/bucket?versions", "", 501},
        {"/storage/v1/b/bucket/o/o?kmsKeyName=k", "", 501},
        {"/storage/v1/b/bucket/o/o?overrideUnlockedRetention=false", "", 200},
        {"/storage/v1/b/bucket/o/o", "If-Modified-Since: x\r\n", 501},
        {"/bucket/o", "If-Range: x\r\n", 501},
        {"/bucket/o", "x-goog-encryption-kms-key-name: k\r\n", 501},
        /* What clients add of their own means nothing. */
        {"/bucket/o?neverheard=of&acls", "X-Neverheard: of\r\n", 200},
        {"/storage/v1/b/bucket/o/o?prettyPrint=false&key=k&acl&alt=json", "", 200},
    };
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        rg_driver_send(api, &reply, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", rows[i].target,
                       rows[i].fields);
        if (reply.status != rows[i].status) {
            rg_test_fail(__FILE__, __LINE__, "%s %s: %u", rows[i].target, rows[i].fields,
                         reply.status);
        }
    }
    close_api();
}

static void test_a_bucket_in_xml(void)
{
    open_api(NULL, 0);
    send_json("PUT", "/new-bucket", "<CreateBucketConfiguration/>");
    RG_CHECK_EQ(reply.status, 501);
    get("/new-bucket");
    RG_CHECK_EQ(reply.status, 404);
    send_json("PUT", "/new-bucket", "");
    RG_CHECK_EQ(reply.status, 200);
    close_api();
}

static void test_members_of_objects_that_mean_something(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    send_json("PATCH", "/storage/v1/b/bucket/o/o", "{\"retention\":{\"mode\":\"Locked\"}}");
    RG_CHECK_EQ(reply.status, 501);
    check_body_has("retention");
    send_json("PATCH", "/storage/v1/b/bucket/o/o", "{\"retention\":null,\"kmsKeyName\":null}");
    RG_CHECK_EQ(reply.status, 200);
    get("/storage/v1/b/bucket/o/o");
    send_json("POST", "/storage/v1/b/bucket/o/o/rewriteTo/b/bucket/o/p",
              "{\"id\":\"x\",\"etag\":\"y\"}");
    RG_CHECK_EQ(reply.status, 200);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_parameters_and_fields_that_mean_something),
        RG_TEST(test_a_bucket_in_xml),
        RG_TEST(test_members_of_objects_that_mean_something),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
