/* What a process of `ringest bench` has measured, and what several have together.
 *
 * It has no pointers and a fixed size: processes write theirs into memory that they share. One of
 * zeros has measured nothing. */
#ifndef RG_CLI_BENCH_RESULT_H
#define RG_CLI_BENCH_RESULT_H

#include "cli/histogram.h"

/* Points of a series; the last one has the rest of the time. */
#define BENCH_POINTS_MAX 3600

/* A part of the time. Requests that failed are in none. */
struct bench_point {
    uint64_t requests, bytes;
    double cpu_s;
    struct histogram latency;
};

/* What was done before the load was whole. */
struct bench_phase {
    double seconds; /* 0: there was none */
    uint64_t requests, bytes;
};

struct bench_result {
    uint64_t requests, failed, bytes, names,
        errors;                         /* answered; of them in vain, which count nowhere else */
    uint64_t attempts, retries, hedges; /* sent; of them again, or beside a late one */
    uint64_t recv_bytes, sent_bytes;    /* of sockets, TLS included */
    uint64_t connections, opened;       /* at the end; while it was measured */
    uint64_t cache_hits, cache_misses;
    uint64_t started_ns, first_ns, finished_ns; /* first_ns: the first answer, 0: none */
    double cpu_user_s, cpu_system_s;
    uint64_t rss_max_bytes;
    /* Of a rate: how many were due, and never sent; how late the latest was sent. */
    uint64_t due, unsent, late_ns;
    uint64_t backoffs; /* times that the bucket asked for less */
    double bucket_rate_per_s;
    uint64_t removed, left; /* objects that put wrote */
    char backend[8], backend_reason[128];
    struct bench_phase warm_up, ramp;
    struct histogram latency;
    uint64_t interval_ns; /* 0: there are no points */
    uint32_t points_max, point_count;
    struct bench_point points[];
};

/* In bytes, for so many points. */
size_t bench_result_size(uint32_t points_max);
/* A request was answered with so many bytes of its object. Its latency counts from `from_ns`; 0: it
 * has none, since it was never sent. */
void bench_result_add(struct bench_result *result, uint64_t from_ns, uint64_t finished_ns,
                      uint64_t bytes);
/* A request was answered by an error, or with the wrong bytes. A server that fails is often
 * quicker, and shall not look better for it. */
void bench_result_add_failed(struct bench_result *result);
/* CPU time of the part up to `now_ns`. */
void bench_result_add_cpu(struct bench_result *result, uint64_t now_ns, double cpu_s);
/* Adds what another process has measured at the same time. */
void bench_result_merge(struct bench_result *result, const struct bench_result *other);

/* Requests that did what was asked. */
uint64_t bench_result_done(const struct bench_result *result);
double bench_result_seconds(const struct bench_result *result);
double bench_result_cpu_s(const struct bench_result *result);
/* When the part with this number ends, in seconds from the start. */
double bench_result_point_end_s(const struct bench_result *result, uint32_t point);
/* Whether so much was sent that the rate can be said to have been kept: all but a hundredth. */
bool bench_result_keeps_rate(const struct bench_result *result);

#endif
