/* See lends.h. */
#include "gcs/upload/lends.h"

#include "runtime/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LENDS_MIN 16

/* O(lends): for RG_VERIFY. */
static bool invariants(const struct rg_lends *lends)
{
    for (size_t i = lends->first + 1; i < lends->count; i++) {
        if (lends->lends[i].end - lends->lends[i].size < lends->lends[i - 1].end) {
            return false;
        }
    }
    return lends->first <= lends->count && lends->count <= lends->capacity;
}

int rg_lends_reserve(struct rg_lends *lends)
{
    if (lends->count < lends->capacity) {
        return 0;
    }
    /* Only when half of the array is free at its beginning, so that moving costs little. */
    size_t out = lends->count - lends->first;
    if (2 * out <= lends->capacity && out < lends->count) {
        memmove(lends->lends, lends->lends + lends->first, out * sizeof(*lends->lends));
        lends->first = 0;
        lends->count = out;
        return 0;
    }
    size_t capacity = RG_MAX(2 * lends->capacity, (size_t)LENDS_MIN);
    struct rg_lend *more = reallocarray(lends->lends, capacity, sizeof(*more));
    if (more == NULL) {
        return -ENOMEM;
    }
    lends->lends = more;
    lends->capacity = capacity;
    return 0;
}

void rg_lends_push(struct rg_lends *lends, const struct rg_lend *lend)
{
    RG_ASSERT(lends->count < lends->capacity);
    lends->lends[lends->count++] = *lend;
    RG_VERIFY(invariants(lends));
}

void rg_lends_settle(struct rg_lends *lends, uint64_t settled, enum rg_status status,
                     const char *detail)
{
    while (lends->first < lends->count && lends->lends[lends->first].end <= settled) {
        const struct rg_lend *lend = &lends->lends[lends->first++];
        const struct rg_completion completion = {
            .user_data = lend->user_data,
            .status = status,
            .crc32c = lend->crc,
            .data = lend->data,
            .size = lend->size,
            .detail = detail,
            .finished_ns = rg_now_ns(),
        };
        rg_cq_publish(lend->cq, &completion, 1);
    }
    if (lends->first == lends->count) {
        lends->first = lends->count = 0;
    }
}

void rg_lends_fini(struct rg_lends *lends)
{
    RG_ASSERT(lends->first == lends->count);
    free(lends->lends);
}
