/* When a second request is sent: the delay, the budget, and the evidence that others fare better.
 */
#include "gcs/request/hedge.h"
#include "tests/support/test.h"

static struct rg_hedge state;
static struct rg_hedge_budget budget;
static struct rg_quantile heads;

static void begin(void)
{
    state = (struct rg_hedge){0};
    heads = (struct rg_quantile){0};
    budget = (struct rg_hedge_budget){.per_1000 = RG_HEDGE_PER_1000_DEFAULT};
}

static void answer(uint64_t elapsed_ns, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        rg_hedge_earn(&budget);
        rg_quantile_add(&heads, elapsed_ns);
        rg_hedge_answer(&state, elapsed_ns, &heads);
    }
}

static void test_the_delay(void)
{
    begin();
    answer(RG_NS_PER_MS, RG_HEDGE_SAMPLES_MIN - 1);
    RG_CHECK_EQ(state.delay_ns, 0);
    answer(RG_NS_PER_MS, 1);
    RG_CHECK_EQ(state.delay_ns, RG_HEDGE_DELAY_MIN_NS);
    /* p99 where it is near the median. */
    begin();
    for (unsigned i = 0; i < 2000; i++) {
        answer(i % 20 == 0 ? 120 * RG_NS_PER_MS : 50 * RG_NS_PER_MS, 1);
    }
    RG_CHECK(state.delay_ns >= 120 * RG_NS_PER_MS && state.delay_ns < 150 * RG_NS_PER_MS);
    /* Four medians where one answer in sixteen takes a second. */
    begin();
    for (unsigned i = 0; i < 2000; i++) {
        answer(i % 16 == 0 ? RG_NS_PER_S : 30 * RG_NS_PER_MS, 1);
    }
    RG_CHECK(state.delay_ns >= 120 * RG_NS_PER_MS && state.delay_ns < 160 * RG_NS_PER_MS);
}

static void test_the_budget_holds_over_many_requests(void)
{
    begin();
    unsigned hedges = 0;
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t before = state.in_time;
        answer(20 * RG_NS_PER_MS, 1);
        hedges += rg_hedge_allow(&state, &budget, before, 100);
        RG_CHECK(hedges * 1000 <= (i + 1) * RG_HEDGE_PER_1000_DEFAULT);
    }
    RG_CHECK_EQ(hedges, 200);
    /* What was saved up in quiet times is bounded. */
    begin();
    answer(20 * RG_NS_PER_MS, 100000);
    hedges = 0;
    while (rg_hedge_allow(&state, &budget, 0, 100)) {
        hedges++;
    }
    RG_CHECK_EQ(hedges, RG_HEDGE_BURST);
}

static void test_no_second_request_where_nobody_fares_better(void)
{
    begin();
    answer(20 * RG_NS_PER_MS, 1000);
    /* No answer has come since it was sent, of many that are out. */
    RG_CHECK(!rg_hedge_allow(&state, &budget, state.in_time, RG_HEDGE_OTHERS_MIN));
    RG_CHECK(rg_hedge_allow(&state, &budget, state.in_time - 1, RG_HEDGE_OTHERS_MIN));
    /* Few others say nothing. */
    RG_CHECK(rg_hedge_allow(&state, &budget, state.in_time, RG_HEDGE_OTHERS_MIN - 1));
    /* All became slow: late answers do not count, and too many of them forbid it. */
    uint64_t before = state.in_time;
    answer(RG_NS_PER_S, 1);
    RG_CHECK_EQ(state.in_time, before);
    RG_CHECK(rg_hedge_allow(&state, &budget, 0, 100));
    answer(RG_NS_PER_S, 7);
    RG_CHECK(!rg_hedge_allow(&state, &budget, 0, 100));
    RG_CHECK(!rg_hedge_allow(&state, &budget, 0, 0));
    /* Until they are well again. */
    answer(20 * RG_NS_PER_MS, 64);
    RG_CHECK(rg_hedge_allow(&state, &budget, 0, 100));
}

static void test_what_others_know_counts_until_enough_is_known_here(void)
{
    struct rg_hedge own = {0};
    struct rg_quantile few = {0};
    rg_hedge_learn(&own, 100 * RG_NS_PER_MS, 150 * RG_NS_PER_MS);
    RG_CHECK_EQ(own.delay_ns, 150 * RG_NS_PER_MS);
    rg_hedge_learn(&own, 1, 1);
    RG_CHECK_EQ(own.delay_ns, 150 * RG_NS_PER_MS);
    for (unsigned i = 0; i < RG_HEDGE_SAMPLES_MIN; i++) {
        rg_quantile_add(&few, RG_NS_PER_MS);
        rg_hedge_answer(&own, RG_NS_PER_MS, &few);
    }
    RG_CHECK_EQ(own.delay_ns, RG_HEDGE_DELAY_MIN_NS);
    struct rg_hedge small = {0};
    rg_hedge_learn(&small, 1, 1);
    RG_CHECK_EQ(small.delay_ns, RG_HEDGE_DELAY_MIN_NS);
}

static void test_processes_of_a_host_divide_what_is_kept(void)
{
    static const uint32_t processes[] = {0, 1, 4, 16, 1000}, kept[] = {16, 16, 4, 1, 1};
    for (unsigned i = 0; i < RG_ARRAY_LEN(processes); i++) {
        struct rg_hedge_budget part = {.per_1000 = 1000, .processes = processes[i]};
        for (unsigned n = 0; n < 100; n++) {
            rg_hedge_earn(&part);
        }
        RG_CHECK_EQ(part.thousandths, kept[i] * 1000);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_delay),
        RG_TEST(test_the_budget_holds_over_many_requests),
        RG_TEST(test_no_second_request_where_nobody_fares_better),
        RG_TEST(test_what_others_know_counts_until_enough_is_known_here),
        RG_TEST(test_processes_of_a_host_divide_what_is_kept),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
