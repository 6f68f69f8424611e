/* What is copied of an object's attributes, and what is refused. */
#include "gcs/upload/attributes.h"

#include "gcs/upload/limits.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>

static int copy(const struct rg_upload_attributes *given)
{
    struct rg_upload_attributes own;
    int rc = rg_upload_attributes_copy(&own, given, NULL);
    rg_upload_attributes_free(&own);
    return rc;
}

static void test_all_is_copied(void)
{
    const struct rg_metadata pairs[] = {{"a", "1"}, {"b", ""}};
    const struct rg_upload_attributes given = {.content_type = "text/plain",
                                               .content_encoding = "gzip",
                                               .cache_control = "no-store",
                                               .storage_class = "NEARLINE",
                                               .metadata = pairs,
                                               .metadata_count = 2};
    struct rg_upload_attributes own;
    RG_CHECK_EQ(rg_upload_attributes_copy(&own, &given, NULL), 0);
    RG_CHECK_STR(own.content_type, "text/plain");
    RG_CHECK_STR(own.content_encoding, "gzip");
    RG_CHECK_STR(own.cache_control, "no-store");
    RG_CHECK_STR(own.storage_class, "NEARLINE");
    RG_CHECK_EQ(own.metadata_count, 2);
    RG_CHECK_STR(own.metadata[1].key, "b");
    RG_CHECK(own.metadata[0].value != pairs[0].value);
    rg_upload_attributes_free(&own);
    RG_CHECK(own.metadata == NULL && own.metadata_count == 0);
}

static void test_what_is_not_given(void)
{
    struct rg_upload_attributes own;
    RG_CHECK_EQ(rg_upload_attributes_copy(&own, &(struct rg_upload_attributes){0}, NULL), 0);
    RG_CHECK_STR(own.content_type, "application/octet-stream");
    RG_CHECK(own.cache_control == NULL && own.metadata_count == 0);
    rg_upload_attributes_free(&own);
}

static void test_a_nonce_is_added(void)
{
    const struct rg_metadata pair = {"a", "1"}, taken = {RG_NONCE_KEY, "1"};
    struct rg_upload_attributes own, given = {.metadata = &pair, .metadata_count = 1};
    char nonce[RG_NONCE_SIZE + 1] = "";
    RG_CHECK_EQ(rg_upload_attributes_copy(&own, &given, nonce), 0);
    RG_CHECK_EQ(own.metadata_count, 2);
    RG_CHECK_STR(own.metadata[1].key, RG_NONCE_KEY);
    RG_CHECK_STR(own.metadata[1].value, nonce);
    rg_upload_attributes_free(&own);
    given.metadata = &taken;
    RG_CHECK_EQ(rg_upload_attributes_copy(&own, &given, nonce), -EINVAL);
    rg_upload_attributes_free(&own);
}

static void test_what_cannot_be_sent(void)
{
    static const char *const texts[] = {"a\nb", "\xff", " a", "a\t"};
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        const struct rg_metadata pair = {"a", texts[i]};
        RG_CHECK_EQ(copy(&(struct rg_upload_attributes){.content_type = texts[i]}), -EINVAL);
        RG_CHECK_EQ(copy(&(struct rg_upload_attributes){.metadata = &pair, .metadata_count = 1}),
                    -EINVAL);
    }
    static const struct rg_metadata pairs[] = {{"", "1"}, {"a b", "1"}, {NULL, "1"}, {"a", NULL}};
    for (size_t i = 0; i < RG_ARRAY_LEN(pairs); i++) {
        RG_CHECK_EQ(
            copy(&(struct rg_upload_attributes){.metadata = &pairs[i], .metadata_count = 1}),
            -EINVAL);
    }
}

static void test_the_sum_of_all_is_bounded(void)
{
    char *text = calloc(1, RG_UPLOAD_ATTRIBUTES_SIZE_MAX + 1);
    RG_CHECK(text != NULL);
    memset(text, 'x', RG_UPLOAD_ATTRIBUTES_SIZE_MAX - 1);
    struct rg_upload_attributes given = {.content_type = "t", .cache_control = text};
    RG_CHECK_EQ(copy(&given), 0);
    given.storage_class = "S";
    RG_CHECK_EQ(copy(&given), -EINVAL);
    free(text);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_all_is_copied),
        RG_TEST(test_what_is_not_given),
        RG_TEST(test_a_nonce_is_added),
        RG_TEST(test_what_cannot_be_sent),
        RG_TEST(test_the_sum_of_all_is_bounded),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
