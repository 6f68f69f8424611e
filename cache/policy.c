/* See policy.h. */
#include "cache/policy.h"

#include "cache/format.h"

/* A cache of any usual size has about a thousand segments. */
#define SEGMENTS_WANTED 1024
#define SEGMENT_SIZE_MIN RG_MIB(16)
#define SEGMENTS_MIN 8
#define RESERVE_MAX RG_MIB(1024)
#define RESERVE_PART 50

uint64_t rg_cache_segment_size(uint64_t cache_size)
{
    uint64_t size = RG_MAX(cache_size / SEGMENTS_WANTED, (uint64_t)SEGMENT_SIZE_MIN);
    size = RG_MIN(size, cache_size / SEGMENTS_MIN);
    return RG_MIN(size, (uint64_t)RG_CACHE_SEGMENT_SIZE_MAX);
}

uint64_t rg_cache_reserve(uint64_t system_size)
{
    return RG_MIN(system_size / RESERVE_PART, (uint64_t)RESERVE_MAX);
}

enum rg_cache_verdict rg_cache_decide(const struct rg_cache_look *look)
{
    bool fits = look->used + look->segment_size <= look->size_max;
    if (fits && look->free >= look->segment_size) {
        return RG_CACHE_ROOM;
    }
    if (!look->has_oldest) {
        return RG_CACHE_FULL;
    }
    /* Somebody has made the cache smaller. */
    bool above = look->used > look->size_max + look->segment_size;
    uint64_t age = look->clock - RG_MIN(look->clock, look->oldest_use);
    return above || look->is_spent || age > RG_CACHE_PATIENCE * look->size_max ? RG_CACHE_REPLACE
                                                                               : RG_CACHE_FULL;
}
