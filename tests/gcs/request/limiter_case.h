/* A limiter at virtual time, whose requests are answered and refused one by one. */
#ifndef RG_TESTS_GCS_REQUEST_LIMITER_CASE_H
#define RG_TESTS_GCS_REQUEST_LIMITER_CASE_H

#include "gcs/request/limiter.h"
#include "tests/support/test.h"

static struct rg_limiter limiter;
static uint64_t now_ns;

static inline void begin(uint32_t limit_max)
{
    struct rg_limiter_options options = {.limit_max = limit_max};
    now_ns = 1000 * RG_NS_PER_S;
    rg_limiter_init(&limiter, &options, now_ns);
}

static inline uint32_t enter(uint32_t count)
{
    uint32_t entered = 0;
    while (entered < count && rg_limiter_enter(&limiter, now_ns)) {
        entered++;
    }
    return entered;
}

static inline bool leave(enum rg_limiter_outcome outcome, uint64_t sent_ns)
{
    return rg_limiter_leave(&limiter, outcome, sent_ns, now_ns);
}

/* So many are answered one after the other, each after 10 ms. */
static inline void answer(uint32_t count)
{
    for (; count > 0; count--) {
        uint64_t sent_ns = RG_MAX(now_ns, rg_limiter_next_ns(&limiter, now_ns));
        now_ns = sent_ns;
        RG_CHECK_EQ(enter(1), 1);
        now_ns += 10 * RG_NS_PER_MS;
        leave(RG_LIMITER_ANSWERED, sent_ns);
    }
}

/* One that begins now is refused. By how much the gap is longer. */
static inline double refuse(enum rg_limiter_outcome outcome)
{
    double before_ns = limiter.gap_ns;
    now_ns = RG_MAX(now_ns + 1, rg_limiter_next_ns(&limiter, now_ns));
    RG_CHECK_EQ(enter(1), 1);
    now_ns += RG_NS_PER_MS;
    leave(outcome, now_ns - RG_NS_PER_MS);
    return limiter.gap_ns / before_ns;
}

static inline void check_near(double got, double wanted)
{
    RG_CHECK(got > wanted * 0.99 && got < wanted * 1.01);
}

#endif
