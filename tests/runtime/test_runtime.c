/* Opening and closing runtimes: options, environment, the choice of the backend, and fork. */
#include "runtime/runtime.h"

#include "tests/support/seccomp.h"
#include "tests/support/test.h"

#include <sys/wait.h>
#include <unistd.h>

static void clear_environment(void)
{
    static const char *const names[] = {"RINGEST_THREADS",    "RINGEST_LOG",
                                        "RINGEST_NUMA",       "RINGEST_MEMORY",
                                        "RINGEST_LOCAL_RANK", "RINGEST_LOCAL_WORLD_SIZE",
                                        "LOCAL_RANK",         "LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        unsetenv(names[i]);
    }
}

static void open_close(const struct rg_runtime_options *options)
{
    struct rg_runtime *runtime = NULL;
    RG_CHECK_EQ(rg_runtime_open(&runtime, options), 0);
    rg_runtime_close(runtime);
}

static void test_a_runtime_opens_without_options(void)
{
    clear_environment();
    open_close(NULL);
    rg_runtime_close(NULL);
}

static void test_the_number_of_loops_is_what_was_asked_for(void)
{
    clear_environment();
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = 3;
    struct rg_runtime *runtime;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
    RG_CHECK_EQ(rg_runtime_threads(runtime), 3);
    RG_CHECK_EQ(rg_runtime_fault_in(runtime, UINT64_C(1) << 20), 0);
    rg_runtime_close(runtime);
    setenv("RINGEST_THREADS", "2", 1);
    RG_CHECK_EQ(rg_runtime_open(&runtime, NULL), 0);
    RG_CHECK_EQ(rg_runtime_threads(runtime), 2);
    rg_runtime_close(runtime);
    clear_environment();
}

static void check_refused(const struct rg_runtime_options *options)
{
    struct rg_runtime *runtime = NULL;
    RG_CHECK_EQ(rg_runtime_open(&runtime, options), -EINVAL);
    RG_CHECK(runtime == NULL);
}

static void test_bad_options_and_variables_are_refused(void)
{
    clear_environment();
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = RG_THREADS_MAX + 1;
    check_refused(&options);
    rg_runtime_options_init(&options);
    options.backend = (enum rg_backend)77;
    check_refused(&options);
    rg_runtime_options_init(&options);
    options.numa_policy = (enum rg_numa_policy) - 1;
    check_refused(&options);
    options.struct_size = 1;
    check_refused(&options);
    static const char *const bad[] = {"0", "many", "1000000", "-1", "2x"};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        setenv("RINGEST_THREADS", bad[i], 1);
        check_refused(NULL);
    }
    clear_environment();
}

static void test_bad_places_are_refused(void)
{
    static const char *const bad[][2] = {
        {"RINGEST_NUMA", "near"},           {"RINGEST_MEMORY", "0"},     {"RINGEST_MEMORY", "1X"},
        {"RINGEST_MEMORY", "1 G"},          {"RINGEST_MEMORY", "-1"},    {"RINGEST_MEMORY", "1iB"},
        {"RINGEST_MEMORY", "99999999999T"}, {"RINGEST_LOCAL_RANK", "0"},
    };
    struct rg_runtime_options options;
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        clear_environment();
        setenv(bad[i][0], bad[i][1], 1);
        check_refused(NULL);
    }
    clear_environment();
    rg_runtime_options_init(&options);
    options.local_rank = 1;
    check_refused(&options);
    options.local_world_size = 1;
    check_refused(&options);
    options.local_world_size = RG_LOCAL_RANKS_MAX + 1;
    check_refused(&options);
    rg_runtime_options_init(&options);
    options.workers = options.worker = 2;
    check_refused(&options);
}

static void test_memory_is_what_the_environment_says(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {{"67108864", RG_MIB(64)},
                 {"64M", RG_MIB(64)},
                 {"64MiB", RG_MIB(64)},
                 {"65536KB", RG_MIB(64)}};
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        clear_environment();
        setenv("RINGEST_MEMORY", cases[i].text, 1);
        struct rg_runtime *runtime;
        struct rg_stats stats;
        RG_CHECK_EQ(rg_runtime_open(&runtime, NULL), 0);
        RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
        RG_CHECK_EQ(stats.memory_max, cases[i].bytes);
        rg_runtime_close(runtime);
    }
    clear_environment();
}

static void check_described(const struct rg_runtime_options *options, const char *wanted)
{
    struct rg_runtime *runtime;
    char text[4096];
    RG_CHECK_EQ(rg_runtime_open(&runtime, options), 0);
    int size = rg_runtime_describe(runtime, text, sizeof(text));
    RG_CHECK_EQ(size, strlen(text));
    RG_CHECK(strstr(text, wanted) != NULL);
    RG_CHECK_EQ(rg_runtime_describe(runtime, NULL, 0), size);
    rg_runtime_close(runtime);
}

