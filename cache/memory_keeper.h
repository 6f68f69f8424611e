/* The thread of the memory tier: it seals what is full, or old; four times a second it looks at the
 * table, finds what others have sealed, lets go of what was evicted, and takes over what has lost
 * its owner. */
#ifndef RG_CACHE_MEMORY_KEEPER_H
#define RG_CACHE_MEMORY_KEEPER_H

#include "runtime/base.h"

/* How old what was read becomes before it is sealed for others, and how often they look for it. */
#define RG_MEMORY_AGE_NS RG_NS_PER_S
#define RG_MEMORY_LOOK_NS (250 * RG_NS_PER_MS)

/* Of the thread; `context` is the struct rg_memory. Returns when that is to stop. */
void *rg_memory_keeper_main(void *context);

#endif
