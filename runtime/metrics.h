/* What one event loop counts: counters and histograms of durations.
 *
 * The loop's own thread is the only writer. It uses relaxed atomic stores, no lock and no locked
 * instruction, so that any other thread can read whole values at any time. A reader sees each value
 * as it was at some recent moment, not all of them at the same one. To look at several loops, or to
 * compute a quantile, merge them into a zeroed struct rg_metrics of one's own. */
#ifndef RG_RUNTIME_METRICS_H
#define RG_RUNTIME_METRICS_H

#include "runtime/base.h"

#include <ringest/runtime.h>

#include <assert.h>
#include <stdatomic.h>

/* XX(name, merge): `sum` adds up the loops, `max` takes the largest of them. */
#define RG_METRICS_COUNTERS(XX)                                                                    \
    XX(enters, sum)             /* system calls that entered the kernel for I/O */                 \
    XX(wakeups, sum)            /* returns of the loop from waiting */                             \
    XX(cqes, sum)               /* completions taken from the kernel */                            \
    XX(recv_bytes, sum)         /* from sockets, TLS included */                                   \
    XX(sent_bytes, sum)         /* to sockets, TLS included */                                     \
    XX(requests, sum)           /* attempts sent, retries included */                              \
    XX(retries, sum)            /* attempts after the first */                                     \
    XX(hedges, sum)             /* second attempts beside a slow first one */                      \
    XX(hedge_wins, sum)         /* of them, those that answered first */                           \
    XX(in_flight, sum)          /* attempts that are out now, or wait for a connection */          \
    XX(limited, sum)            /* times an attempt had to wait for its bucket's limits */         \
    XX(backoffs, sum)           /* times a bucket's limit was cut */                               \
    XX(concurrency_limit, sum)  /* the tightest now, stored with rg_metric_store; 0: none */       \
    XX(timeouts, sum)           /* deadlines of any kind that fired */                             \
    XX(connections_opened, sum) /* connected, and handshaken where there is TLS */                 \
    XX(connections_closed, sum) /* of those opened */                                              \
    XX(connections_failed, sum) /* never opened */                                                 \
    XX(tls_resumed, sum)        /* handshakes that resumed a session */                            \
    XX(cache_hits, sum)         /* reads that the cache answered */                                \
    XX(cache_hit_bytes, sum)    /* of their bodies */                                              \
    XX(cache_misses, sum)       /* reads that the cache was asked for, and were sent */            \
    XX(cache_bad, sum)          /* blocks that were not what was written */                        \
    XX(cache_writes, sum)       /* blocks that were handed to the cache */                         \
    XX(cache_drops, sum)        /* blocks that the cache did not take */                           \
    XX(slab_starved, sum)       /* times a connection waited for leased memory to come back */     \
    XX(slab_bytes, sum)         /* leased out now: stored with rg_metric_store */                  \
    XX(slab_bytes_max, max)     /* most ever leased out at once by one loop */

/* XX(name, enumerator): the parts of a request's time, one histogram each. */
#define RG_METRICS_PHASES(XX)                                                                      \
    XX(queue, QUEUE)           /* submitted until it has a connection */                           \
    XX(dns, DNS)               /* one look-up */                                                   \
    XX(connect, CONNECT)       /* one TCP connection */                                            \
    XX(tls, TLS)               /* one handshake */                                                 \
    XX(first_byte, FIRST_BYTE) /* request sent until the head of the answer is there */            \
    XX(body, BODY)             /* head until the last byte */                                      \
    XX(total, TOTAL)           /* submitted until completed, retries included */

enum rg_phase {
#define XX(name, enumerator) RG_PHASE_##enumerator,
    RG_METRICS_PHASES(XX)
#undef XX
        RG_PHASE_COUNT
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
    _Atomic uint64_t max;
    _Atomic uint64_t buckets[RG_HISTOGRAM_BUCKET_COUNT];
};
static_assert(sizeof(struct rg_histogram) < 4096, "a loop's histograms stay small");

/* Zeroed is empty. */
struct rg_metrics {
#define XX(name, merge) _Atomic uint64_t name;
    RG_METRICS_COUNTERS(XX)
#undef XX
    struct rg_histogram phases[RG_PHASE_COUNT];
};

/* Adds all of `from`, which its own thread may be writing, to `to`, which no other thread uses. */
void rg_metrics_merge(struct rg_metrics *to, const struct rg_metrics *from);

/* O(1); called by the writing thread only. */
static inline void rg_histogram_record(struct rg_histogram *histogram, uint64_t value_ns);
void rg_histogram_merge(struct rg_histogram *to, const struct rg_histogram *from);
uint64_t rg_histogram_count(const struct rg_histogram *histogram);
uint64_t rg_histogram_max(const struct rg_histogram *histogram);

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
    rg_metric_add(&histogram->buckets[bucket], 1);
}

#endif
