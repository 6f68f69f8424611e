/* Log-linear buckets: see histogram.h. */
#include "cli/histogram.h"

/* Between a power of two and the next: enough for three significant digits. */
#define HALF_BITS 10
#define HALF (UINT64_C(1) << HALF_BITS)

/* A time with more than HALF_BITS + 1 bits loses the lowest; what is left is HALF to 2 HALF - 1. */
static uint32_t index_of(uint64_t value)
{
    unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1);
    unsigned shift = bits > HALF_BITS + 1 ? bits - HALF_BITS - 1 : 0;
    return (uint32_t)(shift * HALF + (value >> shift));
}

uint64_t histogram_bound(uint32_t bucket)
{
    unsigned shift = bucket < 2 * HALF ? 0 : bucket / HALF - 1;
    return ((bucket - shift * HALF + 1) << shift) - 1;
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    value = RG_MIN(value, HISTOGRAM_VALUE_MAX);
    uint32_t index = index_of(value);
    RG_ASSERT(index < HISTOGRAM_BUCKETS);
    histogram->first = histogram->total == 0 ? index : RG_MIN(histogram->first, index);
    histogram->end = RG_MAX(histogram->end, index + 1);
    histogram->max = RG_MAX(histogram->max, value);
    histogram->counts[index]++;
    histogram->total++;
}

void histogram_merge(struct histogram *histogram, const struct histogram *other)
{
    if (other->total == 0) {
        return;
    }
    histogram->first =
        histogram->total == 0 ? other->first : RG_MIN(histogram->first, other->first);
    histogram->end = RG_MAX(histogram->end, other->end);
    histogram->max = RG_MAX(histogram->max, other->max);
    histogram->total += other->total;
    for (uint32_t i = other->first; i < other->end; i++) {
        histogram->counts[i] += other->counts[i];
    }
}

uint64_t histogram_quantile(const struct histogram *histogram, double share)
{
    double wanted = share * (double)histogram->total;
    uint64_t rank = (uint64_t)wanted, below = 0;
    rank += (double)rank < wanted || rank == 0;
    for (uint32_t i = histogram->first; i < histogram->end; i++) {
        below += histogram->counts[i];
        if (below >= rank) {
            return RG_MIN(histogram_bound(i), histogram->max);
        }
    }
    return histogram->max;
}

bool histogram_supports(const struct histogram *histogram, double share)
{
    return (double)histogram->total * (1 - share) >= 1 - 1e-9;
}
