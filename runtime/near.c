/* Loops near the caller: see near.h. */
#include "runtime/near.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Moves a node's places behind the `sorted` ones. Returns how many are sorted then. */
static uint32_t node_gather(struct rg_placement *placements, uint32_t sorted, uint32_t count,
                            int node)
{
    for (uint32_t i = sorted; i < count; i++) {
        if (placements[i].node != node) {
            continue;
        }
        struct rg_placement moved = placements[i];
        for (uint32_t j = i; j > sorted; j--) {
            placements[j] = placements[j - 1];
        }
        placements[sorted++] = moved;
    }
    return sorted;
}

void rg_near_sort(struct rg_placement *placements, uint32_t count)
{
    uint32_t sorted = 0, at = 0;
    while (at < count) {
        if (placements[at].node < 0) {
            at++;
            continue;
        }
        sorted = node_gather(placements, sorted, count, placements[at].node);
        at = sorted;
    }
}

static struct rg_loop_range node_range(const struct rg_placement *placements, uint32_t count,
                                       int node)
{
    struct rg_loop_range range = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (placements[i].node == node) {
            range.first = range.count == 0 ? (uint16_t)i : range.first;
            range.count++;
        }
    }
    return range;
}

/* Every range has a loop, and ends before the loops that are anywhere, or has all. */
static bool invariants(const struct rg_near *near)
{
    uint32_t end = near->anywhere.first;
    bool ok = near->all.first == 0 && end > 0 && end + near->anywhere.count == near->all.count;
    for (uint32_t i = 0; i < near->cpu_count; i++) {
        struct rg_loop_range range = near->by_cpu[i];
        bool is_all = range.first == 0 && range.count == near->all.count;
        ok &= is_all || (range.count > 0 && range.first + range.count <= end);
    }
    return ok;
}

int rg_near_create(struct rg_near **out_near, const struct rg_topology *topology,
                   const struct rg_placement *placements, uint32_t count)
{
    RG_ASSERT(count > 0 && count <= UINT16_MAX);
    struct rg_loop_range first = node_range(placements, count, placements[0].node);
    struct rg_loop_range anywhere = node_range(placements, count, -1);
    *out_near = NULL;
    if (placements[0].node < 0 || first.count + anywhere.count == (int)count) {
        return 0;
    }
    anywhere.first = (uint16_t)(count - anywhere.count);
    uint32_t cpu_count = rg_topology_cpu_count(topology);
    struct rg_near *near = calloc(1, sizeof(*near) + cpu_count * sizeof(near->by_cpu[0]));
    if (near == NULL) {
        return -ENOMEM;
    }
    near->all.count = (uint16_t)count;
    near->anywhere = anywhere;
    near->cpu_count = cpu_count;
    for (uint32_t i = 0; i < cpu_count; i++) {
        int node = rg_topology_cpu_node(topology, (int)i);
        struct rg_loop_range range = node_range(placements, count, node);
        near->by_cpu[i] = node >= 0 && range.count > 0 ? range : near->all;
    }
    RG_VERIFY(invariants(near));
    *out_near = near;
    return 0;
}
