/* How many requests to one bucket may begin in a second: a protocol core without clock or I/O.
 *
 * Two ceilings, each of which may be missing, and of which the lower one counts:
 *
 *   - a fixed one;
 *   - the ramp that Google's guide to request rates asks for: begin at a documented rate, and at
 *     most double it every 20 minutes. A minute that used more than half of what it might, and saw
 *     no 429 or 503, raises it by 2^(1/20). A minute that used less than an eighth lowers it again,
 *     down to where it began.
 *
 * Requests take tokens, which come at the rate and are kept for RG_RATE_BURST_S. */
#ifndef RG_GCS_REQUEST_RATE_H
#define RG_GCS_REQUEST_RATE_H

#include "runtime/base.h"

/* Where the documented ramp begins, for all of a job. */
#define RG_RATE_RAMP_READS_PER_S 5000
#define RG_RATE_RAMP_WRITES_PER_S 1000
#define RG_RATE_STEP 1.0352649238413776 /* 2^(1/20) */
#define RG_RATE_STEP_NS (60 * RG_NS_PER_S)
/* Tokens are kept for this part of a second. */
#define RG_RATE_BURST_S 0.25

/* Requests a second; 0: none. */
struct rg_rate_options {
    double ceiling;
    double ramp; /* where it begins */
};

struct rg_rate {
    struct rg_rate_options options;
    double ramp, tokens; /* the ramp's rate now */
    uint64_t filled_ns, step_ns;
    double used; /* tokens since step_ns */
    bool throttled;
};

void rg_rate_init(struct rg_rate *rate, const struct rg_rate_options *options, uint64_t now_ns);
/* The lower ceiling now; 0: there is none. */
static inline double rg_rate_per_s(const struct rg_rate *rate)
{
    double ceiling = rate->options.ceiling, ramp = rate->ramp;
    if (ceiling == 0 || ramp == 0) {
        return ceiling + ramp;
    }
    return RG_MIN(ceiling, ramp);
}

/* True: a request may begin. */
bool rg_rate_take(struct rg_rate *rate, uint64_t now_ns);
/* After a refusal: when there will be a token. */
uint64_t rg_rate_next_ns(const struct rg_rate *rate, uint64_t now_ns);

/* The service answered 429 or 503. */
static inline void rg_rate_throttled(struct rg_rate *rate)
{
    rate->throttled = true;
}

#endif
