/* See segment.h. */
#include "emulator/store/memory/segment.h"

#include <errno.h>
#include <stdlib.h>

static int budget_take(struct rg_memory_budget *budget, uint64_t size)
{
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    do {
        if (size > budget->max - used) {
            return -ENOSPC;
        }
    } while (!atomic_compare_exchange_weak(&budget->used, &used, used + size));
    return 0;
}

static void budget_give(struct rg_memory_budget *budget, uint64_t size)
{
    uint64_t before = atomic_fetch_sub(&budget->used, size);
    RG_ASSERT(before >= size);
}

struct rg_segment *rg_segment_ref(struct rg_segment *segment)
{
    atomic_fetch_add_explicit(&segment->refs, 1, memory_order_relaxed);
    return segment;
}

void rg_segment_unref(struct rg_segment *segment)
{
    if (atomic_fetch_sub_explicit(&segment->refs, 1, memory_order_acq_rel) == 1) {
        budget_give(segment->budget, segment->capacity);
        free(segment->data);
        free(segment);
    }
}

int rg_segment_resize(struct rg_segment *segment, uint64_t capacity)
{
    RG_ASSERT(segment->refs == 1);
    RG_ASSERT(segment->size <= capacity);
    if (capacity > segment->capacity) {
        int rc = budget_take(segment->budget, capacity - segment->capacity);
        if (rc < 0) {
            return rc;
        }
    }
    uint8_t *data = realloc(segment->data, RG_MAX(capacity, UINT64_C(1)));
    if (data == NULL) {
        if (capacity > segment->capacity) {
            budget_give(segment->budget, capacity - segment->capacity);
        }
        return -ENOMEM;
    }
    if (capacity < segment->capacity) {
        budget_give(segment->budget, segment->capacity - capacity);
    }
    segment->data = data;
    segment->capacity = capacity;
    return 0;
}

int rg_segment_create(struct rg_segment **out_segment, struct rg_memory_budget *budget,
                      uint64_t capacity)
{
    struct rg_segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL) {
        return -ENOMEM;
    }
    segment->refs = 1;
    segment->budget = budget;
    int rc = rg_segment_resize(segment, capacity);
    if (rc < 0) {
        rg_segment_unref(segment);
        return rc;
    }
    *out_segment = segment;
    return 0;
}
