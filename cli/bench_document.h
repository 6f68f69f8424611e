/* The document of a benchmark: JSON of the format "ringest-bench/1", one row. What
 * is in it stands in python/ringest/bench/result.py, which reads it. */
#ifndef RG_CLI_BENCH_DOCUMENT_H
#define RG_CLI_BENCH_DOCUMENT_H

#include "cli/bench_options.h"
#include "cli/bench_workers.h"
#include "runtime/new_file.h"

/* Writes it and lets the file appear; ends the file in any case. `command` is the program's, of
 * `count` words; `error` is why it did not run to its end, NULL: it did. CLI_DONE, or CLI_FAILED
 * after printing why not. */
int bench_document_write(struct rg_new_file *file, const struct bench_options *options,
                         const struct bench_results *results, const char *const *command,
                         size_t count, const char *error);

#endif
