/* The word that was meant. */
#include "cli/nearest.h"
#include "tests/support/test.h"

static void test_words_that_are_meant(void)
{
    static const char *const words[] = {"recursive", "dry-run", "json", "concurrency",
                                        "ls",        "cp",      "log"};
    static const struct {
        const char *text, *meant;
    } rows[] = {{"recusrive", "recursive"},
                {"recursiv", "recursive"},
                {"dryrun", "dry-run"},
                {"jsno", "json"},
                {"conc", "concurrency"},
                {"sl", "ls"},
                {"lss", "ls"},
                {"foo", NULL}, /* not log */
                {"cpp", "cp"},
                {"verbose", NULL},
                {"x", NULL},
                {"", NULL},
                {"something-much-longer-than-any-word-that-there-is", NULL}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const char *nearest = nearest_word(rows[i].text, words, RG_ARRAY_LEN(words));
        RG_CHECK_STR(nearest != NULL ? nearest : "(none)",
                     rows[i].meant != NULL ? rows[i].meant : "(none)");
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {RG_TEST(test_words_that_are_meant)};
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
