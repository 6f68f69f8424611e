/* Lines of our own files, read back and broken. */
#include "emulator/store/disk/lines.h"

#include "tests/support/test.h"

#include <errno.h>

static void test_lines_are_taken_apart(void)
{
    char text[] = "one 1\ntwo \nthree a b  c\n", *at = text, *value;
    const char *key;
    RG_CHECK_EQ(rg_disk_line_next(&at, &key, &value), 1);
    RG_CHECK_STR(key, "one");
    RG_CHECK_STR(value, "1");
    RG_CHECK_EQ(rg_disk_line_next(&at, &key, &value), 1);
    RG_CHECK_STR(key, "two");
    RG_CHECK_STR(value, "");
    RG_CHECK_EQ(rg_disk_line_next(&at, &key, &value), 1);
    RG_CHECK_STR(key, "three");
    RG_CHECK_STR(value, "a b  c");
    RG_CHECK_EQ(rg_disk_line_next(&at, &key, &value), 0);
}

static void test_lines_that_are_broken(void)
{
    static const char *const broken[] = {"key value", "key\n", "\n", "key\nnext value\n"};
    for (size_t i = 0; i < RG_ARRAY_LEN(broken); i++) {
        char text[64], *at = text, *value;
        const char *key;
        strcpy(text, broken[i]);
        RG_CHECK_EQ(rg_disk_line_next(&at, &key, &value), -EBADMSG);
    }
}

static void test_values_are_those_of_header_fields(void)
{
    char out[5] = "xxx";
    RG_CHECK(rg_disk_line_take_text(out, 4, "abcd"));
    RG_CHECK_STR(out, "abcd");
    RG_CHECK(!rg_disk_line_take_text(out, 4, "abcde"));
    RG_CHECK(!rg_disk_line_take_text(out, 4, ""));
    RG_CHECK(!rg_disk_line_take_text(out, 4, "a\x01"));
    RG_CHECK_STR(out, "abcd");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_lines_are_taken_apart),
        RG_TEST(test_lines_that_are_broken),
        RG_TEST(test_values_are_those_of_header_fields),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
