/* A made-up root of /proc and /sys, for code that takes one in the place of "". */
#ifndef RG_TESTS_SUPPORT_ROOT_H
#define RG_TESTS_SUPPORT_ROOT_H

#include <stddef.h>

/* Makes an empty one and returns its path, which stays valid; one at a time. */
const char *rg_root_make(void);
/* Writes a file below it, and the folders above that. */
void rg_root_write_bytes(const char *name, const void *data, size_t size);
void rg_root_write(const char *name, const char *text);
void rg_root_remove(void);

#endif
