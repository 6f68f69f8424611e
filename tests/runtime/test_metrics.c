/* Metrics: histogram precision against sorted values, merging, and a reader beside the writer (run
 * under the thread sanitizer to be sure). */
#include "runtime/metrics.h"

#include "tests/support/test.h"

#include <pthread.h>

enum { SAMPLE_COUNT = 5000 };
static uint64_t samples[SAMPLE_COUNT];
static struct rg_histogram histogram, other, both;
static struct rg_metrics loops[2], merged;

static int compare_samples(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Spread over all magnitudes below 2^bits, as latencies are. */
static uint64_t random_duration(unsigned bits)
{
    return rg_test_random() >> (64 - bits) >> rg_test_random_below(bits);
}

static void check_quantile(double p)
{
    uint64_t rank = (uint64_t)(p * SAMPLE_COUNT);
    rank += (double)rank < p * SAMPLE_COUNT;
    uint64_t exact = samples[RG_MAX(rank, 1) - 1];
    uint64_t got = rg_histogram_quantile(&histogram, p);
    if (got < exact || got - exact > RG_MAX(exact / 16, 64)) {
        rg_test_fail(__FILE__, __LINE__, "p%g is %llu, exactly %llu", p * 100,
                     (unsigned long long)got, (unsigned long long)exact);
    }
}

static void test_empty_histogram_is_all_zero(void)
{
    memset(&histogram, 0, sizeof(histogram));
    struct rg_latency latency;
    rg_histogram_summarize(&histogram, &latency);
    RG_CHECK_EQ(latency.count, 0);
    RG_CHECK_EQ(latency.p50_ns, 0);
    RG_CHECK_EQ(latency.max_ns, 0);
    RG_CHECK_EQ(rg_histogram_quantile(&histogram, 1.0), 0);
}

static void test_quantiles_are_exact_to_a_sixteenth(void)
{
    for (unsigned bits = 8; bits <= RG_HISTOGRAM_BITS_MAX; bits++) {
        memset(&histogram, 0, sizeof(histogram));
        for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
            samples[i] = random_duration(bits);
            rg_histogram_record(&histogram, samples[i]);
        }
        qsort(samples, SAMPLE_COUNT, sizeof(samples[0]), compare_samples);
        for (unsigned percent = 0; percent <= 100; percent++) {
            check_quantile(percent / 100.0);
        }
        check_quantile(0.999);
        RG_CHECK_EQ(rg_histogram_count(&histogram), SAMPLE_COUNT);
        RG_CHECK_EQ(rg_histogram_quantile(&histogram, 1.0), samples[SAMPLE_COUNT - 1]);
        RG_CHECK_EQ(rg_histogram_max(&histogram), samples[SAMPLE_COUNT - 1]);
    }
}

static void test_buckets_are_ordered_and_without_gaps(void)
{
    uint32_t last = 0;
    for (unsigned bit = 0; bit < 64; bit++) {
        for (uint64_t sub = 0; sub < 64; sub++) {
            uint64_t value = (UINT64_C(1) << bit) + (bit >= 6 ? sub << (bit - 6) : 0);
            uint32_t bucket = rg_histogram_bucket(value);
            RG_CHECK(bucket == last || bucket == last + 1);
            last = bucket;
        }
    }
    RG_CHECK_EQ(last, RG_HISTOGRAM_BUCKET_COUNT - 1);
    RG_CHECK_EQ(rg_histogram_bucket(0), 0);
    RG_CHECK_EQ(rg_histogram_bucket((UINT64_C(1) << RG_HISTOGRAM_BITS_MAX) - 1),
                RG_HISTOGRAM_BUCKET_COUNT - 2);
}

static void test_one_value_is_every_quantile(void)
{
    memset(&histogram, 0, sizeof(histogram));
    rg_histogram_record(&histogram, 3000000);
    RG_CHECK_EQ(rg_histogram_quantile(&histogram, 0.0), 3000000);
    RG_CHECK_EQ(rg_histogram_quantile(&histogram, 0.5), 3000000);
    RG_CHECK_EQ(rg_histogram_quantile(&histogram, 1.0), 3000000);
}

