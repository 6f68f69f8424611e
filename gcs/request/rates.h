/* The rates of the buckets that a client talks to: one for the reads and one for the writes of each
 * bucket, which all of the client's event loops share (rate.h).
 *
 *   made with the client, where a rate was asked for -> a loop joins a bucket, and leaves it when
 *   its own table needs the room -> freed with the client
 *
 * The table is bounded: the bucket that no loop has joined and that was used the longest time ago
 * makes room, and where loops are in all of them buckets share. */
#ifndef RG_GCS_REQUEST_RATES_H
#define RG_GCS_REQUEST_RATES_H

#include "gcs/request/rate.h"

#define RG_RATES_BUCKETS_MAX 64

struct rg_rates;
struct rg_rates_bucket;

/* *out_rates is the caller's; NULL where neither reads nor writes have a rate. -ENOMEM. */
int rg_rates_create(struct rg_rates **out_rates, const struct rg_rate_options *reads,
                    const struct rg_rate_options *writes);
/* NULL is fine. */
void rg_rates_destroy(struct rg_rates *rates);

/* Any thread. What it returns stays as it is until it is left. */
struct rg_rates_bucket *rg_rates_join(struct rg_rates *rates, const char *name, uint64_t now_ns);
void rg_rates_leave(struct rg_rates *rates, struct rg_rates_bucket *bucket);

/* NULL: there is none. */
struct rg_rate *rg_rates_reads(struct rg_rates_bucket *bucket);
struct rg_rate *rg_rates_writes(struct rg_rates_bucket *bucket);

#endif
