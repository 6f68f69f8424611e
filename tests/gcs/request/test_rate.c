/* Ceilings of requests a second: the fixed one, and the ramp. */
#include "gcs/request/rate.h"
#include "tests/support/test.h"

#include <pthread.h>

#define TAKEN_BY_EACH 2000

static struct rg_rate rate;
static uint64_t now_ns, slot_ns; /* 0: none */

static void begin(double ceiling, double ramp)
{
    struct rg_rate_options options = {.ceiling = ceiling, .ramp = ramp};
    now_ns = 1000 * RG_NS_PER_S;
    slot_ns = 0;
    rg_rate_init(&rate, &options, now_ns);
}

/* A slot that has not come yet is kept for the next call. */
static uint32_t take(uint32_t count)
{
    uint32_t taken = 0;
    for (;;) {
        slot_ns = slot_ns != 0 ? slot_ns : rg_rate_take(&rate, now_ns);
        if (slot_ns > now_ns || taken == count) {
            return taken;
        }
        slot_ns = 0;
        taken++;
    }
}

/* Takes all there is for so long; how many. */
static uint64_t use_for(uint64_t duration_ns)
{
    uint64_t taken = 0;
    for (uint64_t end_ns = now_ns + duration_ns; now_ns < end_ns;) {
        taken += take(100000);
        RG_CHECK(slot_ns > now_ns);
        now_ns = RG_MAX(slot_ns, now_ns + RG_NS_PER_MS);
    }
    return taken;
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
    now_ns = slot_ns;
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

/* Eight processes of twelve workers follow one ramp together. */
static void test_parts_make_the_whole(void)
{
    enum { PARTS = 8 * 12 };
    uint64_t taken = 0;
    for (unsigned i = 0; i < PARTS; i++) {
        begin(0, (double)RG_RATE_RAMP_READS_PER_S / PARTS);
        taken += use_for(10 * RG_NS_PER_S);
    }
    RG_CHECK(taken > 10 * RG_RATE_RAMP_READS_PER_S * 99 / 100);
    RG_CHECK(taken <= 10 * RG_RATE_RAMP_READS_PER_S + RG_RATE_RAMP_READS_PER_S / 4);
}

static void *taker(void *context)
{
    (void)context;
    for (unsigned i = 0; i < TAKEN_BY_EACH; i++) {
        (void)rg_rate_take(&rate, now_ns);
    }
    return NULL;
}

static void test_each_slot_is_taken_once(void)
{
    enum { TAKERS = 4 };
    pthread_t threads[TAKERS];
    begin(1000, 0);
    uint64_t first_ns = rg_rate_take(&rate, now_ns);
    for (unsigned i = 0; i < TAKERS; i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, taker, NULL), 0);
    }
    for (unsigned i = 0; i < TAKERS; i++) {
        RG_CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    RG_CHECK_EQ(rg_rate_take(&rate, now_ns),
                first_ns + (1 + TAKERS * TAKEN_BY_EACH) * RG_NS_PER_MS);
}

/* Loops do not look at the clock at the same time. */
static void test_an_earlier_time_takes_a_slot_as_well(void)
{
    begin(1000, 100);
    uint64_t first_ns = rg_rate_take(&rate, now_ns);
    RG_CHECK_EQ(rg_rate_take(&rate, now_ns - RG_NS_PER_S), first_ns + 10 * RG_NS_PER_MS);
    RG_CHECK(rg_rate_per_s(&rate) == 100);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_ceiling_is_kept),       RG_TEST(test_the_ramp_doubles_in_20_minutes_of_use),
        RG_TEST(test_the_lower_one_counts),    RG_TEST(test_parts_make_the_whole),
        RG_TEST(test_each_slot_is_taken_once), RG_TEST(test_an_earlier_time_takes_a_slot_as_well),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
