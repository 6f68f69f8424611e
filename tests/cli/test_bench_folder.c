/* Whose folder a benchmark's is. */
#include "cli/bench_folder.h"
#include "tests/support/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_a_folder_of_a_process_that_runs(void)
{
    char name[BENCH_FOLDER_SIZE], other[BENCH_FOLDER_SIZE];
    RG_CHECK_EQ(bench_folder_name(name), 0);
    RG_CHECK_EQ(bench_folder_name(other), 0);
    RG_CHECK(strcmp(name, other) != 0);
    RG_CHECK_EQ(strncmp(name, BENCH_FOLDER_PREFIX, strlen(BENCH_FOLDER_PREFIX)), 0);
    RG_CHECK_EQ(bench_folder_owner(name), BENCH_FOLDER_RUNS);
}

/* What has ended, and what has its number now, are not the same. */
static void test_a_folder_of_a_process_that_has_ended(void)
{
    int pipes[2];
    char name[BENCH_FOLDER_SIZE] = "";
    RG_CHECK_EQ(pipe(pipes), 0);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        int rc = bench_folder_name(name);
        _exit(rc != 0 || write(pipes[1], name, sizeof(name)) != (ssize_t)sizeof(name));
    }
    int status = -1;
    RG_CHECK_EQ(read(pipes[0], name, sizeof(name)), (ssize_t)sizeof(name));
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    RG_CHECK_EQ(bench_folder_owner(name), BENCH_FOLDER_GONE);

    char ours[BENCH_FOLDER_SIZE], later[BENCH_FOLDER_SIZE];
    RG_CHECK_EQ(bench_folder_name(ours), 0);
    const char *pid = strchr(ours + strlen(BENCH_FOLDER_PREFIX), '-') + 1;
    snprintf(later, sizeof(later), "%.*s-1-%s", (int)(strchr(pid, '-') - ours), ours, "0a");
    RG_CHECK_EQ(bench_folder_owner(later), BENCH_FOLDER_GONE);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_a_folder_that_nobody_here_has_made(void)
{
    char name[BENCH_FOLDER_SIZE];
    RG_CHECK_EQ(bench_folder_name(name), 0);
    char *digit = name + strlen(BENCH_FOLDER_PREFIX);
    *digit = *digit == '0' ? '1' : '0';
    RG_CHECK_EQ(bench_folder_owner(name), BENCH_FOLDER_ELSEWHERE);
    static const char *const others[] = {"",
                                         "ringest-bench-",
                                         "ringest-bench-0123456789abcdef",
                                         "ringest-bench-0123456789ab-1-2",
                                         "ringest-bench-0123456789ab-1-2-",
                                         "ringest-bench-0123456789ab--2-3",
                                         "ringest-bench-0123456789ab-x-2-3",
                                         "ringest-bench-0123456789ab-11111111111111111-2-3",
                                         "notes"};
    for (size_t i = 0; i < RG_ARRAY_LEN(others); i++) {
        RG_CHECK_EQ(bench_folder_owner(others[i]), BENCH_FOLDER_ELSEWHERE);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {RG_TEST(test_a_folder_of_a_process_that_runs),
                                           RG_TEST(test_a_folder_of_a_process_that_has_ended),
                                           RG_TEST(test_a_folder_that_nobody_here_has_made)};
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
