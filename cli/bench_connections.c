/* See bench_connections.h. A request's events have the connection that it is on; its time begins
 * with the first of them, anew where it is tried again on another, and ends with its end. */
#include "cli/bench_connections.h"

#include "cli/cli.h"

#include <ringest/trace.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Some 200,000 requests. */
#define EVENTS_MAX (UINT32_C(1) << 20)
/* Of the text; the JSON has all. */
#define SHOWN_MAX 5

/* Of a request that is out, in a table by its number. */
struct out {
    uint64_t request, connection, since_ns; /* request 0: free */
};

/* One request that is done. */
struct took {
    uint64_t connection, time_ns;
};

struct folding {
    struct out *out; /* open addressing, a power of two */
    size_t out_max;
    struct took *took;
    size_t took_count;
};

int bench_connections_begin(void)
{
    int rc = rg_tracing_begin(EVENTS_MAX);
    if (rc < 0) {
        return cli_fail("--per-connection: no trace can be taken: %s", strerror(-rc));
    }
    return CLI_DONE;
}

static struct out *out_find(const struct folding *folding, uint64_t request)
{
    size_t at = (size_t)(request * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (folding->out_max - 1);
    while (folding->out[at].request != 0 && folding->out[at].request != request) {
        at = (at + 1) & (folding->out_max - 1);
    }
    return &folding->out[at];
}

/* Numbers come again and stay in the table, so that it has no holes. */
static void fold(struct folding *folding, const struct rg_trace_event *event)
{
    if (event->request == 0) {
        return;
    }
    struct out *out = out_find(folding, event->request);
    out->request = event->request;
    bool is_end = event->attempts > 0;
    if (is_end && out->connection != 0 && strcmp(event->what, "OK") == 0) {
        folding->took[folding->took_count++] =
            (struct took){out->connection, event->at_ns - out->since_ns};
    }
    if (is_end || event->connection == 0) {
        out->connection = 0;
    } else if (event->connection != out->connection) {
        out->connection = event->connection;
        out->since_ns = event->at_ns;
    }
}

static int took_compare(const void *a, const void *b)
{
    const struct took *x = a, *y = b;
    if (x->connection != y->connection) {
        return x->connection < y->connection ? -1 : 1;
    }
    return x->time_ns < y->time_ns ? -1 : x->time_ns > y->time_ns;
}

static int slower(const void *a, const void *b)
{
    const struct bench_connection *x = a, *y = b;
    return x->p99_ms > y->p99_ms ? -1 : x->p99_ms < y->p99_ms;
}

/* In ms, of times in their order. */
static double quantile_ms(const struct took *took, size_t count, double share)
{
    size_t rank = (size_t)(share * (double)count);
    return (double)took[RG_MIN(rank, count - 1)].time_ns / 1e6;
}

/* Of requests in the order of their connections. */
static void group(const struct folding *folding, struct bench_connections *out)
{
    for (size_t i = 0, end; i < folding->took_count; i = end) {
        const struct took *first = &folding->took[i];
        for (end = i;
             end < folding->took_count && folding->took[end].connection == first->connection;
             end++) {
        }
        size_t count = end - i;
        out->all[out->count++] = (struct bench_connection){
            .requests = count,
            .p50_ms = quantile_ms(first, count, 0.5),
            .p99_ms = quantile_ms(first, count, 0.99),
            .max_ms = quantile_ms(first, count, 1),
        };
    }
    qsort(out->all, out->count, sizeof(*out->all), slower);
}

void bench_connections_end(struct bench_connections *out_connections)
{
    uint32_t count = 0;
    *out_connections = (struct bench_connections){0};
    if (rg_tracing_end(&count, &out_connections->dropped) < 0 || count == 0) {
        return;
    }
    struct folding folding = {.out_max = 1};
    while (folding.out_max < 2 * (size_t)count) {
        folding.out_max *= 2;
    }
    folding.out = calloc(folding.out_max, sizeof(*folding.out));
    folding.took = calloc(count, sizeof(*folding.took));
    out_connections->all = calloc(count, sizeof(*out_connections->all));
    struct rg_trace_event event;
    if (folding.out != NULL && folding.took != NULL && out_connections->all != NULL) {
        for (uint32_t i = 0; i < count; i++) {
            if (rg_tracing_get(i, &event)) {
                fold(&folding, &event);
            }
        }
        qsort(folding.took, folding.took_count, sizeof(*folding.took), took_compare);
        group(&folding, out_connections);
    }
    rg_tracing_free();
    free(folding.out);
    free(folding.took);
}

void bench_connections_fini(struct bench_connections *connections)
{
    free(connections->all);
    *connections = (struct bench_connections){0};
}

void bench_connections_text(const struct bench_connections *connections)
{
    printf("  by connection    requests    p50 ms    p99 ms    max ms   (%zu, the slowest first)\n",
           connections->count);
    for (size_t i = 0; i < connections->count && i < SHOWN_MAX; i++) {
        const struct bench_connection *each = &connections->all[i];
        printf("                 %10" PRIu64 "  %8.2f  %8.2f  %8.2f\n", each->requests,
               each->p50_ms, each->p99_ms, each->max_ms);
    }
    if (connections->count > SHOWN_MAX) {
        const struct bench_connection *last = &connections->all[connections->count - 1];
        printf("       the fastest %8" PRIu64 "  %8.2f  %8.2f  %8.2f\n", last->requests,
               last->p50_ms, last->p99_ms, last->max_ms);
    }
    if (connections->dropped > 0) {
        printf("                 of the first requests alone: the trace has room for no more\n");
    }
}

void bench_connections_json(const struct bench_connections *connections)
{
    printf("\"by_connection\":[");
    for (size_t i = 0; i < connections->count; i++) {
        const struct bench_connection *each = &connections->all[i];
        printf("%s{\"requests\":%" PRIu64 ",\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"max_ms\":%.4f}",
               i > 0 ? "," : "", each->requests, each->p50_ms, each->p99_ms, each->max_ms);
    }
    printf("],");
}
