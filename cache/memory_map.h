/* Where records lie in the memory tier, for one process: a table of hashes. Pure.
 *
 * It is a hint like the index of a folder: what is found is compared with the whole key. Of two
 * records with one hash the first one stays. Not for two threads at a time. */
#ifndef RG_CACHE_MEMORY_MAP_H
#define RG_CACHE_MEMORY_MAP_H

#include "runtime/base.h"

struct rg_memory_slot {
    uint64_t hash;  /* 0: free */
    uint32_t place; /* in units (cache/format.h) */
    uint32_t line;  /* of the segment */
};

/* Starts zeroed. */
struct rg_memory_map {
    struct rg_memory_slot *slots;
    size_t count, capacity; /* capacity: 0 or a power of two */
};

void rg_memory_map_fini(struct rg_memory_map *map);
/* NULL: there is none. Valid until the map is changed. */
const struct rg_memory_slot *rg_memory_map_find(const struct rg_memory_map *map, uint64_t hash);
/* Without memory it is not put in. */
void rg_memory_map_insert(struct rg_memory_map *map, const struct rg_memory_slot *slot);
void rg_memory_map_remove(struct rg_memory_map *map, uint64_t hash);
/* All records of a segment. */
void rg_memory_map_remove_line(struct rg_memory_map *map, uint32_t line);

#endif
