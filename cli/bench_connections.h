/* Latencies of a round by connection, for `ringest bench --per-connection`: of a trace, which costs
 * CPU time, and has room for so many events. */
#ifndef RG_CLI_BENCH_CONNECTIONS_H
#define RG_CLI_BENCH_CONNECTIONS_H

#include "runtime/base.h"

struct bench_connection {
    uint64_t requests;
    double p50_ms, p99_ms, max_ms;
};

struct bench_connections {
    struct bench_connection *all; /* owned; by the 99th percentile, the longest first */
    size_t count;
    uint64_t dropped; /* events for which there was no room: the last requests are missing */
};

/* Of what begins now. CLI_DONE, or an exit status after printing why not. */
int bench_connections_begin(void);
/* Of what was done since. Without memory there are none. */
void bench_connections_end(struct bench_connections *out_connections);
void bench_connections_fini(struct bench_connections *connections);
void bench_connections_text(const struct bench_connections *connections);
/* A member of an object, with a comma behind it. */
void bench_connections_json(const struct bench_connections *connections);

#endif
