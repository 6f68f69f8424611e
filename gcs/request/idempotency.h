/* Which operation may be sent twice (Cloud Storage, "Retry strategy"): one table for all of them.
 *
 * What only reads may always. What writes may where a condition lets at most one of several equal
 * requests take effect: of what is to be written that is the destination's generation, and of what
 * is to be changed the metageneration. Conditions of a source do not count, nor do not-match
 * conditions. */
#ifndef RG_GCS_REQUEST_IDEMPOTENCY_H
#define RG_GCS_REQUEST_IDEMPOTENCY_H

#include "runtime/base.h"

#include <ringest/objects.h>

#define RG_GUARD_ALWAYS (1u << 0)
#define RG_GUARD_GENERATION_MATCH (1u << 1)
#define RG_GUARD_METAGENERATION_MATCH (1u << 2)
#define RG_GUARD_GENERATION (1u << 3) /* the request names the generation that it is about */

/* XX(name, guards): any one of the guards makes the operation idempotent. */
#define RG_OPERATIONS(XX)                                                                          \
    XX(GET, RG_GUARD_ALWAYS)                                                                       \
    XX(LIST, RG_GUARD_ALWAYS)                                                                      \
    XX(STAT, RG_GUARD_ALWAYS)                                                                      \
    XX(INSERT, RG_GUARD_GENERATION_MATCH) /* of any kind, and the start of a session */            \
    XX(SESSION, RG_GUARD_ALWAYS)          /* its data by offset, its state, and its end */         \
    XX(PART, RG_GUARD_ALWAYS)             /* by its number */                                      \
    XX(COPY, RG_GUARD_GENERATION_MATCH)                                                            \
    XX(COMPOSE, RG_GUARD_GENERATION_MATCH)                                                         \
    XX(DELETE, RG_GUARD_GENERATION_MATCH | RG_GUARD_GENERATION)                                    \
    XX(UPDATE, RG_GUARD_METAGENERATION_MATCH)

enum rg_operation_kind {
#define XX(name, guards) RG_OPERATION_##name,
    RG_OPERATIONS(XX)
#undef XX
        RG_OPERATION_COUNT
};

/* `conditions` are those of the object that is read or written, NULL: none; `generation` is the one
 * that the request names, 0: none. */
bool rg_operation_idempotent(enum rg_operation_kind operation,
                             const struct rg_conditions *conditions, int64_t generation);

#endif
