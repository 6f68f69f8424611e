/* Adaptive time-outs: the delay until a head against figures worked out by hand, and the longest
 * silence in a body. */
#include "gcs/request/stall.h"
#include "tests/support/test.h"

static struct rg_stall stall;
static struct rg_quantile slow_heads; /* so slow that they never cut the delay */

static void begin(double p, double rate, uint64_t initial_ns, uint64_t min_ns, uint64_t max_ns)
{
    struct rg_stall_options options = {p, rate, initial_ns, min_ns, max_ns};
    rg_stall_init(&stall, &options, 20 * RG_NS_PER_S);
    slow_heads = (struct rg_quantile){0};
    rg_quantile_add(&slow_heads, UINT64_MAX);
}

static void check_close(double got, double want, double tolerance)
{
    if (got < want - tolerance || got > want + tolerance) {
        rg_test_fail(__FILE__, __LINE__, "%.9f instead of %.9f", got, want);
    }
}

static void test_factors(void)
{
    begin(0.99, 15, RG_NS_PER_S, 1, 1000 * RG_NS_PER_S);
    check_close(stall.increase, 1.0472941228, 1e-9);
    check_close(stall.decrease, 0.9995333433, 1e-9);
    /* At least 1.001, at most 0.9999. */
    begin(0.999, 1e6, RG_NS_PER_S, 1, 1000 * RG_NS_PER_S);
    check_close(stall.increase, 1.001, 1e-12);
    check_close(stall.decrease, 0.9999, 1e-12);
    begin(0.5, 1, RG_NS_PER_S, 1, 1000 * RG_NS_PER_S);
    check_close(stall.increase, 2, 1e-12);
    check_close(stall.decrease, 0.5, 1e-12);
}

static void test_a_step_up_and_a_step_down(void)
{
    begin(0.99, 15, RG_NS_PER_S, RG_NS_PER_MS, 100 * RG_NS_PER_S);
    rg_stall_head(&stall, RG_NS_PER_S + 1, &slow_heads);
    check_close(stall.value_ns, 1047294122.8, 1);
    rg_stall_head(&stall, RG_NS_PER_S, &slow_heads);
    check_close(stall.value_ns, 1047294122.8 * 0.9995333433, 1);
    double before = stall.value_ns;
    rg_stall_expired(&stall);
    check_close(stall.value_ns, before * 1.0472941228, 10);
    /* 15 late ones double it. */
    begin(0.99, 15, RG_NS_PER_S, RG_NS_PER_MS, 100 * RG_NS_PER_S);
    for (unsigned i = 0; i < 15; i++) {
        rg_stall_expired(&stall);
    }
    check_close(stall.value_ns, 2e9, 100);
}

static void test_bounds(void)
{
    begin(0.99, 15, 20 * RG_NS_PER_S, 1500 * RG_NS_PER_MS, 5 * RG_NS_PER_S);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), 5 * RG_NS_PER_S);
    rg_stall_expired(&stall);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), 5 * RG_NS_PER_S);
    begin(0.99, 15, RG_NS_PER_MS, 1500 * RG_NS_PER_MS, 5 * RG_NS_PER_S);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), 1500 * RG_NS_PER_MS);
    rg_stall_head(&stall, 1, &slow_heads);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), 1500 * RG_NS_PER_MS);
    /* A limit of the user's below the least goes before that. */
    begin(0.99, 15, RG_STALL_INITIAL_NS, RG_STALL_MIN_NS, 200 * RG_NS_PER_MS);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), 200 * RG_NS_PER_MS);
}

/* From 20 s to 1.5 s: ln(20 / 1.5) / -ln(dec) = 5,549.5. */
static void test_decay_without_a_start(void)
{
    begin(0.99, 15, 20 * RG_NS_PER_S, 1500 * RG_NS_PER_MS, 100 * RG_NS_PER_S);
    unsigned count = 0;
    while (rg_stall_head_ns(&stall) > 1500 * RG_NS_PER_MS) {
        rg_stall_head(&stall, RG_NS_PER_MS, &slow_heads);
        count++;
    }
    RG_CHECK_EQ(count, 5550);
}

static void test_it_hovers_at_the_quantile(void)
{
    begin(0.99, 15, RG_NS_PER_S, 1, 100 * RG_NS_PER_S);
    unsigned late = 0;
    for (unsigned i = 0; i < 200000; i++) {
        /* Uniform up to 1 s: the p99 is 0.99 s. */
        uint64_t elapsed = rg_test_random_below(RG_NS_PER_S);
        late += i >= 100000 && elapsed > rg_stall_head_ns(&stall);
        rg_stall_head(&stall, elapsed, &slow_heads);
    }
    RG_CHECK(late > 700 && late < 1300);
}

