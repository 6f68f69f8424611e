/* How large the parts of a stream are and how many of them may be there at once: a protocol core
 * without clock or I/O, one for each writer. What the program has fixed stays as it is.
 *
 * Size. Where the size of the stream is known beforehand, parts are as large as it takes to have
 * RG_PARTS_PLANNED_MAX of them at most, and small enough to have RG_PARTS_PARALLEL, within 8 and
 * 16 MiB for that. Where it is not, or turns out to be larger, a part is 16 MiB, or a
 * RG_PARTS_GROWTH-th of what lies before it: the longer a stream is, the longer it may be. A part
 * is at most half of the memory, so that one can be filled while another is sent.
 *
 * Number. A *round* is as many parts as may be there at once. Two things must be true for there to
 * be more: the program had to wait, so the network is the slower one, and the last time that there
 * were more the throughput rose by a tenth at least. Otherwise the number goes back to what it was,
 * and is tried again RG_PARTS_HOLD_ROUNDS later, because networks change. A part that is answered
 * 429 or 503 makes it smaller, once in a round.
 *
 * Memory. Parts that are there have no more than bytes_max together, whatever the two rules say. */
#ifndef RG_GCS_UPLOAD_PART_PLAN_H
#define RG_GCS_UPLOAD_PART_PLAN_H

#include "runtime/base.h"

/* The memory of one writer's parts, unless its program asks for more. */
#define RG_WRITER_MEMORY_MAX RG_MIB(256)
/* The parts that a size known beforehand is divided into; the rest of the service's 10,000 is for
 * what comes unannounced. */
#define RG_PARTS_PLANNED_MAX 8000
#define RG_PARTS_PARALLEL 8
#define RG_PARTS_SIZE_SMALL RG_MIB(8)
#define RG_PARTS_GROWTH 1024
/* Parts that are there at once: at first, and at least, which is one that is filled and one that is
 * sent. */
#define RG_PARTS_WINDOW_FIRST 4
#define RG_PARTS_WINDOW_MIN 2
#define RG_PARTS_WINDOW_MAX (RG_WRITER_MEMORY_MAX / RG_PARTS_SIZE_SMALL)
#define RG_PARTS_GAIN 1.1
#define RG_PARTS_HOLD_ROUNDS 8
#define RG_PARTS_CUT 0.7

struct rg_part_plan_options {
    uint64_t size_hint; /* bytes of the stream; 0: not known */
    uint64_t part_size; /* 0: by the rules above */
    uint32_t window;    /* the same */
};

struct rg_part_plan {
    struct rg_part_plan_options options;
    uint64_t bytes_max, size_first, size_max;
    uint32_t window, window_max;
    /* The round that is being counted. */
    uint32_t skipped; /* parts that were begun under another window, and say nothing about this */
    uint32_t parts;
    uint64_t bytes, since_ns; /* 0: not yet */
    bool waited, was_cut;
    /* How wide the window is, and whether it helps. */
    bool trying; /* it was raised, and goes back unless that shows */
    uint32_t window_before, hold;
    double rate_before; /* bytes in a nanosecond */
};

void rg_part_plan_init(struct rg_part_plan *plan, const struct rg_part_plan_options *options);
/* The size of the part that begins at this byte of the stream. */
uint64_t rg_part_plan_size(const struct rg_part_plan *plan, uint64_t offset);
/* True: a part of this size may be there beside `count` others of `bytes` together. */
bool rg_part_plan_has_room(const struct rg_part_plan *plan, uint32_t count, uint64_t bytes,
                           uint64_t size);
/* The program finds no room. */
void rg_part_plan_wait(struct rg_part_plan *plan);
/* The service has a part. */
void rg_part_plan_sent(struct rg_part_plan *plan, uint64_t size, uint64_t now_ns);
/* It has answered one with 429 or 503. */
void rg_part_plan_throttle(struct rg_part_plan *plan);
/* True: a multipart upload cannot have as many parts as a stream of the announced size has. */
bool rg_part_plan_too_long(const struct rg_part_plan *plan);

#endif
