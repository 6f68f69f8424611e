/* A rank's share of a host: which cores are whose.
 *
 * Every rank works out the same table from the same facts (nodes with cores, ranks with the nodes
 * of their GPUs), so that none has to ask another. No hwloc, no files, no environment: topology.h
 * brings the facts.
 *
 *     a rank whose GPU's node is known goes there; the others go where most cores are left for
 *     each, neighbours to one node
 *     -> while there are cores enough in all, no node gets more ranks than it has cores
 *     -> the ranks of a node divide its cores, in their order
 *
 * So no two ranks share a core while the host has a core for each. */
#ifndef RG_RUNTIME_SHARE_H
#define RG_RUNTIME_SHARE_H

#include "runtime/base.h"

/* More ranks than any host has: a larger number is a mistake. */
#define RG_LOCAL_RANKS_MAX 1024
/* Event loops by default: of one process, and of all ranks of a host. Eight fill 200 Gbit/s, and
 * more only cost; twice as many for ranks, which rarely read all at the same time. */
#define RG_LOOP_COUNT_MAX 8
#define RG_HOST_LOOP_COUNT_MAX 16

#define RG_SHARE_NO_NODE UINT32_MAX

struct rg_share_host {
    uint32_t node_count;
    const uint32_t *core_counts; /* of each node */
    uint32_t rank_count;
    const uint32_t *wishes; /* of each rank: the node to be near, or RG_SHARE_NO_NODE */
};

/* Cores `first` to `first + count - 1` of a node, in its own counting; count is at least 1. */
struct rg_share {
    uint32_t node, first, count;
};

/* Stores the share of each rank. There must be a core. 0 or -ENOMEM. */
int rg_share_divide(const struct rg_share_host *host, struct rg_share *out_shares);

/* Whether the process's set of CPUs is its own share already, so that it must not be divided again:
 * whoever started the ranks has given each a part that is clearly smaller than what all of them
 * have together. A set that several ranks have in common, such as all CPUs of a node, is not. */
bool rg_share_is_own(uint32_t own_cpus, uint32_t launcher_cpus, uint32_t rank_count);

/* Event loops by default of a rank with that many cores; of each of its `workers` processes, which
 * share them, where that is not 0. At least 1. */
uint32_t rg_share_loop_count(uint32_t core_count, uint32_t rank_count, uint32_t workers);

#endif
