/* What one event loop counts: counters and histograms of durations.
 *
 * The loop's own thread is the only writer, but for the phase CONSUMER_WAIT, checkpoints, and
 * windows. It uses relaxed atomic
 * stores, no lock and no locked instruction, so that any other thread can read whole values at any
 * time. A reader sees each value as it was at some recent moment, not all of them at the same one.
 * To look at several loops, or to compute a quantile, merge them into a zeroed struct rg_metrics of
 * one's own. */
#ifndef RG_RUNTIME_METRICS_H
#define RG_RUNTIME_METRICS_H

#include "runtime/base.h"
#include "runtime/metric_table.h"

#include <ringest/error.h>
#include <ringest/metrics.h>
#include <ringest/runtime.h>

#include <assert.h>
#include <stdatomic.h>

enum rg_phase {
#define XX(name, enumerator, text) RG_PHASE_##enumerator,
    RG_METRIC_PHASES(XX)
#undef XX
        RG_PHASE_COUNT
};

/* What a program asks for: the label of requests. Zero is what nobody has named. */
enum rg_verb {
#define XX(name, enumerator) RG_VERB_##enumerator,
    RG_METRIC_OPERATIONS(XX)
#undef XX
        RG_VERB_COUNT
};

/* Log-linear buckets: RG_HISTOGRAM_SUB_COUNT equal ones per power of two, so that a bucket is at
 * most 1/16 of its values wide. Below 2^RG_HISTOGRAM_BITS_MIN ns (about 1 us) they are 64 ns wide;
 * at 2^RG_HISTOGRAM_BITS_MAX ns (137 s) and above there is one for the rest. */
#define RG_HISTOGRAM_SUB_BITS 4
#define RG_HISTOGRAM_SUB_COUNT (1u << RG_HISTOGRAM_SUB_BITS)
#define RG_HISTOGRAM_BITS_MIN 10
#define RG_HISTOGRAM_BITS_MAX 37
#define RG_HISTOGRAM_BUCKET_COUNT                                                                  \
    ((RG_HISTOGRAM_BITS_MAX - RG_HISTOGRAM_BITS_MIN + 1) * RG_HISTOGRAM_SUB_COUNT + 1)

/* Zeroed is empty. */
struct rg_histogram {
    _Atomic uint64_t max, sum;
    _Atomic uint64_t buckets[RG_HISTOGRAM_BUCKET_COUNT];
};
static_assert(sizeof(struct rg_histogram) < 4096, "a loop's histograms stay small");

/* Zeroed is empty. */
struct rg_metrics {
#define XX(name, kind, unit, text) _Atomic uint64_t name;
    RG_METRIC_VALUES(XX)
#undef XX
    _Atomic uint64_t requests[RG_VERB_COUNT][RG_STATUS_COUNT];
    _Atomic uint64_t retries[RG_STATUS_COUNT];
    _Atomic uint64_t stages[RG_STAGE_COUNT];           /* of gets, in ns; see runtime/stages.h */
    _Atomic uint64_t checkpoints[RG_CHECKPOINT_COUNT]; /* in ns */
    struct rg_histogram durations[RG_VERB_COUNT];      /* of requests */
    struct rg_histogram phases[RG_PHASE_COUNT];
};

/* Adds all of `from`, which its own thread may be writing, to `to`, which no other thread uses. */
void rg_metrics_merge(struct rg_metrics *to, const struct rg_metrics *from);

/* O(1); called by the writing thread only. */
static inline void rg_histogram_record(struct rg_histogram *histogram, uint64_t value_ns);
/* The same of a histogram that many threads write, by locked instructions. */
void rg_histogram_record_shared(struct rg_histogram *histogram, uint64_t value_ns);
void rg_histogram_merge(struct rg_histogram *to, const struct rg_histogram *from);
uint64_t rg_histogram_count(const struct rg_histogram *histogram);
uint64_t rg_histogram_max(const struct rg_histogram *histogram);
/* How many values are below 2^bits ns; bits from RG_HISTOGRAM_BITS_MIN to RG_HISTOGRAM_BITS_MAX. */
uint64_t rg_histogram_below(const struct rg_histogram *histogram, unsigned bits);
/* Of all operations together; to a zeroed one. */
void rg_metrics_total(const struct rg_metrics *metrics, struct rg_histogram *out_total);
uint64_t rg_metrics_retries(const struct rg_metrics *metrics);

/* The smallest value that at least the fraction p (0 to 1) of all values do not exceed; 0 of an
 * empty histogram. Never below the true one, and above it by at most 1/16 of it or 64 ns; from
 * 137 s on the largest value instead. p = 1 gives exactly the largest. */
uint64_t rg_histogram_quantile(const struct rg_histogram *histogram, double p);
void rg_histogram_summarize(const struct rg_histogram *histogram, struct rg_latency *out_latency);

/* One writer: a load and a store, where two writers would need an atomic addition. */
static inline void rg_metric_store(_Atomic uint64_t *metric, uint64_t value)
{
    atomic_store_explicit(metric, value, memory_order_relaxed);
}

static inline uint64_t rg_metric_load(const _Atomic uint64_t *metric)
{
    return atomic_load_explicit(metric, memory_order_relaxed);
}

static inline void rg_metric_add(_Atomic uint64_t *metric, uint64_t amount)
{
    rg_metric_store(metric, rg_metric_load(metric) + amount);
}

static inline void rg_metric_raise(_Atomic uint64_t *metric, uint64_t value)
{
    if (value > rg_metric_load(metric)) {
        rg_metric_store(metric, value);
    }
}

static inline uint32_t rg_histogram_bucket(uint64_t value_ns)
{
    const unsigned shift_min = RG_HISTOGRAM_BITS_MIN - RG_HISTOGRAM_SUB_BITS;
    if (value_ns >> RG_HISTOGRAM_BITS_MIN == 0) {
        return (uint32_t)(value_ns >> shift_min);
    }
    if (value_ns >> RG_HISTOGRAM_BITS_MAX != 0) {
        return RG_HISTOGRAM_BUCKET_COUNT - 1;
    }
    unsigned shift = 63 - (unsigned)__builtin_clzll(value_ns) - RG_HISTOGRAM_SUB_BITS;
    /* The leading bit is still in the shifted value and counts for one more row of buckets, which
     * is the linear row below the first power of two. */
    return (shift - shift_min) * RG_HISTOGRAM_SUB_COUNT + (uint32_t)(value_ns >> shift);
}

static inline void rg_histogram_record(struct rg_histogram *histogram, uint64_t value_ns)
{
    uint32_t bucket = rg_histogram_bucket(value_ns);
    RG_VERIFY(value_ns <= INT64_MAX); /* what is above came from a subtraction below zero */
    RG_ASSERT(bucket < RG_HISTOGRAM_BUCKET_COUNT);
    rg_metric_raise(&histogram->max, value_ns);
    rg_metric_add(&histogram->sum, value_ns);
    rg_metric_add(&histogram->buckets[bucket], 1);
}

static inline void rg_metrics_refusal(struct rg_metrics *metrics, uint16_t http_status)
{
    if (http_status == 429) {
        rg_metric_add(&metrics->refused_429, 1);
    } else if (http_status == 503) {
        rg_metric_add(&metrics->refused_503, 1);
    }
}

/* A request of the program has ended. */
static inline void rg_metrics_request(struct rg_metrics *metrics, enum rg_verb operation,
                                      enum rg_status status, uint64_t duration_ns)
{
    rg_metric_add(&metrics->requests[operation][status], 1);
    rg_histogram_record(&metrics->durations[operation], duration_ns);
}

#endif
