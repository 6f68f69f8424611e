/* The rule of admission: its cases, and its hits over traces, beside those of LRU, SIEVE and
 * S3-FIFO.
 */
#include "cache/policy.h"

#include "cache/format.h"
#include "tests/cache/policies.h"
#include "tests/support/test.h"

#define CAPACITY 1024

static void test_sizes_of_segments(void)
{
    RG_CHECK_EQ(rg_cache_segment_size(RG_MIB(16)), RG_MIB(2));
    RG_CHECK_EQ(rg_cache_segment_size(RG_MIB(1024)), RG_MIB(16));
    RG_CHECK_EQ(rg_cache_segment_size(UINT64_C(100) << 30), RG_MIB(100));
    RG_CHECK_EQ(rg_cache_segment_size(UINT64_C(2) << 40), RG_CACHE_SEGMENT_SIZE_MAX);
    RG_CHECK_EQ(rg_cache_reserve(UINT64_C(50) << 20), RG_MIB(1));
    RG_CHECK_EQ(rg_cache_reserve(UINT64_C(1) << 40), RG_MIB(1024));
}

static void test_verdicts(void)
{
    struct rg_cache_look look = {
        .size_max = 1000, .segment_size = 100, .used = 900, .free = 100, .clock = 5000};
    RG_CHECK_EQ(rg_cache_decide(&look), RG_CACHE_ROOM);
    look.free = 99;
    RG_CHECK_EQ(rg_cache_decide(&look), RG_CACHE_FULL);
    look.has_oldest = true;
    look.oldest_use = 5000 - 1000 * RG_CACHE_PATIENCE;
    RG_CHECK_EQ(rg_cache_decide(&look), RG_CACHE_FULL);
    look.oldest_use--;
    RG_CHECK_EQ(rg_cache_decide(&look), RG_CACHE_REPLACE);
    look.free = 100;
    look.used = 901;
    RG_CHECK_EQ(rg_cache_decide(&look), RG_CACHE_REPLACE);
    /* A clock that began again takes nothing for old. */
    look.oldest_use = 9000;
    RG_CHECK_EQ(rg_cache_decide(&look), RG_CACHE_FULL);
    look.is_spent = true;
    RG_CHECK_EQ(rg_cache_decide(&look), RG_CACHE_REPLACE);
    look.is_spent = false;
    look.used = 1101;
    RG_CHECK_EQ(rg_cache_decide(&look), RG_CACHE_REPLACE);
}

struct trace {
    uint32_t objects, first, order[POLICY_OBJECTS_MAX];
    bool shuffles;
};

static void order_shuffle(struct trace *trace)
{
    for (uint32_t i = 0; i < trace->objects; i++) {
        trace->order[i] = i;
    }
    for (uint32_t i = trace->objects; trace->shuffles && i > 1; i--) {
        uint32_t j = (uint32_t)rg_test_random_below(i), last = trace->order[i - 1];
        trace->order[i - 1] = trace->order[j];
        trace->order[j] = last;
    }
}

/* Percent of hits in one more epoch. */
static double epoch(struct policy *policy, struct trace *trace)
{
    uint32_t hits = 0;
    order_shuffle(trace);
    for (uint32_t i = 0; i < trace->objects; i++) {
        hits += policy_access(policy, trace->first + trace->order[i]);
    }
    return 100.0 * hits / trace->objects;
}

static void print_row(const char *name, const double *percents)
{
    printf("%-44s", name);
    for (int kind = 0; kind < POLICY_COUNT; kind++) {
        printf("  %s %5.1f %%", policy_names[kind], percents[kind]);
    }
    printf("\n");
}

