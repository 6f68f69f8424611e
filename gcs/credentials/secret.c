/* Memory for secrets: see secret.h. */
#include "gcs/credentials/secret.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SECRET_ALIGNMENT 16

int rg_secret_arena_init(struct rg_secret_arena *arena, size_t size)
{
    RG_ASSERT(size > 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size = (size + page - 1) / page * page;
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
        return -ENOMEM;
    }
    (void)madvise(data, size, MADV_DONTDUMP);
    *arena = (struct rg_secret_arena){.data = data, .size = size};
    return 0;
}

void rg_secret_arena_fini(struct rg_secret_arena *arena)
{
    if (arena->data == NULL) {
        return;
    }
    explicit_bzero(arena->data, arena->used);
    int rc = munmap(arena->data, arena->size);
    RG_ASSERT(rc == 0);
    *arena = (struct rg_secret_arena){0};
}

void *rg_secret_alloc(struct rg_secret_arena *arena, size_t size)
{
    RG_ASSERT(arena->data != NULL && arena->used <= arena->size);
    if (size > arena->size - arena->used) {
        return NULL;
    }
    void *piece = arena->data + arena->used;
    size_t end = (arena->used + size + SECRET_ALIGNMENT - 1) / SECRET_ALIGNMENT * SECRET_ALIGNMENT;
    arena->used = RG_MIN(end, arena->size);
    return piece;
}

char *rg_secret_copy(struct rg_secret_arena *arena, const void *data, size_t size)
{
    char *copy = rg_secret_alloc(arena, size + 1);
    if (copy != NULL && size > 0) {
        memcpy(copy, data, size);
    }
    return copy;
}

char *rg_secret_printf(struct rg_secret_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size =
        vsnprintf((char *)arena->data + arena->used, arena->size - arena->used, format, args);
    va_end(args);
    RG_ASSERT(size >= 0);
    /* Cut where the arena ends; what was written of it is wiped with the rest. */
    char *text = rg_secret_alloc(arena, (size_t)size + 1);
    if (text == NULL) {
        arena->used = arena->size;
    }
    return text;
}
