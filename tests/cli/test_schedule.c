/* When requests are due. */
#include "cli/schedule.h"
#include "tests/support/test.h"

#include <math.h>

#define START (5 * RG_NS_PER_S)

/* 512 KiB, which is much of a stack. */
static struct schedule schedule;

static struct schedule_options at_rate(double rate_per_s)
{
    return (struct schedule_options){.rate_per_s = rate_per_s,
                                     .seed = rg_test_random(),
                                     .start_ns = START,
                                     .count = UINT64_MAX,
                                     .end_ns = UINT64_MAX};
}

/* How many were due by then. */
static uint64_t due_after(double seconds)
{
    schedule_advance(&schedule, START + (uint64_t)(seconds * 1e9));
    schedule_drop(&schedule, schedule_waiting(&schedule));
    return schedule.due;
}

static void test_equal_distances(void)
{
    struct schedule_options options = at_rate(1000);
    schedule_begin(&schedule, &options);
    schedule_advance(&schedule, START + 10 * RG_NS_PER_MS);
    RG_CHECK_EQ(schedule_waiting(&schedule), 11);
    for (uint64_t i = 0; i < 11; i++) {
        RG_CHECK_EQ(schedule_peek(&schedule, i), START + i * RG_NS_PER_MS);
    }
    schedule_drop(&schedule, 4);
    RG_CHECK_EQ(schedule_peek(&schedule, 0), START + 4 * RG_NS_PER_MS);
    RG_CHECK_EQ(schedule.next_ns, START + 11 * RG_NS_PER_MS);
}

/* Of several processes the requests come in turn. */
static void test_a_first_that_is_later(void)
{
    struct schedule_options options = at_rate(1000);
    options.first = 0.25;
    schedule_begin(&schedule, &options);
    RG_CHECK_EQ(schedule.next_ns, START + 250 * RG_NS_PER_US);
}

static void test_a_ramp(void)
{
    struct schedule_options options = at_rate(1000);
    options.ramp_s = 2;
    options.first = 0.5;
    schedule_begin(&schedule, &options);
    /* At half of the ramp a quarter of its requests: half of the rate, on average half of that. */
    RG_CHECK_EQ(due_after(1), 250);
    RG_CHECK_EQ(due_after(2), 1000);
    RG_CHECK_EQ(due_after(3), 2000);
}

static void test_the_end(void)
{
    struct schedule_options options = at_rate(1000);
    options.end_ns = START + RG_NS_PER_S;
    schedule_begin(&schedule, &options);
    RG_CHECK_EQ(due_after(9), 1000);
    RG_CHECK(schedule.next_ns == UINT64_MAX);
    options.count = 7;
    schedule_begin(&schedule, &options);
    RG_CHECK_EQ(due_after(9), 7);
    RG_CHECK(schedule.next_ns == UINT64_MAX);
}

/* The mean distance of a Poisson process is that of the rate, and so is its deviation. */
static void test_poisson(void)
{
    struct schedule_options options = at_rate(1e6);
    options.is_poisson = true;
    schedule_begin(&schedule, &options);
    double sum = 0, squares = 0;
    const int count = 50000;
    uint64_t before = START;
    for (int i = 0; i < count; i++) {
        double distance = (double)(schedule.next_ns - before) / 1e3;
        before = schedule.next_ns;
        sum += distance;
        squares += distance * distance;
        schedule_advance(&schedule, before);
    }
    double mean = sum / count, deviation = sqrt(squares / count - mean * mean);
    /* Fifteen and more times what is usual by chance. */
    RG_CHECK(mean > 0.93 && mean < 1.07);
    RG_CHECK(deviation > 0.9 && deviation < 1.1);
}

static void test_the_queue_is_bounded(void)
{
    struct schedule_options options = at_rate(1e6);
    schedule_begin(&schedule, &options);
    schedule_advance(&schedule, START + RG_NS_PER_S);
    RG_CHECK_EQ(schedule.due, 1000001);
    RG_CHECK_EQ(schedule_waiting(&schedule), SCHEDULE_WAITING_MAX);
    RG_CHECK_EQ(schedule.refused, 1000001 - SCHEDULE_WAITING_MAX);
    /* Those that came first wait; the next finds the room that one of them leaves. */
    RG_CHECK_EQ(schedule_peek(&schedule, 0), START);
    RG_CHECK_EQ(schedule_peek(&schedule, SCHEDULE_WAITING_MAX - 1),
                START + (SCHEDULE_WAITING_MAX - 1) * RG_NS_PER_US);
    schedule_drop(&schedule, 1);
    schedule_advance(&schedule, START + RG_NS_PER_S + RG_NS_PER_US);
    RG_CHECK_EQ(schedule_peek(&schedule, SCHEDULE_WAITING_MAX - 1),
                START + RG_NS_PER_S + RG_NS_PER_US);
    RG_CHECK_EQ(schedule.refused, 1000001 - SCHEDULE_WAITING_MAX);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_equal_distances), RG_TEST(test_a_first_that_is_later),
        RG_TEST(test_a_ramp),          RG_TEST(test_the_end),
        RG_TEST(test_poisson),         RG_TEST(test_the_queue_is_bounded),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