static void test_the_rank_is_the_option_s_or_else_the_launcher_s(void)
{
    clear_environment();
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    setenv("LOCAL_RANK", "1", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    check_described(&options, "local rank\t1 of 2, as LOCAL_RANK says\n");
    options.local_rank = 2;
    options.local_world_size = 3;
    options.worker = 3;
    options.workers = 4;
    check_described(&options, "local rank\t2 of 3, as the program says; its worker 3 of 4\n");
    setenv("LOCAL_RANK", "7", 1);
    check_described(NULL, "local rank\t0 of 1: LOCAL_RANK and LOCAL_WORLD_SIZE do not go together, "
                          "and are left aside\n");
    rg_runtime_options_init(&options);
    options.local_world_size = 1;
    check_described(&options, "local rank\t0 of 1, as the program says\n");
    clear_environment();
    check_described(NULL,
                    "local rank\t0 of 1: no launcher, such as torchrun or srun, says which\n");
}

static void test_an_older_caller_s_options_are_understood(void)
{
    clear_environment();
    struct {
        size_t struct_size;
        uint32_t threads;
        enum rg_backend backend; /* no padding, which would be read as this */
    } old = {.struct_size = sizeof(old), .threads = 2};
    struct rg_runtime *runtime;
    RG_CHECK_EQ(rg_runtime_open(&runtime, (const struct rg_runtime_options *)&old), 0);
    RG_CHECK_EQ(rg_runtime_threads(runtime), 2);
    rg_runtime_close(runtime);
}

static void test_epoll_can_be_asked_for(void)
{
    clear_environment();
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.backend = RG_BACKEND_EPOLL;
    struct rg_runtime *runtime;
    const char *reason;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
    RG_CHECK_EQ(rg_runtime_backend(runtime, &reason), RG_BACKEND_EPOLL);
    RG_CHECK(*reason != '\0');
    rg_runtime_close(runtime);
}

/* What a container without io_uring sees; in a child, because a filter cannot be taken off. */
static int without_uring(void)
{
    if (rg_test_forbid_uring(EPERM) < 0) {
        return 77;
    }
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    unsetenv("RINGEST_BACKEND");
    struct rg_runtime *runtime = NULL;
    const char *reason = "";
    bool fell_back = rg_runtime_open(&runtime, &options) == 0 &&
                     rg_runtime_backend(runtime, &reason) == RG_BACKEND_EPOLL &&
                     strstr(reason, "seccomp") != NULL;
    rg_runtime_close(runtime);
    options.backend = RG_BACKEND_URING;
    bool refused = rg_runtime_open(&runtime, &options) == -EPERM;
    return fell_back && refused ? 0 : 1;
}

static void test_without_io_uring_epoll_serves_and_says_why(void)
{
    clear_environment();
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        _exit(without_uring());
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        rg_test_skip("this system has no seccomp filters");
    }
    RG_CHECK_EQ(status, 0);
}

static int in_child(struct rg_runtime *inherited)
{
    struct rg_stats stats;
    struct rg_cq *cq;
    bool refused = rg_runtime_stats(inherited, &stats) == -EOWNERDEAD &&
                   rg_cq_open(&cq, inherited, 16) == -EOWNERDEAD;
    rg_runtime_close(inherited);
    struct rg_runtime *own;
    bool opened = rg_runtime_open(&own, NULL) == 0 && rg_runtime_stats(own, &stats) == 0;
    if (opened) {
        rg_runtime_close(own);
    }
    return refused && opened ? 0 : 1;
}

static void test_a_child_cannot_use_its_parent_s_runtime_but_opens_its_own(void)
{
#ifdef __SANITIZE_THREAD__
    rg_test_skip("the thread sanitizer lets no child of a threaded process start threads");
#endif
    clear_environment();
    struct rg_runtime *runtime;
    RG_CHECK_EQ(rg_runtime_open(&runtime, NULL), 0);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        _exit(in_child(runtime));
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    rg_runtime_close(runtime);
}

static void test_statistics_fit_the_caller_s_struct(void)
{
    clear_environment();
    struct rg_runtime *runtime;
    RG_CHECK_EQ(rg_runtime_open(&runtime, NULL), 0);
    struct {
        struct rg_stats stats;
        uint64_t newer_field;
    } newer = {.newer_field = 7};
    RG_CHECK_EQ(rg_runtime_stats_sized(runtime, &newer.stats, sizeof(newer)), 0);
    RG_CHECK_EQ(newer.newer_field, 0);
    uint64_t older[2] = {7, 7};
    RG_CHECK_EQ(rg_runtime_stats_sized(runtime, (struct rg_stats *)older, sizeof(older[0])), 0);
    RG_CHECK_EQ(older[0], 0);
    RG_CHECK_EQ(older[1], 7);
    rg_runtime_close(runtime);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_runtime_opens_without_options),
        RG_TEST(test_the_number_of_loops_is_what_was_asked_for),
        RG_TEST(test_bad_options_and_variables_are_refused),
        RG_TEST(test_bad_places_are_refused),
        RG_TEST(test_memory_is_what_the_environment_says),
        RG_TEST(test_the_rank_is_the_option_s_or_else_the_launcher_s),
        RG_TEST(test_an_older_caller_s_options_are_understood),
        RG_TEST(test_epoll_can_be_asked_for),
        RG_TEST(test_without_io_uring_epoll_serves_and_says_why),
        RG_TEST(test_a_child_cannot_use_its_parent_s_runtime_but_opens_its_own),
        RG_TEST(test_statistics_fit_the_caller_s_struct),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
