/* The description of a bucket as a shared text. */
#include "emulator/store/model/bucket_settings.h"

#include "emulator/wire/text.h"
#include "tests/support/test.h"

static void test_a_text_lives_as_long_as_its_last_reference(void)
{
    struct rg_bucket_settings *settings, *other;
    RG_CHECK_EQ(rg_bucket_settings_create(&settings, rg_text_slice("{\"a\":1}")), 0);
    other = rg_bucket_settings_ref(settings);
    rg_bucket_settings_unref(settings);
    RG_CHECK(rg_text_equals(rg_bucket_settings_json(other), "{\"a\":1}"));
    rg_bucket_settings_unref(other);
}

static void test_none_is_an_empty_object(void)
{
    struct rg_bucket_settings *settings;
    RG_CHECK_EQ(rg_bucket_settings_create(&settings, (struct rg_h1_slice){"", 0}), 0);
    RG_CHECK(settings == NULL && rg_bucket_settings_ref(settings) == NULL);
    RG_CHECK(rg_text_equals(rg_bucket_settings_json(settings), "{}"));
    rg_bucket_settings_unref(settings);
}

static void test_the_size_is_limited(void)
{
    static char large[RG_BUCKET_SETTINGS_SIZE_MAX + 1];
    struct rg_bucket_settings *settings;
    struct rg_h1_slice json = {large, sizeof(large)};
    RG_CHECK_EQ(rg_bucket_settings_create(&settings, json), -EMSGSIZE);
    json.size--;
    RG_CHECK_EQ(rg_bucket_settings_create(&settings, json), 0);
    rg_bucket_settings_unref(settings);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_text_lives_as_long_as_its_last_reference),
        RG_TEST(test_none_is_an_empty_object),
        RG_TEST(test_the_size_is_limited),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
