/* Memory for secrets: keys, tokens, and the answers and requests that carry them.
 *
 * An arena is one mapping that core dumps leave out. Pieces are handed out one behind the other and
 * go all at once: what was used is wiped when the arena ends. So code that works with secrets
 * neither frees nor wipes, and whatever way it takes, nothing is left behind. One thread at a time.
 */
#ifndef RG_GCS_CREDENTIALS_SECRET_H
#define RG_GCS_CREDENTIALS_SECRET_H

#include "runtime/base.h"

struct rg_secret_arena {
    uint8_t *data; /* NULL: the zero state, which fini accepts */
    size_t size, used;
};

/* Address space for `size` bytes; no page is touched before it is needed. 0 or -ENOMEM. */
int rg_secret_arena_init(struct rg_secret_arena *arena, size_t size);
/* Wipes and unmaps. */
void rg_secret_arena_fini(struct rg_secret_arena *arena);

/* Zeroed memory that lives as long as the arena; NULL when the arena is full. */
void *rg_secret_alloc(struct rg_secret_arena *arena, size_t size);
/* A copy with a NUL behind it; NULL when the arena is full. */
char *rg_secret_copy(struct rg_secret_arena *arena, const void *data, size_t size);
/* printf into the arena; NULL when it is full. */
char *rg_secret_printf(struct rg_secret_arena *arena, const char *format, ...) RG_PRINTF(2, 3);

#endif
