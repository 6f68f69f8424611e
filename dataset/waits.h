/* How long a reader's caller has slept for samples, and what for: a share of each sleep for every
 * stage that gets were at meanwhile (runtime/stages.h), as large as the stage's share of their
 * time.
 *
 *   AWAKE --begin--> ASLEEP --end--> AWAKE
 *
 * Loops say what gets are at when they pass. A sleep in which none did waits for the next one to be
 * explained.
 *
 * Invariant: the shares and what is unexplained add up to the sleep, but for rounding.
 *
 * One thread at a time. */
#ifndef RG_DATASET_WAITS_H
#define RG_DATASET_WAITS_H

#include "runtime/runtime.h"

/* Zeroed: AWAKE, and never slept. */
struct rg_waits {
    uint64_t shares_ns[RG_STAGE_COUNT]; /* of NONE: what is unexplained */
    uint64_t before_ns[RG_STAGE_COUNT]; /* what gets had spent when the first sleep that is not
                                         * explained began */
    bool is_unexplained;                /* no loop has passed since then */
    uint64_t began_ns;                  /* ASLEEP; 0: AWAKE */
};

void rg_waits_begin(struct rg_waits *waits, const struct rg_runtime *runtime, uint64_t now_ns);
/* If is_unexplained is true then, loops have to be woken to explain it. */
void rg_waits_end(struct rg_waits *waits, const struct rg_runtime *runtime, uint64_t now_ns);

#endif
