/* Which samples of a reader are done with: all below `first`, and of those from it on the ones
 * whose bits are set. A sample's bit is its number modulo the capacity, so that nothing moves when
 * `first` does.
 *
 * Invariant: as many bits are set as `ahead` says, and that of `first` is not.
 *
 * Pure: no clock, no I/O. */
#ifndef RG_DATASET_PROGRESS_H
#define RG_DATASET_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct rg_progress {
    uint64_t first;    /* not done with */
    uint32_t ahead;    /* how many behind it are */
    uint32_t capacity; /* a power of two; numbers below first + capacity have bits */
    uint8_t *bits;     /* owned; a multiple of 8 of them */
};

/* Nothing is done with. 0 or -ENOMEM. */
int rg_progress_init(struct rg_progress *progress, uint32_t capacity);
/* Also one that is zero. */
void rg_progress_fini(struct rg_progress *progress);

/* Begins anew: all below `first`, and those from it on whose bits are set. bit_count is a multiple
 * of 8, and at most the capacity where that is 8 or more. */
void rg_progress_begin(struct rg_progress *progress, uint64_t first, const uint8_t *bits,
                       uint32_t bit_count);
/* How many are done with. */
static inline uint64_t rg_progress_count(const struct rg_progress *progress)
{
    return progress->first + progress->ahead;
}
/* A number from `first` on. */
bool rg_progress_has(const struct rg_progress *progress, uint64_t number);
/* One that it has not, below first + capacity; `first` then passes all that are done with. */
void rg_progress_add(struct rg_progress *progress, uint64_t number);
/* The number behind the last that is done with. */
uint64_t rg_progress_end(const struct rg_progress *progress);
/* Becomes what the other is, of the same capacity. */
void rg_progress_copy(struct rg_progress *progress, const struct rg_progress *other);
/* Writes the bits from `first` on, up to the last that is set: how many, a multiple of 8. `out` has
 * room for the capacity's, and for 8. */
uint32_t rg_progress_bits(const struct rg_progress *progress, uint8_t *out);

#endif
