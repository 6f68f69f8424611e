/* What a benchmark prints: for people, or one JSON object. */
#ifndef RG_CLI_BENCH_REPORT_H
#define RG_CLI_BENCH_REPORT_H

#include "cli/bench_connections.h"
#include "cli/bench_options.h"
#include "cli/bench_result.h"

/* `round` counts from 0. */
void bench_report_text(const struct bench_options *options, const struct bench_result *result,
                       uint64_t round);
/* What became of the objects that put wrote: a line of the text. */
void bench_report_objects(const struct bench_options *options, const struct bench_result *result);
void bench_report_json(const struct bench_options *options, const struct bench_result *result,
                       const struct bench_connections *connections);

#endif
