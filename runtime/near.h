/* Which loops are on the caller's NUMA node, where loops are on several: a submission goes there,
 * so that neither its request nor its body crosses to the other socket twice.
 *
 *   made when a runtime is opened, over places sorted by node -> looked at by submitters -> freed
 *
 * The CPU that a thread runs on is known without a system call (rseq, vDSO). */
#ifndef RG_RUNTIME_NEAR_H
#define RG_RUNTIME_NEAR_H

#include "runtime/topology.h"

#include <sched.h>

/* Loops `first` to `first + count - 1`; never none. */
struct rg_loop_range {
    uint16_t first, count;
};

struct rg_near {
    struct rg_loop_range all; /* for CPUs whose node has no loop */
    uint32_t cpu_count;
    struct rg_loop_range by_cpu[];
};

/* Puts places of one node next to each other, in the order of nodes that they begin with. */
void rg_near_sort(struct rg_placement *placements, uint32_t count);

/* Returns owned; *out_near is NULL where all loops have one node, or none is known. -ENOMEM. */
int rg_near_create(struct rg_near **out_near, const struct rg_topology *topology,
                   const struct rg_placement *placements, uint32_t count);

static inline struct rg_loop_range rg_near_cpu(const struct rg_near *near, int cpu)
{
    return cpu >= 0 && (uint32_t)cpu < near->cpu_count ? near->by_cpu[cpu] : near->all;
}

static inline struct rg_loop_range rg_near_caller(const struct rg_near *near)
{
    return rg_near_cpu(near, sched_getcpu());
}

#endif
