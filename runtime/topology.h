/* Where event loops run and where their memory lies: how many loops, on which CPUs, bound to which
 * NUMA nodes.
 *
 * Only CPUs in the process's own set count (taskset, cgroup cpuset). Loops get one physical core
 * each; SMT siblings of cores that already have a loop are used only when every core has one.
 *
 * Number of loops by default, for C physical cores in the set, or what a container's CPU limit
 * leaves of them (cpu_quota.h): 1 below 8, then C / 4, at most 8.
 * Four loops fill 100 Gbit/s and eight 200, more loops than needed cost up to 40 % of the
 * efficiency, and the cores are there for the program's own work:
 *
 *     CPUs (two per core)   2-14   16   32   64-208
 *     loops                    1    2    4        8
 *
 * Pinning. In a set of one or two CPUs nothing is pinned: with one there is no choice, and with two
 * the scheduler is better at keeping a loop out of the way of the program's busy thread than a
 * fixed choice, while there is no second cache or node to stay near to.
 *
 * hwloc answers all questions but one: its I/O discovery reads every PCI device's configuration
 * space, which under a hypervisor takes about 1 ms a device, and there are hundreds in a GPU
 * machine. So the node of the network device is read from sysfs, and only where there is more than
 * one node.
 *
 * Where hwloc knows nothing, or its own environment variables (HWLOC_XMLFILE and the like) point it
 * to something other than this machine, everything still works: nothing is pinned or bound. */
#ifndef RG_RUNTIME_TOPOLOGY_H
#define RG_RUNTIME_TOPOLOGY_H

#include "runtime/base.h"

#include <ringest/runtime.h>

#define RG_LOOP_COUNT_MAX 8 /* of the default; a caller may ask for more */

struct rg_topology;

/* A made-up machine for tests. */
struct rg_topology_model {
    const char *synthetic; /* hwloc's description, such as "package:2 numa:1 core:26 pu:2" */
    const char *cpus;      /* the process's set, such as "0-3,8"; NULL: all */
    int nic_node;          /* OS index of the network device's node; -1: unknown */
    uint32_t cpu_quota;    /* CPUs' worth of time the process may take; 0: unlimited */
};

struct rg_placement {
    int cpu;  /* OS index; -1: not pinned */
    int node; /* OS index; -1: not bound */
};

/* Borrows `model`; NULL is this machine. *out_topology is the caller's. Takes some 3 ms. Errors:
 * -ENOMEM; -EINVAL if the model is inconsistent. */
int rg_topology_open(struct rg_topology **out_topology, const struct rg_topology_model *model);
/* NULL is fine. */
void rg_topology_close(struct rg_topology *topology);

uint32_t rg_topology_loop_count_default(const struct rg_topology *topology);

/* Stores the places of `loop_count` loops (0: the default number), but of out_max at most, and
 * returns how many. With more loops than CPUs, the rest is neither pinned nor bound. Error:
 * -ENOMEM.
 *
 *     AUTO     node by node, nearest the network device first; without one like COMPACT
 *     COMPACT  node by node, in the order of the hardware
 *     SPREAD   round robin over the nodes
 *     NONE     nothing is pinned or bound */
int rg_topology_plan(const struct rg_topology *topology, enum rg_numa_policy policy,
                     uint32_t loop_count, struct rg_placement *out, uint32_t out_max);

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