static void test_experience_cuts_the_start_short(void)
{
    struct rg_quantile heads = {0};
    begin(0.99, 15, 20 * RG_NS_PER_S, 1500 * RG_NS_PER_MS, 100 * RG_NS_PER_S);
    for (unsigned i = 0; i < RG_STALL_SAMPLES_MIN; i++) {
        RG_CHECK(rg_stall_head_ns(&stall) > 18 * RG_NS_PER_S);
        rg_quantile_add(&heads, RG_NS_PER_S);
        rg_stall_head(&stall, RG_NS_PER_S, &heads);
    }
    RG_CHECK(rg_stall_head_ns(&stall) >= 4 * RG_NS_PER_S);
    RG_CHECK(rg_stall_head_ns(&stall) < 5 * RG_NS_PER_S);
}

static void test_silence_in_a_body(void)
{
    struct rg_quantile arrivals = {0};
    begin(0.99, 15, RG_NS_PER_S, 1, 100 * RG_NS_PER_S);
    for (unsigned i = 0; i < RG_STALL_SAMPLES_MIN - 1; i++) {
        rg_quantile_add(&arrivals, RG_NS_PER_MS);
        rg_stall_arrival(&stall, &arrivals);
        RG_CHECK_EQ(rg_stall_silence_ns(&stall), 20 * RG_NS_PER_S);
    }
    rg_quantile_add(&arrivals, RG_NS_PER_MS);
    rg_stall_arrival(&stall, &arrivals);
    RG_CHECK_EQ(rg_stall_silence_ns(&stall), 2 * RG_NS_PER_S);
    for (unsigned i = 0; i < 20000; i++) {
        rg_quantile_add(&arrivals, RG_NS_PER_S);
        rg_stall_arrival(&stall, &arrivals);
    }
    RG_CHECK(rg_stall_silence_ns(&stall) >= 4 * RG_NS_PER_S);
    RG_CHECK(rg_stall_silence_ns(&stall) < 5 * RG_NS_PER_S);
    for (unsigned i = 0; i < 40000; i++) {
        rg_quantile_add(&arrivals, 30 * RG_NS_PER_S);
        rg_stall_arrival(&stall, &arrivals);
    }
    RG_CHECK_EQ(rg_stall_silence_ns(&stall), 20 * RG_NS_PER_S);
}

/* Within bounds, and not once more is known here. */
static void test_what_others_know_counts_at_first(void)
{
    const struct rg_stall_options options = {
        .p = RG_STALL_P,
        .rate = RG_STALL_RATE,
        .initial_ns = RG_STALL_INITIAL_NS,
        .min_ns = RG_STALL_MIN_NS,
        .max_ns = 30 * RG_NS_PER_S,
    };
    rg_stall_init(&stall, &options, 20 * RG_NS_PER_S);
    rg_stall_learn(&stall, 0, 0);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), RG_STALL_INITIAL_NS);
    RG_CHECK_EQ(rg_stall_silence_ns(&stall), 20 * RG_NS_PER_S);
    rg_stall_learn(&stall, 3 * RG_NS_PER_S, 3 * RG_NS_PER_S);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), RG_STALL_MARGIN * 3 * RG_NS_PER_S);
    RG_CHECK_EQ(rg_stall_silence_ns(&stall), RG_STALL_MARGIN * 3 * RG_NS_PER_S);
    rg_stall_init(&stall, &options, 20 * RG_NS_PER_S);
    rg_stall_learn(&stall, 1, 1);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), RG_STALL_LEARNED * RG_STALL_MIN_NS);
    RG_CHECK_EQ(rg_stall_silence_ns(&stall), RG_STALL_LEARNED * RG_STALL_SILENCE_MIN_NS);
    rg_stall_init(&stall, &options, 20 * RG_NS_PER_S);
    rg_stall_learn(&stall, UINT64_MAX / RG_STALL_MARGIN, UINT64_MAX / RG_STALL_MARGIN);
    RG_CHECK_EQ(rg_stall_head_ns(&stall), RG_STALL_INITIAL_NS);
    RG_CHECK_EQ(rg_stall_silence_ns(&stall), 20 * RG_NS_PER_S);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_factors),
        RG_TEST(test_a_step_up_and_a_step_down),
        RG_TEST(test_bounds),
        RG_TEST(test_decay_without_a_start),
        RG_TEST(test_it_hovers_at_the_quantile),
        RG_TEST(test_experience_cuts_the_start_short),
        RG_TEST(test_silence_in_a_body),
        RG_TEST(test_what_others_know_counts_at_first),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
