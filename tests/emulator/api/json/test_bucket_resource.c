/* Buckets and folders as JSON resources: what is told of each, and where it lies. */
#include "emulator/api/json/bucket_resource.h"

#include "tests/emulator/driver.h"

static void make_bucket(const char *json)
{
    rg_driver_send(
        api, &reply,
        "POST /storage/v1/b?project=p HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
        strlen(json), json);
    RG_CHECK_EQ(reply.status, 200);
}

static void test_a_bucket_is_told_with_its_place(void)
{
    static const struct {
        const char *location, *type;
        bool has_rpo; /* Only what lies in several regions is replicated. */
    } rows[] = {
        {"US", "multi-region", true},
        {"EU", "multi-region", true},
        {"NAM4", "dual-region", true},
        {"EUROPE-WEST3", "region", false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char json[128];
        open_api(NULL, 0);
        snprintf(json, sizeof(json), "{\"name\":\"bucket\",\"location\":\"%s\"}", rows[i].location);
        make_bucket(json);
        for (int again = 0; again < 2; again++) {
            snprintf(json, sizeof(json), "\"locationType\":\"%s\"", rows[i].type);
            check_body_has(json);
            snprintf(json, sizeof(json), "\"location\":\"%s\"", rows[i].location);
            check_body_has(json);
            if (rows[i].has_rpo) {
                check_body_has("\"rpo\":\"DEFAULT\"");
            } else {
                check_body_lacks("\"rpo\"");
            }
            get("/storage/v1/b/bucket");
        }
        close_api();
    }
}

static void test_a_bucket_is_told_with_its_first_generation(void)
{
    open_api(NULL, 0);
    make_bucket("{\"name\":\"bucket\"}");
    check_body_has("\"kind\":\"storage#bucket\",\"id\":\"bucket\",\"name\":\"bucket\"");
    check_body_has("\"selfLink\":\"https://h/storage/v1/b/bucket\"");
    check_body_has("\"metageneration\":\"1\"");
    check_body_has("\"etag\":\"CAE=\""); /* Field 1 is 1. */
    check_body_has("\"uniformBucketLevelAccess\":{\"enabled\":false}");
    check_body_lacks("\"versioning\"");
    close_api();
}

static void test_a_folder_is_told_with_its_escaped_link(void)
{
    struct rg_text text = {0};
    struct rg_resource_style style;
    const struct rg_folder_info info = {.metageneration = 3};
    rg_resource_style_init(&style, true, NULL, (struct rg_h1_slice){NULL, 0}, NULL);
    rg_resource_append_folder(&text, &style, rg_text_slice("bucket"), rg_text_slice("a b/c\"/"),
                              &info);
    rg_text_append(&text, "", 1);
    RG_CHECK_STR(text.data,
                 "\"kind\":\"storage#folder\",\"id\":\"bucket/a b/c\\\"/\",\"selfLink\":"
                 "\"https://localhost/storage/v1/b/bucket/folders/a%20b%2Fc%22%2F\","
                 "\"name\":\"a b/c\\\"/\",\"bucket\":\"bucket\",\"metageneration\":\"3\","
                 "\"createTime\":\"1970-01-01T00:00:00.000Z\","
                 "\"updateTime\":\"1970-01-01T00:00:00.000Z\"");
    rg_text_fini(&text);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_bucket_is_told_with_its_place),
        RG_TEST(test_a_bucket_is_told_with_its_first_generation),
        RG_TEST(test_a_folder_is_told_with_its_escaped_link),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
