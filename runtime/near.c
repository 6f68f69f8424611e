/* Loops near the caller: see near.h. */
#include "runtime/near.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void rg_near_sort(struct rg_placement *placements, uint32_t count)
{
    uint32_t sorted = 0;
    while (sorted < count) {
        int node = placements[sorted++].node;
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

/* Every range has a loop, and ends where the loops do. */
static bool invariants(const struct rg_near *near)
{
    bool ok = near->all.first == 0 && near->all.count > 0;
    for (uint32_t i = 0; i < near->cpu_count; i++) {
        struct rg_loop_range range = near->by_cpu[i];
        ok &= range.count > 0 && range.first + range.count <= near->all.count;
    }
    return ok;
}

int rg_near_create(struct rg_near **out_near, const struct rg_topology *topology,
                   const struct rg_placement *placements, uint32_t count)
{
    RG_ASSERT(count > 0 && count <= UINT16_MAX);
    struct rg_loop_range first = node_range(placements, count, placements[0].node);
    *out_near = NULL;
    if (first.count == count) {
        return 0;
    }
    uint32_t cpu_count = rg_topology_cpu_count(topology);
    struct rg_near *near = calloc(1, sizeof(*near) + cpu_count * sizeof(near->by_cpu[0]));
    if (near == NULL) {
        return -ENOMEM;
    }
    near->all.count = (uint16_t)count;
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
