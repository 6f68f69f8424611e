/* The processes of a benchmark: they begin each round together, and what they measured is one
 * result.
 *
 * They are forked before this process has a client. One process is this one itself. */
#ifndef RG_CLI_BENCH_WORKERS_H
#define RG_CLI_BENCH_WORKERS_H

#include "cli/bench_connections.h"
#include "cli/bench_options.h"
#include "cli/bench_result.h"

#define BENCH_PROCESSES_MAX 256
#define BENCH_ROUNDS_MAX 100

struct bench_results {
    const struct bench_options *options;   /* borrowed */
    char *memory;                          /* owned; shared with the processes; NULL: none */
    struct bench_connections *connections; /* owned; of each round; NULL: not asked for */
};
typedef void bench_measured_fn(const struct bench_results *results, uint64_t round);

/* Measures. `measured` is called when all have, in each round, before what was written is removed.
 * CLI_DONE, or an exit status after printing why not; rounds with requests are worth something
 * nevertheless. An interruption is left to the caller to tell. */
int bench_workers_run(const struct bench_options *options, struct bench_results *out_results,
                      bench_measured_fn *measured);
/* Of a round, from 0, all processes together. */
struct bench_result *bench_results_round(const struct bench_results *results, uint64_t round);
/* How many rounds have answers. */
uint64_t bench_results_count(const struct bench_results *results);
void bench_results_free(struct bench_results *results);

#endif
