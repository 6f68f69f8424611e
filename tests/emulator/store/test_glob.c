/* Patterns over names. */
#include "emulator/store/glob.h"

#include "emulator/wire/text.h"
#include "tests/support/test.h"

static void test_patterns_match_whole_names(void)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } rows[] = {
        {"", "", true},
        {"a", "a", true},
        {"a", "ab", false},
        {"*", "abc", true},
        {"*", "a/c", false},
        {"*.txt", "a.txt", true},
        {"*.txt", "d/a.txt", false},
        {"**.txt", "d/e/a.txt", true},
        {"**", "a/b/c", true},
        {"a/**/c", "a/b/x/c", true},
        {"a/**/c", "a/c", true},
        {"a/**/c", "a/b", false},
        {"**/c", "c", true},
        {"**/c", "bc", false},
        {"**/**/c", "c", true},
        {"a**/c", "ac", false},
        {"a**/c", "a/c", true},
        {"{x/**/,**/}c", "c", true},
        {"{a,b}/**/c", "b/c", true},
        {"a?c", "abc", true},
        {"a?c", "a/c", false},
        {"a[b-d]e", "ace", true},
        {"a[b-d]e", "aee", false},
        {"a[!b-d]e", "aee", true},
        {"a[^b-d]e", "ace", false},
        {"a[!b]c", "a/c", false},
        {"a[]x]c", "a]c", true},
        {"[a-]", "-", true},
        {"{a,bc}d", "bcd", true},
        {"{a,bc}d", "ad", true},
        {"{a,bc}d", "cd", false},
        {"{a,}d", "d", true},
        {"{a*,b{c,d}}/x", "abc/x", true},
        {"{a*,b{c,d}}/x", "bd/x", true},
        {"{a*,b{c,d}}/x", "be/x", false},
        {"x{**/,}y", "xa/b/y", true},
        {"x{**/,}y", "xy", true},
        {"\\*\\{", "*{", true},
        {"\\*", "a", false},
        {"a,b", "a,b", true},
        {"train-*-of-*.tar", "train-0001-of-0002.tar", true},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_h1_slice pattern = rg_text_slice(rows[i].pattern);
        RG_CHECK(rg_glob_valid(pattern));
        if (rg_glob_match(pattern, rg_text_slice(rows[i].name)) != rows[i].matches) {
            rg_test_fail(__FILE__, __LINE__, "'%s' and '%s'", rows[i].pattern, rows[i].name);
        }
    }
}

static void test_what_is_no_pattern(void)
{
    static const char *const bad[] = {"[", "[]", "a[b", "{", "{a", "{a,{b}", "\\", "{[}]", "a\\"};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        if (rg_glob_valid(rg_text_slice(bad[i]))) {
            rg_test_fail(__FILE__, __LINE__, "'%s'", bad[i]);
        }
    }
}

static void test_the_literal_start_of_a_pattern(void)
{
    static const struct {
        const char *pattern;
        uint32_t size;
    } rows[] = {{"", 0}, {"*", 0}, {"a/b", 3}, {"a/*", 2}, {"ab?", 2}, {"a{b,c}", 1}, {"a\\*", 1}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(rg_glob_prefix(rg_text_slice(rows[i].pattern)).size, rows[i].size);
    }
}

static void test_a_pattern_that_would_take_for_ever_ends(void)
{
    char name[200];
    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    RG_CHECK(!rg_glob_match(rg_text_slice("*a*a*a*a*a*a*a*a*a*a*a*a*b"), rg_text_slice(name)));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_patterns_match_whole_names),
        RG_TEST(test_what_is_no_pattern),
        RG_TEST(test_the_literal_start_of_a_pattern),
        RG_TEST(test_a_pattern_that_would_take_for_ever_ends),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
