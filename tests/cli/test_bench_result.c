/* What several processes have measured, together. */
#include "cli/bench_result.h"
#include "tests/support/test.h"

#define POINTS 4
#define START (7 * RG_NS_PER_S)
#define MS RG_NS_PER_MS

static struct bench_result *result_new(void)
{
    struct bench_result *result = calloc(1, bench_result_size(POINTS));
    RG_CHECK(result != NULL);
    result->points_max = POINTS;
    result->interval_ns = 100 * MS;
    result->started_ns = START;
    return result;
}

static void test_a_request_is_in_its_part_of_the_time(void)
{
    struct bench_result *result = result_new();
    result->ramp.seconds = 0.15;
    bench_result_add(result, START + 5 * MS, START + 10 * MS, 100);
    bench_result_add(result, START + 5 * MS, START + 149 * MS, 10);
    bench_result_add(result, START, START + 5000 * MS, 1); /* beyond the last */
    bench_result_add_cpu(result, START + 100 * MS, 0.5);   /* ends with the first */
    bench_result_add_failed(result);                       /* counts nowhere else */
    result->finished_ns = START + 5000 * MS;
    RG_CHECK_EQ(result->requests, 4);
    RG_CHECK_EQ(bench_result_done(result), 3);
    RG_CHECK_EQ(result->latency.total, 3);
    RG_CHECK_EQ(result->bytes, 111);
    RG_CHECK_EQ(result->first_ns, START + 10 * MS);
    RG_CHECK_EQ(result->ramp.requests, 2);
    RG_CHECK_EQ(result->ramp.bytes, 110);
    RG_CHECK_EQ(result->point_count, POINTS);
    static const uint64_t requests[POINTS] = {1, 1, 0, 1}, bytes[POINTS] = {100, 10, 0, 1};
    for (uint32_t i = 0; i < POINTS; i++) {
        RG_CHECK_EQ(result->points[i].requests, requests[i]);
        RG_CHECK_EQ(result->points[i].bytes, bytes[i]);
        RG_CHECK_EQ(result->points[i].latency.total, requests[i]);
    }
    RG_CHECK(result->points[0].cpu_s == 0.5);
    RG_CHECK_EQ((bench_result_point_end_s(result, 0) * 1e3 + 0.5), 100);
    RG_CHECK_EQ((bench_result_point_end_s(result, 3) * 1e3 + 0.5), 5000);
    free(result);
}

/* Numbers are summed, times are of all of them, histograms lose nothing. */
static void test_merged(void)
{
    struct bench_result *both = calloc(1, bench_result_size(POINTS)), *all = result_new();
    RG_CHECK(both != NULL);
    both->points_max = POINTS;
    both->interval_ns = 100 * MS;
    for (uint64_t part = 0; part < 2; part++) {
        struct bench_result *result = result_new();
        for (int i = 0; i < 1000; i++) {
            uint64_t at = START + MS + rg_test_random_below(399 * MS);
            uint64_t latency = rg_test_random_below(40 * MS);
            bench_result_add(result, at - latency, at, 3);
            bench_result_add(all, at - latency, at, 3);
        }
        result->started_ns += part;
        result->finished_ns = START + (400 + part) * MS;
        result->cpu_user_s = 1;
        result->cpu_system_s = 0.25;
        result->rss_max_bytes = 100 + part;
        result->errors = part;
        result->late_ns = 10 + part;
        memcpy(result->backend, part == 0 ? "uring" : "epoll", sizeof("uring"));
        bench_result_merge(both, result);
        free(result);
    }
    RG_CHECK_EQ(both->requests, 2000);
    RG_CHECK_EQ(both->bytes, 6000);
    RG_CHECK_EQ(both->errors, 1);
    RG_CHECK_EQ(both->late_ns, 11);
    RG_CHECK_EQ(both->rss_max_bytes, 201);
    RG_CHECK(bench_result_cpu_s(both) == 2.5);
    RG_CHECK_EQ(both->started_ns, START);
    RG_CHECK_EQ(both->finished_ns, START + 401 * MS);
    RG_CHECK_EQ(both->first_ns, all->first_ns);
    RG_CHECK_STR(both->backend, "uring");
    rg_test_check_mem(__FILE__, __LINE__, &both->latency, sizeof(both->latency), &all->latency,
                      sizeof(all->latency));
    rg_test_check_mem(__FILE__, __LINE__, both->points, POINTS * sizeof(*both->points), all->points,
                      POINTS * sizeof(*all->points));
    free(both);
    free(all);
}

/* A process without work says nothing of the time. */
static void test_merged_with_nothing(void)
{
    struct bench_result *result = result_new(), *none = result_new();
    bench_result_add(result, START, START + MS, 1);
    none->started_ns = 0;
    bench_result_merge(result, none);
    RG_CHECK_EQ(result->started_ns, START);
    RG_CHECK_EQ(result->first_ns, START + MS);
    bench_result_merge(none, result);
    RG_CHECK_EQ(none->started_ns, START);
    RG_CHECK_EQ(none->first_ns, START + MS);
    free(result);
    free(none);
}

/* What was never sent has no latency, and is counted. */
static void test_a_request_that_was_not_sent(void)
{
    struct bench_result *result = result_new();
    bench_result_add(result, 0, START + MS, 0);
    RG_CHECK_EQ(result->requests, 1);
    RG_CHECK_EQ(result->points[0].requests, 1);
    RG_CHECK_EQ(result->latency.total, 0);
    free(result);
}

static void test_a_rate_that_was_kept(void)
{
    struct bench_result result = {.due = 1000, .unsent = 10};
    RG_CHECK(bench_result_keeps_rate(&result));
    result.unsent++;
    RG_CHECK(!bench_result_keeps_rate(&result));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_request_is_in_its_part_of_the_time),
        RG_TEST(test_merged),
        RG_TEST(test_merged_with_nothing),
        RG_TEST(test_a_request_that_was_not_sent),
        RG_TEST(test_a_rate_that_was_kept),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
