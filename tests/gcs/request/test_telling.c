/* What is told of a bucket: what is known, and nothing of what is not. */
#include "gcs/request/telling.h"

#include "gcs/request/portion.h"
#include "tests/support/test.h"

#include <unistd.h>

static struct rg_limiter limiter_open(void)
{
    const struct rg_limiter_options options = {.limit_max = 8};
    struct rg_limiter limiter;
    rg_limiter_init(&limiter, &options, RG_NS_PER_S);
    return limiter;
}

static void test_one_short_request_after_the_other_is_seen(void)
{
    struct rg_limiter limiter = limiter_open();
    RG_CHECK_EQ(rg_telling_side(&limiter, false, 2 * RG_NS_PER_S).in_flight, 0);
    RG_CHECK(rg_limiter_enter(&limiter, 3 * RG_NS_PER_S));
    rg_limiter_leave(&limiter, RG_LIMITER_ANSWERED, 3 * RG_NS_PER_S, 3 * RG_NS_PER_S + 1);
    struct rg_peer_side side = rg_telling_side(&limiter, true, 2 * RG_NS_PER_S);
    RG_CHECK_EQ(side.in_flight, 1);
    RG_CHECK_EQ(side.waiting, 1);
    RG_CHECK_EQ(side.restraint, RG_PEER_FREE);
    RG_CHECK_EQ(rg_telling_side(&limiter, false, 4 * RG_NS_PER_S).in_flight, 0);
}

/* What is sent before a cut counts no more after it. */
static void test_what_counts_is_told(void)
{
    static const enum rg_limiter_outcome outcomes[] = {RG_LIMITER_ANSWERED,  RG_LIMITER_UNAVAILABLE,
                                                       RG_LIMITER_SUDDEN,    RG_LIMITER_BROKEN,
                                                       RG_LIMITER_THROTTLED, RG_LIMITER_SUDDEN};
    struct rg_limiter limiter = limiter_open();
    for (unsigned i = 0; i < RG_ARRAY_LEN(outcomes); i++) {
        RG_CHECK(rg_limiter_enter(&limiter, 3 * RG_NS_PER_S));
    }
    for (unsigned i = 0; i < RG_ARRAY_LEN(outcomes); i++) {
        rg_limiter_leave(&limiter, outcomes[i], 3 * RG_NS_PER_S, 3 * RG_NS_PER_S + 1);
    }
    struct rg_peer_side side = rg_telling_side(&limiter, false, 2 * RG_NS_PER_S);
    RG_CHECK_EQ(side.answers, 2);
    RG_CHECK_EQ(side.sudden, 1);
}

static void test_statistics_have_a_rate_only_where_there_is_one(void)
{
    struct rg_limiter limiter = limiter_open();
    RG_CHECK(rg_limiter_enter(&limiter, 3 * RG_NS_PER_S));
    struct rg_bucket_side side = rg_telling_stats(&limiter, 5, 3 * RG_NS_PER_S);
    RG_CHECK_EQ(side.in_flight, 1);
    RG_CHECK_EQ(side.waiting, 0);
    RG_CHECK(side.rate_per_s == 0);
    rg_limiter_leave(&limiter, RG_LIMITER_THROTTLED, 3 * RG_NS_PER_S, 3 * RG_NS_PER_S + 1000);
    side = rg_telling_stats(&limiter, 5, 3 * RG_NS_PER_S + 1000);
    RG_CHECK_EQ(side.waiting, 5);
    RG_CHECK(side.rate_per_s > 0);
}

static void test_few_answers_say_nothing_of_latency(void)
{
    struct rg_quantile heads = {0}, arrivals = {0};
    for (unsigned i = 1; i < RG_PORTION_HEADS_MIN; i++) {
        rg_quantile_add(&heads, RG_NS_PER_MS);
    }
    RG_CHECK_EQ(rg_telling_kind(&heads, &arrivals).count, 0);
    rg_quantile_add(&heads, RG_NS_PER_MS);
    struct rg_peer_kind kind = rg_telling_kind(&heads, &arrivals);
    RG_CHECK_EQ(kind.count, RG_PORTION_HEADS_MIN);
    RG_CHECK(kind.median_us >= 1000 && kind.median_us <= kind.late_us);
    RG_CHECK_EQ(kind.silence_us, 0);
}

static void test_an_account_has_both_sides(void)
{
    struct rg_limiter reads = limiter_open(), writes = limiter_open();
    const struct rg_limiter *limiters[] = {&reads, &writes};
    const struct rg_tally tally = {.since_ns = 1, .requests = 2, .bytes = 3, .retries = 4};
    struct rg_quantile heads = {0};
    struct rg_account account = {0};
    uint64_t now_ns = 2 * RG_NS_PER_S;
    RG_CHECK(rg_limiter_enter(&reads, now_ns));
    RG_CHECK(rg_limiter_enter(&writes, now_ns));
    RG_CHECK(rg_limiter_enter(&writes, now_ns));
    rg_quantile_add(&heads, RG_NS_PER_MS);
    rg_telling_account(&account, "bucket", &tally, now_ns);
    rg_telling_limits(&account, limiters, 2);
    rg_telling_heads(&account, &heads);
    RG_CHECK_EQ(account.told_ns, now_ns);
    RG_CHECK_EQ(account.pid, (uint32_t)getpid());
    RG_CHECK_EQ(account.requests + account.bytes + account.retries, 9);
    RG_CHECK_EQ(account.in_flight, 3);
    RG_CHECK_EQ(account.rate_mhz, 0);
    RG_CHECK(account.p50_us >= 1000);
    RG_CHECK_STR(account.bucket, "bucket");
    /* One that is refused has a rate. */
    rg_limiter_leave(&reads, RG_LIMITER_THROTTLED, now_ns, now_ns + RG_NS_PER_MS);
    account.told_ns = now_ns + RG_NS_PER_MS;
    rg_telling_limits(&account, limiters, 2);
    RG_CHECK(account.rate_mhz > 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_one_short_request_after_the_other_is_seen),
        RG_TEST(test_what_counts_is_told),
        RG_TEST(test_statistics_have_a_rate_only_where_there_is_one),
        RG_TEST(test_few_answers_say_nothing_of_latency),
        RG_TEST(test_an_account_has_both_sides),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
