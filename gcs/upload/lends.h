/* Lends of a writer that are to be told of: pieces of the stream, in its order, each with the
 * completion that its memory gives when it is the program's again. A slot of its queue is reserved.
 *
 *   reserve -> push -> settle, which publishes
 *
 * Not for several threads at once: the stream's lock guards it.
 *
 * Invariant: pieces lie in the order of the stream. */
#ifndef RG_GCS_UPLOAD_LENDS_H
#define RG_GCS_UPLOAD_LENDS_H

#include "runtime/cq.h"

struct rg_lend {
    struct rg_cq *cq;
    uint64_t user_data;
    const void *data;
    uint64_t size, end; /* its bytes, and where in the stream they end */
    uint32_t crc;
};

struct rg_lends {
    struct rg_lend *lends; /* owned: those that are out are [first, count) */
    size_t first, count, capacity;
};

/* Room for one more: 0 or -ENOMEM. */
int rg_lends_reserve(struct rg_lends *lends);
void rg_lends_push(struct rg_lends *lends, const struct rg_lend *lend);
/* Publishes the completions of those that end at this byte of the stream, or before. `detail`: a
 * constant, unless the status is OK. */
void rg_lends_settle(struct rg_lends *lends, uint64_t settled, enum rg_status status,
                     const char *detail);
/* None is out. */
void rg_lends_fini(struct rg_lends *lends);

#endif
