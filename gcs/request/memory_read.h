/* What a get takes from the memory tier of the client's cache (cache/memory.h): at once, and
 * without a copy where the answer lies in one block and nobody has given memory for it. On the
 * loop. */
#ifndef RG_GCS_REQUEST_MEMORY_READ_H
#define RG_GCS_REQUEST_MEMORY_READ_H

#include "runtime/base.h"

struct rg_request;

/* Takes the blocks that are there, from the next byte on. The generation is known. */
void rg_memory_read_take(struct rg_request *request);

#endif
