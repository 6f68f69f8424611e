/* The names of folders that benchmarks write into, ringest-bench-MARK-NUMBER, of the program and of
 * the Python package (python/ringest/bench/leftovers.py): the mark says which process made one, of
 * which boot of which machine and in which namespace of processes, with which number, started when.
 * So it is known of a folder of this machine whether it still is somebody's. */
#ifndef RG_CLI_BENCH_FOLDER_H
#define RG_CLI_BENCH_FOLDER_H

#include "runtime/base.h"

#define BENCH_FOLDER_PREFIX "ringest-bench-"
/* With the NUL. */
#define BENCH_FOLDER_SIZE (sizeof(BENCH_FOLDER_PREFIX) + 12 + 1 + 8 + 1 + 16 + 1 + 16)

enum bench_folder_owner {
    BENCH_FOLDER_ELSEWHERE, /* another machine or container has made it, or nobody knows who */
    BENCH_FOLDER_RUNS,
    BENCH_FOLDER_GONE, /* it was of this machine, and has ended */
};

/* A new one of this process. 0, or a negative errno: no random number. */
int bench_folder_name(char out_name[BENCH_FOLDER_SIZE]);
/* Whose folder of a name without a slash it is. */
enum bench_folder_owner bench_folder_owner(const char *name);

#endif
