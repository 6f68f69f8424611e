/* Tiers of memory of a test's own, which find each other by a folder that nobody else has. */
#ifndef RG_TESTS_MEMORY_CASE_H
#define RG_TESTS_MEMORY_CASE_H

#include "cache/memory.h"
#include "runtime/slab.h"
#include "tests/cache/cache_case.h"

static inline struct rg_memory *memory_case_start(struct cache_case *c, uint64_t size)
{
    struct rg_memory_options options = {.size = size, .share = c->share};
    struct rg_memory *memory = NULL;
    if (rg_memory_open(&memory, &options, c->why, sizeof(c->why)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", c->why);
    }
    return memory;
}

static inline bool memory_case_put(struct cache_case *c, struct rg_memory *memory, uint64_t number,
                                   size_t size)
{
    struct case_key k;
    struct rg_cache_record record = {.object_size = size};
    case_key_make(&k, number);
    body_fill(c->body, size, number);
    return rg_memory_put(memory, &k.key, &record, c->body, size);
}

/* CASE_WRONG: bytes were handed out that are not its own. */
static inline enum case_outcome memory_case_read(struct cache_case *c, struct rg_memory *memory,
                                                 uint64_t number, size_t size)
{
    struct case_key k;
    struct rg_memory_block block;
    case_key_make(&k, number);
    if (!rg_memory_find(memory, &k.key, &block)) {
        return CASE_MISS;
    }
    body_fill(c->body, size, number);
    bool is_right = block.record.body_size == size && memcmp(block.body, c->body, size) == 0;
    rg_memory_drop(memory, &block);
    return is_right ? CASE_HIT : CASE_WRONG;
}

static inline struct rg_lease *memory_case_lease(struct rg_memory *memory, uint64_t number)
{
    struct case_key k;
    struct rg_memory_block block;
    case_key_make(&k, number);
    if (!rg_memory_find(memory, &k.key, &block)) {
        return NULL;
    }
    struct rg_lease *lease = rg_memory_lease(memory, &block, 0, block.record.body_size);
    rg_memory_drop(memory, &block);
    return lease;
}

static inline struct rg_memory_stats memory_case_stats(struct rg_memory *memory)
{
    struct rg_memory_stats stats;
    rg_memory_stats(memory, &stats);
    return stats;
}

#endif
