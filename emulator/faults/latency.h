/* How slow the emulator pretends to be: the latency of the first byte, drawn from a log-normal
 * distribution, and a limit on requests per second over all loops. The bandwidth of a connection
 * needs no model: it is a number in the response. */
#ifndef RG_EMULATOR_FAULTS_LATENCY_H
#define RG_EMULATOR_FAULTS_LATENCY_H

#include "runtime/base.h"

#include <stdatomic.h>

#define RG_LATENCY_MS_MAX 3600000.0
/* Draws are cut off here, so that one request in millions does not hang for hours. */
#define RG_LATENCY_NS_MAX (3600 * RG_NS_PER_S)

/* exp(mu + sigma z) nanoseconds for a standard normal z. Zeroed: none. */
struct rg_latency_model {
    double median_ns, sigma;
};

/* "P50" or "P50:P99" in milliseconds, as in 30:120. 0, or -EINVAL when it is neither. */
int rg_latency_parse(const char *text, struct rg_latency_model *out_latency);
/* A draw; `random` is the caller's generator, any seed. */
uint64_t rg_latency_draw(const struct rg_latency_model *latency, uint64_t *random);

/* The virtual scheduling form of a token bucket: one number that all loops share. Zeroed: none. */
struct rg_rate_limit {
    uint64_t interval_ns;    /* Between requests at the full rate. */
    uint64_t burst_ns;       /* How far ahead of that the requests may run. */
    _Atomic uint64_t due_ns; /* When the next request is due. */
};

/* After a pause, the requests of a tenth of a second may come at once. */
void rg_rate_limit_init(struct rg_rate_limit *limit, double requests_per_second);
/* Whether a request may pass at `now_ns`. One that passes is counted. Any thread. */
bool rg_rate_limit_take(struct rg_rate_limit *limit, uint64_t now_ns);

#endif
