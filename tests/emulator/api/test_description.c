/* Metadata of objects: with uploads of every kind, and changed by PATCH and PUT. */
#include "emulator/api/description.h"

#include "tests/emulator/driver.h"

static void change(const char *method, const char *target, const char *json)
{
    rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                   method, target, strlen(json), json);
}

static void put_described(void)
{
    rg_driver_send(api, &reply,
                   "PUT /bucket/o HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
                   "Cache-Control: no-store\r\nx-goog-meta-one: 1\r\nx-goog-meta-Two: 2\r\n"
                   "x-goog-storage-class: NEARLINE\r\nContent-Length: 4\r\n\r\ndata");
    RG_CHECK_EQ(reply.status, 200);
}

static void test_metadata_of_a_put_is_in_every_answer(void)
{
    open_api(NULL, 0);
    put_described();
    get("/bucket/o");
    check_field("x-goog-meta-one", "1");
    check_field("x-goog-meta-two", "2");
    check_field("cache-control", "no-store");
    check_field("x-goog-storage-class", "NEARLINE");
    static const char *const targets[] = {"/storage/v1/b/bucket/o/o", "/storage/v1/b/bucket/o"};
    for (size_t i = 0; i < RG_ARRAY_LEN(targets); i++) {
        get(targets[i]);
        check_body_has("\"metadata\":{\"one\":\"1\",\"two\":\"2\"}");
        check_body_has("\"cacheControl\":\"no-store\"");
        check_body_has("\"storageClass\":\"NEARLINE\"");
        check_body_has("\"metageneration\":\"1\"");
    }
    put_xml("/bucket/plain", "x");
    get("/storage/v1/b/bucket/o/plain");
    check_body_lacks("metadata\":");
    check_body_lacks("cacheControl");
    check_body_has("\"storageClass\":\"STANDARD\"");
    close_api();
}

static void test_access_control_is_told_and_nothing_more(void)
{
    static const char target[] = "/storage/v1/b/bucket/o/o?projection=full";
    static const char upload[] =
        "POST "
        "/upload/storage/v1/b/bucket/o?uploadType=media&name=o&projection=full&predefinedAcl=%s "
        "HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\ndata";
    open_api(NULL, 0);
    rg_driver_send(api, &reply, upload, "publicRead");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"acl\":[{\"entity\":\"user-owner\",\"role\":\"OWNER\"},"
                   "{\"entity\":\"allUsers\",\"role\":\"READER\"}]");
    get("/storage/v1/b/bucket/o/o");
    check_body_lacks("\"acl\"");
    get("/storage/v1/b/bucket/o?projection=full");
    check_body_has("\"entity\":\"allUsers\"");
    change("PATCH", target, "{\"acl\":[ {\"entity\":\"user-x\",\"role\":\"READER\"} ]}");
    check_body_has("\"acl\":[{\"entity\":\"user-x\",\"role\":\"READER\"}]");
    change("PATCH", target, "{\"acl\":3}");
    RG_CHECK_EQ(reply.status, 400);
    change("PATCH", "/storage/v1/b/bucket/o/o?projection=full&predefinedAcl=private",
           "{\"acl\":[]}");
    check_body_has("\"acl\":[{\"entity\":\"user-owner\",\"role\":\"OWNER\"}]");
    rg_driver_send(api, &reply, upload, "nobodyKnows");
    RG_CHECK_EQ(reply.status, 400);
    /* It is not copied, but a copy may have its own. */
    change("POST", "/storage/v1/b/bucket/o/o/copyTo/b/bucket/o/p?projection=full", "");
    RG_CHECK_EQ(reply.status, 200);
    check_body_lacks("\"acl\"");
    change("POST",
           "/storage/v1/b/bucket/o/o/copyTo/b/bucket/o/p?projection=full"
           "&destinationPredefinedAcl=bucketOwnerRead",
           "");
    check_body_has("\"entity\":\"project-owners-0\",\"role\":\"READER\"");
    rg_driver_send(api, &reply,
                   "PUT /bucket/x HTTP/1.1\r\nHost: h\r\nx-goog-acl: authenticated-read\r\n"
                   "Content-Length: 0\r\n\r\n");
    RG_CHECK_EQ(reply.status, 200);
    get("/storage/v1/b/bucket/o/x?projection=full");
    check_body_has("allAuthenticatedUsers");
    get("/bucket/x");
    check_field("acl", "(none)");
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_metadata_of_a_put_is_in_every_answer),
        RG_TEST(test_access_control_is_told_and_nothing_more),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
