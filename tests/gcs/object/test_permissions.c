/* Which permissions are granted. */
#include "tests/support/client.h"
#include "tests/support/test.h"

static void test_granted_and_not(void)
{
    const struct rg_step script[] = {
        RG_READ,
        RG_SEND(rg_test_answer("200 OK", "{\"kind\":\"storage#testIamPermissionsResponse\","
                                         "\"permissions\":[\"storage.objects.list\"]}")),
        RG_READ,
        RG_SEND(rg_test_answer("503 Busy", "")),
        RG_READ,
        RG_SEND(rg_test_answer("200 OK", "{}")),
        RG_END};
    const struct rg_step *const scripts[] = {script};
    static const char *const names[] = {"storage.objects.get", "storage.objects.list"};
    struct rg_test_permissions test = {.bucket = "bucket", .permissions = names, .count = 2};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    for (unsigned i = 0; i < 2; i++) {
        RG_CHECK_EQ(rg_submit_test_permissions(c.client, c.cq, &test), 0);
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, OK);
        const bool *granted = done.data;
        RG_CHECK_EQ(done.size, 2 * sizeof(*granted));
        RG_CHECK(!granted[0] && granted[1] == (i == 0));
        rg_lease_release(done.lease);
    }
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 0),
                      "GET /storage/v1/b/bucket/iam/testPermissions?permissions=storage.objects.get"
                      "&permissions=storage.objects.list HTTP/1.1\r\n");
    rg_test_client_close(&c);
}

static void test_as_many_as_there_may_be(void)
{
    const struct rg_step script[] = {RG_READ, RG_SEND(rg_test_answer("200 OK", "{}")), RG_END};
    const struct rg_step *const scripts[] = {script};
    static char name[101];
    const char *names[RG_PERMISSIONS_MAX];
    memset(name, 'x', sizeof(name) - 1);
    for (unsigned i = 0; i < RG_PERMISSIONS_MAX; i++) {
        names[i] = name;
    }
    struct rg_test_permissions test = {
        .bucket = "bucket", .permissions = names, .count = RG_PERMISSIONS_MAX};
    struct rg_test_client c = {.scripts = scripts, .script_count = 1};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_submit_test_permissions(c.client, c.cq, &test), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.size, RG_PERMISSIONS_MAX);
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_what_cannot_be_asked(void)
{
    static char name[102];
    memset(name, 'x', sizeof(name) - 1);
    static const char *const good[] = {"a"}, *const empty[] = {""}, *const none[] = {NULL},
                             *const longish[] = {name};
    static const struct rg_test_permissions rows[] = {
        {.bucket = "bucket", .permissions = good},
        {.permissions = good, .count = 1},
        {.bucket = "bucket", .permissions = good, .count = RG_PERMISSIONS_MAX + 1},
        {.bucket = "bucket", .permissions = empty, .count = 1},
        {.bucket = "bucket", .permissions = none, .count = 1},
        {.bucket = "bucket", .permissions = longish, .count = 1},
    };
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_submit_test_permissions(c.client, c.cq, &rows[i]), -EINVAL);
    }
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_granted_and_not),
        RG_TEST(test_as_many_as_there_may_be),
        RG_TEST(test_what_cannot_be_asked),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
