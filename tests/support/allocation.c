/* See allocation.h. */
#include "tests/support/allocation.h"

#include <string.h>

bool (*rg_test_allocation_fails)(void);
_Thread_local size_t rg_test_allocation_size;

static bool fails(size_t size)
{
    rg_test_allocation_size = size;
    return rg_test_allocation_fails != NULL && rg_test_allocation_fails();
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails(size) ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return fails(count * size) ? NULL : __real_calloc(count, size);
}

void *__real_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_realloc(void *memory, size_t size)
{
    return fails(size) ? NULL : __real_realloc(memory, size);
}

void *__real_reallocarray(void *memory, size_t count, size_t size);
void *__wrap_reallocarray(void *memory, size_t count, size_t size);
void *__wrap_reallocarray(void *memory, size_t count, size_t size)
{
    return fails(count * size) ? NULL : __real_reallocarray(memory, count, size);
}

void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails(size) ? NULL : __real_aligned_alloc(alignment, size);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fails(strlen(text) + 1) ? NULL : __real_strdup(text);
}
