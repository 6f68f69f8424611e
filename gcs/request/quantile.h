/* What durations are usual lately: a small histogram that forgets, so that a quantile follows the
 * traffic. A protocol core without clock or memory of its own.
 *
 * Buckets are a quarter of a power of two wide, from 16 us to 69 s, so that a quantile is exact to
 * a fifth of its value, on the high side. When RG_QUANTILE_FORGET durations are in it all counts
 * are halved. */
#ifndef RG_GCS_REQUEST_QUANTILE_H
#define RG_GCS_REQUEST_QUANTILE_H

#include "runtime/base.h"

#define RG_QUANTILE_BITS_MIN 14
#define RG_QUANTILE_BITS_MAX 36
#define RG_QUANTILE_BUCKET_COUNT ((RG_QUANTILE_BITS_MAX - RG_QUANTILE_BITS_MIN) * 4 + 1)
#define RG_QUANTILE_FORGET 4096

/* Zeroed is empty. */
struct rg_quantile {
    uint32_t total;
    uint16_t counts[RG_QUANTILE_BUCKET_COUNT];
};

void rg_quantile_add(struct rg_quantile *quantile, uint64_t value_ns);
/* The largest value of the bucket that the quantile lies in: at least parts_per_1000 of the
 * durations are not above it. 0 of an empty one. O(buckets). */
uint64_t rg_quantile_at(const struct rg_quantile *quantile, uint32_t parts_per_1000);

#endif
