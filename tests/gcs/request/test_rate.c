/* Ceilings of requests a second: the fixed one, and the ramp. */
#include "gcs/request/rate.h"
#include "tests/support/test.h"

static struct rg_rate rate;
static uint64_t now_ns;

static void begin(double ceiling, double ramp)
{
    struct rg_rate_options options = {.ceiling = ceiling, .ramp = ramp};
    now_ns = 1000 * RG_NS_PER_S;
    rg_rate_init(&rate, &options, now_ns);
}

static uint32_t take(uint32_t count)
{
    uint32_t taken = 0;
    while (taken < count && rg_rate_take(&rate, now_ns)) {
        taken++;
    }
    return taken;
}

/* Takes all there is for so long; how many. */
static uint64_t use_for(uint64_t duration_ns)
{
    uint64_t taken = 0;
    for (uint64_t end_ns = now_ns + duration_ns; now_ns < end_ns;) {
        taken += take(100000);
        uint64_t next_ns = rg_rate_next_ns(&rate, now_ns);
        RG_CHECK(next_ns > now_ns);
        now_ns = RG_MAX(next_ns, now_ns + RG_NS_PER_MS);
    }
    return taken;
}

static void test_there_is_none_unless_it_is_asked_for(void)
{
    begin(0, 0);
    RG_CHECK_EQ(take(1000000), 1000000);
    RG_CHECK_EQ(rg_rate_next_ns(&rate, now_ns), now_ns);
    RG_CHECK(rg_rate_per_s(&rate) == 0);
}

static void test_a_ceiling_is_kept(void)
{
    begin(1000, 0);
    RG_CHECK_EQ(take(100000), 250);
    uint64_t taken = use_for(10 * RG_NS_PER_S);
    RG_CHECK(taken > 9900 && taken <= 10001);
    /* It does not grow. */
    (void)use_for(120 * RG_NS_PER_S);
    RG_CHECK(rg_rate_per_s(&rate) == 1000);
    /* Far less than one a second. */
    begin(0.01, 0);
    RG_CHECK_EQ(take(1), 0);
    now_ns = rg_rate_next_ns(&rate, now_ns);
    RG_CHECK_EQ(take(2), 1);
}

static void test_the_ramp_doubles_in_20_minutes_of_use(void)
{
    begin(0, 100);
    (void)use_for(20 * 60 * RG_NS_PER_S);
    RG_CHECK(rg_rate_per_s(&rate) > 180 && rg_rate_per_s(&rate) < 201);
    (void)use_for(20 * 60 * RG_NS_PER_S);
    RG_CHECK(rg_rate_per_s(&rate) > 350 && rg_rate_per_s(&rate) < 401);
    /* A minute with a 429 in it does not count, and little use lowers it again. */
    double before = rg_rate_per_s(&rate);
    for (unsigned i = 0; i < 10; i++) {
        rg_rate_throttled(&rate);
        (void)use_for(60 * RG_NS_PER_S);
    }
    RG_CHECK(rg_rate_per_s(&rate) <= before * 1.04);
    for (unsigned i = 0; i < 3000; i++) {
        now_ns += 10 * RG_NS_PER_S;
        RG_CHECK_EQ(take(1), 1);
    }
    RG_CHECK(rg_rate_per_s(&rate) >= 100 && rg_rate_per_s(&rate) < 101);
}

static void test_the_lower_one_counts(void)
{
    begin(150, 100);
    RG_CHECK(rg_rate_per_s(&rate) == 100);
    (void)use_for(30 * 60 * RG_NS_PER_S);
    RG_CHECK(rg_rate_per_s(&rate) == 150);
    uint64_t taken = use_for(10 * RG_NS_PER_S);
    RG_CHECK(taken > 1490 && taken <= 1501);
}

/* Eight processes of four loops each follow one ramp together. */
static void test_parts_make_the_whole(void)
{
    enum { PARTS = 8 * 4 };
    uint64_t taken = 0;
    for (unsigned i = 0; i < PARTS; i++) {
        begin(0, (double)RG_RATE_RAMP_READS_PER_S / PARTS);
        taken += use_for(10 * RG_NS_PER_S);
    }
    RG_CHECK(taken > 10 * RG_RATE_RAMP_READS_PER_S * 99 / 100);
    RG_CHECK(taken <= (10 + RG_RATE_BURST_S) * RG_RATE_RAMP_READS_PER_S);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_there_is_none_unless_it_is_asked_for),
        RG_TEST(test_a_ceiling_is_kept),
        RG_TEST(test_the_ramp_doubles_in_20_minutes_of_use),
        RG_TEST(test_the_lower_one_counts),
        RG_TEST(test_parts_make_the_whole),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
