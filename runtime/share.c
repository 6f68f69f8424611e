/* The division of a host among its ranks: see share.h. */
#include "runtime/share.h"

#include <errno.h>
#include <stdlib.h>

#define CORES_PER_LOOP 4

/* The table while it is made. */
struct division {
    const struct rg_share_host *host;
    uint32_t *rank_counts; /* of each node */
    uint32_t *homes;       /* of each rank: its node */
};

static void home_set(struct division *division, uint32_t rank, uint32_t node)
{
    if (division->homes[rank] != RG_SHARE_NO_NODE) {
        division->rank_counts[division->homes[rank]]--;
    }
    division->homes[rank] = node;
    division->rank_counts[node]++;
}

/* The node where one rank more would find most cores for itself; the first of several. */
static uint32_t roomiest_node(const struct rg_share_host *host, const uint32_t *rank_counts)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < host->node_count; i++) {
        uint64_t cores = host->core_counts[i], best_cores = host->core_counts[best];
        if (cores * (rank_counts[best] + 1) > best_cores * (rank_counts[i] + 1)) {
            best = i;
        }
    }
    return best;
}

static void homes_wished(struct division *division)
{
    const struct rg_share_host *host = division->host;
    for (uint32_t rank = 0; rank < host->rank_count; rank++) {
        uint32_t wish = host->wishes[rank];
        division->homes[rank] = RG_SHARE_NO_NODE;
        if (wish < host->node_count && host->core_counts[wish] > 0) {
            home_set(division, rank, wish);
        }
    }
}

/* How many of the ranks without a wish each node gets is decided first, so that neighbours then
 * come to one node. */
static int homes_others(struct division *division)
{
    const struct rg_share_host *host = division->host;
    uint32_t *counts = calloc(host->node_count, sizeof(*counts));
    if (counts == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < host->node_count; i++) {
        counts[i] = division->rank_counts[i];
    }
    for (uint32_t rank = 0; rank < host->rank_count; rank++) {
        if (division->homes[rank] == RG_SHARE_NO_NODE) {
            counts[roomiest_node(host, counts)]++;
        }
    }
    uint32_t node = 0;
    for (uint32_t rank = 0; rank < host->rank_count; rank++) {
        if (division->homes[rank] == RG_SHARE_NO_NODE) {
            while (division->rank_counts[node] == counts[node]) {
                node++;
                RG_ASSERT(node < host->node_count);
            }
            home_set(division, rank, node);
        }
    }
    free(counts);
    return 0;
}

/* The node with the most cores that no rank needs; RG_SHARE_NO_NODE: there is none. */
static uint32_t spare_node(const struct division *division)
{
    uint32_t best = RG_SHARE_NO_NODE, most = 0;
    for (uint32_t i = 0; i < division->host->node_count; i++) {
        uint32_t cores = division->host->core_counts[i], ranks = division->rank_counts[i];
        if (cores > ranks && cores - ranks > most) {
            most = cores - ranks;
            best = i;
        }
    }
    return best;
}

/* The last ranks of a node that has more of them than cores go where cores are left. */
static void homes_relieve(struct division *division)
{
    const struct rg_share_host *host = division->host;
    for (uint32_t rank = host->rank_count; rank-- > 0;) {
        uint32_t home = division->homes[rank];
        uint32_t spare = spare_node(division);
        if (division->rank_counts[home] > host->core_counts[home] && spare != RG_SHARE_NO_NODE) {
            home_set(division, rank, spare);
        }
    }
}

static void cores_divide(const struct division *division, struct rg_share *out_shares)
{
    const struct rg_share_host *host = division->host;
    for (uint32_t node = 0; node < host->node_count; node++) {
        uint64_t cores = host->core_counts[node], ranks = division->rank_counts[node], turn = 0;
        for (uint32_t rank = 0; rank < host->rank_count; rank++) {
            if (division->homes[rank] != node) {
                continue;
            }
            uint32_t first = (uint32_t)(turn * cores / ranks);
            uint32_t end = (uint32_t)((turn + 1) * cores / ranks);
            out_shares[rank] = (struct rg_share){node, first, RG_MAX(end - first, 1)};
            turn++;
        }
    }
}

/* Each rank has a core of its node, and cores of two ranks are the same only where there are more
 * ranks than cores. */
static bool invariants(const struct rg_share_host *host, const struct rg_share *shares)
{
    uint64_t cores = 0;
    bool ok = true;
    for (uint32_t i = 0; i < host->node_count; i++) {
        cores += host->core_counts[i];
    }
    for (uint32_t i = 0; i < host->rank_count; i++) {
        const struct rg_share *one = &shares[i];
        ok &= one->count > 0 && one->node < host->node_count &&
              one->first + one->count <= host->core_counts[one->node];
        for (uint32_t j = 0; j < i && cores >= host->rank_count; j++) {
            const struct rg_share *other = &shares[j];
            ok &= one->node != other->node || one->first >= other->first + other->count ||
                  other->first >= one->first + one->count;
        }
    }
    return ok;
}

int rg_share_divide(const struct rg_share_host *host, struct rg_share *out_shares)
{
    RG_ASSERT(host->node_count > 0 && host->rank_count > 0);
    struct division division = {
        .host = host,
        .rank_counts = calloc(host->node_count, sizeof(*division.rank_counts)),
        .homes = calloc(host->rank_count, sizeof(*division.homes)),
    };
    int rc = division.rank_counts != NULL && division.homes != NULL ? 0 : -ENOMEM;
    if (rc == 0) {
        homes_wished(&division);
        rc = homes_others(&division);
    }
    if (rc == 0) {
        homes_relieve(&division);
        cores_divide(&division, out_shares);
        RG_VERIFY(invariants(host, out_shares));
    }
    free(division.homes);
    free(division.rank_counts);
    return rc;
}

bool rg_share_is_own(uint32_t own_cpus, uint32_t launcher_cpus, uint32_t rank_count)
{
    /* Shares of unequal size are up to half as large again as equal ones. */
    return rank_count > 1 && 2 * (uint64_t)own_cpus * rank_count < 3 * (uint64_t)launcher_cpus;
}

uint32_t rg_share_loop_count(uint32_t core_count, uint32_t rank_count, uint32_t workers)
{
    RG_ASSERT(rank_count > 0);
    uint32_t most = RG_MIN(RG_LOOP_COUNT_MAX, RG_HOST_LOOP_COUNT_MAX / rank_count);
    uint32_t count = RG_MAX(RG_MIN(core_count / CORES_PER_LOOP, most), 1);
    return workers > 0 ? RG_MAX(count / workers, 1) : count;
}
