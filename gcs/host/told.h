/* What loops over datasets tell people of their steps: a table in the region (gcs/host/region.h),
 * which `ringest explain` reads.
 *
 *   open: a place is claimed -> written, at most every RG_TOLD_INTERVAL_NS -> closed, and emptied
 *
 * Who has the kernel's lock of a place writes there. What a process that has ended in whatever way
 * has told is nobody's from that moment on, because the kernel gives the lock up. A checksum tells
 * half of it from the whole. A place takes memory only while somebody uses it.
 *
 * Each has an opening of the region of its own. A forked child closes it and tells nothing. */
#ifndef RG_GCS_HOST_TOLD_H
#define RG_GCS_HOST_TOLD_H

#include "gcs/host/region.h"

#include <ringest/metrics.h>

#define RG_TOLD_INTERVAL_NS (100 * RG_NS_PER_MS)
/* So many groups are kept: the steps of 12 s, or 120 of those that take longer than the interval.
 */
#define RG_TOLD_GROUPS 120

/* One step, or several together. A step goes from one value of the loop to the next. */
struct rg_told_step {
    uint64_t ended_ns; /* the last of them */
    uint64_t count;    /* 0: of one that goes on */
    uint64_t away_ns;  /* the loop had a value */
    uint64_t inside_ns;
    uint64_t slept_ns[RG_STAGE_COUNT]; /* of inside_ns, by rg_reader_waited; NONE may be below 0 */
};

void rg_told_add(struct rg_told_step *sum, const struct rg_told_step *step);

enum rg_told_state {
    RG_TOLD_AWAY = 0, /* the loop has a value, or was given none for less than the interval */
    RG_TOLD_INSIDE,   /* it waits for one */
    RG_TOLD_OVER      /* it has ended, or its next one has not begun */
};

/* Times are of CLOCK_MONOTONIC. Texts end with a NUL. */
struct rg_told {
    uint64_t told_ns, began_ns;
    uint64_t cpu_ns,
        cpu_at_ns;   /* what the client's event loops have used since it began, and when */
    uint64_t groups; /* so far; the last RG_TOLD_GROUPS are in the ring */
    uint32_t loops;  /* event loops */
    uint32_t pid;    /* as the process knows itself; in a container it has another */
    uint32_t state;  /* enum rg_told_state */
    uint32_t rank, world_size, worker, worker_count;
    uint32_t zero;
    char command[16];
    char dataset[32];         /* its class */
    char source[232];         /* of what; the beginning */
    char ahead[64];           /* the option that limits what is read ahead */
    struct rg_told_step open; /* of one that waits now */
    struct rg_told_step ring[RG_TOLD_GROUPS];
};

/* As struct rg_peer: another layout, or another meaning, is another version. */
static_assert(RG_HOST_VERSION == 5 && sizeof(struct rg_told_step) == 128 &&
                  sizeof(struct rg_told) == 416 + (RG_TOLD_GROUPS + 1) * 128,
              "a layout has a version");

/* Where one loop tells. Zeroed: closed, and never opened. */
struct rg_told_place {
    struct rg_host_region region;
    bool is_open;
    uint32_t number;
    uint32_t generation; /* of the process that opened it, see runtime/fork.h */
    uint64_t tried_ns;   /* when it was opened, or tried, last */
};

/* Writes it, after claiming a place where there is none. Whoever cannot be seen works all the same:
 * where the region cannot be had or is full, it is tried again later. */
void rg_told_write(struct rg_told_place *place, const char *folder, const struct rg_told *told);
/* Nobody sees it any more. Harmless when closed, and in a child. */
void rg_told_close(struct rg_told_place *place);

/* Calls `found` for each whose process lives. 0, or a negative errno. */
int rg_told_read(const struct rg_host_region *region,
                 void (*found)(void *context, const struct rg_told *told), void *context);

/* Adds up the last groups: until there are `steps` steps, and none that ended before since_ns.
 * What goes on now is the first of them. */
struct rg_told_step rg_told_sum(const struct rg_told *told, uint64_t steps, uint64_t since_ns);
/* Which part of a CPU each event loop has used since it began; 0 if that is not known. */
double rg_told_busy(const struct rg_told *told);

#endif
