/* What was measured, together: see bench_result.h. */
#include "cli/bench_result.h"

#include <string.h>

size_t bench_result_size(uint32_t points_max)
{
    return sizeof(struct bench_result) + points_max * sizeof(struct bench_point);
}

/* The part in which a moment is. NULL: there are none. */
static struct bench_point *point_at(struct bench_result *result, uint64_t time_ns)
{
    if (result->interval_ns == 0) {
        return NULL;
    }
    uint64_t since = time_ns > result->started_ns ? time_ns - result->started_ns : 0;
    uint64_t index = RG_MIN(since / result->interval_ns, (uint64_t)result->points_max - 1);
    result->point_count = RG_MAX(result->point_count, (uint32_t)index + 1);
    return &result->points[index];
}

static void latency_add(struct histogram *histogram, uint64_t from_ns, uint64_t finished_ns)
{
    if (from_ns != 0) {
        histogram_add(histogram, finished_ns - from_ns);
    }
}

void bench_result_add(struct bench_result *result, uint64_t from_ns, uint64_t finished_ns,
                      uint64_t bytes)
{
    result->requests++;
    result->bytes += bytes;
    if (result->first_ns == 0 || finished_ns < result->first_ns) {
        result->first_ns = finished_ns;
    }
    latency_add(&result->latency, from_ns, finished_ns);
    if (result->ramp.seconds > 0 &&
        (double)finished_ns < (double)result->started_ns + result->ramp.seconds * 1e9) {
        result->ramp.requests++;
        result->ramp.bytes += bytes;
    }
    struct bench_point *point = point_at(result, finished_ns);
    if (point != NULL) {
        point->requests++;
        point->bytes += bytes;
        latency_add(&point->latency, from_ns, finished_ns);
    }
}

void bench_result_add_failed(struct bench_result *result)
{
    result->requests++;
    result->failed++;
}

void bench_result_add_cpu(struct bench_result *result, uint64_t now_ns, double cpu_s)
{
    /* What ends with a part belongs to it. */
    struct bench_point *point = point_at(result, now_ns - 1);
    if (point != NULL) {
        point->cpu_s += cpu_s;
    }
}

static void phase_merge(struct bench_phase *phase, const struct bench_phase *other)
{
    phase->seconds = RG_MAX(phase->seconds, other->seconds);
    phase->requests += other->requests;
    phase->bytes += other->bytes;
}

static void points_merge(struct bench_result *result, const struct bench_result *other)
{
    RG_ASSERT(other->point_count <= result->points_max);
    result->point_count = RG_MAX(result->point_count, other->point_count);
    for (uint32_t i = 0; i < other->point_count; i++) {
        struct bench_point *point = &result->points[i];
        const struct bench_point *more = &other->points[i];
        point->requests += more->requests;
        point->bytes += more->bytes;
        point->cpu_s += more->cpu_s;
        histogram_merge(&point->latency, &more->latency);
    }
}

static void counts_merge(struct bench_result *result, const struct bench_result *other)
{
    result->requests += other->requests;
    result->failed += other->failed;
    result->bytes += other->bytes;
    result->names += other->names;
    result->errors += other->errors;
    result->attempts += other->attempts;
    result->retries += other->retries;
    result->hedges += other->hedges;
    result->recv_bytes += other->recv_bytes;
    result->sent_bytes += other->sent_bytes;
    result->connections += other->connections;
    result->opened += other->opened;
    result->cache_hits += other->cache_hits;
    result->cache_misses += other->cache_misses;
    result->due += other->due;
    result->unsent += other->unsent;
    result->late_ns = RG_MAX(result->late_ns, other->late_ns);
    result->backoffs += other->backoffs;
    result->bucket_rate_per_s += other->bucket_rate_per_s;
    result->removed += other->removed;
    result->left += other->left;
}

/* The first of two times, of which 0 is none. */
static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 || b == 0 ? a | b : RG_MIN(a, b);
}

void bench_result_merge(struct bench_result *result, const struct bench_result *other)
{
    counts_merge(result, other);
    result->started_ns = earlier(result->started_ns, other->started_ns);
    result->first_ns = earlier(result->first_ns, other->first_ns);
    result->finished_ns = RG_MAX(result->finished_ns, other->finished_ns);
    result->cpu_user_s += other->cpu_user_s;
    result->cpu_system_s += other->cpu_system_s;
    result->rss_max_bytes += other->rss_max_bytes;
    if (result->backend[0] == '\0') {
        memcpy(result->backend, other->backend, sizeof(result->backend));
        memcpy(result->backend_reason, other->backend_reason, sizeof(result->backend_reason));
    }
    phase_merge(&result->warm_up, &other->warm_up);
    phase_merge(&result->ramp, &other->ramp);
    histogram_merge(&result->latency, &other->latency);
    points_merge(result, other);
}

uint64_t bench_result_done(const struct bench_result *result)
{
    return result->requests - result->failed;
}

double bench_result_seconds(const struct bench_result *result)
{
    return (double)(result->finished_ns - result->started_ns) / 1e9;
}

double bench_result_cpu_s(const struct bench_result *result)
{
    return result->cpu_user_s + result->cpu_system_s;
}

double bench_result_point_end_s(const struct bench_result *result, uint32_t point)
{
    double seconds = bench_result_seconds(result);
    double end = (double)(point + 1) * (double)result->interval_ns / 1e9;
    return point + 1 == result->point_count ? seconds : RG_MIN(end, seconds);
}

bool bench_result_keeps_rate(const struct bench_result *result)
{
    return result->unsent * 100 <= result->due;
}
