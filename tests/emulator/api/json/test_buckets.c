/* Routes of buckets, and what their settings demand of requests. */
#include "emulator/api/json/buckets.h"

#include "tests/emulator/driver.h"

#define BUCKET "/storage/v1/b/bucket"

static void test_the_requester_pays(void)
{
    static const char *const targets[] = {BUCKET,        BUCKET "/o",
                                          BUCKET "/o/o", BUCKET "/o/o?alt=media",
                                          "/bucket/o",   "/bucket?list-type=2"};
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    send_json("PATCH", BUCKET, "{\"billing\":{\"requesterPays\":true}}");
    RG_CHECK_EQ(reply.status, 200);
    for (size_t i = 0; i < RG_ARRAY_LEN(targets); i++) {
        char target[128];
        get(targets[i]);
        RG_CHECK_EQ(reply.status, 400);
        check_body_has("no user project provided");
        snprintf(target, sizeof(target), "%s%suserProject=p", targets[i],
                 strchr(targets[i], '?') != NULL ? "&" : "?");
        get(target);
        RG_CHECK_EQ(reply.status, 200);
        rg_driver_send(api, &reply, "GET %s HTTP/1.1\r\nHost: h\r\nx-goog-user-project: p\r\n\r\n",
                       targets[i]);
        RG_CHECK_EQ(reply.status, 200);
    }
    static const struct {
        const char *method, *target, *body;
    } writes[] = {
        {"POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=p", "x"},
        {"POST", "/upload/storage/v1/b/bucket/o?uploadType=resumable&name=p", ""},
        {"PUT", "/bucket/p", "x"},
        {"DELETE", BUCKET "/o/o", ""},
        {"POST", BUCKET "/o/o/rewriteTo/b/other-bucket/o/p", ""},
        {"POST", BUCKET "/o/p/compose", "{\"sourceObjects\":[{\"name\":\"o\"}]}"},
    };
    send_json("POST", "/storage/v1/b?project=p", "{\"name\":\"other-bucket\"}");
    for (size_t i = 0; i < RG_ARRAY_LEN(writes); i++) {
        send_json(writes[i].method, writes[i].target, writes[i].body);
        if (reply.status != 400) {
            rg_test_fail(__FILE__, __LINE__, "row %zu: %u", i, reply.status);
        }
    }
    send_json("PATCH", BUCKET "?userProject=p", "{\"billing\":{\"requesterPays\":false}}");
    get("/bucket/o");
    RG_CHECK_EQ(reply.status, 200);
    close_api();
}

static void test_public_access_is_prevented(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    send_json("PATCH", BUCKET, "{\"iamConfiguration\":{\"publicAccessPrevention\":\"enforced\"}}");
    check_body_has("\"publicAccessPrevention\":\"enforced\"");
    static const struct {
        const char *method, *target, *body;
    } rows[] = {
        {"PATCH", BUCKET, "{\"acl\":[{\"entity\":\"allUsers\",\"role\":\"READER\"}]}"},
        {"PATCH", BUCKET, "{\"defaultObjectAcl\":[{\"entity\":\"allAuthenticatedUsers\"}]}"},
        {"PATCH", BUCKET "/o/o", "{\"acl\":[{\"entity\":\"allUsers\",\"role\":\"READER\"}]}"},
        {"POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=p&predefinedAcl=publicRead",
         "x"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        send_json(rows[i].method, rows[i].target, rows[i].body);
        RG_CHECK_EQ(reply.status, 412);
    }
    send_json("PATCH", BUCKET "/o/o", "{\"acl\":[{\"entity\":\"user-a\",\"role\":\"READER\"}]}");
    RG_CHECK_EQ(reply.status, 200);
    close_api();
}

static void test_access_is_uniform_or_listed(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    static const char *const lists[] = {BUCKET "/acl", BUCKET "/defaultObjectAcl",
                                        BUCKET "/o/o/acl"};
    for (size_t i = 0; i < RG_ARRAY_LEN(lists); i++) {
        get(lists[i]);
        RG_CHECK_EQ(reply.status, 200);
        check_body_has("\"role\":\"OWNER\"");
        send_json("POST", lists[i], "{}");
        RG_CHECK_EQ(reply.status, 501);
    }
    send_json("PATCH", BUCKET, "{\"acl\":[{\"entity\":\"user-a\",\"role\":\"READER\"}]}");
    get(lists[0]);
    check_body_has("user-a");
    send_json("PATCH", BUCKET,
              "{\"iamConfiguration\":{\"uniformBucketLevelAccess\":{\"enabled\":true}}}");
    for (size_t i = 0; i < RG_ARRAY_LEN(lists); i++) {
        get(lists[i]);
        RG_CHECK_EQ(reply.status, 400);
    }
    send_json("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=p&predefinedAcl=private",
              "x");
    RG_CHECK_EQ(reply.status, 400);
    /* An object whose name ends so is another thing. */
    put_xml("/bucket/o%2Facl", "named");
    get("/storage/v1/b/bucket/o/o%2Facl?alt=media");
    RG_CHECK_STR(reply.body.data, "named");
    close_api();
}

static void test_parts_and_methods_that_are_not_there(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    static const struct {
        const char *method, *target;
        unsigned status;
    } rows[] = {
        {"GET", BUCKET "/iam", 501},
        {"POST", BUCKET "/managedFolders", 501},
        {"GET", BUCKET "/notificationConfigs", 501},
        {"POST", BUCKET, 405},
        {"DELETE", "/storage/v1/b", 405},
        {"POST", "/storage/v1/b?project=p&enableObjectRetention=true", 501},
        {"GET", BUCKET "?softDeleted=true", 501},
        {"GET", BUCKET "/storageLayout", 200},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        send_json(rows[i].method, rows[i].target, "");
        if (reply.status != rows[i].status) {
            rg_test_fail(__FILE__, __LINE__, "%s %s: %u", rows[i].method, rows[i].target,
                         reply.status);
        }
    }
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_requester_pays),
        RG_TEST(test_public_access_is_prevented),
        RG_TEST(test_access_is_uniform_or_listed),
        RG_TEST(test_parts_and_methods_that_are_not_there),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
