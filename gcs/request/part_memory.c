/* See part_memory.h. A free chunk holds the link to the next one in its first bytes. */
#include "gcs/request/part_memory.h"

#include <sys/mman.h>

struct rg_part_chunk {
    struct rg_part_chunk *next;
};

static unsigned class_of(size_t size)
{
    unsigned class = 0;
    while (class < RG_PART_CLASSES - 1 && ((size_t)1 << (RG_PART_CLASS_MIN_LOG + class)) < size) {
        class ++;
    }
    return class;
}

static size_t class_size(unsigned class)
{
    return (size_t)1 << (RG_PART_CLASS_MIN_LOG + class);
}

/* What is kept is the sum of the free chunks; what was out at once is no less than what is. */
static bool invariants(const struct rg_part_memory *memory)
{
    uint64_t kept = 0;
    for (unsigned class = 0; class < RG_PART_CLASSES; class ++) {
        for (const struct rg_part_chunk *chunk = memory->free[class]; chunk != NULL;
             chunk = chunk->next) {
            kept += class_size(class);
        }
    }
    return kept == memory->kept_bytes && memory->out_bytes <= memory->out_bytes_max;
}

void rg_part_memory_init(struct rg_part_memory *memory, struct rg_loop *loop)
{
    *memory = (struct rg_part_memory){.loop = loop};
    rg_list_init(&memory->waiters);
}

/* Unmaps free chunks, the largest first, until at most `kept` bytes are left. */
static void trim(struct rg_part_memory *memory, uint64_t kept)
{
    for (unsigned class = RG_PART_CLASSES; class -- > 0;) {
        while (memory->free[class] != NULL && memory->kept_bytes > kept) {
            struct rg_part_chunk *chunk = memory->free[class];
            memory->free[class] = chunk->next;
            memory->kept_bytes -= class_size(class);
            munmap(chunk, class_size(class));
        }
    }
}

void rg_part_memory_fini(struct rg_part_memory *memory)
{
    RG_ASSERT(memory->out_bytes == 0 && memory->users == 0);
    trim(memory, 0);
}

void rg_part_memory_enter(struct rg_part_memory *memory)
{
    memory->users++;
}

void rg_part_memory_leave(struct rg_part_memory *memory)
{
    RG_ASSERT(memory->users > 0);
    if (--memory->users == 0) {
        trim(memory, RG_PART_MEMORY_KEPT);
    }
}

static void *chunk_map(struct rg_part_memory *memory, size_t size)
{
    /* What is kept counts, too. */
    uint64_t room = RG_PART_MEMORY_MAX - RG_MIN(RG_PART_MEMORY_MAX, memory->out_bytes + size);
    trim(memory, room);
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

uint8_t *rg_part_memory_take(struct rg_part_memory *memory, size_t size, struct rg_task *waiter)
{
    unsigned class = class_of(size);
    size_t whole = class_size(class);
    RG_ASSERT(size > 0 && size <= whole);
    struct rg_part_chunk *chunk = NULL;
    if (memory->out_bytes == 0 || memory->out_bytes + whole <= RG_PART_MEMORY_MAX) {
        chunk = memory->free[class];
        if (chunk != NULL) {
            memory->free[class] = chunk->next;
            memory->kept_bytes -= whole;
        } else {
            chunk = chunk_map(memory, whole);
        }
    }
    if (chunk == NULL) {
        if (memory->out_bytes > 0) {
            rg_list_push_back(&memory->waiters, &waiter->node);
        }
        return NULL;
    }
    memory->out_bytes += whole;
    memory->out_bytes_max = RG_MAX(memory->out_bytes_max, memory->out_bytes);
    RG_VERIFY(invariants(memory));
    return (uint8_t *)chunk;
}

void rg_part_memory_give(struct rg_part_memory *memory, uint8_t *data, size_t size)
{
    unsigned class = class_of(size);
    struct rg_part_chunk *chunk = (struct rg_part_chunk *)(void *)data;
    RG_ASSERT(memory->out_bytes >= class_size(class));
    memory->out_bytes -= class_size(class);
    memory->kept_bytes += class_size(class);
    chunk->next = memory->free[class];
    memory->free[class] = chunk;
    RG_VERIFY(invariants(memory));
    /* Everyone who waits tries again, in the order in which they came. */
    struct rg_list waiting;
    rg_list_init(&waiting);
    rg_list_splice_back(&waiting, &memory->waiters);
    struct rg_list *node;
    while ((node = rg_list_pop_front(&waiting)) != NULL) {
        rg_loop_defer(memory->loop, RG_CONTAINER_OF(node, struct rg_task, node));
    }
}
