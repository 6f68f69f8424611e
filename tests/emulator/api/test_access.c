/* Access control lists, which are told and nothing more. */
#include "emulator/api/access.h"

#include "tests/emulator/driver.h"

static void change(const char *method, const char *target, const char *json)
{
    rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                   method, target, strlen(json), json);
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
        RG_TEST(test_access_control_is_told_and_nothing_more),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
