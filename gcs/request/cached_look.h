/* Whether it is of use to read something only for the cache of a client. Both ask the index, which
 * is a hint, and read no record. Any thread. */
#ifndef RG_GCS_REQUEST_CACHED_LOOK_H
#define RG_GCS_REQUEST_CACHED_LOOK_H

#include "runtime/base.h"

#include <ringest/gcs.h>

struct rg_client;

/* Blocks that the client's cache has had no room for; UINT64_MAX: it has no cache. */
uint64_t rg_cached_refused(const struct rg_client *client);
/* Whether the cache lacks some bytes of what a get of this generation asks for; `size`: of its
 * body, 0 if that is not known. A get of the newest one asks the service in any case, and has
 * nothing missing. */
bool rg_cached_is_missing(const struct rg_client *client, const struct rg_get *get, uint64_t size);

#endif
