/* What the loops of this process have counted, while they are there, when they have left, and in a
 * child of fork. */
#include "runtime/census.h"

#include "runtime/runtime.h"
#include "tests/support/test.h"

#include <sys/wait.h>
#include <unistd.h>

static struct rg_stats all(void)
{
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(NULL, &stats), 0);
    return stats;
}

static struct rg_runtime *runtime_open(uint32_t threads)
{
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = threads;
    options.memory_max = threads * RG_LOOP_MEMORY_MIN;
    struct rg_runtime *runtime;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
    return runtime;
}

/* As a loop does. */
static void count_request(void *context)
{
    struct rg_loop *loop = context;
    rg_metric_add(&loop->metrics.attempts, 1);
    rg_metric_add(&loop->metrics.in_flight, 1);
    rg_metric_add(&loop->metrics.connections_opened, 1);
    rg_histogram_record(&loop->metrics.durations[RG_VERB_GET], RG_NS_PER_MS);
}

static void count_on(struct rg_runtime *runtime, uint32_t loop)
{
    rg_loop_call(runtime->loops[loop], count_request, runtime->loops[loop]);
}

static void test_all_runtimes_are_counted(void)
{
    struct rg_stats before = all();
    struct rg_runtime *one = runtime_open(2), *other = runtime_open(1);
    count_on(one, 0);
    count_on(one, 1);
    count_on(other, 0);
    struct rg_stats now = all(), own;
    RG_CHECK_EQ(now.requests, before.requests + 3);
    RG_CHECK_EQ(now.connections, before.connections + 3);
    RG_CHECK_EQ(now.in_flight, before.in_flight + 3);
    RG_CHECK_EQ(now.total.count, before.total.count + 3);
    RG_CHECK_EQ(now.memory_max, before.memory_max + 3 * RG_LOOP_MEMORY_MIN);
    RG_CHECK_EQ(rg_runtime_stats(one, &own), 0);
    RG_CHECK_EQ(own.requests, 2);
    RG_CHECK_EQ(own.memory_max, 2 * RG_LOOP_MEMORY_MIN);
    rg_runtime_close(one);
    rg_runtime_close(other);
}

static void test_what_was_counted_outlasts_the_runtime(void)
{
    struct rg_stats before = all();
    struct rg_runtime *runtime = runtime_open(1);
    count_on(runtime, 0);
    rg_runtime_close(runtime);
    struct rg_stats after = all();
    RG_CHECK_EQ(after.requests, before.requests + 1);
    RG_CHECK_EQ(after.connections_opened, before.connections_opened + 1);
    RG_CHECK_EQ(after.total.count, before.total.count + 1);
    RG_CHECK_EQ(after.total.max_ns, RG_NS_PER_MS);
    /* There is nothing of it now. */
    RG_CHECK_EQ(after.connections, before.connections);
    RG_CHECK_EQ(after.in_flight, before.in_flight);
    RG_CHECK_EQ(after.memory_max, before.memory_max);
}

static void test_a_child_begins_anew(void)
{
    struct rg_runtime *runtime = runtime_open(1);
    count_on(runtime, 0);
    pid_t child = fork();
    if (child == 0) {
        bool is_new = all().requests == 0 && all().memory_max == 0;
        rg_runtime_close(runtime);
        static struct rg_loop own; /* without a thread, which sanitizers forbid here */
        rg_census_enter(&own);
        count_request(&own);
        rg_census_leave(&own);
        _exit(is_new && all().requests == 1 ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    RG_CHECK(all().requests >= 1);
    rg_runtime_close(runtime);
}

static void test_a_loop_that_never_entered_may_leave(void)
{
    static struct rg_loop loop;
    struct rg_stats before = all();
    rg_metric_add(&loop.metrics.attempts, 1);
    rg_census_leave(&loop);
    RG_CHECK_EQ(all().requests, before.requests);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_all_runtimes_are_counted),
        RG_TEST(test_what_was_counted_outlasts_the_runtime),
        RG_TEST(test_a_child_begins_anew),
        RG_TEST(test_a_loop_that_never_entered_may_leave),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
