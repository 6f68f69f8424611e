/* Contexts of objects, and listings that are filtered by them. */
#include "emulator/api/contexts.h"

#include "tests/emulator/driver.h"

#define OBJECT "/storage/v1/b/bucket/o/o"

static void check_names(const char *filter, const char *names)
{
    char target[256];
    snprintf(target, sizeof(target), "/storage/v1/b/bucket/o?fields=items/name&filter=%s", filter);
    get(target);
    RG_CHECK_EQ(reply.status, 200);
    RG_CHECK_STR(reply.body.data, names);
}

static void test_contexts_are_set_changed_and_removed(void)
{
    char created[64], updated[64];
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    send_json("PATCH", OBJECT,
              "{\"contexts\":{\"custom\":{\"a b\":{\"value\":\"1 2\"},\"c\":"
              "{\"value\":\"\"}}}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"contexts\":{\"custom\":{\"a b\":{\"value\":\"1 2\",\"createTime\":");
    json_member("createTime", created, sizeof(created));
    send_json("PATCH", OBJECT,
              "{\"contexts\":{\"custom\":{\"a b\":{\"value\":\"3\"},\"c\":null}}}");
    check_body_has("\"a b\":{\"value\":\"3\"");
    check_body_lacks("\"c\":{");
    json_member("createTime", updated, sizeof(updated));
    RG_CHECK_STR(updated, created);
    /* A copy has them, unless others are named for it. */
    send_json("POST", OBJECT "/rewriteTo/b/bucket/o/p", "");
    check_body_has("\"a b\":{\"value\":\"3\"");
    send_json("POST", OBJECT "/rewriteTo/b/bucket/o/p",
              "{\"contexts\":{\"custom\":{\"d\":{\"value\":\"4\"}}}}");
    check_body_has("\"d\":{\"value\":\"4\"");
    check_body_lacks("\"a b\"");
    send_json("PATCH", OBJECT, "{\"contexts\":null}");
    check_body_lacks("contexts");
    close_api();
}

static void test_contexts_that_are_refused(void)
{
    static const char *const bad[] = {
        "3", "{\"custom\":[]}", "{\"custom\":{\"\":{\"value\":\"1\"}}}",
        "{\"custom\":{\"a\":{\"value\":1}}}", "{\"custom\":{\"a\":{}}}"};
    char json[8192], *at = json;
    open_api(NULL, 0);
    put_xml("/bucket/o", "x");
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        snprintf(json, sizeof(json), "{\"contexts\":%s}", bad[i]);
        send_json("PATCH", OBJECT, json);
        RG_CHECK_EQ(reply.status, 400);
    }
    at += sprintf(at, "{\"contexts\":{\"custom\":{");
    for (int i = 0; i <= RG_CONTEXTS_MAX; i++) {
        at += sprintf(at, "%s\"k%d\":{\"value\":\"v\"}", i > 0 ? "," : "", i);
    }
    sprintf(at, "}}}");
    send_json("PATCH", OBJECT, json);
    RG_CHECK_EQ(reply.status, 400);
    check_body_has("at most 50");
    close_api();
}

static void test_listings_are_filtered(void)
{
    open_api(NULL, 0);
    put_xml("/bucket/none", "x");
    put_xml("/bucket/o", "x");
    put_xml("/bucket/p", "x");
    send_json("PATCH", OBJECT, "{\"contexts\":{\"custom\":{\"k\":{\"value\":\"v\"}}}}");
    send_json("PATCH", "/storage/v1/b/bucket/o/p",
              "{\"contexts\":{\"custom\":{\"k\":{\"value\":\"w\"}}}}");
    check_names("contexts.%22k%22=%22v%22", "{\"items\":[{\"name\":\"o\"}]}");
    check_names("contexts.%22k%22:*", "{\"items\":[{\"name\":\"o\"},{\"name\":\"p\"}]}");
    check_names("-contexts.%22k%22=%22v%22", "{\"items\":[{\"name\":\"none\"},{\"name\":\"p\"}]}");
    check_names("-contexts.%22k%22:*", "{\"items\":[{\"name\":\"none\"}]}");
    static const char *const bad[] = {"x",
                                      "contexts.k:*",
                                      "contexts.%22k%22",
                                      "contexts.%22k%22=v",
                                      "contexts.%22k%22:*x",
                                      "contexts.%22k%5C%22:*"};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        char target[256];
        snprintf(target, sizeof(target), "/storage/v1/b/bucket/o?filter=%s", bad[i]);
        get(target);
        RG_CHECK_EQ(reply.status, 400);
    }
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_contexts_are_set_changed_and_removed),
        RG_TEST(test_contexts_that_are_refused),
        RG_TEST(test_listings_are_filtered),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
