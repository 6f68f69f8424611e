/* The window of a reader: which samples were asked for and have not been taken, in their order.
 *
 * Samples have the numbers of the reader's epoch. The window is a ring of slots, and the slot of a
 * sample is its number modulo the capacity:
 *
 *      0 .......... first ................. next .......... total
 *        taken or         asked for, or            not asked
 *        skipped          taken early              for yet
 *
 * One request reads one sample, or several samples of a tar shard that follow each other. A request
 * is known by the number of its first sample; the samples behind it in the request *follow* it.
 *
 *             ask              arrive           take
 *      FREE ------> OUT --------------> HERE ---------> FREE
 *        |         |  ^                  | |             ^
 *        | follow  |  | ask       let go | | offer       | taken
 *        |         v  |                  | v             |
 *        |        AGAIN <----------------+ OFFERED ------+
 *        +------> FOLLOWS: as long as the request's first sample is OUT or AGAIN
 *
 * OUT is a request in flight; AGAIN is one that has to be made once more, because
 * there was no room for it, because it was asked for a generation that is gone, or because the
 * memory that it held was needed for the first sample. OUT ends in FREE when a sample is skipped.
 * OFFERED is in a queue of the caller's, and still in the window until somebody takes it from
 * there. Which samples were taken is kept in `handed` only.
 *
 * Each request is charged the bytes that it may hold. The charge is borne by its last sample, so
 * that it ends when all of its samples have been taken. Nothing new is asked for while the charges
 * have reached bytes_max; the sample whose turn it is, the first that is neither taken nor OFFERED,
 * is always asked for again, since all others wait for it.
 *
 * Invariant: from `first` to `next` every number is either taken or has a slot that is not FREE,
 * and all other slots are FREE; before `turn` all are taken or OFFERED; the counts and the bytes
 * are those of the slots.
 *
 * Pure: no clock, no I/O. One thread at a time. */
#ifndef RG_DATASET_WINDOW_H
#define RG_DATASET_WINDOW_H

#include "dataset/progress.h"
#include "runtime/base.h"

#include <ringest/dataset.h>

enum rg_slot_state {
    RG_SLOT_FREE = 0,
    RG_SLOT_OUT,     /* the first sample of a request that is being made */
    RG_SLOT_AGAIN,   /* the first sample of a request that has to be made again */
    RG_SLOT_FOLLOWS, /* read by the request of a sample before it, which is OUT or AGAIN */
    RG_SLOT_HERE,    /* has come, and waits to be taken */
    RG_SLOT_OFFERED, /* waits in a queue of the caller's */
    RG_SLOT_STATE_COUNT,
};

/* What the request of a first sample reads. */
enum rg_slot_kind {
    RG_SLOT_UNPLANNED = 0,
    RG_SLOT_OBJECT, /* a whole object, of the generation that is listed if one is */
    RG_SLOT_NEWEST, /* a whole object, of whichever generation is there */
    RG_SLOT_RANGE,  /* one range of a shard, also for the samples that follow */
    RG_SLOT_PIECES, /* a set of ranges of a shard */
};

struct rg_slot {
    enum rg_slot_state state;
    enum rg_slot_kind kind;
    uint32_t followers;   /* how many samples follow this one in its request */
    uint64_t index;       /* of the sample in the source */
    uint64_t charge;      /* of the request, if this is its last sample and it is not AGAIN; or 0 */
    uint64_t place, size; /* of a tar sample: where it lies in the body of its request */
    struct rg_completion completion; /* while HERE */
};

struct rg_window_options {
    uint64_t total;        /* samples in the epoch */
    uint32_t requests_max; /* samples that are asked for, here or offered; at least 1 */
    uint64_t bytes_max;    /* of all charges */
    bool unordered;        /* samples are taken as they arrive, and not by number */
};

/* Numbers of samples, first in, first out; at most the capacity of the window. */
struct rg_window_queue {
    uint64_t *numbers; /* owned */
    uint32_t head, count;
};

