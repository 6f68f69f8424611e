/* Resuming: what a reader begins with, given a saved state and how the epoch is assigned now, and
 * the state that it saves itself.
 *
 * The same reader continues within its share. Otherwise what it has consumed becomes a base
 * (dataset/base.h), as far as it says enough, and what is left is assigned anew.
 *
 * Pure but for memory: no clock, no I/O. */
#ifndef RG_DATASET_RESUME_H
#define RG_DATASET_RESUME_H

#include "dataset/base.h"
#include "dataset/progress.h"
#include "dataset/sampler.h"

/* Zero: at the beginning of the epoch. */
struct rg_resume {
    struct rg_base *base; /* owned; NULL: nothing was consumed before the assignment */
    struct rg_remaining left, own_left; /* owned; where there is a base, as the sampler has them */
    bool has_own_left;
    struct rg_state state; /* of the same reader: what it has consumed in this assignment, its bits
                            * being borrowed from what was saved; else zero */
};

/* `assignment` is how the epoch is assigned now; its left and own_left are not looked at. 0, or
 * -EINVAL or -ENOMEM with a line in `error` (may be NULL). */
int rg_resume_init(struct rg_resume *resume, const struct rg_saved *saved,
                   const struct rg_state_epoch *of, const struct rg_sampler_options *assignment,
                   char *error, size_t error_size);
/* Assigns what is left, with a sampler that was made for the same assignment of the whole epoch.
 * The sampler borrows from the resume. */
void rg_resume_assign(const struct rg_resume *resume, struct rg_sampler *sampler);
/* What a reader of this assignment saves: what it has consumed. Ordered; its bits are those in
 * `bits`, which has room for RG_STATE_BITS_MAX. */
struct rg_state rg_resume_state(const struct rg_resume *resume, const struct rg_state_epoch *of,
                                const struct rg_sampler_options *assignment,
                                const struct rg_progress *consumed, uint8_t *bits);
/* Also one that is zero. */
void rg_resume_fini(struct rg_resume *resume);

#endif
