/* Written objects in memory, over all buckets up to a budget. */
#ifndef RG_EMULATOR_STORE_MEMORY_MEMORY_H
#define RG_EMULATOR_STORE_MEMORY_MEMORY_H

#include "emulator/store/memory/segment.h"
#include "emulator/store/model/backend.h"

extern const struct rg_store_backend rg_memory_backend;

/* Returns owned; the backend's close ends it. */
int rg_memory_bucket_open(void **out_bucket, struct rg_memory_budget *budget);

#endif
