/* Allocations that fail when a test says so. The linker puts the functions of allocation.c in the
 * place of malloc and the like, in programs that are linked with `allocation_wraps`
 * (tests/meson.build). */
#ifndef RG_TESTS_SUPPORT_ALLOCATION_H
#define RG_TESTS_SUPPORT_ALLOCATION_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that are asked for, while the next is called. */
extern _Thread_local size_t rg_test_allocation_size;
/* Asked at every allocation, on any thread. Set before there are others; NULL: none fails. */
extern bool (*rg_test_allocation_fails)(void);

#endif
