/* Memory for parts of objects that are read from files before they are sent: one for each loop of a
 * client, bounded, and used again while it is hot.
 *
 * It is no slab memory: a part may be larger than the arena of a loop, and uploads must not keep
 * answers waiting for memory that only those answers will free. */
#ifndef RG_GCS_REQUEST_PART_MEMORY_H
#define RG_GCS_REQUEST_PART_MEMORY_H

#include "runtime/loop.h"

/* Out at once. A larger part is granted where nothing else is out, so that it is sent alone. */
#define RG_PART_MEMORY_MAX RG_MIB(256)
/* Kept for the next part where no operation is left. */
#define RG_PART_MEMORY_KEPT RG_MIB(16)
/* Sizes are powers of two from this on. */
#define RG_PART_CLASS_MIN_LOG 16
#define RG_PART_CLASSES 32

struct rg_part_memory {
    struct rg_loop *loop;
    struct rg_part_chunk *free[RG_PART_CLASSES]; /* last in, first out */
    struct rg_list waiters;                      /* tasks, in the order in which they came */
    uint64_t out_bytes, out_bytes_max, kept_bytes;
    uint32_t users;
};

void rg_part_memory_init(struct rg_part_memory *memory, struct rg_loop *loop);
void rg_part_memory_fini(struct rg_part_memory *memory);

/* An operation that takes parts begins and ends. */
void rg_part_memory_enter(struct rg_part_memory *memory);
void rg_part_memory_leave(struct rg_part_memory *memory);

/* At least `size` bytes, aligned to a page. NULL: none for now; then `waiter` is linked and will be
 * deferred when some has come back, and the wait ends with rg_loop_undefer. NULL without that: the
 * system has none, and nothing is out that could come back. */
uint8_t *rg_part_memory_take(struct rg_part_memory *memory, size_t size, struct rg_task *waiter);
/* `size` as it was taken. */
void rg_part_memory_give(struct rg_part_memory *memory, uint8_t *data, size_t size);

#endif
