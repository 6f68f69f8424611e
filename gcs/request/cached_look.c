/* See cached_look.h. */
#include "gcs/request/cached_look.h"

#include "cache/cache.h"
#include "cache/memory.h"
#include "gcs/request/client_loop.h"

uint64_t rg_cached_refused(const struct rg_client *client)
{
    struct rg_cache_stats stats = {.not_admitted = UINT64_MAX};
    struct rg_memory_stats memory;
    if (client->cache != NULL) {
        rg_cache_stats(client->cache, &stats);
    } else if (client->memory != NULL) {
        rg_memory_stats(client->memory, &memory);
        stats.not_admitted = memory.not_admitted;
    }
    return stats.not_admitted;
}

/* Blocks that are looked for behind a gap, and parts that lie behind one another before one. */
#define BLOCKS_MAX 64
#define PARTS_MAX 16
/* The last bytes of a part may not be found (cache/extent.h). */
#define PART_TAIL RG_CACHE_UNIT

/* Where the part begins that ends at `end`, or nearly, and behind `at`; `end`: there is none. */
static uint64_t part_before(struct rg_cache *cache, const struct rg_cache_key *key, uint64_t at,
                            uint64_t end, unsigned ways)
{
    struct rg_cache_extent extent;
    bool found = end > at + PART_TAIL &&
                 rg_cache_look(cache, key, end - PART_TAIL, ways, &extent) && extent.end >= end;
    return found && extent.begin > at ? extent.begin : end;
}

/* The beginning of all that ends at `end` without a gap. */
static uint64_t run_begin(struct rg_cache *cache, const struct rg_cache_key *key, uint64_t at,
                          uint64_t end)
{
    for (unsigned i = 0; i < PARTS_MAX; i++) {
        uint64_t begin = part_before(cache, key, at, end, RG_CACHE_BY_BLOCK | RG_CACHE_BY_NOTE);
        if (begin == end) {
            break;
        }
        end = begin;
    }
    return end;
}

uint64_t rg_cached_gap_end(struct rg_cache *cache, const struct rg_cache_key *key, uint64_t at,
                           uint64_t end)
{
    struct rg_cache_extent extent;
    uint64_t block = at / RG_CACHE_BLOCK_SIZE;
    if (end == UINT64_MAX) {
        return UINT64_MAX;
    }
    for (unsigned i = 0; i < BLOCKS_MAX && (block + 1) * RG_CACHE_BLOCK_SIZE < end; i++) {
        uint64_t begin = ++block * RG_CACHE_BLOCK_SIZE;
        if (rg_cache_look(cache, key, begin, RG_CACHE_BY_BLOCK | RG_CACHE_BY_BEGIN, &extent) &&
            (extent.end >= end || extent.end - begin >= RG_CACHED_RUN_MIN)) {
            return run_begin(cache, key, at, begin);
        }
    }
    /* Whether the last block is there has been looked up. */
    uint64_t begin = part_before(cache, key, at, end, RG_CACHE_BY_NOTE);
    return begin == end ? UINT64_MAX : run_begin(cache, key, at, begin);
}

/* A whole block, or a part that begins there: neither goes beyond the block's end. */
static bool memory_has(struct rg_memory *memory, const struct rg_cache_key *of, uint64_t at,
                       uint64_t *out_end)
{
    struct rg_cache_key block = *of, part = *of;
    block.block = at / RG_CACHE_BLOCK_SIZE;
    part.block = RG_CACHE_PART | at;
    *out_end = (block.block + 1) * RG_CACHE_BLOCK_SIZE;
    return rg_memory_has(memory, &block) || rg_memory_has(memory, &part);
}

bool rg_cached_is_missing(const struct rg_client *client, const struct rg_get *get, uint64_t size)
{
    if (client->newest == NULL || get->generation == 0) {
        return false;
    }
    const struct rg_cache_key key = {
        .origin = client->endpoint.authority,
        .bucket = get->bucket,
        .object = get->object,
        .generation = get->generation,
    };
    struct rg_cache_extent extent;
    uint64_t end = get->offset + RG_MAX(size, UINT64_C(1));
    for (uint64_t at = get->offset; at < end; at = extent.end) {
        if (client->memory != NULL && memory_has(client->memory, &key, at, &extent.end)) {
            continue;
        }
        if (client->cache == NULL ||
            !rg_cache_look(client->cache, &key, at, RG_CACHE_BY_ANY, &extent) || extent.end <= at) {
            return true;
        }
    }
    return false;
}
