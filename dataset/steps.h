/* The last steps of a loop over a reader: how long it had a value, how long it waited for the next
 * one, and what for (rg_reader_waited). And telling them to people (gcs/host/told.h).
 *
 *   AWAY --enter--> INSIDE --leave--> AWAY       away is the caller's loop; inside makes a value
 *                     ^ |
 *               enter | | sleep                  an event loop waits
 *                     | v
 *                   ASLEEP
 *
 * The first step has no time of the caller's. What is told is told when a step ends, or while one
 * waits, at most every RG_TOLD_INTERVAL_NS; so a loop that is over sooner tells nothing. After a
 * step was told that waits, its end is told at once: what was told last is as it is now, unless the
 * loop has gone on for less than the interval.
 *
 * One thread at a time. */
#ifndef RG_DATASET_STEPS_H
#define RG_DATASET_STEPS_H

#include "gcs/host/told.h"

#include <ringest/dataset.h>

/* So many single ones are kept. */
#define RG_STEPS_MAX 256

enum rg_steps_state { RG_STEPS_AWAY = 0, RG_STEPS_INSIDE, RG_STEPS_ASLEEP };

/* Who the loop is, for people. Texts are cut where they are too long. */
struct rg_steps_name {
    const char *dataset, *source, *ahead;
    uint32_t rank, world_size, worker, worker_count;
};

/* Zeroed: AWAY, and never entered. */
struct rg_steps {
    enum rg_steps_state state;
    uint64_t entered_ns, left_ns;      /* the last time; 0: never */
    uint64_t slept_ns[RG_STAGE_COUNT]; /* as of rg_reader_waited, when the last step ended */
    uint64_t count;                    /* of all steps so far */
    struct rg_told_step *ring;         /* owned; NULL: there was no memory, or no step */
    /* What is told: */
    struct rg_told *told;             /* owned; NULL: nothing */
    const struct rg_runtime *runtime; /* borrowed; while there is a reader */
    uint64_t cpu_began_ns;            /* that its loops had used when the steps were named */
    uint32_t generation;              /* of the process that named them: a child tells nothing */
    char *folder;                     /* owned; NULL: nobody is told */
    struct rg_told_place place;
};

/* Before the first step: who it is, and from now on people are told, if the client shares anything.
 * 0 or -ENOMEM. */
int rg_steps_name(struct rg_steps *steps, const struct rg_client *client,
                  const struct rg_steps_name *name);
/* In all of these, `reader` may be NULL: it was closed. */
void rg_steps_enter(struct rg_steps *steps, struct rg_reader *reader);
void rg_steps_sleep(struct rg_steps *steps, struct rg_reader *reader);
/* Again and again while it waits INSIDE; elsewhere harmless. */
void rg_steps_wait(struct rg_steps *steps, const struct rg_reader *reader);
/* With a value, or without: then it is no step. */
void rg_steps_leave(struct rg_steps *steps, const struct rg_reader *reader, bool has_value);
/* The reader was closed. Where that was not by its end, as where a loop is left early, people are
 * told that it is over. */
void rg_steps_close(struct rg_steps *steps, const struct rg_reader *reader);
/* Harmless in a child of fork, whose parent goes on. */
void rg_steps_fini(struct rg_steps *steps);

/* Adds up the last ones, at most `max`, and what goes on now, which `out_open` alone is. All 0 in a
 * child of fork, which has made no step. */
struct rg_told_step rg_steps_sum(const struct rg_steps *steps, uint64_t max,
                                 struct rg_told_step *out_open);
/* As rg_told_busy, up to now or to when the reader was last there. */
double rg_steps_busy(struct rg_steps *steps, const struct rg_reader *reader);

#endif
