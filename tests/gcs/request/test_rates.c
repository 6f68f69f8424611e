/* The rates of a client's buckets: who shares which. */
#include "gcs/request/rates.h"
#include "tests/support/test.h"

#define NOW_NS (1000 * RG_NS_PER_S)

static struct rg_rates *rates;

static void make(double reads_per_s, double writes_per_s)
{
    const struct rg_rate_options reads = {.ceiling = reads_per_s};
    const struct rg_rate_options writes = {.ceiling = writes_per_s};
    RG_CHECK_EQ(rg_rates_create(&rates, &reads, &writes), 0);
}

static void test_there_is_none_unless_it_is_asked_for(void)
{
    make(0, 0);
    RG_CHECK(rates == NULL);
    rg_rates_destroy(rates);
    make(0, 10);
    struct rg_rates_bucket *bucket = rg_rates_join(rates, "a", NOW_NS);
    RG_CHECK(rg_rates_reads(bucket) == NULL);
    RG_CHECK(rg_rates_writes(bucket) != NULL);
    rg_rates_leave(rates, bucket);
    rg_rates_destroy(rates);
}

static void test_loops_share_the_rate_of_a_bucket(void)
{
    make(100, 10);
    struct rg_rates_bucket *one = rg_rates_join(rates, "a", NOW_NS);
    struct rg_rates_bucket *other = rg_rates_join(rates, "b", NOW_NS);
    RG_CHECK(one != other);
    RG_CHECK(rg_rates_join(rates, "a", NOW_NS) == one);
    RG_CHECK(rg_rate_per_s(rg_rates_reads(one)) == 100);
    RG_CHECK(rg_rate_per_s(rg_rates_writes(other)) == 10);
    rg_rates_destroy(rates);
}

/* Who comes back soon finds its rate as it was, and begins with no new burst. */
static void test_the_oldest_that_nobody_is_in_makes_room(void)
{
    char name[16];
    make(100, 0);
    struct rg_rates_bucket *first = rg_rates_join(rates, "first", NOW_NS);
    struct rg_rates_bucket *second = rg_rates_join(rates, "second", NOW_NS);
    uint64_t slot_ns = rg_rate_take(rg_rates_reads(second), NOW_NS);
    rg_rates_leave(rates, second);
    for (unsigned i = 2; i < RG_RATES_BUCKETS_MAX; i++) {
        snprintf(name, sizeof(name), "%u", i);
        rg_rates_leave(rates, rg_rates_join(rates, name, NOW_NS));
    }
    RG_CHECK(rg_rates_join(rates, "second", NOW_NS) == second);
    RG_CHECK_EQ(rg_rate_take(rg_rates_reads(second), NOW_NS), slot_ns + 10 * RG_NS_PER_MS);
    struct rg_rates_bucket *new = rg_rates_join(rates, "new", NOW_NS);
    RG_CHECK(new != first &&new != second);
    RG_CHECK(rg_rates_join(rates, "first", NOW_NS) == first);
    rg_rates_destroy(rates);
}

static void test_buckets_share_where_there_are_too_many(void)
{
    char name[16];
    make(100, 0);
    for (unsigned i = 0; i < RG_RATES_BUCKETS_MAX + 10; i++) {
        snprintf(name, sizeof(name), "%u", i);
        RG_CHECK(rg_rates_reads(rg_rates_join(rates, name, NOW_NS)) != NULL);
    }
    rg_rates_destroy(rates);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_there_is_none_unless_it_is_asked_for),
        RG_TEST(test_loops_share_the_rate_of_a_bucket),
        RG_TEST(test_the_oldest_that_nobody_is_in_makes_room),
        RG_TEST(test_buckets_share_where_there_are_too_many),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