struct rg_window {
    struct rg_window_options options; /* bytes_max is halved each time that memory was short */
    struct rg_slot *slots;            /* owned */
    uint32_t capacity;                /* a power of two */
    struct rg_progress handed;        /* taken or skipped; its `first` is the window's */
    uint64_t next;
    uint64_t turn;        /* no sample before this one waits to be taken or offered */
    uint64_t again_first; /* no sample before this one is AGAIN */
    uint64_t bytes;       /* of all charges */
    bool is_held; /* nothing is asked for but the sample whose turn it is, until it is over */
    uint32_t counts[RG_SLOT_STATE_COUNT];
    struct rg_window_queue arrived; /* of an unordered window: what is HERE, as it arrived */
};

/* Begins where all samples below `first` were taken, and those from it on whose bits are set (see
 * rg_progress_begin). 0, -ENOMEM, or -EINVAL: some of those are not in the epoch. */
int rg_window_init(struct rg_window *window, const struct rg_window_options *options,
                   uint64_t first, const uint8_t *bits, uint32_t bit_count);
/* Releases the lease of each sample that is HERE, or none with NULL. Also for one that is zero. */
void rg_window_fini(struct rg_window *window, void (*release)(struct rg_lease *lease));

static inline struct rg_slot *rg_window_slot(const struct rg_window *window, uint64_t number)
{
    return &window->slots[number & (window->capacity - 1)];
}

/* Every sample of the epoch was taken. */
static inline bool rg_window_is_done(const struct rg_window *window)
{
    return window->handed.first == window->options.total;
}

/* Takes the next request to be made, which is OUT from then on: one that is AGAIN, or a new one of
 * the next sample, which is UNPLANNED and whose index the caller sets. False: none may be made now.
 */
bool rg_window_ask(struct rg_window *window, uint64_t *out_first);
/* Whether the next sample could be asked for, by a request of its own or by the one before it. */
bool rg_window_next_is_open(const struct rg_window *window);
/* Adds the next sample, which must be open, to the new request that ends right before it. `place`
 * and `size` say where it lies in the body. */
void rg_window_follow(struct rg_window *window, uint64_t first, uint64_t index, uint64_t place,
                      uint64_t size);
/* How long the body of a request is, by the places of its samples. */
uint64_t rg_window_body_size(const struct rg_window *window, uint64_t first);
/* Charges a request for which nothing is charged. */
void rg_window_charge(struct rg_window *window, uint64_t first, uint64_t bytes);

/* A request that is OUT ends in one of these ways. It has to be made again: */
void rg_window_postpone(struct rg_window *window, uint64_t first);
/* Its samples have come. Each gets a completion of its own with its part of the body; the
 * completion's lease is given once for each of them. */
void rg_window_arrive(struct rg_window *window, uint64_t first,
                      const struct rg_completion *completion);
/* Its samples are left out: they count as taken. Returns how many. */
uint32_t rg_window_skip(struct rg_window *window, uint64_t first);

/* Whether the sample whose turn it is is here. */
bool rg_window_can_take(const struct rg_window *window);
/* Takes that sample. False: it is not here. The lease is the caller's. */
bool rg_window_take(struct rg_window *window, struct rg_sample *out_sample);

/* Nothing new is to be asked for, and at most half of the room is in use. */
bool rg_window_is_ending(const struct rg_window *window);

/* How many samples could be offered one after the other now: at most max. */
uint32_t rg_window_offerable(const struct rg_window *window, uint32_t max);
/* Like rg_window_take, but it is OFFERED until rg_window_taken. */
bool rg_window_offer(struct rg_window *window, struct rg_sample *out_sample);
void rg_window_taken(struct rg_window *window, uint64_t number);
/* Every sample of the epoch was taken or is offered. */
bool rg_window_is_offered(const struct rg_window *window);

/* Makes room for the sample whose turn it is, which is not here while others are: halves bytes_max,
 * asks for nothing else until its turn is over, and releases what has come for the others, which
 * are AGAIN. */
void rg_window_let_go(struct rg_window *window, void (*release)(struct rg_lease *lease));

#endif
