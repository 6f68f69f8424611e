/* Memory that bytes of objects lie in, charged to a budget. A segment has a reference count:
 * objects that are composed or copied share the segments of their sources. */
#ifndef RG_EMULATOR_STORE_MEMORY_SEGMENT_H
#define RG_EMULATOR_STORE_MEMORY_SEGMENT_H

#include "runtime/base.h"

#include <stdatomic.h>

/* Bytes that objects in memory may take, over all buckets. */
struct rg_memory_budget {
    _Atomic uint64_t used;
    uint64_t max;
};

struct rg_segment {
    _Atomic uint32_t refs;
    struct rg_memory_budget *budget;
    uint64_t size, capacity; /* The capacity is charged to the budget. */
    uint8_t *data;
};

/* Room for `capacity` bytes, with one reference. -ENOSPC: the budget is used up; -ENOMEM. */
int rg_segment_create(struct rg_segment **out_segment, struct rg_memory_budget *budget,
                      uint64_t capacity);
struct rg_segment *rg_segment_ref(struct rg_segment *segment);
void rg_segment_unref(struct rg_segment *segment);
/* Gives a segment that nobody shares another capacity, at least its size. */
int rg_segment_resize(struct rg_segment *segment, uint64_t capacity);

#endif
