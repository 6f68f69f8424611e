/* Which names are valid. */
#include "emulator/store/model/names.h"

#include "emulator/wire/text.h"
#include "tests/support/test.h"

static void test_bucket_names(void)
{
    static const char *const good[] = {"abc", "a-b_c.d", "0a0"};
    static const char *const bad[] = {"",    "ab",  "Abc", "a/b",  "..", "...",
                                      "-ab", "ab-", "a b", "ab\n", "äöü"};
    for (size_t i = 0; i < RG_ARRAY_LEN(good); i++) {
        RG_CHECK(rg_store_bucket_name_valid(rg_text_slice(good[i])));
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK(!rg_store_bucket_name_valid(rg_text_slice(bad[i])));
    }
}

static void test_object_names(void)
{
    static const char *const good[] = {"a", "a/b", "/", "...", "a b", "\xc3\xa4", "a/"};
    static const char *const bad[] = {"", ".", "..", "a\nb", "a\rb", "\xff"};
    char name[RG_STORE_NAME_SIZE_MAX + 1];
    for (size_t i = 0; i < RG_ARRAY_LEN(good); i++) {
        RG_CHECK(rg_store_object_name_valid(rg_text_slice(good[i])));
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK(!rg_store_object_name_valid(rg_text_slice(bad[i])));
    }
    memset(name, 'x', sizeof(name));
    RG_CHECK(rg_store_object_name_valid((struct rg_h1_slice){name, RG_STORE_NAME_SIZE_MAX}));
    RG_CHECK(!rg_store_object_name_valid((struct rg_h1_slice){name, RG_STORE_NAME_SIZE_MAX + 1}));
}

static void test_folder_names_end_in_a_slash(void)
{
    char name[RG_STORE_FOLDER_SIZE_MAX + 1];
    RG_CHECK(rg_store_folder_name_valid(rg_text_slice("a/")));
    RG_CHECK(rg_store_folder_name_valid(rg_text_slice("a/b/")));
    RG_CHECK(!rg_store_folder_name_valid(rg_text_slice("a")));
    RG_CHECK(!rg_store_folder_name_valid(rg_text_slice("")));
    memset(name, '/', sizeof(name));
    RG_CHECK(rg_store_folder_name_valid((struct rg_h1_slice){name, RG_STORE_FOLDER_SIZE_MAX}));
    RG_CHECK(!rg_store_folder_name_valid((struct rg_h1_slice){name, RG_STORE_FOLDER_SIZE_MAX + 1}));
}

static void test_values_of_header_fields(void)
{
    RG_CHECK(rg_store_attribute_valid(rg_text_slice("text/plain"), 10));
    RG_CHECK(!rg_store_attribute_valid(rg_text_slice("text/plain"), 9));
    RG_CHECK(!rg_store_attribute_valid(rg_text_slice(""), 9));
    RG_CHECK(!rg_store_attribute_valid(rg_text_slice(" a"), 9));
    RG_CHECK(!rg_store_attribute_valid(rg_text_slice("a\t"), 9));
    RG_CHECK(!rg_store_attribute_valid(rg_text_slice("a\nb"), 9));
    RG_CHECK(rg_store_attribute_valid(rg_text_slice("a b"), 9));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_bucket_names),
        RG_TEST(test_object_names),
        RG_TEST(test_folder_names_end_in_a_slash),
        RG_TEST(test_values_of_header_fields),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
