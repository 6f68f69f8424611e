/* How long an answer may take before it is given up and asked for again: a protocol core without
 * clock or I/O, one for each bucket and kind of request.
 *
 * Until the head. The delay v hovers at the p-quantile of the time to the head, by the algorithm
 * of Google's Go client and gcsfuse: with
 *
 *     inc = max(1.001, exp(ln 2 / rate))        dec = min(0.9999, exp(-ln(inc) * (1 - p) / p))
 *
 * a head after t makes v = t > v ? min(max, v * inc) : max(min, v * dec), and a request that was
 * given up makes v = min(max, v * inc). Since inc^(1-p) * dec^p = 1, v stays where it is when the
 * share p of the heads comes in time. Going down from where it begins takes thousands of requests;
 * so once RG_STALL_SAMPLES_MIN heads have come, v is cut to RG_STALL_MARGIN times their p99.
 *
 * In the body. The longest silence that is waited for is RG_STALL_MARGIN times the p99 of the time
 * between arrivals, at least RG_STALL_SILENCE_MIN_NS. */
#ifndef RG_GCS_REQUEST_STALL_H
#define RG_GCS_REQUEST_STALL_H

#include "gcs/request/quantile.h"

#define RG_STALL_MARGIN 4
#define RG_STALL_SAMPLES_MIN 100
#define RG_STALL_SILENCE_MIN_NS (2 * RG_NS_PER_S)
/* What others of the host know counts for a new process, but not below so many times the least. */
#define RG_STALL_LEARNED 4

/* gcsfuse's figures. */
#define RG_STALL_P 0.99
#define RG_STALL_RATE 15
#define RG_STALL_INITIAL_NS (20 * RG_NS_PER_S)
#define RG_STALL_MIN_NS (1500 * RG_NS_PER_MS)

struct rg_stall_options {
    double p, rate;
    uint64_t initial_ns, min_ns, max_ns; /* the initial value and min are cut to max */
};

struct rg_stall {
    double value_ns, min_ns, max_ns, increase, decrease;
    uint64_t silence_ns, silence_max_ns;
    uint32_t head_count, arrival_count; /* stop counting at some point above the least */
    bool started;                       /* the value was cut */
};

/* silence_max_ns: the longest silence in a body, and how long is waited while nothing is known. */
void rg_stall_init(struct rg_stall *stall, const struct rg_stall_options *options,
                   uint64_t silence_max_ns);
/* A head came after `elapsed_ns`; `heads` has it already. */
void rg_stall_head(struct rg_stall *stall, uint64_t elapsed_ns, const struct rg_quantile *heads);
/* A request was given up. */
void rg_stall_expired(struct rg_stall *stall);
/* Bytes of a body came; `arrivals` has the time since those before them. */
void rg_stall_arrival(struct rg_stall *stall, const struct rg_quantile *arrivals);

/* Once, before anything is known here: the p99 that others of the host know, of heads and of the
 * time between arrivals; 0: they do not. */
void rg_stall_learn(struct rg_stall *stall, uint64_t late_ns, uint64_t silence_ns);

static inline uint64_t rg_stall_head_ns(const struct rg_stall *stall)
{
    return (uint64_t)stall->value_ns;
}

static inline uint64_t rg_stall_silence_ns(const struct rg_stall *stall)
{
    return stall->silence_ns;
}

#endif
