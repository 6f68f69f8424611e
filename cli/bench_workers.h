/* The processes of a benchmark: they begin to measure together, and their results are one.
 *
 * They are forked before this process has a client. One process is this one itself. */
#ifndef RG_CLI_BENCH_WORKERS_H
#define RG_CLI_BENCH_WORKERS_H

#include "cli/bench_options.h"
#include "cli/bench_result.h"

#define BENCH_PROCESSES_MAX 256

/* Measures. `measured` is called when all have, before what was written is removed; the result is
 * whole when this returns, and freed by bench_workers_free. CLI_DONE, or an exit status after
 * printing why not; with requests in the result if it is worth something. An interruption is left
 * to the caller to tell. */
int bench_workers_run(const struct bench_options *options, struct bench_result **out_result,
                      void (*measured)(const struct bench_options *options,
                                       const struct bench_result *result));
void bench_workers_free(const struct bench_options *options, struct bench_result *result);

#endif
