/* What the library counts, for exporters to monitoring systems: each metric with its name, kind and
 * unit. docs/METRICS.md lists them. rg_stats has the most asked for as a struct. */
#ifndef RINGEST_METRICS_H
#define RINGEST_METRICS_H

#include <ringest/runtime.h>

/* A counter only grows, a gauge is as it is now, a histogram counts durations. */
enum rg_metric_kind { RG_METRIC_COUNTER, RG_METRIC_GAUGE, RG_METRIC_HISTOGRAM };

/* buckets[i] of a histogram: durations below 2^(RG_METRIC_BITS_MIN + i) ns: 16 us to 69 s. */
#define RG_METRIC_BITS_MIN 14
#define RG_METRIC_BUCKETS 23
#define RG_METRICS_MAX 512 /* there are never more */

struct rg_metric {
    const char *name, *unit, *text; /* in static storage, like the labels: never freed */
    const char *operation, *status; /* labels, NULL where there are none; of retries, the cause */
    enum rg_metric_kind kind;
    uint64_t value;              /* of a histogram: how many durations there are */
    uint64_t sum_ns;             /* this and all below: of histograms only */
    struct rg_latency durations; /* count is `value`; quantiles are exact to 1/16 */
    uint64_t buckets[RG_METRIC_BUCKETS];
};

/* What a get of an object is at, from the moment its loop takes it; told by the metrics
 * get_NAME_time and rg_reader_waited. */
enum rg_stage {
    RG_STAGE_NONE = 0,
    RG_STAGE_CACHE,
    RG_STAGE_TOKEN,
    RG_STAGE_THROTTLED, /* by a limit, or after an answer with status 429 or 503 */
    RG_STAGE_RETRY,
    RG_STAGE_QUEUE,   /* for a connection while none is being opened, ... */
    RG_STAGE_DNS,     /* ... or while some are, which look up names, ... */
    RG_STAGE_CONNECT, /* ... connect by TCP, ... */
    RG_STAGE_TLS,     /* ... or do their TLS handshake */
    RG_STAGE_FIRST_BYTE,
    RG_STAGE_BODY,
    RG_STAGE_MEMORY,
    RG_STAGE_COUNT
};

/* Parts of saving and loading a checkpoint; told by the metrics checkpoint_NAME_time. */
enum rg_checkpoint_part {
    RG_CHECKPOINT_STAGE = 0,
    RG_CHECKPOINT_UPLOAD,
    RG_CHECKPOINT_COMMIT,
    RG_CHECKPOINT_LIST,
    RG_CHECKPOINT_READ,
    RG_CHECKPOINT_PLACE,
    RG_CHECKPOINT_COUNT
};

RG_DECLS_BEGIN
/* A thread of the program has spent so long on it. Any thread; harmless in a child of fork(). */
RG_API void rg_checkpoint_took(struct rg_runtime *runtime, enum rg_checkpoint_part part,
                               uint64_t ns);
RG_API const char *rg_stage_name(enum rg_stage stage); /* "first_byte"; "none" */
/* Stores up to out_max metrics of a runtime; NULL: of all runtimes of this process, closed ones
 * too. Loops go on meanwhile: values are not of one instant. Labels that were never counted are
 * left out, but each name is there. Returns how many, -ENOMEM or -EOWNERDEAD. Any thread. */
RG_API int rg_metrics_snapshot_sized(const struct rg_runtime *runtime, struct rg_metric *out,
                                     uint32_t out_max, size_t struct_size);
static inline int rg_metrics_snapshot(const struct rg_runtime *runtime, struct rg_metric *out,
                                      uint32_t out_max)
{
    return rg_metrics_snapshot_sized(runtime, out, out_max, sizeof(*out));
}

RG_DECLS_END
#endif
