/* See cached_look.h. */
#include "gcs/request/cached_look.h"

#include "cache/cache.h"
#include "gcs/request/client_loop.h"

uint64_t rg_cached_refused(const struct rg_client *client)
{
    struct rg_cache_stats stats = {.not_admitted = UINT64_MAX};
    if (client->cache != NULL) {
        rg_cache_stats(client->cache, &stats);
    }
    return stats.not_admitted;
}

static bool key_is_there(const struct rg_client *client, const struct rg_get *get, uint64_t block)
{
    const struct rg_cache_key key = {
        .origin = client->endpoint.authority,
        .bucket = get->bucket,
        .object = get->object,
        .generation = get->generation,
        .block = block,
    };
    struct rg_cache_place place;
    bool found = rg_cache_find(client->cache, &key, &place);
    if (found) {
        rg_cache_place_drop(client->cache, &place);
    }
    return found;
}

bool rg_cached_is_missing(const struct rg_client *client, const struct rg_get *get, uint64_t size)
{
    if (client->cache == NULL || get->generation == 0) {
        return false;
    }
    uint64_t end = get->offset + RG_MAX(size, UINT64_C(1));
    for (uint64_t at = get->offset; at < end;) {
        /* A whole block, or a part that begins here: neither goes beyond the block's end. */
        uint64_t block = at / RG_CACHE_BLOCK_SIZE;
        if (!key_is_there(client, get, block) && !key_is_there(client, get, RG_CACHE_PART | at)) {
            return true;
        }
        at = (block + 1) * RG_CACHE_BLOCK_SIZE;
    }
    return false;
}
