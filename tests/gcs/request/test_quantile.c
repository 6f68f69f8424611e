/* The quantiles of what was usual lately, against sorted values. */
#include "gcs/request/quantile.h"
#include "tests/support/test.h"

static struct rg_quantile quantile;

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_an_empty_one_knows_nothing(void)
{
    quantile = (struct rg_quantile){0};
    RG_CHECK_EQ(rg_quantile_at(&quantile, 500), 0);
    RG_CHECK_EQ(rg_quantile_at(&quantile, 1000), 0);
}

static void test_quantiles_are_exact_to_a_fifth(void)
{
    static const uint32_t parts[] = {1, 10, 500, 900, 990, 1000};
    for (unsigned run = 0; run < 50; run++) {
        uint64_t values[1000];
        quantile = (struct rg_quantile){0};
        for (size_t i = 0; i < RG_ARRAY_LEN(values); i++) {
            unsigned bits = 15 + (unsigned)rg_test_random_below(20);
            values[i] = (UINT64_C(1) << bits) + rg_test_random_below(UINT64_C(1) << bits);
            rg_quantile_add(&quantile, values[i]);
        }
        qsort(values, RG_ARRAY_LEN(values), sizeof(values[0]), compare);
        for (size_t i = 0; i < RG_ARRAY_LEN(parts); i++) {
            uint64_t exact = values[RG_MAX(parts[i], 1u) - 1];
            uint64_t got = rg_quantile_at(&quantile, parts[i]);
            RG_CHECK(got >= exact);
            RG_CHECK(got <= exact + exact / 4);
        }
    }
}

static void test_values_out_of_range_are_at_its_ends(void)
{
    quantile = (struct rg_quantile){0};
    rg_quantile_add(&quantile, 0);
    RG_CHECK(rg_quantile_at(&quantile, 1000) <= UINT64_C(1) << RG_QUANTILE_BITS_MIN);
    rg_quantile_add(&quantile, UINT64_MAX);
    RG_CHECK_EQ(rg_quantile_at(&quantile, 1000), (UINT64_C(1) << RG_QUANTILE_BITS_MAX) - 1);
    RG_CHECK(rg_quantile_at(&quantile, 500) <= UINT64_C(1) << RG_QUANTILE_BITS_MIN);
}

static void test_what_was_long_ago_is_forgotten(void)
{
    quantile = (struct rg_quantile){0};
    for (unsigned i = 0; i < 3 * RG_QUANTILE_FORGET; i++) {
        rg_quantile_add(&quantile, RG_NS_PER_S);
        RG_CHECK(quantile.total < RG_QUANTILE_FORGET);
    }
    RG_CHECK(rg_quantile_at(&quantile, 10) >= RG_NS_PER_S);
    for (unsigned i = 0; i < 6 * RG_QUANTILE_FORGET; i++) {
        rg_quantile_add(&quantile, RG_NS_PER_MS);
    }
    RG_CHECK(rg_quantile_at(&quantile, 990) < 2 * RG_NS_PER_MS);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_empty_one_knows_nothing),
        RG_TEST(test_quantiles_are_exact_to_a_fifth),
        RG_TEST(test_values_out_of_range_are_at_its_ends),
        RG_TEST(test_what_was_long_ago_is_forgotten),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
