/* How many requests to one bucket may begin in a second: a protocol core without clock or I/O,
 * which all event loops of a client share.
 *
 * Two ceilings, each of which may be missing, and of which the lower one counts:
 *
 *   - a fixed one;
 *   - the ramp that Google's guide to request rates asks for: begin at a documented rate, and at
 *     most double it every 20 minutes. A minute that used more than half of what it might, and saw
 *     no 429 or 503, raises it by 2^(1/20). A minute that used less than an eighth lowers it again,
 *     down to where it began.
 *
 * Time is a row of slots, one for each request, as far apart as the rate says (the virtual
 * scheduling of ITU-T I.371). Whoever wants to begin takes the next slot, by one atomic step, and
 * waits until it has come. So each loop gets its turn, and together they have the whole rate,
 * however unequally requests are spread. Slots that nobody took are kept for RG_RATE_BURST_NS. */
#ifndef RG_GCS_REQUEST_RATE_H
#define RG_GCS_REQUEST_RATE_H

#include "runtime/base.h"

#include <stdatomic.h>

/* Where the documented ramp begins, for all of a job. */
#define RG_RATE_RAMP_READS_PER_S 5000
#define RG_RATE_RAMP_WRITES_PER_S 1000
#define RG_RATE_STEP 1.0352649238413776 /* 2^(1/20) */
#define RG_RATE_STEP_NS (60 * RG_NS_PER_S)
#define RG_RATE_BURST_NS (RG_NS_PER_S / 4)

/* Requests a second; 0: none. */
struct rg_rate_options {
    double ceiling;
    double ramp; /* where it begins */
};

struct rg_rate {
    struct rg_rate_options options; /* one of them is not 0 */
    _Atomic uint64_t next_ns;       /* the slot that is taken next */
    _Atomic uint64_t interval_ns;   /* from one slot to the next; at least 1 */
    _Atomic double ramp;            /* its rate now */
    _Atomic uint64_t step_ns, used; /* slots since step_ns */
    _Atomic bool throttled;
};

/* Before another thread knows it. */
void rg_rate_init(struct rg_rate *rate, const struct rg_rate_options *options, uint64_t now_ns);
/* The lower ceiling now. Any thread, as all that follows. */
static inline double rg_rate_per_s(const struct rg_rate *rate)
{
    double ceiling = rate->options.ceiling;
    double ramp = atomic_load_explicit(&rate->ramp, memory_order_relaxed);
    if (ceiling == 0 || ramp == 0) {
        return ceiling + ramp;
    }
    return RG_MIN(ceiling, ramp);
}

/* Takes the next slot. Returns when it is; it has come when that is not after now_ns. */
uint64_t rg_rate_take(struct rg_rate *rate, uint64_t now_ns);

/* The service answered 429 or 503. */
static inline void rg_rate_throttled(struct rg_rate *rate)
{
    atomic_store_explicit(&rate->throttled, true, memory_order_relaxed);
}

#endif
