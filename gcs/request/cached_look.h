/* What the cache of a client may have. All ask the index, which is a hint, and read no record. Any
 * thread. */
#ifndef RG_GCS_REQUEST_CACHED_LOOK_H
#define RG_GCS_REQUEST_CACHED_LOOK_H

#include "runtime/base.h"

#include <ringest/gcs.h>

struct rg_cache;
struct rg_cache_key;
struct rg_client;

/* Blocks that the client's cache has had no room for; UINT64_MAX: it has no cache. */
uint64_t rg_cached_refused(const struct rg_client *client);
/* Bytes [at, end) of an object are wanted, and the cache has not got the first of them: where what
 * it lacks ends. Smaller runs than RG_CACHED_RUN_MIN are no reason to send two requests, unless one
 * reaches the end. UINT64_MAX for an end that is not known, and to say that all is missing. */
#define RG_CACHED_RUN_MIN RG_KIB(256)
uint64_t rg_cached_gap_end(struct rg_cache *cache, const struct rg_cache_key *key, uint64_t at,
                           uint64_t end);
/* Whether the cache lacks some bytes of what a get of this generation asks for; `size`: of its
 * body, 0 if that is not known. A get of the newest one asks the service in any case, and has
 * nothing missing. */
bool rg_cached_is_missing(const struct rg_client *client, const struct rg_get *get, uint64_t size);

#endif
