/* A histogram of times, in nanoseconds from 0 to an hour: exact to three significant digits, of a
 * fixed size, and merged without loss. Buckets are log-linear, as HdrHistogram's with these
 * parameters: 1024 of equal width between a power of two and the next, and width 1 below 2048.
 *
 * One of zeros is empty. */
#ifndef RG_CLI_HISTOGRAM_H
#define RG_CLI_HISTOGRAM_H

#include "runtime/base.h"

#define HISTOGRAM_SIGNIFICANT_DIGITS 3
/* Longer times count as this long. */
#define HISTOGRAM_VALUE_MAX (3600 * RG_NS_PER_S)
/* That of the longest is 33420. */
#define HISTOGRAM_BUCKETS 33421

struct histogram {
    uint64_t total, max; /* how many times, and the longest, which is exact up to an hour */
    uint32_t first, end; /* only these buckets hold any */
    uint64_t counts[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *histogram, const struct histogram *other);

/* The time that this share of them, from 0 to 1, is at most: of the bucket the longest, and no more
 * than the longest of all. 0 of an empty one. */
uint64_t histogram_quantile(const struct histogram *histogram, double share);
/* Whether a time is expected beyond it: of fewer, a quantile is the longest of all. */
bool histogram_supports(const struct histogram *histogram, double share);
/* The longest time of a bucket. */
uint64_t histogram_bound(uint32_t bucket);

#endif
