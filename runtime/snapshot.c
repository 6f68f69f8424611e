/* What <ringest/metrics.h> declares: the table of runtime/metric_table.h with its values. No state.
 */
#include "runtime/metrics.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <ringest/metrics.h>
#include <stdlib.h>
#include <string.h>

static_assert(RG_METRIC_BITS_MIN >= RG_HISTOGRAM_BITS_MIN &&
                  RG_METRIC_BITS_MIN + RG_METRIC_BUCKETS - 1 <= RG_HISTOGRAM_BITS_MAX,
              "each bucket ends where ones of the histogram do");
static_assert(RG_METRICS_MAX >=
                  64 + RG_STATUS_COUNT * (RG_VERB_COUNT + 1) + RG_VERB_COUNT + RG_PHASE_COUNT,
              "all of them");

/* The caller's array, whose elements may be of another size. */
struct sheet {
    char *place;
    size_t struct_size;
    uint32_t count, max;
};

static void sheet_add(struct sheet *sheet, const struct rg_metric *metric)
{
    if (sheet->count < sheet->max) {
        memset(sheet->place, 0, sheet->struct_size);
        memcpy(sheet->place, metric, RG_MIN(sheet->struct_size, sizeof(*metric)));
        sheet->place += sheet->struct_size;
        sheet->count++;
    }
}

static void sheet_add_histogram(struct sheet *sheet, const char *name, const char *text,
                                const char *operation, const struct rg_histogram *histogram)
{
    struct rg_metric metric = {
        .name = name,
        .unit = "ns",
        .text = text,
        .operation = operation,
        .kind = RG_METRIC_HISTOGRAM,
        .sum_ns = rg_metric_load(&histogram->sum),
    };
    rg_histogram_summarize(histogram, &metric.durations);
    metric.value = metric.durations.count;
    for (unsigned i = 0; i < RG_METRIC_BUCKETS; i++) {
        metric.buckets[i] = rg_histogram_below(histogram, RG_METRIC_BITS_MIN + i);
    }
    sheet_add(sheet, &metric);
}

static void values_add(struct sheet *sheet, const struct rg_metrics *metrics)
{
    struct rg_metric metric = {0};
/* clang-format off */
#define XX(field, which, of, what)                                                                 \
    metric.name = #field;                                                                          \
    metric.unit = of;                                                                              \
    metric.text = what;                                                                            \
    metric.kind = RG_METRIC_##which;                                                               \
    metric.value = rg_metric_load(&metrics->field);                                                \
    sheet_add(sheet, &metric);
    RG_METRIC_VALUES(XX)
#undef XX
    /* clang-format on */
}

static void stages_add(struct sheet *sheet, const struct rg_metrics *metrics)
{
    struct rg_metric metric = {.kind = RG_METRIC_COUNTER, .unit = "ns"};
/* clang-format off */
#define XX(stage, which, what)                                                                     \
    metric.name = "get_" #stage "_time";                                                           \
    metric.text = RG_METRIC_STAGE_TEXT what;                                                       \
    metric.value = rg_metric_load(&metrics->stages[RG_STAGE_##which]);                             \
    sheet_add(sheet, &metric);
    RG_METRIC_STAGES(XX)
#undef XX
    /* clang-format on */
}

static void checkpoints_add(struct sheet *sheet, const struct rg_metrics *metrics)
{
    struct rg_metric metric = {.kind = RG_METRIC_COUNTER, .unit = "ns"};
/* clang-format off */
#define XX(part, which, what)                                                                      \
    metric.name = "checkpoint_" #part "_time";                                                     \
    metric.text = RG_METRIC_CHECKPOINT_TEXT what;                                                  \
    metric.value = rg_metric_load(&metrics->checkpoints[RG_CHECKPOINT_##which]);                   \
    sheet_add(sheet, &metric);
    RG_METRIC_CHECKPOINTS(XX)
#undef XX
    /* clang-format on */
}

/* Those that are not 0, and `always`, so that each name is there from the start. */
static void counts_add(struct sheet *sheet, const char *name, const char *text,
                       const char *operation, const _Atomic uint64_t *counts, unsigned always)
{
    struct rg_metric metric = {
        .name = name, .unit = "requests", .text = text, .operation = operation};
    for (unsigned status = 0; status < RG_STATUS_COUNT; status++) {
        metric.value = rg_metric_load(&counts[status]);
        metric.status = rg_status_name((enum rg_status)status);
        if (metric.value > 0 || status == always) {
            sheet_add(sheet, &metric);
        }
    }
}

static void requests_add(struct sheet *sheet, const struct rg_metrics *metrics)
{
    static const char *const names[RG_VERB_COUNT] = {
#define XX(name, enumerator) [RG_VERB_##enumerator] = #name,
        RG_METRIC_OPERATIONS(XX)
#undef XX
    };
    counts_add(sheet, "retries", RG_METRIC_RETRIES_TEXT, NULL, metrics->retries,
               RG_STATUS_THROTTLED);
    for (unsigned i = 0; i < RG_VERB_COUNT; i++) {
        counts_add(sheet, "requests", RG_METRIC_REQUESTS_TEXT, names[i], metrics->requests[i],
                   i == RG_VERB_GET ? RG_STATUS_OK : RG_STATUS_COUNT);
    }
    for (unsigned i = 0; i < RG_VERB_COUNT; i++) {
        if (i == RG_VERB_GET || rg_histogram_count(&metrics->durations[i]) > 0) {
            sheet_add_histogram(sheet, "request_duration", RG_METRIC_DURATION_TEXT, names[i],
                                &metrics->durations[i]);
        }
    }
}

static void phases_add(struct sheet *sheet, const struct rg_metrics *metrics)
{
#define XX(name, enumerator, text)                                                                 \
    sheet_add_histogram(sheet, #name, text, NULL, &metrics->phases[RG_PHASE_##enumerator]);
    RG_METRIC_PHASES(XX)
#undef XX
}

int rg_metrics_snapshot_sized(const struct rg_runtime *runtime, struct rg_metric *out,
                              uint32_t out_max, size_t struct_size)
{
    struct sheet sheet = {.place = (char *)out, .struct_size = struct_size, .max = out_max};
    int rc = runtime != NULL ? rg_runtime_check(runtime) : 0;
    if (rc < 0) {
        return rc;
    }
    struct rg_metrics *metrics = rg_runtime_metrics(runtime);
    if (metrics == NULL) {
        return -ENOMEM;
    }
    values_add(&sheet, metrics);
    stages_add(&sheet, metrics);
    checkpoints_add(&sheet, metrics);
    requests_add(&sheet, metrics);
    phases_add(&sheet, metrics);
    free(metrics);
    return (int)sheet.count;
}
