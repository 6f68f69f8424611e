/* Merging and reading metrics; writing them is inline: see metrics.h. */
#include "runtime/metrics.h"

static void merge_sum(_Atomic uint64_t *to, const _Atomic uint64_t *from)
{
    rg_metric_add(to, rg_metric_load(from));
}

static void merge_max(_Atomic uint64_t *to, const _Atomic uint64_t *from)
{
    rg_metric_raise(to, rg_metric_load(from));
}

void rg_metrics_merge(struct rg_metrics *to, const struct rg_metrics *from)
{
    RG_ASSERT(to != from);
#define XX(name, kind, unit, text) merge_sum(&to->name, &from->name);
    RG_METRIC_VALUES(XX)
#undef XX
    for (unsigned stage = 0; stage < RG_STAGE_COUNT; stage++) {
        merge_sum(&to->stages[stage], &from->stages[stage]);
    }
    for (unsigned part = 0; part < RG_CHECKPOINT_COUNT; part++) {
        merge_sum(&to->checkpoints[part], &from->checkpoints[part]);
    }
    for (unsigned status = 0; status < RG_STATUS_COUNT; status++) {
        merge_sum(&to->retries[status], &from->retries[status]);
        for (unsigned operation = 0; operation < RG_VERB_COUNT; operation++) {
            merge_sum(&to->requests[operation][status], &from->requests[operation][status]);
        }
    }
    for (unsigned operation = 0; operation < RG_VERB_COUNT; operation++) {
        rg_histogram_merge(&to->durations[operation], &from->durations[operation]);
    }
    for (unsigned phase = 0; phase < RG_PHASE_COUNT; phase++) {
        rg_histogram_merge(&to->phases[phase], &from->phases[phase]);
    }
}

void rg_histogram_merge(struct rg_histogram *to, const struct rg_histogram *from)
{
    RG_ASSERT(to != from);
    /* Most are empty. */
    if (rg_metric_load(&from->max) == 0 && rg_metric_load(&from->buckets[0]) == 0) {
        return;
    }
    for (unsigned i = 0; i < RG_HISTOGRAM_BUCKET_COUNT; i++) {
        merge_sum(&to->buckets[i], &from->buckets[i]);
    }
    merge_sum(&to->sum, &from->sum);
    merge_max(&to->max, &from->max);
}

void rg_histogram_record_shared(struct rg_histogram *histogram, uint64_t value_ns)
{
    uint64_t max = rg_metric_load(&histogram->max);
    while (value_ns > max &&
           !atomic_compare_exchange_weak_explicit(&histogram->max, &max, value_ns,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    atomic_fetch_add_explicit(&histogram->sum, value_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->buckets[rg_histogram_bucket(value_ns)], 1,
                              memory_order_relaxed);
}

uint64_t rg_histogram_below(const struct rg_histogram *histogram, unsigned bits)
{
    RG_ASSERT(bits >= RG_HISTOGRAM_BITS_MIN && bits <= RG_HISTOGRAM_BITS_MAX);
    uint32_t end = (bits - RG_HISTOGRAM_BITS_MIN + 1) * RG_HISTOGRAM_SUB_COUNT;
    uint64_t count = 0;
    for (uint32_t i = 0; i < end; i++) {
        count += rg_metric_load(&histogram->buckets[i]);
    }
    return count;
}

void rg_metrics_total(const struct rg_metrics *metrics, struct rg_histogram *out_total)
{
    for (unsigned operation = 0; operation < RG_VERB_COUNT; operation++) {
        rg_histogram_merge(out_total, &metrics->durations[operation]);
    }
}

uint64_t rg_metrics_retries(const struct rg_metrics *metrics)
{
    uint64_t count = 0;
    for (unsigned status = 0; status < RG_STATUS_COUNT; status++) {
        count += rg_metric_load(&metrics->retries[status]);
    }
    return count;
}

uint64_t rg_histogram_count(const struct rg_histogram *histogram)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < RG_HISTOGRAM_BUCKET_COUNT; i++) {
        count += rg_metric_load(&histogram->buckets[i]);
    }
    return count;
}

uint64_t rg_histogram_max(const struct rg_histogram *histogram)
{
    return rg_metric_load(&histogram->max);
}

/* The largest value that falls into the bucket. */
static uint64_t bucket_last(uint32_t bucket)
{
    RG_ASSERT(bucket < RG_HISTOGRAM_BUCKET_COUNT);
    if (bucket == RG_HISTOGRAM_BUCKET_COUNT - 1) {
        return UINT64_MAX;
    }
    unsigned row = bucket / RG_HISTOGRAM_SUB_COUNT;
    uint64_t sub = bucket % RG_HISTOGRAM_SUB_COUNT;
    unsigned shift = RG_HISTOGRAM_BITS_MIN - RG_HISTOGRAM_SUB_BITS;
    if (row > 0) {
        shift += row - 1;
        sub += RG_HISTOGRAM_SUB_COUNT;
    }
    return ((sub + 1) << shift) - 1;
}

/* Which of `count` sorted values, from 1, the quantile is. */
static uint64_t rank_of(double p, uint64_t count)
{
    RG_ASSERT(p >= 0.0);
    RG_ASSERT(p <= 1.0);
    double exact = p * (double)count;
    uint64_t rank = (uint64_t)exact;
    rank += (double)rank < exact;
    return RG_MAX(RG_MIN(rank, count), 1);
}

uint64_t rg_histogram_quantile(const struct rg_histogram *histogram, double p)
{
    uint64_t count = rg_histogram_count(histogram), max = rg_histogram_max(histogram), seen = 0;
    uint64_t rank = rank_of(p, count);
    for (uint32_t bucket = 0; bucket < RG_HISTOGRAM_BUCKET_COUNT; bucket++) {
        seen += rg_metric_load(&histogram->buckets[bucket]);
        if (seen >= rank) {
            return RG_MIN(bucket_last(bucket), max);
        }
    }
    RG_ASSERT(count == 0);
    return 0;
}

void rg_histogram_summarize(const struct rg_histogram *histogram, struct rg_latency *out_latency)
{
    RG_ASSERT(out_latency != NULL);
    *out_latency = (struct rg_latency){
        .count = rg_histogram_count(histogram),
        .p50_ns = rg_histogram_quantile(histogram, 0.5),
        .p99_ns = rg_histogram_quantile(histogram, 0.99),
        .p999_ns = rg_histogram_quantile(histogram, 0.999),
        .max_ns = rg_histogram_max(histogram),
    };
}
