/* The load of one process of a benchmark: requests that are sent and answered, and what they took.
 *
 *   open -> prepare -> measure -> finish -> close
 *
 * A process has its share of the requests: of so many, and of a rate. Before the clock starts
 * connections are open, memory is touched, and the same load has warmed up. */
#ifndef RG_CLI_BENCH_LOAD_H
#define RG_CLI_BENCH_LOAD_H

#include "cli/bench_manifest.h"
#include "cli/bench_objects.h"
#include "cli/bench_options.h"
#include "cli/bench_result.h"
#include "cli/progress.h"
#include "cli/schedule.h"

/* Of the requests that are out. */
struct bench_request {
    uint64_t index;  /* of its object: in the manifest, or among those written */
    uint64_t due_ns; /* 0: as soon as it was sent */
};

struct bench_load {
    const struct bench_options *options; /* borrowed */
    uint32_t process;                    /* of options->processes, from 0 */
    struct cli_session session;
    struct bench_manifest manifest;
    uint64_t first, step, share; /* entries of the manifest: first, first + step, ... */
    uint8_t *payload;            /* that put writes */
    struct bench_objects objects;
    struct rg_listing *listing; /* NULL: none has begun */
    uint64_t listings;          /* that have begun */
    bool listed_all;
    struct schedule *schedule; /* NULL: closed loop */
    /* By number, which is a request's user_data; the first `free_count` of `free` are not out. */
    struct bench_request *requests;
    uint32_t *free;
    uint32_t requests_max, free_count;
    /* Of what is going on. */
    struct bench_result *result; /* borrowed */
    bool is_warm_up;
    uint64_t count, submitted, end_ns; /* end_ns RG_FOREVER: by count */
    double ramp_s;
    uint64_t cpu_due_ns; /* when CPU time is next divided; RG_FOREVER: it is not */
    double cpu_before_s;
    struct progress progress;
    uint64_t give_up_ns; /* waiting for answers after an interruption; 0: there was none */
    bool gave_up;        /* what is not answered is cancelled */
};

/* These give CLI_DONE, or an exit status after printing why not; interrupted ones say nothing.
 * Close it in any case. */
int bench_load_open(struct bench_load *load, const struct bench_options *options, uint32_t process);
int bench_load_prepare(struct bench_load *load, struct bench_result *result);
int bench_load_measure(struct bench_load *load, struct bench_result *result);
/* Removes what was written, unless it is kept. */
int bench_load_finish(struct bench_load *load, struct bench_result *result);
void bench_load_close(struct bench_load *load);

#endif
