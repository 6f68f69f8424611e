/* Which loops are on the caller's NUMA node, where loops are on several: a submission goes there,
 * so that neither its request nor its body crosses to the other socket twice. Loops without a node
 * run anywhere, and are as near to every caller as those of its node.
 *
 *   made when a runtime is opened, over places sorted by node -> looked at by submitters -> freed
 *
 * The CPU that a thread runs on is known without a system call (rseq, vDSO). */
#ifndef RG_RUNTIME_NEAR_H
#define RG_RUNTIME_NEAR_H

#include "runtime/topology.h"

#include <sched.h>

/* Loops `first` to `first + count - 1`. */
struct rg_loop_range {
    uint16_t first, count;
};

struct rg_near {
    struct rg_loop_range all;      /* for CPUs whose node has no loop */
    struct rg_loop_range anywhere; /* the last ones, without a node; may be none */
    uint32_t cpu_count;
    struct rg_loop_range by_cpu[];
};

/* Puts places of one node next to each other, in the order of nodes that they begin with, and those
 * without a node behind them. */
void rg_near_sort(struct rg_placement *placements, uint32_t count);

/* Returns owned; *out_near is NULL where loops are on fewer than two nodes. -ENOMEM. */
int rg_near_create(struct rg_near **out_near, const struct rg_topology *topology,
                   const struct rg_placement *placements, uint32_t count);

/* The loops near to a CPU: a range of its own, of at least one loop, and those that are anywhere.
 */
struct rg_near_loops {
    struct rg_loop_range own, anywhere;
};

static inline struct rg_near_loops rg_near_cpu(const struct rg_near *near, int cpu)
{
    bool is_known = cpu >= 0 && (uint32_t)cpu < near->cpu_count;
    struct rg_loop_range own = is_known ? near->by_cpu[cpu] : near->all;
    bool is_all = own.count == near->all.count;
    return (struct rg_near_loops){own, is_all ? (struct rg_loop_range){0} : near->anywhere};
}

static inline struct rg_near_loops rg_near_caller(const struct rg_near *near)
{
    return rg_near_cpu(near, sched_getcpu());
}

static inline uint32_t rg_near_count(const struct rg_near_loops *loops)
{
    return (uint32_t)loops->own.count + loops->anywhere.count;
}

/* The loop whose turn it is. */
static inline uint32_t rg_near_turn(const struct rg_near_loops *loops, uint32_t turn)
{
    uint32_t place = turn % rg_near_count(loops);
    return place < loops->own.count ? loops->own.first + place
                                    : loops->anywhere.first + place - loops->own.count;
}

#endif