static void test_values_beyond_the_range_count_as_the_largest(void)
{
    memset(&histogram, 0, sizeof(histogram));
    rg_histogram_record(&histogram, 1000 * RG_NS_PER_S);
    rg_histogram_record(&histogram, INT64_MAX);
    RG_CHECK_EQ(rg_histogram_count(&histogram), 2);
    RG_CHECK(rg_histogram_quantile(&histogram, 0.5) == INT64_MAX);
}

static void test_merged_histogram_is_that_of_the_union(void)
{
    memset(&histogram, 0, sizeof(histogram));
    memset(&other, 0, sizeof(other));
    memset(&both, 0, sizeof(both));
    for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
        uint64_t value = random_duration(40);
        rg_histogram_record(i % 3 == 0 ? &histogram : &other, value);
        rg_histogram_record(&both, value);
    }
    rg_histogram_merge(&histogram, &other);
    RG_CHECK_MEM(&histogram, sizeof(histogram), &both, sizeof(both));
}

static void test_merging_adds_counters_and_keeps_the_largest_maximum(void)
{
    memset(loops, 0, sizeof(loops));
    memset(&merged, 0, sizeof(merged));
    rg_metric_add(&loops[0].attempts, 3);
    rg_metric_add(&loops[0].attempts, 4);
    rg_metric_add(&loops[1].attempts, 5);
    rg_histogram_record(&loops[0].phases[RG_PHASE_TLS], 2000000);
    rg_histogram_record(&loops[1].phases[RG_PHASE_TLS], 1000000);
    rg_metrics_merge(&merged, &loops[0]);
    rg_metrics_merge(&merged, &loops[1]);
    RG_CHECK_EQ(rg_metric_load(&merged.attempts), 12);
    RG_CHECK_EQ(rg_metrics_retries(&merged), 0);
    RG_CHECK_EQ(rg_histogram_count(&merged.phases[RG_PHASE_TLS]), 2);
    RG_CHECK_EQ(rg_histogram_max(&merged.phases[RG_PHASE_TLS]), 2000000);
    RG_CHECK_EQ(rg_histogram_count(&merged.phases[RG_PHASE_BODY]), 0);
}

enum { WRITE_COUNT = 200000 };

static void *write_metrics(void *arg)
{
    struct rg_metrics *metrics = arg;
    for (unsigned i = 1; i <= WRITE_COUNT; i++) {
        /* A torn value would show as one that is no multiple of this. */
        rg_metric_add(&metrics->recv_bytes, UINT64_C(0x100000001));
        rg_histogram_record(&metrics->durations[RG_VERB_GET], i * RG_NS_PER_US);
    }
    return NULL;
}

static void test_reader_beside_the_writer_sees_whole_values(void)
{
    memset(loops, 0, sizeof(loops));
    pthread_t writer;
    RG_CHECK_EQ(pthread_create(&writer, NULL, write_metrics, &loops[0]), 0);
    uint64_t bytes = 0, count = 0;
    bool is_whole = true, is_growing = true;
    while (count < WRITE_COUNT) {
        memset(&merged, 0, sizeof(merged));
        rg_metrics_merge(&merged, &loops[0]);
        uint64_t bytes_now = rg_metric_load(&merged.recv_bytes);
        uint64_t count_now = rg_histogram_count(&merged.durations[RG_VERB_GET]);
        is_whole = is_whole && bytes_now % UINT64_C(0x100000001) == 0;
        is_growing = is_growing && bytes_now >= bytes && count_now >= count;
        bytes = bytes_now;
        count = count_now;
    }
    pthread_join(writer, NULL);
    RG_CHECK(is_whole);
    RG_CHECK(is_growing);
    RG_CHECK_EQ(rg_histogram_max(&loops[0].durations[RG_VERB_GET]), WRITE_COUNT * RG_NS_PER_US);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_empty_histogram_is_all_zero),
        RG_TEST(test_quantiles_are_exact_to_a_sixteenth),
        RG_TEST(test_buckets_are_ordered_and_without_gaps),
        RG_TEST(test_one_value_is_every_quantile),
        RG_TEST(test_values_beyond_the_range_count_as_the_largest),
        RG_TEST(test_merged_histogram_is_that_of_the_union),
        RG_TEST(test_merging_adds_counters_and_keeps_the_largest_maximum),
        RG_TEST(test_reader_beside_the_writer_sees_whole_values),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
