/* Variables: which are mistaken for ours, and which are not. */
#include "runtime/variable.h"
#include "tests/support/test.h"

#include <ctype.h>
#include <ringest/gcs.h>

static void test_mistakes_are_found(void)
{
    static const char *const mistakes[][2] = {
        {"RINGEST_SHARE", "RINGEST_SHARING"},
        {"RINGEST_THREAD", "RINGEST_THREADS"},
        {"RINGEST_CONECTIONS", "RINGEST_CONNECTIONS"},
        {"RINGEST_connections", "RINGEST_CONNECTIONS"},
        {"RINGEST_READS_PER_SECOND", "RINGEST_READS_PER_S"},
        {"RINGEST_LOGS", "RINGEST_LOG"},
        {"RINGEST_HEDGE", "RINGEST_HEDGING"},
    };
    char meant[RG_VARIABLE_SIZE_MAX];
    for (size_t i = 0; i < RG_ARRAY_LEN(mistakes); i++) {
        RG_CHECK(rg_variable_mistaken(mistakes[i][0], meant));
        RG_CHECK_STR(meant, mistakes[i][1]);
    }
}

static void test_ours_are_no_mistakes(void)
{
    char meant[RG_VARIABLE_SIZE_MAX], name[64];
    const char *option;
    RG_CHECK(!rg_variable_mistaken("RINGEST_LOG", meant));
    for (size_t i = 0; (option = rg_option_name(i)) != NULL; i++) {
        snprintf(name, sizeof(name), "RINGEST_%s", option);
        for (char *c = name; *c != '\0'; c++) {
            *c = (char)toupper((unsigned char)*c);
        }
        RG_CHECK(!rg_variable_mistaken(name, meant));
    }
}

/* What the tests, the benchmarks and the builds of this project are told by. */
static void test_those_of_others_are_none(void)
{
    /* Longer than a name that is looked at. */
    static const char too_long[] =
        "RINGEST_"
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    const char *const names[] = {
        "PATH",
        "RINGEST",
        "RINGEST_",
        "RINGEST_PROGRAM",
        "RINGEST_TESTS",
        "RINGEST_TEST_SEED",
        "RINGEST_TEST_HARNESS_INNER",
        "RINGEST_EXAMPLES",
        "RINGEST_SWEEPS",
        "RINGEST_KILLS",
        "RINGEST_SUITE_SOURCES",
        "RINGEST_LARGE",
        "RINGEST_LARGE_DIR",
        "RINGEST_FLEET",
        "RINGEST_ROUNDS",
        "RINGEST_PERF_WARM_UP_S",
        "RINGEST_PERF_INSIDE",
        "RINGEST_LIBUV",
        "RINGEST_CUDA_STAND_IN",
        too_long,
    };
    char meant[RG_VARIABLE_SIZE_MAX];
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        if (rg_variable_mistaken(names[i], meant)) {
            rg_test_fail(__FILE__, __LINE__, "%s is taken for %s", names[i], meant);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_mistakes_are_found),
        RG_TEST(test_ours_are_no_mistakes),
        RG_TEST(test_those_of_others_are_none),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
