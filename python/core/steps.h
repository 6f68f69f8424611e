/* The last steps of an iteration: how long the caller had a value, how long it waited for the next
 * one, and what for (rg_reader_waited).
 *
 *   AWAY --enter--> INSIDE --leave--> AWAY       away is the caller's loop; inside makes a value
 *                     ^ |
 *               enter | | sleep                  an event loop waits
 *                     | v
 *                   ASLEEP
 *
 * The first step has no time of the caller's. Under the interpreter's lock; by the thread that
 * iterates, but for core_steps_sum. */
#ifndef RG_PYTHON_STEPS_H
#define RG_PYTHON_STEPS_H

#include "core.h"

#include <ringest/metrics.h>

/* So many are kept. */
#define CORE_STEPS_MAX 256

enum core_steps_state { CORE_STEPS_AWAY = 0, CORE_STEPS_INSIDE, CORE_STEPS_ASLEEP };

struct core_step {
    uint64_t away_ns, inside_ns;
    uint64_t slept_ns[RG_STAGE_COUNT]; /* of inside_ns */
};

struct core_steps {
    enum core_steps_state state;
    uint64_t entered_ns, left_ns;      /* the last time; 0: never */
    uint64_t slept_ns[RG_STAGE_COUNT]; /* as of rg_reader_waited, when the last step ended */
    uint64_t count;                    /* of all steps so far */
    struct core_step *ring;            /* owned; NULL: there was no memory, or no step */
};

void core_steps_enter(struct core_steps *self, struct rg_reader *reader);
void core_steps_sleep(struct core_steps *self, struct rg_reader *reader);
/* With a value, or without: then it is no step. `reader` may be NULL: it was closed. */
void core_steps_leave(struct core_steps *self, const struct rg_reader *reader, bool has_value);
void core_steps_fini(struct core_steps *self);

/* (steps, away_ns, inside_ns, (slept_ns, ...)) of the last steps, at most `max`. */
PyObject *core_steps_sum(const struct core_steps *self, uint64_t max);

#endif
