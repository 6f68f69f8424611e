/* What a loop tells of a bucket: other loops what they can learn from (struct rg_peer), and people
 * what it does (struct rg_account). A protocol core without clock or I/O, but for the number and
 * the name of the process. */
#ifndef RG_GCS_REQUEST_TELLING_H
#define RG_GCS_REQUEST_TELLING_H

#include "gcs/host/peers.h"
#include "gcs/request/limiter.h"
#include "gcs/request/quantile.h"

#include <ringest/gcs.h>

/* What it has done in the bucket since it knows it. */
struct rg_tally {
    uint64_t since_ns;
    uint64_t requests; /* attempts that have ended */
    uint64_t bytes;    /* of bodies, in both directions */
    uint64_t retries;
};

/* since_ns: what began later is told as if it were out, so that somebody with one short request
 * after the other is seen. */
struct rg_peer_side rg_telling_side(const struct rg_limiter *limiter, bool waits,
                                    uint64_t since_ns);
/* For the statistics of a bucket: the rate is 0 where the service holds nothing back, and `waiting`
 * counts only where there is a rate. */
struct rg_bucket_side rg_telling_stats(const struct rg_limiter *limiter, uint32_t waiting,
                                       uint64_t now_ns);
struct rg_peer_kind rg_telling_kind(const struct rg_quantile *heads,
                                    const struct rg_quantile *arrivals);

/* Fill an account, in this order. */
void rg_telling_account(struct rg_account *account, const char *bucket,
                        const struct rg_tally *tally, uint64_t now_ns);
/* Adds what is in flight, and the rates of those that are held back. */
void rg_telling_limits(struct rg_account *account, const struct rg_limiter *const *limiters,
                       uint32_t count);
void rg_telling_heads(struct rg_account *account, const struct rg_quantile *heads);

#endif
