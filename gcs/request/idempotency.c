/* See idempotency.h. */
#include "gcs/request/idempotency.h"

static const uint8_t operation_guards[] = {
#define XX(name, guards) guards,
    RG_OPERATIONS(XX)
#undef XX
};
_Static_assert(RG_ARRAY_LEN(operation_guards) == RG_OPERATION_COUNT, "guards for each operation");

bool rg_operation_idempotent(enum rg_operation_kind operation,
                             const struct rg_conditions *conditions, int64_t generation)
{
    RG_ASSERT(operation < RG_OPERATION_COUNT);
    unsigned guards = RG_GUARD_ALWAYS;
    guards |= generation != 0 ? RG_GUARD_GENERATION : 0;
    if (conditions != NULL) {
        guards |= conditions->if_generation_match != 0 ? RG_GUARD_GENERATION_MATCH : 0;
        guards |= conditions->if_metageneration_match != 0 ? RG_GUARD_METAGENERATION_MATCH : 0;
    }
    return (operation_guards[operation] & guards) != 0;
}
