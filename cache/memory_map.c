/* See memory_map.h. Linear probing; at most half of the slots are used, so that a search ends. */
#include "cache/memory_map.h"

#include <stdlib.h>

#define CAPACITY_MIN 1024

static bool invariants(const struct rg_memory_map *map)
{
    return map->count <= map->capacity / 2 && (map->capacity & (map->capacity - 1)) == 0;
}

void rg_memory_map_fini(struct rg_memory_map *map)
{
    free(map->slots);
    *map = (struct rg_memory_map){.count = 0};
}

/* The slot that has the hash, or the free one where it would lie. There are slots. */
static size_t slot_find(const struct rg_memory_map *map, uint64_t hash)
{
    size_t at = (size_t)hash & (map->capacity - 1);
    while (map->slots[at].hash != 0 && map->slots[at].hash != hash) {
        at = (at + 1) & (map->capacity - 1);
    }
    return at;
}

const struct rg_memory_slot *rg_memory_map_find(const struct rg_memory_map *map, uint64_t hash)
{
    if (map->capacity == 0) {
        return NULL;
    }
    size_t at = slot_find(map, hash);
    return map->slots[at].hash != 0 ? &map->slots[at] : NULL;
}

static void slot_put(struct rg_memory_map *map, const struct rg_memory_slot *slot)
{
    size_t at = slot_find(map, slot->hash);
    if (map->slots[at].hash == 0) {
        map->slots[at] = *slot;
        map->count++;
    }
}

/* Puts what is kept into a table of that many slots. False: no memory. */
static bool rebuild(struct rg_memory_map *map, size_t capacity, uint32_t line_left_out)
{
    struct rg_memory_map new = {.slots = calloc(capacity, sizeof(*new.slots)),
                                .capacity = capacity};
    if (new.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[i].hash != 0 && map->slots[i].line != line_left_out) {
            slot_put(&new, &map->slots[i]);
        }
    }
    free(map->slots);
    *map = new;
    return true;
}

void rg_memory_map_insert(struct rg_memory_map *map, const struct rg_memory_slot *slot)
{
    RG_ASSERT(slot->hash != 0 && slot->line != UINT32_MAX);
    if (map->count >= map->capacity / 2 &&
        !rebuild(map, RG_MAX(2 * map->capacity, (size_t)CAPACITY_MIN), UINT32_MAX)) {
        return;
    }
    slot_put(map, slot);
    RG_VERIFY(invariants(map));
}

/* Whoever was pushed on by the slot that is free now takes its place. */
static void gap_close(struct rg_memory_map *map, size_t gap)
{
    size_t mask = map->capacity - 1;
    for (size_t at = (gap + 1) & mask; map->slots[at].hash != 0; at = (at + 1) & mask) {
        size_t home = (size_t)map->slots[at].hash & mask;
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            map->slots[gap] = map->slots[at];
            gap = at;
        }
    }
    map->slots[gap] = (struct rg_memory_slot){.hash = 0};
}

void rg_memory_map_remove(struct rg_memory_map *map, uint64_t hash)
{
    size_t at = map->capacity > 0 ? slot_find(map, hash) : 0;
    if (map->capacity > 0 && map->slots[at].hash != 0) {
        gap_close(map, at);
        map->count--;
        RG_VERIFY(invariants(map));
    }
}

void rg_memory_map_remove_line(struct rg_memory_map *map, uint32_t line)
{
    if (map->capacity > 0 && !rebuild(map, map->capacity, line)) {
        rg_memory_map_fini(map);
    }
}
