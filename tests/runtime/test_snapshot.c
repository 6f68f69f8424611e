/* The metrics that programs see: what was counted, with its name, labels and buckets. */
#include "runtime/runtime.h"
#include "tests/support/test.h"

#include <ringest/metrics.h>

static struct rg_metric metrics[RG_METRICS_MAX];
static int count;

static struct rg_runtime *runtime_open(void)
{
    struct rg_runtime_options options;
    struct rg_runtime *runtime;
    rg_runtime_options_init(&options);
    options.threads = 2;
    options.memory_max = 2 * RG_LOOP_MEMORY_MIN;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
    return runtime;
}

static void look(const struct rg_runtime *runtime)
{
    count = rg_metrics_snapshot(runtime, metrics, RG_METRICS_MAX);
    RG_CHECK(count > 0);
}

static bool is_same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* NULL: it is not among them. */
static const struct rg_metric *find(const char *name, const char *operation, const char *status)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(metrics[i].name, name) == 0 && is_same(metrics[i].operation, operation) &&
            is_same(metrics[i].status, status)) {
            return &metrics[i];
        }
    }
    return NULL;
}

static uint64_t value(const char *name)
{
    const struct rg_metric *metric = find(name, NULL, NULL);
    RG_CHECK(metric != NULL);
    return metric->value;
}

/* As a loop does. */
static void work(void *context)
{
    struct rg_loop *loop = context;
    rg_metric_add(&loop->metrics.attempts, 2);
    rg_metric_add(&loop->metrics.retries[RG_STATUS_THROTTLED], 1);
    rg_metrics_refusal(&loop->metrics, 429);
    rg_metrics_refusal(&loop->metrics, 500);
    rg_metrics_request(&loop->metrics, RG_VERB_GET, RG_STATUS_OK, 3 * RG_NS_PER_MS);
    rg_metrics_request(&loop->metrics, RG_VERB_PUT, RG_STATUS_PERMISSION, RG_NS_PER_US);
}

static void test_a_snapshot_sums_up_loops(void)
{
    struct rg_runtime *runtime = runtime_open();
    rg_loop_call(runtime->loops[0], work, runtime->loops[0]);
    rg_loop_call(runtime->loops[1], work, runtime->loops[1]);
    look(runtime);
    RG_CHECK_EQ(value("attempts"), 4);
    RG_CHECK_EQ(value("refused_429"), 2);
    RG_CHECK_EQ(value("refused_503"), 0);
    RG_CHECK_EQ(value("loops"), 2);
    RG_CHECK_EQ(value("memory_max"), 2 * RG_LOOP_MEMORY_MIN);
    RG_CHECK(value("loop_cpu") > 0);
    RG_CHECK_EQ(find("requests", "get", "OK")->value, 2);
    RG_CHECK_EQ(find("requests", "put", "PERMISSION")->value, 2);
    RG_CHECK(find("requests", "put", "OK") == NULL);
    RG_CHECK_EQ(find("retries", NULL, "THROTTLED")->value, 2);
    rg_runtime_close(runtime);
}

static void test_a_histogram_has_buckets_that_add_up(void)
{
    struct rg_runtime *runtime = runtime_open();
    rg_loop_call(runtime->loops[0], work, runtime->loops[0]);
    look(runtime);
    const struct rg_metric *gets = find("request_duration", "get", NULL);
    RG_CHECK(gets != NULL && gets->kind == RG_METRIC_HISTOGRAM);
    RG_CHECK_EQ(gets->value, 1);
    RG_CHECK_EQ(gets->sum_ns, 3 * RG_NS_PER_MS);
    RG_CHECK_EQ(gets->durations.max_ns, 3 * RG_NS_PER_MS);
    for (unsigned i = 0; i < RG_METRIC_BUCKETS; i++) {
        uint64_t end_ns = UINT64_C(1) << (RG_METRIC_BITS_MIN + i);
        RG_CHECK_EQ(gets->buckets[i], 3 * RG_NS_PER_MS < end_ns);
    }
    RG_CHECK_EQ(find("request_duration", "put", NULL)->buckets[0], 1);
    RG_CHECK(find("request_duration", "list", NULL) == NULL);
    rg_runtime_close(runtime);
}

static void test_what_was_counted_outlasts_the_runtime(void)
{
    look(NULL);
    uint64_t attempts = value("attempts"), cpu = value("loop_cpu");
    struct rg_runtime *runtime = runtime_open();
    rg_loop_call(runtime->loops[0], work, runtime->loops[0]);
    rg_runtime_close(runtime);
    look(NULL);
    RG_CHECK_EQ(value("attempts"), attempts + 2);
    RG_CHECK(value("loop_cpu") > cpu);
    RG_CHECK_EQ(value("loops"), 0);
}

/* A queue that nothing comes to is waited for in vain. */
static void test_waits_of_consumers_are_counted(void)
{
    struct rg_runtime *runtime = runtime_open();
    struct rg_completion done;
    struct rg_cq *cq;
    RG_CHECK_EQ(rg_cq_open(&cq, runtime, 2), 0);
    RG_CHECK_EQ(rg_cq_wait(cq, &done, 1, 1, rg_now_ns() + RG_NS_PER_MS), -ETIME);
    rg_cq_close(cq);
    look(runtime);
    RG_CHECK(find("consumer_wait", NULL, NULL)->value >= 1);
    RG_CHECK(find("consumer_wait", NULL, NULL)->sum_ns > 0);
    rg_runtime_close(runtime);
}

static void test_a_program_of_another_version_has_structs_of_another_size(void)
{
    struct rg_metric few[2];
    RG_CHECK_EQ(rg_metrics_snapshot(NULL, few, 2), 2);
    RG_CHECK_STR(few[1].name, "hedges");
    const char *short_ones[3 * 4];
    RG_CHECK_EQ(
        rg_metrics_snapshot_sized(NULL, (struct rg_metric *)short_ones, 3, 4 * sizeof(char *)), 3);
    RG_CHECK_STR(short_ones[4], "hedges");
    RG_CHECK_STR(short_ones[9], "requests");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_snapshot_sums_up_loops),
        RG_TEST(test_a_histogram_has_buckets_that_add_up),
        RG_TEST(test_what_was_counted_outlasts_the_runtime),
        RG_TEST(test_waits_of_consumers_are_counted),
        RG_TEST(test_a_program_of_another_version_has_structs_of_another_size),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
