/* What the microbenchmarks share. Each takes the number of rounds as its only argument, does the
 * same work in every round, and prints a hash of its results beside the times: a change that makes
 * something faster must leave the hash alone. */
#ifndef RG_PERF_BENCH_H
#define RG_PERF_BENCH_H

#include "runtime/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* CPU time of the process, so that others on the machine count for less. */
static inline uint64_t bench_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * RG_NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t bench_rounds(int argc, char **argv)
{
    uint64_t rounds = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    if (rounds == 0) {
        fprintf(stderr, "usage: %s ROUNDS\n", argv[0]);
        exit(2);
    }
    return rounds;
}

/* FNV-1a, 64 bits, continued from `hash`. */
#define BENCH_HASH_INIT UINT64_C(0xcbf29ce484222325)
static inline uint64_t bench_hash(uint64_t hash, const void *data, size_t size)
{
    for (const uint8_t *byte = data; size > 0; byte++, size--) {
        hash = (hash ^ *byte) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static inline uint64_t bench_hash_u64(uint64_t hash, uint64_t value)
{
    return bench_hash(hash, &value, sizeof(value));
}

#endif
