/* The requests of a reader: makes those that its window has room for, and notes what has come.
 *
 *   source, sampler -> plan -> rg_client -> window
 *
 * The window (dataset/window.h) knows which samples are out, here and taken, the plan
 * (dataset/plan.h) what is read next. This unit submits it, takes the completions off a queue of
 * its own, and decides what becomes of objects that have changed. It never waits. One thread at a
 * time.
 *
 *   open -> refill and poll, in turns -> close, which cancels what is out and waits for it */
#ifndef RG_DATASET_INTAKE_H
#define RG_DATASET_INTAKE_H

#include "dataset/ahead.h"
#include "dataset/plan.h"
#include "dataset/state.h"
#include "runtime/runtime.h"

/* Requests submitted, and completions noted, at a time. */
#define RG_INTAKE_AT_ONCE 64
/* When to try again where the client had no room and nothing of ours is out. */
#define RG_INTAKE_FULL_PAUSE_NS RG_NS_PER_MS
/* If nothing has come for so long while a request waits for memory, the window lets go of its own
 * memory. Longer than the pauses between the answers of a healthy service; what is let go is read
 * twice. */
#define RG_INTAKE_QUIET_NS (100 * RG_NS_PER_MS)

struct rg_intake {
    struct rg_client
        *client;      /* borrowed; NULL: it is being closed, and nothing is asked any more */
    struct rg_cq *cq; /* owned; of the requests */
    enum rg_changed changed;
    struct rg_plan plan;
    struct rg_window window;
    struct rg_ahead *ahead;     /* owned; NULL: nothing is read of the next epoch */
    uint64_t skipped;           /* samples */
    uint64_t noted;             /* completions */
    bool is_refused;            /* there was no room for the last request */
    struct rg_window_fill told; /* to the metrics; 0 once `client` is NULL */
    char names[RG_INTAKE_AT_ONCE][RG_OBJECT_NAME_SIZE_MAX + 1];
};

/* Makes the window and the queue of one that is zero; the plan is the caller's to fill. Errors:
 * those of rg_window_init and rg_cq_open. */
int rg_intake_open(struct rg_intake *intake, struct rg_client *client,
                   const struct rg_window_options *options, const struct rg_state *state);
/* Also one whose opening failed. Not the owner is a child of fork(), whose leases are the parent's.
 */
void rg_intake_close(struct rg_intake *intake, bool is_owner);

/* Its client is being closed: nothing is asked any more. */
void rg_intake_leave(struct rg_intake *intake);
/* Makes the requests that there is room for, at the end of the epoch those of the next, too. */
void rg_intake_refill(struct rg_intake *intake);
/* Notes what has come. */
void rg_intake_poll(struct rg_intake *intake);
/* Notes completions that were taken off the queue. */
void rg_intake_note(struct rg_intake *intake, struct rg_completion *done, int count);
/* Requests of which no completion was noted. */
static inline uint32_t rg_intake_out(const struct rg_intake *intake)
{
    return intake->window.counts[RG_SLOT_OUT];
}
/* For how many completions to wait at a time, if nobody needs one of them at once; at least 1, and
 * no more than are out. */
uint32_t rg_intake_portion(const struct rg_intake *intake);
/* Lets go of samples that came before their turn, for the one whose turn it is. False: there are
 * none. */
bool rg_intake_relieve(struct rg_intake *intake);

#endif
