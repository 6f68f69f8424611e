/* See memory_read.h. */
#include "gcs/request/memory_read.h"

#include "cache/memory.h"
#include "gcs/request/cached_body.h"
#include "gcs/request/client_loop.h"
#include "gcs/request/request_type.h"
#include "runtime/runtime.h"

/* Finds the block that has the next byte, and where it begins in the object. */
static bool block_find(struct rg_request *request, struct rg_memory_block *out_block,
                       uint64_t *out_begin)
{
    const struct rg_get_state *get = &request->get;
    struct rg_memory *memory = request->client->memory;
    uint64_t at = get->offset + get->received;
    bool is_whole = get->offset == 0 && get->length == RG_WHOLE;
    struct rg_cache_key key = rg_cached_key(request, at / RG_CACHE_BLOCK_SIZE);
    *out_begin = rg_cache_key_first(&key);
    if (rg_memory_find(memory, &key, out_block)) {
        return true;
    }
    key.block = RG_CACHE_PART | at;
    *out_begin = at;
    return !is_whole && rg_memory_find(memory, &key, out_block);
}

/* Hands out what is wanted of a block. */
static bool block_hand_out(struct rg_request *request, const struct rg_memory_block *block,
                           uint64_t begin)
{
    struct rg_get_state *get = &request->get;
    const struct rg_cache_record *record = &block->record;
    struct rg_lease *lease = NULL;
    if (!rg_cached_fits(get, record, begin)) {
        return false;
    }
    rg_cached_note(get, record);
    uint64_t at = get->offset + get->received;
    uint64_t end = RG_MIN(rg_cached_end(get), begin + record->body_size);
    if (at >= end) {
        return false;
    }
    uint32_t first = (uint32_t)(at - begin);
    size_t size = (size_t)(end - at);
    if (rg_cached_is_answer(get, size)) {
        lease = rg_memory_lease(request->client->memory, block, first, size);
    }
    bool is_out = rg_cached_hand_out(request, record, block->body + first, size, &lease);
    rg_lease_release(lease);
    get->from_memory += is_out ? size : 0;
    return is_out;
}

void rg_memory_read_take(struct rg_request *request)
{
    struct rg_memory *memory = request->client->memory;
    bool goes_on = memory != NULL;
    while (goes_on && !rg_cached_is_complete(&request->get)) {
        struct rg_memory_block block;
        uint64_t begin;
        goes_on = block_find(request, &block, &begin);
        if (goes_on) {
            goes_on = block_hand_out(request, &block, begin);
            rg_memory_drop(memory, &block);
            rg_metric_add(&request->client_loop->loop->metrics.cache_memory_hits, goes_on);
        }
    }
}
