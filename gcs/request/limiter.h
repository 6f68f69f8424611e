/* How many requests to one bucket may be out, and how many may begin in a second: a protocol core
 * without clock or I/O, one for the reads and one for the writes of a bucket on one event loop.
 *
 * Concurrency. There is no limit until the service asks for less. Each 429 or 503 to a request that
 * was sent after the last cut makes the limit RG_LIMITER_CUT of what is out; answers while the
 * limit is used raise it by about one for as many answers as it allows, and at limit_max it is gone
 * again (additive increase, multiplicative decrease). Rising latency cuts too, more gently: when in
 * RG_LIMITER_WINDOW_NS the mean time to the head is above RG_LIMITER_LATENCY_FACTOR times what it
 * was in good times, and above RG_LIMITER_LATENCY_MIN_NS.
 *
 * Rate. Google's guide: begin at or below 5,000 reads or 1,000 writes a second for a bucket, and at
 * most double every 20 minutes. It is a ceiling of tokens: a minute that used more than half of its
 * tokens and saw no 429 or 503 raises the rate by 2^(1/20), a minute that used less than an eighth
 * lowers it again, down to where it began. */
#ifndef RG_GCS_REQUEST_LIMITER_H
#define RG_GCS_REQUEST_LIMITER_H

#include "runtime/base.h"

#define RG_LIMITER_CUT 0.7
#define RG_LIMITER_LATENCY_CUT 0.9
#define RG_LIMITER_LATENCY_FACTOR 4
#define RG_LIMITER_LATENCY_MIN_NS (250 * RG_NS_PER_MS)
/* Latency alone does not cut below this. */
#define RG_LIMITER_LATENCY_LIMIT_MIN 4
#define RG_LIMITER_WINDOW_NS RG_NS_PER_S
#define RG_LIMITER_WINDOW_SAMPLES_MIN 32
/* How much the good times' latency rises with each window that was slower: doubles in 70. */
#define RG_LIMITER_BASELINE_RISE 1.01

#define RG_LIMITER_READS_PER_S 5000
#define RG_LIMITER_WRITES_PER_S 1000
#define RG_LIMITER_RATE_STEP 1.0352649238413776 /* 2^(1/20) */
#define RG_LIMITER_RATE_STEP_NS (60 * RG_NS_PER_S)
/* Tokens are kept for this part of a second. */
#define RG_LIMITER_BURST_S 0.25

struct rg_limiter_options {
    uint32_t limit_max; /* at least 1 */
    double rate;        /* requests a second at first; 0: no ceiling */
};

enum rg_limiter_outcome {
    RG_LIMITER_ANSWERED,
    RG_LIMITER_THROTTLED, /* 429 or 503 */
    RG_LIMITER_BROKEN,    /* says nothing about load */
};

struct rg_limiter {
    struct rg_limiter_options options;
    uint32_t in_flight;
    bool limited;
    double limit; /* while limited: at least 1 */
    uint64_t cut_ns;
    uint64_t backoffs; /* cuts so far */
    struct {
        uint64_t since_ns, sum_ns;
        uint32_t count;
        double baseline_ns; /* 0: none yet */
    } window;
    struct {
        double rate, tokens;
        uint64_t filled_ns, step_ns;
        double used;
        bool throttled;
    } ramp;
};

void rg_limiter_init(struct rg_limiter *limiter, const struct rg_limiter_options *options,
                     uint64_t now_ns);
/* True: the request may begin, and is in flight until rg_limiter_leave. */
bool rg_limiter_enter(struct rg_limiter *limiter, uint64_t now_ns);
/* Begins without asking: a request that holds what others wait for. */
void rg_limiter_enter_always(struct rg_limiter *limiter);
/* After a refusal: when there will be a token; UINT64_MAX: when another request leaves. */
uint64_t rg_limiter_next_ns(const struct rg_limiter *limiter, uint64_t now_ns);
/* sent_ns 0: it never was. True: the limit was cut. */
bool rg_limiter_leave(struct rg_limiter *limiter, enum rg_limiter_outcome outcome, uint64_t sent_ns,
                      uint64_t now_ns);
/* A head came. True: the limit was cut. */
bool rg_limiter_latency(struct rg_limiter *limiter, uint64_t elapsed_ns, uint64_t now_ns);
/* Requests that may be out now. */
uint32_t rg_limiter_limit(const struct rg_limiter *limiter);

#endif
