/* Includes and excludes. */
#include "cli/filter.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

struct row {
    const char *rules; /* "+PATTERN" or "-PATTERN", with blanks between */
    const char *name;
    bool takes;
};

static void rules_read(const char *rules, struct filter *out_filter)
{
    char copy[64], *rest = copy;
    snprintf(copy, sizeof(copy), "%s", rules);
    for (char *rule; (rule = strsep(&rest, " ")) != NULL;) {
        if (*rule != '\0') {
            enum filter_kind kind = *rule == '+' ? FILTER_INCLUDE : FILTER_EXCLUDE;
            RG_CHECK_EQ(filter_add(out_filter, kind, rule + 1), 0);
        }
    }
}

static void test_which_names_are_meant(void)
{
    static const struct row rows[] = {
        {"", "a/b", true},
        {"-*.tmp", "a.tmp", false},
        {"-*.tmp", "a/b.tmp", false},
        {"-*.tmp", "a.tmp.gz", true},
        {"-*.tmp", "a.tmp/b", false},
        {"-.git", "a/.git/config", false},
        {"-.git", ".gitignore", true},
        {"-.git/", "a/.git", true},
        {"-.git/", "a/.git/", false},
        {"-.git/", "a/.git/x", false},
        {"-a/b", "a/b", false},
        {"-a/b", "a/b/c", false},
        {"-a/b", "x/a/b", true},
        {"-**/a/b", "x/a/b", false},
        {"-/a", "a", false},
        {"-/a", "x/a", true},
        {"-a/*", "a/b/c", false},
        {"+*.jpg", "a/b.jpg", true},
        {"+*.jpg", "a/b.png", false},
        {"+*.jpg", "a.jpg/b.png", false},
        {"+*.jpg +*.png", "a/b.png", true},
        {"+*.jpg -thumb*", "a/thumb-1.jpg", false},
        {"+*.jpg -thumb*", "thumbs/1.jpg", false},
        {"+*.jpg -thumb*", "a/1.jpg", true},
        {"+train/**", "train/a/b", true},
        {"+train/**", "test/a/b", false},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct filter filter = {0};
        rules_read(rows[i].rules, &filter);
        if (filter_takes(&filter, rows[i].name) != rows[i].takes) {
            fprintf(stderr, "\"%s\" with %s\n", rows[i].name, rows[i].rules);
            RG_CHECK(false);
        }
        filter_fini(&filter);
    }
}

static void test_folders_that_are_entered(void)
{
    struct filter filter = {0};
    rules_read("+*.jpg -.git -a/b/", &filter);
    RG_CHECK(filter_enters(&filter, "a"));
    RG_CHECK(filter_enters(&filter, "x/b"));
    RG_CHECK(!filter_enters(&filter, "a/b"));
    RG_CHECK(!filter_enters(&filter, "a/b/"));
    RG_CHECK(!filter_enters(&filter, "x/.git"));
    filter_fini(&filter);
}

static void test_patterns_that_are_none(void)
{
    struct filter filter = {0};
    RG_CHECK_EQ(filter_add(&filter, FILTER_EXCLUDE, ""), -EINVAL);
    RG_CHECK_EQ(filter_add(&filter, FILTER_EXCLUDE, "/"), -EINVAL);
    RG_CHECK(filter_takes(&filter, "a"));
    filter_fini(&filter);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {RG_TEST(test_which_names_are_meant),
                                           RG_TEST(test_folders_that_are_entered),
                                           RG_TEST(test_patterns_that_are_none)};
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
