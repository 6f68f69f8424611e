/* The samples of a reader that are in the caller's queue, in the order in which they came there.
 *
 *     head ......................... tail
 *      offered; taken by some thread, or not yet
 *
 * Any thread takes: it reads which sample a place holds, and marks it. The reader offers and
 * collects, one thread at a time. Places are collected wherever they were marked, since a thread
 * that is suspended between taking a record off its queue and marking it must not hold up others.
 *
 * Invariant: head <= tail <= head + capacity, and no more are `fresh` than are offered and not
 * collected. `fresh` counts samples before they are marked, so that whoever sees a mark sees that
 * it was counted, and what it counts is marked or just about to be. */
#ifndef RG_DATASET_OFFERS_H
#define RG_DATASET_OFFERS_H

#include "runtime/base.h"

#include <ringest/runtime.h>

#include <stdatomic.h>

struct rg_offer {
    uint64_t index, number;
    _Atomic bool is_taken;
    bool is_collected;
};

struct rg_offers {
    struct rg_offer *ring; /* owned */
    uint32_t capacity;     /* a power of two */
    uint64_t head, tail;
    _Atomic uint64_t fresh; /* taken and not collected */
};

/* 0 or -ENOMEM. */
int rg_offers_init(struct rg_offers *offers, uint32_t capacity);
/* Also one that is zero. */
void rg_offers_fini(struct rg_offers *offers);

/* For how many samples there are places. Not for all of a window that is unordered: it goes on
 * beside a sample that was taken and not marked, and that sample's place waits, with all that are
 * behind it. The reader looks again when it has been marked. */
static inline uint32_t rg_offers_room(const struct rg_offers *offers)
{
    return offers->capacity - (uint32_t)(offers->tail - offers->head);
}
/* The place of a sample, which there must be room for. */
uint64_t rg_offers_add(struct rg_offers *offers, uint64_t index, uint64_t number);
/* These records have been taken off a queue. Sets both words, of which sample_number was the place.
 * Any thread. */
void rg_offers_take(struct rg_offers *offers, struct rg_completion *records, uint32_t count);
/* The numbers of some samples that were taken; 0: there are none that had been taken before. */
uint32_t rg_offers_collect(struct rg_offers *offers, uint64_t *out_numbers, uint32_t max);

#endif
