/* What may be said of a bucket, and what comes of it. */
#include "emulator/api/json/bucket_description.h"

#include "tests/emulator/driver.h"

#define BUCKET "/storage/v1/b/bucket"

static void create(const char *members)
{
    char json[1024];
    snprintf(json, sizeof(json), "{\"name\":\"bucket\"%s%s}", members[0] != '\0' ? "," : "",
             members);
    send_json("POST", "/storage/v1/b?project=p", json);
}

static void test_settings_are_kept_and_merged(void)
{
    open_api(NULL, 0);
    create("\"location\":\"eu\",\"labels\":{\"a\":\"1\",\"b\":\"2\"},\"lifecycle\":{\"rule\":[]},"
           "\"website\":{\"mainPageSuffix\":\"i\"},\"etag\":\"passed over\"");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"labels\":{\"a\":\"1\",\"b\":\"2\"}");
    check_body_has("\"metageneration\":\"1\"");
    check_body_has("\"etag\":\"CAE=\"");
    check_body_has("\"location\":\"EU\"");
    send_json("PATCH", BUCKET, "{\"labels\":{\"a\":null,\"c\":\"3\"},\"website\":null}");
    check_body_has("\"labels\":{\"b\":\"2\",\"c\":\"3\"}");
    check_body_has("\"lifecycle\"");
    check_body_lacks("website");
    send_json("PUT", BUCKET, "{\"labels\":{}}");
    check_body_has("\"labels\":{}");
    check_body_lacks("lifecycle");
    close_api();
}

static void test_what_is_refused(void)
{
    static const struct {
        const char *members;
        unsigned status;
    } rows[] = {
        {"\"labels\":[]", 400},
        {"\"labels\":{\"a\":1}", 400},
        {"\"billing\":{\"requesterPays\":\"yes\"}", 400},
        {"\"cors\":{}", 400},
        {"\"defaultEventBasedHold\":1", 400},
        {"\"rpo\":\"x\"", 400},
        {"\"autoclass\":{\"enabled\":true,\"terminalStorageClass\":\"x\"}", 400},
        {"\"retentionPolicy\":{\"retentionPeriod\":0}", 400},
        {"\"retentionPolicy\":{\"retentionPeriod\":\"x\"}", 400},
        {"\"retentionPolicy\":{}", 400},
        {"\"softDeletePolicy\":{\"retentionDurationSeconds\":5}", 400},
        {"\"iamConfiguration\":{\"publicAccessPrevention\":\"x\"}", 400},
        {"\"hierarchicalNamespace\":{\"enabled\":true}", 400},
        {"\"encryption\":{\"googleManagedEncryptionEnforcementConfig\":{\"restrictionMode\":1}}",
         400},
        {"\"encryption\":{\"defaultKmsKeyName\":\"k\"}", 501},
        {"\"ipFilter\":{\"mode\":\"Enabled\"}", 501},
        {"\"neverHeardOf\":{}", 501},
    };
    open_api(NULL, 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        create(rows[i].members);
        if (reply.status != rows[i].status) {
            rg_test_fail(__FILE__, __LINE__, "%s: %u %s", rows[i].members, reply.status,
                         reply.body.data);
        }
    }
    get(BUCKET);
    RG_CHECK_EQ(reply.status, 404); /* Nothing was made of it. */
    close_api();
}

static void test_times_since_when_something_holds(void)
{
    char first[64], second[64];
    open_api(NULL, 0);
    create("\"autoclass\":{\"enabled\":true}");
    check_body_has("\"terminalStorageClass\":\"NEARLINE\"");
    json_member("toggleTime", first, sizeof(first));
    send_json("PATCH", BUCKET, "{\"labels\":{}}");
    json_member("toggleTime", second, sizeof(second));
    RG_CHECK_STR(second, first);
    send_json("PATCH", BUCKET, "{\"autoclass\":{\"enabled\":false}}");
    json_member("toggleTime", second, sizeof(second));
    RG_CHECK(strcmp(second, first) != 0);
    send_json("PATCH", BUCKET,
              "{\"autoclass\":null,\"encryption\":{\"googleManagedEncryptionEnforcementConfig\":"
              "{\"restrictionMode\":\"FullyRestricted\"}}}");
    json_member("effectiveTime", first, sizeof(first));
    send_json("PATCH", BUCKET,
              "{\"encryption\":{\"googleManagedEncryptionEnforcementConfig\":"
              "{\"restrictionMode\":\"NotRestricted\"}}}");
    check_body_lacks("effectiveTime");
    close_api();
}

static void test_a_lock_is_for_good(void)
{
    open_api(NULL, 0);
    create("");
    send_json("POST", BUCKET "/lockRetentionPolicy?ifMetagenerationMatch=1", "");
    RG_CHECK_EQ(reply.status, 400);
    send_json("PATCH", BUCKET, "{\"retentionPolicy\":{\"retentionPeriod\":\"10\"}}");
    send_json("POST", BUCKET "/lockRetentionPolicy", "");
    RG_CHECK_EQ(reply.status, 400);
    send_json("POST", BUCKET "/lockRetentionPolicy?ifMetagenerationMatch=1", "");
    RG_CHECK_EQ(reply.status, 412);
    send_json("POST", BUCKET "/lockRetentionPolicy?ifMetagenerationMatch=2", "");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"isLocked\":true");
    static const char *const shorter[] = {"{\"retentionPolicy\":null}",
                                          "{\"retentionPolicy\":{\"retentionPeriod\":9}}"};
    for (size_t i = 0; i < RG_ARRAY_LEN(shorter); i++) {
        send_json("PATCH", BUCKET, shorter[i]);
        RG_CHECK_EQ(reply.status, 403);
    }
    send_json("PUT", BUCKET, "{}");
    RG_CHECK_EQ(reply.status, 403);
    send_json("PATCH", BUCKET, "{\"retentionPolicy\":{\"retentionPeriod\":11,\"isLocked\":false}}");
    RG_CHECK_EQ(reply.status, 200);
    check_body_has("\"isLocked\":true");
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_settings_are_kept_and_merged),
        RG_TEST(test_what_is_refused),
        RG_TEST(test_times_since_when_something_holds),
        RG_TEST(test_a_lock_is_for_good),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
