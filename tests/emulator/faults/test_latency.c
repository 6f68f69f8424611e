/* The latency model's percentiles, its texts, and the limit on requests. */
#include "emulator/faults/latency.h"
#include "tests/support/test.h"

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_percentiles_are_those_asked_for(void)
{
    enum { COUNT = 200000 };
    struct rg_latency_model model;
    uint64_t random = rg_test_seed();
    uint64_t *draws = malloc(COUNT * sizeof(*draws));
    RG_CHECK_EQ(rg_latency_parse("30:120", &model), 0);
    for (int i = 0; i < COUNT; i++) {
        draws[i] = rg_latency_draw(&model, &random);
    }
    qsort(draws, COUNT, sizeof(*draws), compare);
    double p50 = (double)draws[COUNT / 2] / 1e6, p99 = (double)draws[COUNT / 100 * 99] / 1e6;
    free(draws);
    RG_CHECK(p50 > 29.5 && p50 < 30.5);
    RG_CHECK(p99 > 115 && p99 < 125);
}

static void test_the_same_seed_draws_the_same(void)
{
    struct rg_latency_model model;
    uint64_t a = 7, b = 7, c = 8;
    RG_CHECK_EQ(rg_latency_parse("1:10", &model), 0);
    bool differs = false;
    for (int i = 0; i < 100; i++) {
        uint64_t first = rg_latency_draw(&model, &a);
        RG_CHECK_EQ(first, rg_latency_draw(&model, &b));
        differs = differs || first != rg_latency_draw(&model, &c);
    }
    RG_CHECK(differs);
}

static void test_one_number_is_a_constant(void)
{
    struct rg_latency_model model;
    uint64_t random = 1;
    RG_CHECK_EQ(rg_latency_parse("2.5", &model), 0);
    RG_CHECK_EQ(rg_latency_draw(&model, &random), 2500000);
    RG_CHECK_EQ(rg_latency_parse("0", &model), 0);
    RG_CHECK_EQ(rg_latency_draw(&model, &random), 0);
}

static void test_texts_that_are_no_latency(void)
{
    static const char *const texts[] = {"",     "x",   "-1",  "30:",  ":30",      "30:20",
                                        "30:x", "1e9", "30 ", " 30",  "1:2:3",    "0:5",
                                        "nan",  "inf", "0x",  "30ms", "30:1e300", "+3"};
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        struct rg_latency_model model;
        if (rg_latency_parse(texts[i], &model) != -EINVAL) {
            rg_test_fail(__FILE__, __LINE__, "'%s' is taken", texts[i]);
        }
    }
}

static void test_the_rate_limit_holds_over_any_second(void)
{
    struct rg_rate_limit limit = {0};
    uint64_t now = 5 * RG_NS_PER_S;
    uint32_t taken = 0;
    rg_rate_limit_init(&limit, 1000);
    for (int i = 0; i < 30000; i++) { /* Ten times the rate for three seconds. */
        now += RG_NS_PER_MS / 10;
        taken += rg_rate_limit_take(&limit, now);
    }
    RG_CHECK(taken >= 3000 && taken <= 3101);
    /* After a pause not more than the burst comes at once. */
    now += 10 * RG_NS_PER_S;
    taken = 0;
    for (int i = 0; i < 1000; i++) {
        taken += rg_rate_limit_take(&limit, now);
    }
    RG_CHECK_EQ(taken, 100);
}

static void test_slow_rates_let_single_requests_pass(void)
{
    struct rg_rate_limit limit = {0};
    rg_rate_limit_init(&limit, 0.5);
    RG_CHECK(rg_rate_limit_take(&limit, RG_NS_PER_S));
    RG_CHECK(!rg_rate_limit_take(&limit, 2 * RG_NS_PER_S));
    RG_CHECK(rg_rate_limit_take(&limit, 3 * RG_NS_PER_S));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_percentiles_are_those_asked_for),
        RG_TEST(test_the_same_seed_draws_the_same),
        RG_TEST(test_one_number_is_a_constant),
        RG_TEST(test_texts_that_are_no_latency),
        RG_TEST(test_the_rate_limit_holds_over_any_second),
        RG_TEST(test_slow_rates_let_single_requests_pass),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
