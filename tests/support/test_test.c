/* The test harness itself: this program runs itself with cases of which one fails and leaves a
 * thread behind. */
#include "tests/support/test.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define INNER "RINGEST_TEST_HARNESS_INNER"
#define OUTPUT_SIZE 4096

static void passes(void)
{
    RG_CHECK_EQ(rg_test_index(), 0);
}

static void *never_ends(void *context)
{
    volatile unsigned *on_the_stack = context;
    for (;;) {
        ++*on_the_stack;
    }
    return NULL;
}

static void fails_with_a_thread(void)
{
    volatile unsigned counted = 0;
    pthread_t thread;
    RG_ASSERT(pthread_create(&thread, NULL, never_ends, (void *)&counted) == 0);
    while (counted == 0) {
        usleep(1000);
    }
    RG_CHECK_EQ(rg_test_index(), 100);
}

static void skips(void)
{
    rg_test_skip("for a good reason");
}

static void runs_alone(void)
{
    DIR *tasks = opendir("/proc/self/task");
    RG_CHECK(tasks != NULL);
    unsigned count = 0;
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        count += task->d_name[0] != '.';
    }
    closedir(tasks);
    RG_CHECK_EQ(rg_test_index(), 3);
    RG_CHECK(count == 1);
    RG_CHECK_EQ(rg_test_seed(), 42);
}

/* Runs the inner cases with variables of the environment and arguments, which name cases; returns
 * the exit status, and what was printed. */
static int run_inner(const char *variables, const char *arguments, char output[OUTPUT_SIZE])
{
    char path[1024], command[2048];
    ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
    RG_CHECK(size > 0);
    path[size] = '\0';
    snprintf(command, sizeof(command), INNER "=1 TSAN_OPTIONS= %s '%s' %s", variables, path,
             arguments);
    FILE *inner = popen(command, "r");
    RG_CHECK(inner != NULL);
    size_t got = fread(output, 1, OUTPUT_SIZE - 1, inner);
    output[got] = '\0';
    int status = pclose(inner);
    RG_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void check_ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), end_size = strlen(end);
    RG_CHECK(size >= end_size);
    RG_CHECK_STR(text + size - end_size, end);
}

static void test_cases_after_a_failed_one_run_without_its_threads(void)
{
    char output[OUTPUT_SIZE];
    RG_CHECK_EQ(run_inner("", "--seed 42", output), 1);
    RG_CHECK(strstr(output, "ok passes\n") != NULL);
    RG_CHECK(strstr(output, "rg_test_index() is 1, wanted 100 = 100\n") != NULL);
    RG_CHECK(strstr(output, "FAILED fails_with_a_thread\n") != NULL);
    RG_CHECK(strstr(output, "skipped skips\n") != NULL);
    RG_CHECK(strstr(output, "ok runs_alone\n") != NULL);
    check_ends_with(output, "replay with --seed 42\n2 passed, 1 failed, 1 skipped\n");
}

static void test_cases_that_are_named_are_run(void)
{
    char output[OUTPUT_SIZE];
    RG_CHECK_EQ(run_inner("", "fails_with_a_thread skips", output), 1);
    check_ends_with(output, "\n0 passed, 1 failed, 1 skipped\n");
    RG_CHECK_EQ(run_inner("", "passes", output), 0);
    RG_CHECK_STR(output, "ok passes\n1 passed, 0 failed, 0 skipped\n");
    RG_CHECK_EQ(run_inner("", "skips", output), 77);
    RG_CHECK_EQ(run_inner("", "--list", output), 0);
    RG_CHECK_STR(output, "passes\nfails_with_a_thread\nskips\nruns_alone\n");
}

static void test_the_seed_is_the_same_unless_another_is_wanted(void)
{
    char output[OUTPUT_SIZE], replay[64];
    snprintf(replay, sizeof(replay), "replay with --seed %d\n", RG_TEST_SEED_DEFAULT);
    RG_CHECK_EQ(run_inner("RINGEST_TEST_SEED=", "fails_with_a_thread", output), 1);
    RG_CHECK(strstr(output, replay) != NULL);
    RG_CHECK_EQ(run_inner("RINGEST_TEST_SEED=7", "fails_with_a_thread", output), 1);
    RG_CHECK(strstr(output, "replay with --seed 7\n") != NULL);
    RG_CHECK_EQ(run_inner("RINGEST_TEST_SEED=7", "fails_with_a_thread --seed 42", output), 1);
    RG_CHECK(strstr(output, "replay with --seed 42\n") != NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test inner[] = {
        RG_TEST(passes),
        RG_TEST(fails_with_a_thread),
        RG_TEST(skips),
        RG_TEST(runs_alone),
    };
    static const struct rg_test tests[] = {
        RG_TEST(test_cases_after_a_failed_one_run_without_its_threads),
        RG_TEST(test_cases_that_are_named_are_run),
        RG_TEST(test_the_seed_is_the_same_unless_another_is_wanted),
    };
    return getenv(INNER) != NULL ? rg_test_main(argc, argv, inner, RG_ARRAY_LEN(inner))
                                 : rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
