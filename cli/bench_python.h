/* What of `ringest bench` is written in Python (python/ringest/bench/): workloads, other clients,
 * reports. */
#ifndef RG_CLI_BENCH_PYTHON_H
#define RG_CLI_BENCH_PYTHON_H

#include "runtime/base.h"

/* For the help of the command. */
#define BENCH_PYTHON_HELP                                                                          \
    "  run NAME...        measure the workloads of presets; --preset NAME is the same\n"           \
    "  presets            what presets there are, and what they do\n"                              \
    "  compare            measure clients of others beside ringest's\n"                            \
    "  report FILE        show a result as Markdown and as a page, or compare two results\n"

/* Whether the arguments, of which the first is "bench", are for Python. */
bool bench_python_is_asked(int argc, char *const *argv);
/* Becomes the Python program that does what they say. Returns only where it could not: an exit
 * status, after printing why. */
int bench_python_run(int argc, char *const *argv);

#endif
