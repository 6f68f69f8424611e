/* Histograms of times, against the times themselves, sorted. */
#include "cli/histogram.h"
#include "tests/support/test.h"

#define TIMES 4000

static const double shares[] = {0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Of any magnitude up to an hour. */
static uint64_t time_random(void)
{
    return rg_test_random_below(UINT64_C(1) << (1 + rg_test_random_below(41)));
}

/* The time of that rank is never above what the histogram says, and less than a thousandth below.
 */
static void check_quantiles(const struct histogram *histogram, uint64_t *times, size_t count)
{
    qsort(times, count, sizeof(*times), compare);
    RG_CHECK_EQ(histogram->total, count);
    RG_CHECK_EQ(histogram->max, times[count - 1]);
    for (size_t i = 0; i < RG_ARRAY_LEN(shares); i++) {
        double wanted = shares[i] * (double)count;
        size_t rank = (size_t)wanted;
        rank += (double)rank < wanted || rank == 0;
        uint64_t exact = times[rank - 1], told = histogram_quantile(histogram, shares[i]);
        RG_CHECK(told >= exact && told - exact <= exact / 1000);
    }
}

static void test_quantiles_are_those_of_the_sorted_times(void)
{
    for (int round = 0; round < 50; round++) {
        struct histogram histogram = {0};
        uint64_t times[TIMES];
        size_t count = 1 + rg_test_random_below(TIMES);
        uint64_t narrow = round % 2 == 0 ? 0 : time_random();
        for (size_t i = 0; i < count; i++) {
            times[i] = narrow == 0 ? time_random() : narrow + rg_test_random_below(narrow / 8 + 1);
            times[i] = RG_MIN(times[i], HISTOGRAM_VALUE_MAX);
            histogram_add(&histogram, times[i]);
        }
        check_quantiles(&histogram, times, count);
    }
}

/* Merged is as if all had been added to one. */
static void test_merging_loses_nothing(void)
{
    struct histogram parts[3] = {0}, all = {0}, merged = {0};
    uint64_t times[TIMES];
    for (size_t i = 0; i < TIMES; i++) {
        times[i] = time_random();
        histogram_add(&parts[rg_test_random_below(2)], times[i]); /* the third stays empty */
        histogram_add(&all, times[i]);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(parts); i++) {
        histogram_merge(&merged, &parts[i]);
    }
    rg_test_check_mem(__FILE__, __LINE__, &merged, sizeof(merged), &all, sizeof(all));
    check_quantiles(&merged, times, TIMES);
}

/* Every bucket ends where the next begins, each time is in the one whose bounds are around it. */
static void test_buckets_follow_each_other(void)
{
    uint64_t before = UINT64_MAX;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t first = before + 1, last = histogram_bound(i);
        RG_CHECK(first <= last && last - first <= first / 1000);
        const uint64_t ends[] = {first, RG_MIN(last, HISTOGRAM_VALUE_MAX)};
        for (size_t k = 0; k < RG_ARRAY_LEN(ends); k++) {
            static struct histogram histogram;
            histogram.total = histogram.end = 0;
            histogram_add(&histogram, ends[k]);
            RG_CHECK_EQ(histogram.first, i);
            RG_CHECK_EQ(histogram.end, i + 1);
        }
        before = last;
    }
    RG_CHECK(before >= HISTOGRAM_VALUE_MAX);
}

static void test_the_ends(void)
{
    struct histogram histogram = {0};
    RG_CHECK_EQ(histogram_quantile(&histogram, 0.5), 0);
    histogram_add(&histogram, 0);
    RG_CHECK_EQ(histogram_quantile(&histogram, 1), 0);
    histogram_add(&histogram, UINT64_MAX);
    RG_CHECK_EQ(histogram_quantile(&histogram, 1), HISTOGRAM_VALUE_MAX);
    RG_CHECK_EQ(histogram_quantile(&histogram, 0.5), 0);
    RG_CHECK_EQ(histogram.total, 2);
}

/* The 99.99th percentile of a hundred times is nothing but the longest of them. */
static void test_quantiles_need_times_beyond_them(void)
{
    static const struct {
        double share;
        uint64_t total;
    } rows[] = {{0.5, 2}, {0.9, 10}, {0.99, 100}, {0.999, 1000}, {0.9999, 10000}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct histogram *histogram = calloc(1, sizeof(*histogram));
        RG_CHECK(histogram != NULL);
        for (uint64_t count = 1; count < rows[i].total; count++) {
            histogram_add(histogram, count);
        }
        RG_CHECK(!histogram_supports(histogram, rows[i].share));
        histogram_add(histogram, 1);
        RG_CHECK(histogram_supports(histogram, rows[i].share));
        free(histogram);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_quantiles_are_those_of_the_sorted_times),
        RG_TEST(test_merging_loses_nothing),
        RG_TEST(test_buckets_follow_each_other),
        RG_TEST(test_the_ends),
        RG_TEST(test_quantiles_need_times_beyond_them),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
