/* See quantile.h. */
#include "gcs/request/quantile.h"

static_assert(RG_QUANTILE_FORGET <= UINT16_MAX, "a count holds them all");

/* The total is the sum of the counts, which are halved when it reaches RG_QUANTILE_FORGET. */
static bool invariants(const struct rg_quantile *quantile)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < RG_QUANTILE_BUCKET_COUNT; i++) {
        sum += quantile->counts[i];
    }
    return sum == quantile->total && sum < RG_QUANTILE_FORGET;
}

static uint32_t bucket_of(uint64_t value_ns)
{
    if (value_ns >> RG_QUANTILE_BITS_MIN == 0) {
        return 0;
    }
    unsigned power = 63 - (unsigned)__builtin_clzll(value_ns);
    uint32_t bucket =
        (power - RG_QUANTILE_BITS_MIN) * 4 + (uint32_t)(value_ns >> (power - 2) & 3) + 1;
    return RG_MIN(bucket, RG_QUANTILE_BUCKET_COUNT - 1u);
}

/* The first value above the bucket. */
static uint64_t bucket_end(uint32_t bucket)
{
    uint32_t power = RG_QUANTILE_BITS_MIN + bucket / 4;
    return (UINT64_C(4) + bucket % 4) << (power - 2);
}

static void forget(struct rg_quantile *quantile)
{
    quantile->total = 0;
    for (uint32_t i = 0; i < RG_QUANTILE_BUCKET_COUNT; i++) {
        quantile->counts[i] /= 2;
        quantile->total += quantile->counts[i];
    }
}

void rg_quantile_add(struct rg_quantile *quantile, uint64_t value_ns)
{
    quantile->counts[bucket_of(value_ns)]++;
    if (++quantile->total == RG_QUANTILE_FORGET) {
        forget(quantile);
    }
    RG_VERIFY(invariants(quantile));
}

uint64_t rg_quantile_at(const struct rg_quantile *quantile, uint32_t parts_per_1000)
{
    RG_ASSERT(parts_per_1000 <= 1000);
    uint64_t wanted = ((uint64_t)quantile->total * parts_per_1000 + 999) / 1000;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < RG_QUANTILE_BUCKET_COUNT; i++) {
        seen += quantile->counts[i];
        if (seen >= wanted && seen > 0) {
            return bucket_end(i) - 1;
        }
    }
    return 0;
}
