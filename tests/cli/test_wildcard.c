/* Patterns of names. */
#include "cli/wildcard.h"
#include "tests/support/test.h"

#include <stdlib.h>
#include <string.h>

static bool matches(const char *pattern, const char *name)
{
    struct wildcard *wildcard = wildcard_make(pattern);
    RG_ASSERT(wildcard != NULL);
    bool result = wildcard_matches(wildcard, name);
    wildcard_free(wildcard);
    return result;
}

struct row {
    const char *pattern, *name;
    bool expected;
};

static void check(const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (matches(rows[i].pattern, rows[i].name) != rows[i].expected) {
            fprintf(stderr, "\"%s\" and \"%s\"\n", rows[i].pattern, rows[i].name);
            RG_CHECK(false);
        }
    }
}

static void test_stars(void)
{
    static const struct row rows[] = {
        {"", "", true},
        {"", "a", false},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"abc/d*", "abc/def.txt", true},
        {"abc/d*", "abc/def/g.txt", false},
        {"*", "", true},
        {"*", "a/", false},
        {"a*c*e", "abcde", true},
        {"a*c*e", "abcd", false},
        {"*.jpg", "a.jpg.jpg", true},
        {"**.jpg", "a/b/c.jpg", true},
        {"a/**", "a/b/c", true},
        {"a/**", "a/", true},
        {"a/**", "a", false},
        {"a**z", "a/b/z", true},
        {"***", "a/b", true},
        /* No folder at all, any number of them, and whole ones only. */
        {"a/**/d.txt", "a/d.txt", true},
        {"a/**/d.txt", "a/b/c/d.txt", true},
        {"a/**/d.txt", "a/xd.txt", false},
        {"a/**/d.txt", "a/b/xd.txt", false},
        {"a/**/d.txt", "ad.txt", false},
        {"**/x.jpg", "x.jpg", true},
        {"**/x.jpg", "b/x.jpg", true},
        {"**/x.jpg", "bx.jpg", false},
        {"**/**/x", "x", true},
        {"**/b/**/d", "a/b/c/b/d", true},
        {"**/*", "a/b/c", true},
        {"a/**/", "a/", true},
        {"a/**/", "a/b/c/", true},
        {"a/**/", "a/b", false},
        /* What one star gives up, the other has to take. */
        {"**a*b", "xa/ab", true},
        {"**a*b", "a/xab/b", false},
        {"*/**b", "a/c/b", true},
    };
    check(rows, RG_ARRAY_LEN(rows));
}

static void test_single_characters(void)
{
    static const struct row rows[] = {
        {"??.txt", "ab.txt", true},
        {"??.txt", "a/.txt", false},
        {"?.txt", "\u00e4.txt", true},
        {"?", "\U0001f600", true},
        {"[aeiou].txt", "e.txt", true},
        {"[aeiou].txt", "b.txt", false},
        {"[a-e]x", "cx", true},
        {"[a-e]x", "fx", false},
        {"[!a-e]x", "fx", true},
        {"[^a-e]x", "ax", false},
        {"[!a]x", "/x", false},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"[!]]", "a", true},
        {"[a-]", "-", true},
        {"[-a]", "-", true},
        {"[\u00e4-\u00f6]", "\u00eb", true},
    };
    check(rows, RG_ARRAY_LEN(rows));
}

static void test_what_stands_for_itself(void)
{
    static const struct row rows[] = {
        {"[*]", "*", true},
        {"[*]", "a", false},
        {"what[?]", "what?", true},
        {"what[?]", "whats", false},
        {"[[]1]", "[1]", true},
        {"a[b", "a[b", true},
        {"a[b/c]", "a[b/c]", true},
        {"a]", "a]", true},
        {"a\\*", "a\\b", true},
        {"{a,b}", "{a,b}", true},
        {"{a,b}", "a", false},
        /* Bytes that are not UTF-8 are characters of their own. */
        {"?\xff", "\xfe\xff", true},
    };
    check(rows, RG_ARRAY_LEN(rows));
}

static void test_where_a_pattern_begins(void)
{
    static const struct {
        const char *text;
        size_t size;
        bool is;
    } rows[] = {{"", 0, false},      {"abc", 3, false},  {"a/b*c", 3, true}, {"a?", 1, true},
                {"a[b]", 1, true},   {"a[b", 3, false},  {"a[]", 3, false},  {"a[!]", 4, false},
                {"a[x/]*", 5, true}, {"a]", 2, false},   {"**", 0, true},    {"a[]]", 1, true},
                {"\\*", 1, true},    {"{a,b}", 5, false}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_EQ(wildcard_literal_size(rows[i].text), rows[i].size);
        RG_CHECK_EQ(wildcard_is(rows[i].text), rows[i].is);
    }
}

/* By the definition, with all ways tried. */
static bool slowly(const char *pattern, const char *name)
{
    if (*pattern == '\0') {
        return *name == '\0';
    }
    if (*pattern == '*') {
        size_t stars = strspn(pattern, "*");
        for (size_t i = 0; i <= strlen(name); i++) {
            if (stars == 1 && i > 0 && name[i - 1] == '/') {
                return false;
            }
            if (slowly(pattern + stars, name + i)) {
                return true;
            }
        }
        return false;
    }
    bool taken = *pattern == '?' ? *name != '/' && *name != '\0' : *pattern == *name;
    return taken && slowly(pattern + 1, name + 1);
}

static void test_it_agrees_with_trying_all_ways(void)
{
    static const char pattern_letters[] = "ab*?*", name_letters[] = "ab/";
    unsigned matched = 0;
    for (unsigned round = 0; round < 20000; round++) {
        char pattern[8] = "", name[9] = "";
        size_t pattern_size = rg_test_random() % 7, name_size = rg_test_random() % 8;
        for (size_t i = 0; i < pattern_size; i++) {
            pattern[i] = pattern_letters[rg_test_random() % (sizeof(pattern_letters) - 1)];
        }
        for (size_t i = 0; i < name_size; i++) {
            name[i] = name_letters[rg_test_random() % (sizeof(name_letters) - 1)];
        }
        bool expected = slowly(pattern, name);
        matched += expected;
        if (matches(pattern, name) != expected) {
            fprintf(stderr, "\"%s\" and \"%s\"\n", pattern, name);
            RG_CHECK(false);
        }
    }
    RG_CHECK(matched > 100);
}

static void test_no_pattern_takes_long(void)
{
    char pattern[1025], name[1025];
    for (size_t i = 0; i < 1024; i += 2) {
        memcpy(pattern + i, "*a", 2);
    }
    pattern[1024] = name[1024] = '\0';
    memset(name, 'a', 1024);
    RG_CHECK(matches(pattern, name));
    name[1023] = 'b';
    RG_CHECK(!matches(pattern, name));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_stars),
        RG_TEST(test_single_characters),
        RG_TEST(test_what_stands_for_itself),
        RG_TEST(test_where_a_pattern_begins),
        RG_TEST(test_it_agrees_with_trying_all_ways),
        RG_TEST(test_no_pattern_takes_long),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