/* A data set twice as large as the cache: epoch 2, and the mean of the next eight. */
static void twice_check(bool shuffles, const char *name)
{
    double second[POLICY_COUNT], later[POLICY_COUNT];
    for (int kind = 0; kind < POLICY_COUNT; kind++) {
        struct policy *policy = policy_make((enum policy_kind)kind, CAPACITY);
        struct trace trace = {.objects = 2 * CAPACITY, .shuffles = shuffles};
        (void)epoch(policy, &trace);
        second[kind] = epoch(policy, &trace);
        later[kind] = 0;
        for (int i = 0; i < 8; i++) {
            later[kind] += epoch(policy, &trace) / 8;
        }
        policy_free(policy);
    }
    char row[80];
    snprintf(row, sizeof(row), "twice the cache, %s, epoch 2", name);
    print_row(row, second);
    snprintf(row, sizeof(row), "twice the cache, %s, epochs 3 to 10", name);
    print_row(row, later);
    RG_CHECK(second[POLICY_OURS] >= 48 && later[POLICY_OURS] >= 48);
    for (int kind = 0; kind < POLICY_COUNT; kind++) {
        RG_CHECK(second[POLICY_OURS] >= second[kind] - 0.5);
    }
}

static void test_a_fixed_part_is_kept_whatever_the_order(void)
{
    twice_check(true, "shuffled");
    twice_check(false, "in order");
}

/* The first data set is done with: how long until the second one, of the cache's size, is in. */
static void test_the_next_data_set_comes_in(void)
{
    double fourth[POLICY_COUNT], sixth[POLICY_COUNT];
    for (int kind = 0; kind < POLICY_COUNT; kind++) {
        struct policy *policy = policy_make((enum policy_kind)kind, CAPACITY);
        struct trace old = {.objects = CAPACITY, .shuffles = true};
        struct trace next = {.objects = CAPACITY, .first = CAPACITY, .shuffles = true};
        for (int i = 0; i < 4; i++) {
            (void)epoch(policy, &old);
        }
        for (int i = 1; i < 4; i++) {
            (void)epoch(policy, &next);
        }
        fourth[kind] = epoch(policy, &next);
        (void)epoch(policy, &next);
        sixth[kind] = epoch(policy, &next);
        policy_free(policy);
    }
    print_row("another data set, epoch 4", fourth);
    print_row("another data set, epoch 6", sixth);
    RG_CHECK(sixth[POLICY_OURS] >= 95);
}

/* Some objects are read far more often than others, by a law of powers with exponent 1. */
static void test_skewed_reads(void)
{
    enum { OBJECTS = 4 * CAPACITY, READS = 100000 };
    static double sums[OBJECTS];
    double sum = 0, percents[POLICY_COUNT];
    for (int i = 0; i < OBJECTS; i++) {
        sum += 1.0 / (i + 1);
        sums[i] = sum;
    }
    struct policy *policies[POLICY_COUNT];
    uint32_t hits[POLICY_COUNT] = {0};
    for (int kind = 0; kind < POLICY_COUNT; kind++) {
        policies[kind] = policy_make((enum policy_kind)kind, CAPACITY);
    }
    for (int i = 0; i < READS; i++) {
        double at = (double)rg_test_random_below(UINT64_C(1) << 40) / (double)(UINT64_C(1) << 40);
        uint32_t low = 0, high = OBJECTS - 1;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (sums[middle] < at * sum) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        /* Popularity has nothing to do with the order of names. */
        uint32_t object = low * 1237 % OBJECTS;
        for (int kind = 0; kind < POLICY_COUNT; kind++) {
            hits[kind] += policy_access(policies[kind], object);
        }
    }
    for (int kind = 0; kind < POLICY_COUNT; kind++) {
        percents[kind] = 100.0 * hits[kind] / READS;
        policy_free(policies[kind]);
    }
    print_row("four times the cache, Zipf", percents);
    /* What is not made for this must not be far behind. */
    RG_CHECK(percents[POLICY_OURS] >= percents[POLICY_LRU] - 10);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sizes_of_segments),
        RG_TEST(test_verdicts),
        RG_TEST(test_a_fixed_part_is_kept_whatever_the_order),
        RG_TEST(test_the_next_data_set_comes_in),
        RG_TEST(test_skewed_reads),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
