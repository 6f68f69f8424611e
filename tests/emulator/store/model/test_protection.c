/* What holds an object back, by itself and by requests. */
#include "emulator/store/model/protection.h"

#include "tests/emulator/driver.h"

static struct rg_attributes *held(const char *hold)
{
    struct rg_text list = {0};
    struct rg_attributes *attributes;
    RG_CHECK_EQ(rg_attributes_set(&list, rg_text_slice(hold), rg_text_slice("true")), 0);
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), 0);
    rg_text_fini(&list);
    return attributes;
}

static void test_holds_and_ages(void)
{
    struct rg_store_object_info object = {.generation = 1000};
    RG_CHECK_EQ(rg_protection_check(0, &object, 1000), 0);
    RG_CHECK_EQ(rg_protection_check(5, &object, 1004), -EPERM);
    RG_CHECK_EQ(rg_protection_check(5, &object, 1005), 0);
    RG_CHECK_EQ(rg_protection_expires_us(5, &object), 1005);
    static const char *const holds[] = {RG_PROTECTION_TEMPORARY_HOLD,
                                        RG_PROTECTION_EVENT_BASED_HOLD};
    for (size_t i = 0; i < RG_ARRAY_LEN(holds); i++) {
        struct rg_attributes *attributes = held(holds[i]);
        object.attributes = attributes;
        RG_CHECK_EQ(rg_protection_check(0, &object, 5000), -EBUSY);
        /* Its age counts from the event. */
        RG_CHECK_EQ(rg_protection_expires_us(5, &object), i == 0 ? 1005 : 0);
        rg_attributes_unref(attributes);
    }
}

/* What cannot be done to an object that is protected, and what it is told with. */
static void check_protected(const char *reason)
{
    static const struct {
        const char *method, *target, *body;
    } rows[] = {
        {"DELETE", "/storage/v1/b/bucket/o/o", ""},
        {"DELETE", "/bucket/o", ""},
        {"PUT", "/bucket/o", "new"},
        {"POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=o", "new"},
        {"POST", "/storage/v1/b/bucket/o/other/rewriteTo/b/bucket/o/o", ""},
        {"POST", "/storage/v1/b/bucket/o/o/moveTo/o/moved", ""},
        {"POST", "/storage/v1/b/bucket/o/o/compose", "{\"sourceObjects\":[{\"name\":\"other\"}]}"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        send_json(rows[i].method, rows[i].target, rows[i].body);
        if (reply.status != 403 || strstr(reply.body.data, reason) == NULL) {
            rg_test_fail(__FILE__, __LINE__, "row %zu: %u %s", i, reply.status, reply.body.data);
        }
    }
    get("/bucket/o");
    RG_CHECK_STR(reply.body.data, "old");
}

static void test_an_object_that_is_held_stays(void)
{
    open_api(NULL, 0);
    send_json("PUT", "/bucket/other", "other");
    send_json("PUT", "/bucket/o", "old");
    send_json("PATCH", "/storage/v1/b/bucket/o/o", "{\"temporaryHold\":true}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"temporaryHold\":true");
    check_protected("nder");
    send_json("PATCH", "/storage/v1/b/bucket/o/o", "{\"temporaryHold\":\"yes\"}");
    RG_CHECK_EQ(reply.status, 400);
    /* A copy is not held. */
    send_json("POST", "/storage/v1/b/bucket/o/o/rewriteTo/b/bucket/o/copy", "");
    check_body_lacks("Hold");
    send_json("PATCH", "/storage/v1/b/bucket/o/o", "{\"temporaryHold\":false}");
    check_body_lacks("Hold");
    send_json("DELETE", "/storage/v1/b/bucket/o/o", "");
    RG_CHECK_EQ(reply.status, 204);
    close_api();
}

static void test_a_bucket_that_holds_what_is_written(void)
{
    open_api(NULL, 0);
    send_json("POST", "/storage/v1/b?project=p",
              "{\"name\":\"bucket\",\"defaultEventBasedHold\":true}");
    RG_CHECK_EQ(reply.status, 200);
    send_json("PUT", "/bucket/o", "old");
    get("/storage/v1/b/bucket/o/o");
    check_body_has("\"eventBasedHold\":true");
    send_json("DELETE", "/bucket/o", "");
    RG_CHECK_EQ(reply.status, 403);
    check_body_has("ObjectUnderActiveHold");
    send_json("PATCH", "/storage/v1/b/bucket/o/o", "{\"eventBasedHold\":null}");
    send_json("DELETE", "/bucket/o", "");
    RG_CHECK_EQ(reply.status, 204);
    close_api();
}

static void test_a_retention_policy(void)
{
    open_api(NULL, 0);
    send_json("PUT", "/bucket/other", "other");
    send_json("PUT", "/bucket/o", "old");
    send_json("PATCH", "/storage/v1/b/bucket", "{\"retentionPolicy\":{\"retentionPeriod\":3600}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"retentionPeriod\":\"3600\"");
    check_body_has("\"isLocked\":false");
    get("/storage/v1/b/bucket/o/o");
    check_body_has("\"retentionExpirationTime\":\"");
    check_protected("etention");
    send_json("PATCH", "/storage/v1/b/bucket", "{\"retentionPolicy\":null}");
    check_body_lacks("retentionPolicy");
    send_json("DELETE", "/storage/v1/b/bucket/o/o", "");
    RG_CHECK_EQ(reply.status, 204);
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_holds_and_ages),
        RG_TEST(test_an_object_that_is_held_stays),
        RG_TEST(test_a_bucket_that_holds_what_is_written),
        RG_TEST(test_a_retention_policy),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
