/* Every request of both APIs has its name. */
#include "emulator/request/method.h"
#include "tests/support/test.h"

static enum rg_method method_of(const char *verb, const char *target)
{
    static struct rg_api_request request;
    struct rg_h1_head head;
    char text[512];
    int size = snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: h\r\n\r\n", verb, target);
    RG_CHECK_EQ(rg_h1_parse_request(&head, text, (size_t)size, 0), size);
    RG_CHECK_EQ(rg_api_request_parse(&request, &head), 0);
    return rg_method_of(&request);
}

static void test_requests_and_their_methods(void)
{
    static const struct {
        const char *method, *target, *name;
    } rows[] = {
        {"GET", "/storage/v1/b", "storage.buckets.list"},
        {"POST", "/storage/v1/b", "storage.buckets.insert"},
        {"GET", "/storage/v1/b/bucket", "storage.buckets.get"},
        {"DELETE", "/storage/v1/b/bucket", "storage.buckets.delete"},
        {"PATCH", "/storage/v1/b/bucket", "storage.buckets.patch"},
        {"PUT", "/storage/v1/b/bucket", "storage.buckets.update"},
        {"GET", "/storage/v1/b/bucket/iam", "storage.buckets.getIamPolicy"},
        {"PUT", "/storage/v1/b/bucket/iam", "storage.buckets.setIamPolicy"},
        {"GET", "/storage/v1/b/bucket/iam/testPermissions", "storage.buckets.testIamPermissions"},
        {"POST", "/storage/v1/b/bucket/lockRetentionPolicy", "storage.buckets.lockRetentionPolicy"},
        {"GET", "/storage/v1/b/bucket/storageLayout", "storage.buckets.getStorageLayout"},
        {"GET", "/storage/v1/b/bucket/o?prefix=x", "storage.objects.list"},
        {"GET", "/storage/v1/b/bucket/o/x", "storage.objects.get"},
        {"HEAD", "/storage/v1/b/bucket/o/x", "storage.objects.get"},
        {"GET", "/download/storage/v1/b/bucket/o/x?alt=media", "storage.objects.get"},
        {"DELETE", "/storage/v1/b/bucket/o/x", "storage.objects.delete"},
        {"PATCH", "/storage/v1/b/bucket/o/x", "storage.objects.patch"},
        {"PUT", "/storage/v1/b/bucket/o/x", "storage.objects.update"},
        {"POST", "/storage/v1/b/bucket/o/x%2Fy/compose", "storage.objects.compose"},
        {"POST", "/storage/v1/b/bucket/o/x/copyTo/b/c/o/d", "storage.objects.copy"},
        {"POST", "/storage/v1/b/bucket/o/x/rewriteTo/b/c/o/d", "storage.objects.rewrite"},
        {"POST", "/storage/v1/b/bucket/o/x/moveTo/o/d", "storage.objects.move"},
        {"POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=x", "storage.objects.insert"},
        {"PUT", "/upload/storage/v1/b/bucket/o?upload_id=x", "storage.objects.insert"},
        {"DELETE", "/upload/storage/v1/b/bucket/o?upload_id=x", "storage.objects.delete"},
        {"GET", "/", "storage.buckets.list"},
        {"GET", "/bucket", "storage.objects.list"},
        {"PUT", "/bucket", "storage.buckets.insert"},
        {"DELETE", "/bucket", "storage.buckets.delete"},
        {"GET", "/bucket/x/y", "storage.objects.get"},
        {"HEAD", "/bucket/x", "storage.objects.get"},
        {"PUT", "/bucket/x", "storage.objects.insert"},
        {"POST", "/bucket/x?uploads", "storage.objects.insert"},
        {"DELETE", "/bucket/x", "storage.objects.delete"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_STR(rg_method_name(method_of(rows[i].method, rows[i].target)), rows[i].name);
    }
}

static void test_names_and_what_is_none(void)
{
    for (unsigned method = 0; method < RG_METHOD_COUNT; method++) {
        RG_CHECK_EQ(rg_method_find(rg_method_name((enum rg_method)method)), method);
    }
    RG_CHECK_EQ(rg_method_find("storage.objects.eat"), RG_METHOD_NONE);
    RG_CHECK_EQ(method_of("POST", "/batch/storage/v1"), RG_METHOD_NONE);
    RG_CHECK_EQ(method_of("POST", "/retry_test"), RG_METHOD_NONE);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_requests_and_their_methods),
        RG_TEST(test_names_and_what_is_none),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
