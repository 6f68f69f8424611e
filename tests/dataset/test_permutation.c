/* The computed order: a permutation for every count, and one that looks random. */
#include "dataset/permutation.h"
#include "tests/support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_permutation(uint64_t count, uint64_t seed, uint64_t epoch)
{
    struct rg_permutation permutation;
    uint8_t *seen = calloc(count, 1);
    RG_CHECK(seen != NULL);
    rg_permutation_init(&permutation, count, seed, epoch);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t number = rg_permutation_at(&permutation, i);
        RG_CHECK(number < count);
        RG_CHECK_EQ(rg_permutation_find(&permutation, number), i);
        RG_CHECK_EQ(seen[number], 0);
        seen[number] = 1;
    }
    free(seen);
}

static void test_every_number_comes_once(void)
{
    for (uint64_t count = 1; count <= 700; count++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            check_permutation(count, seed, count % 5);
        }
    }
    check_permutation(65536, 1, 0);
    check_permutation(65537, 1, 1);
    check_permutation(1000003, 42, 7);
}

static void test_the_largest_count_works(void)
{
    struct rg_permutation permutation;
    rg_permutation_init(&permutation, RG_PERMUTATION_COUNT_MAX, 3, 4);
    uint64_t last = rg_permutation_at(&permutation, RG_PERMUTATION_COUNT_MAX - 1);
    RG_CHECK(last < RG_PERMUTATION_COUNT_MAX);
    RG_CHECK(rg_permutation_at(&permutation, 0) != last);
}

/* Saved states rely on these. */
static void test_the_order_is_the_documented_one(void)
{
    static const uint64_t expected[] = {242, 965, 15, 289, 111, 584, 958, 473};
    struct rg_permutation permutation;
    rg_permutation_init(&permutation, 1000, 1, 2);
    for (size_t i = 0; i < RG_ARRAY_LEN(expected); i++) {
        RG_CHECK_EQ(rg_permutation_at(&permutation, i), expected[i]);
    }
}

/* Chi-square against equal frequencies, whose standard deviation is sqrt(2 * freedom): eight of
 * them are next to impossible, and the seeds are fixed. */
static void check_equal(const uint32_t *counts, size_t cells, double total)
{
    double expected = total / (double)cells, sum = 0;
    for (size_t i = 0; i < cells; i++) {
        double off = counts[i] - expected;
        sum += off * off / expected;
    }
    double freedom = (double)cells - 1;
    RG_CHECK(sum < freedom + 8 * sqrt(2 * freedom));
}

static size_t order_number(const struct rg_permutation *permutation)
{
    size_t number = 0;
    for (uint64_t i = 0; i < permutation->count; i++) {
        size_t smaller = 0;
        for (uint64_t j = i + 1; j < permutation->count; j++) {
            smaller += rg_permutation_at(permutation, j) < rg_permutation_at(permutation, i);
        }
        number = number * (permutation->count - i) + smaller;
    }
    return number;
}

static void test_all_orders_of_few_are_equally_likely(void)
{
    static const size_t orders[] = {1, 1, 2, 6, 24, 120};
    for (uint64_t count = 2; count <= 5; count++) {
        uint32_t counts[120] = {0};
        for (uint64_t seed = 0; seed < 60000; seed++) {
            struct rg_permutation permutation;
            rg_permutation_init(&permutation, count, seed, 0);
            counts[order_number(&permutation)]++;
        }
        check_equal(counts, orders[count], 60000);
    }
}

static void test_each_position_takes_each_number_equally_often(void)
{
    static uint32_t counts[97 * 97];
    memset(counts, 0, sizeof(counts));
    for (uint64_t epoch = 0; epoch < 9700; epoch++) {
        struct rg_permutation permutation;
        rg_permutation_init(&permutation, 97, 5, epoch);
        for (uint64_t i = 0; i < 97; i++) {
            counts[i * 97 + rg_permutation_at(&permutation, i)]++;
        }
    }
    check_equal(counts, 97 * 97, 9700 * 97);
}

/* Neighbours in the order are no neighbours in the manifest more often than by chance, and two
 * epochs agree in one position on average. */
static void test_orders_do_not_resemble_the_manifest_or_each_other(void)
{
    uint64_t neighbours = 0, agreements = 0;
    const uint64_t count = 100000;
    struct rg_permutation one, two;
    rg_permutation_init(&one, count, 1, 0);
    rg_permutation_init(&two, count, 1, 1);
    for (uint64_t i = 0; i + 1 < count; i++) {
        uint64_t a = rg_permutation_at(&one, i), b = rg_permutation_at(&one, i + 1);
        neighbours += a + 1 == b || b + 1 == a;
        agreements += a == rg_permutation_at(&two, i);
    }
    RG_CHECK(neighbours < 20);
    RG_CHECK(agreements < 20);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_number_comes_once),
        RG_TEST(test_the_largest_count_works),
        RG_TEST(test_the_order_is_the_documented_one),
        RG_TEST(test_all_orders_of_few_are_equally_likely),
        RG_TEST(test_each_position_takes_each_number_equally_often),
        RG_TEST(test_orders_do_not_resemble_the_manifest_or_each_other),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
