/* What sleeps are divided by: loops that are only counters here. */
#include "dataset/waits.h"

#include "tests/support/test.h"

#include <string.h>

static struct rg_loop loops[2];
static struct rg_loop *const loop_list[] = {&loops[0], &loops[1]};
static const struct rg_runtime runtime = {.loop_count = 2, .loops = (struct rg_loop **)loop_list};
static struct rg_waits waits;

static void begin(void)
{
    memset(loops, 0, sizeof(loops));
    memset(&waits, 0, sizeof(waits));
}

/* Sleeps from `from_ns` on, while gets spend so much time at FIRST_BYTE, on one loop, and at BODY,
 * on both. */
static void sleep_for(uint64_t ns, uint64_t first_byte_ns, uint64_t body_ns)
{
    rg_waits_begin(&waits, &runtime, 1000);
    rg_metric_add(&loops[0].metrics.stages[RG_STAGE_FIRST_BYTE], first_byte_ns);
    rg_metric_add(&loops[0].metrics.stages[RG_STAGE_BODY], body_ns / 2);
    rg_metric_add(&loops[1].metrics.stages[RG_STAGE_BODY], body_ns / 2);
    rg_waits_end(&waits, &runtime, 1000 + ns);
}

static void test_a_sleep_is_divided_as_gets_spend_their_time(void)
{
    begin();
    sleep_for(100, 3000, 1000);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_FIRST_BYTE], 75);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_BODY], 25);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_NONE], 0);
    sleep_for(10, 0, 2);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_FIRST_BYTE], 75);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_BODY], 35);
}

static void test_a_sleep_that_nothing_explains_waits_for_the_next(void)
{
    begin();
    sleep_for(40, 0, 0);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_NONE], 40);
    sleep_for(60, 5, 0);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_NONE], 0);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_FIRST_BYTE], 100);
}

/* Also by what loops say before it goes on, as where they are woken for that. */
static void test_what_loops_say_between_two_sleeps_explains_the_first(void)
{
    begin();
    sleep_for(40, 0, 0);
    RG_CHECK(waits.is_unexplained);
    rg_metric_add(&loops[0].metrics.stages[RG_STAGE_RETRY], 7);
    sleep_for(60, 0, 0);
    RG_CHECK(!waits.is_unexplained);
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_RETRY], 100);
    rg_metric_add(&loops[0].metrics.stages[RG_STAGE_BODY], 7);
    sleep_for(60, 5, 0); /* but not the next */
    RG_CHECK_EQ(waits.shares_ns[RG_STAGE_FIRST_BYTE], 60);
}

static void test_shares_add_up_to_the_sleep(void)
{
    begin();
    uint64_t slept = 0, sum = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t ns = rg_test_random_below(UINT64_C(1) << 40);
        sleep_for(ns, rg_test_random_below(UINT64_C(1) << 50), 2 * rg_test_random_below(1000));
        slept += ns;
    }
    for (unsigned i = 0; i < RG_STAGE_COUNT; i++) {
        sum += waits.shares_ns[i];
    }
    RG_CHECK_EQ(sum, slept);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_sleep_is_divided_as_gets_spend_their_time),
        RG_TEST(test_a_sleep_that_nothing_explains_waits_for_the_next),
        RG_TEST(test_what_loops_say_between_two_sleeps_explains_the_first),
        RG_TEST(test_shares_add_up_to_the_sleep),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
