/* Where event loops run and where their memory lies: how many loops, on which CPUs, bound to which
 * NUMA nodes.
 *
 * Only CPUs in the process's own set count (taskset, cgroup cpuset). Where several ranks of a job
 * are on the host (local_rank.h), a rank has its share of what they have together (share.h), and
 * its loops stay in it. Loops get one physical core each; SMT siblings of cores that already have a
 * loop are used only when every core has one.
 *
 * Number of loops by default, for C physical cores in the set or share, or what a container's CPU
 * limit leaves of them (cpu_quota.h): 1 below 8, then C / 4, at most 8. Of several ranks each has
 * at most its part of 16.
 * Four loops fill 100 Gbit/s and eight 200, more loops than needed cost up to 40 % of the
 * efficiency, and the cores are there for the program's own work:
 *
 *     CPUs (two per core)   2-14   16   32   64-208
 *     loops                    1    2    4        8
 *
 * Workers of a rank (of a DataLoader) divide that number among them; each has one at least, which
 * costs nothing while it sleeps. So a host has no more loops than CPUs, unless it has more
 * processes.
 *
 * Pinning. In a set of one or two CPUs nothing is pinned: with one there is no choice, and with two
 * the scheduler is better at keeping a loop out of the way of the program's busy thread than a
 * fixed choice, while there is no second cache or node to stay near to.
 *
 * hwloc answers all questions but where network cards and GPUs are (devices.h), which is asked only
 * where there is more than one node.
 *
 * Where hwloc knows nothing, or its own environment variables (HWLOC_XMLFILE and the like) point it
 * to something other than this machine, everything still works: nothing is pinned or bound. */
#ifndef RG_RUNTIME_TOPOLOGY_H
#define RG_RUNTIME_TOPOLOGY_H

#include "runtime/local_rank.h"
#include "runtime/share.h"

#include <ringest/runtime.h>

struct rg_topology;

/* A made-up machine for tests. */
struct rg_topology_model {
    const char *synthetic;     /* hwloc's description: "package:2 numa:1 core:26 pu:2" */
    const char *cpus;          /* the process's set, such as "0-3,8"; NULL: all */
    const char *launcher_cpus; /* the set of whoever started the rank; NULL: all */
    /* OS indices of the nodes that network devices and GPUs are attached to, "0,0,1"; NULL: none
     * are known. */
    const char *nic_nodes, *gpu_nodes;
    const char *visible_gpus; /* CUDA_VISIBLE_DEVICES; NULL: not set */
    uint32_t cpu_quota;       /* CPUs' worth of time all ranks may take; 0: unlimited */
};

struct rg_placement {
    int cpu;  /* OS index; -1: not pinned */
    int node; /* OS index; -1: not bound */
};

/* Borrows both: `rank` NULL is alone, `model` NULL is this machine. *out_topology is the caller's.
 * Takes some 3 ms. Errors: -ENOMEM; -EINVAL if the model is inconsistent. */
int rg_topology_open(struct rg_topology **out_topology, const struct rg_local_rank *rank,
                     const struct rg_topology_model *model);
/* NULL is fine. */
void rg_topology_close(struct rg_topology *topology);

uint32_t rg_topology_loop_count_default(const struct rg_topology *topology);

/* Stores the places of `loop_count` loops (0: the default number), but of out_max at most, and
 * returns how many. With more loops than CPUs, the rest is not pinned, and bound only in a rank
 * whose share is on one node. Workers get places behind those of their rank. Error: -ENOMEM.
 *
 *     AUTO     nodes that have a network device, in turn; then the nodes nearest to one; without
 *              any like COMPACT
 *     COMPACT  node by node, in the order of the hardware
 *     SPREAD   round robin over the nodes
 *     NONE     nothing is pinned or bound */
int rg_topology_plan(const struct rg_topology *topology, enum rg_numa_policy policy,
                     uint32_t loop_count, struct rg_placement *out, uint32_t out_max);

/* One more than the highest OS index of a CPU of the machine. */
uint32_t rg_topology_cpu_count(const struct rg_topology *topology);
/* OS index of the node of a CPU of the machine; -1: not known, or no CPU of the sites' nodes. */
int rg_topology_cpu_node(const struct rg_topology *topology, int cpu);

/* For people: the rank, its CPUs and why, its GPU, the network devices, and the places that a plan
 * gave, each a line "WHAT<tab>TEXT". Returns the text's length, as snprintf. */
size_t rg_topology_describe(const struct rg_topology *topology,
                            const struct rg_placement *placements, uint32_t count, char *out,
                            size_t size);

/* Pins the calling thread; does nothing without a topology or a CPU in the place. A negative errno
 * is worth a line in the log and no more: the thread then runs where it ran before. */
int rg_topology_pin_self(const struct rg_topology *topology, const struct rg_placement *placement);

/* Asks for pages of the placement's node, from other nodes where that one is full, for the pages
 * that [addr, addr + size) touches. Pages that are in memory already stay where they are. Best
 * effort: containers often forbid it (-EPERM), and then memory still lies on the node of the thread
 * that touches it first. Does nothing without a topology or a node in the place. */
int rg_topology_bind_memory(const struct rg_topology *topology,
                            const struct rg_placement *placement, void *addr, size_t size);

#endif
