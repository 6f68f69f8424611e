/* The inside of the memory tier (cache/memory.h): what its readers and its thread have in common.
 *
 *   entry, a segment that this process has: filling -> full -> sealed -> gone
 *          or found by the thread, sealed by another process:  sealed -> gone
 *
 * Invariants, under the lock: a line of the table that this process holds has an entry, until the
 * lock of the line is given up. An entry is found by the map only while it is not gone. Only an
 * entry that is being filled is written to, and it is sealed when nobody copies to it any more. */
#ifndef RG_CACHE_MEMORY_TIER_H
#define RG_CACHE_MEMORY_TIER_H

#include "cache/memory_map.h"
#include "cache/memory_segment.h"
#include "cache/memory_table.h"
#include "runtime/fork.h"

#include <pthread.h>
#include <stdatomic.h>

/* Of `checked`. */
#define RG_MEMORY_WORD_BITS 64

enum rg_memory_entry_state {
    RG_MEMORY_ENTRY_FILLING,
    RG_MEMORY_ENTRY_FULL,   /* to be sealed, and announced */
    RG_MEMORY_ENTRY_SEALED, /* as others see it */
    RG_MEMORY_ENTRY_GONE,   /* evicted, or the tier is closed: it ends with its last reader */
};

struct rg_memory_entry {
    struct rg_memory_segment segment; /* FULL: the thread's; else under the lock */
    struct rg_memory *memory;
    uint32_t line;
    enum rg_memory_entry_state state; /* these under the lock */
    uint32_t refs;                    /* one until it is gone, and one for each block and lease */
    uint32_t copying;                 /* records that are being written */
    bool is_owned;                    /* by this process, in the table */
    bool is_made;                     /* by this process: its descriptor is one of `made` */
    bool is_counted;                  /* the thread's: its descriptor is one of `descriptors` */
    bool has_asked;                   /* for the segment that comes after it */
    uint64_t limit;                   /* where records end at the latest */
    uint64_t begun_ns;                /* when it had its first record; 0: it has none */
    uint64_t noted_use;               /* as the others know it */
    _Atomic uint64_t last_use;        /* the clock of all */
    _Atomic uint64_t *checked; /* SEALED: a bit for each unit where a checked record begins */
};

struct rg_memory_counters {
    _Atomic uint64_t hits, hit_bytes, misses, written, written_bytes, not_admitted, bad_records,
        evicted, errors, size, segments;
    _Atomic bool has_said, has_said_damage;
};

struct rg_memory {
    struct rg_fork_hook hook;
    uint32_t fork_generation;
    uint64_t size_max, segment_size;
    struct rg_memory_counters counters;
    _Atomic uint64_t looked_up; /* bytes since the clock was told */
    _Atomic uint64_t clock;     /* as it was then */
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t more, flushed;
    struct rg_memory_table table; /* its lock is taken under this one only */
    struct rg_memory_map map;
    struct rg_memory_entry *entries[RG_MEMORY_LINES]; /* by their lines */
    struct rg_memory_entry *filling, *next;
    uint32_t full;      /* entries in that state */
    uint32_t adopting;  /* the line that the thread is about to hold; UINT32_MAX: none */
    uint32_t users;     /* entries, and the open tier */
    uint32_t made;      /* entries that this process has made, at most descriptors_max */
    uint64_t sealed;    /* bytes that this process has filled */
    uint64_t retry_ns;  /* no segment can be had before */
    uint64_t looked_ns; /* the thread's */
    uint64_t flushes_wanted, flushes_done;
    bool stopping;
    struct rg_memory_line lines[RG_MEMORY_LINES];  /* as they were read */
    struct rg_memory_line looked[RG_MEMORY_LINES]; /* by the thread, which alone has them */
    struct rg_cache_nonce failed[RG_MEMORY_LINES]; /* the same: what cannot be used */
    uint32_t descriptors, descriptors_max;         /* the same: of adopted segments */
};

static inline void rg_memory_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static inline uint64_t rg_memory_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Counts an error and says it the first time. Any thread. */
void rg_memory_trouble(struct rg_memory *memory, const char *what, int error);
/* The tier, or an entry of it, has ended: with the last one the memory of both goes. */
void rg_memory_user_end(struct rg_memory *memory);
/* Without the lock. With its last reference an entry ends, which is gone by then. */
void rg_memory_entry_unref(struct rg_memory_entry *entry);
/* The entry of a line that this process holds; NULL: no memory. */
struct rg_memory_entry *rg_memory_entry_add_locked(struct rg_memory *memory, uint32_t line,
                                                   const struct rg_memory_segment *segment,
                                                   enum rg_memory_entry_state state);
/* A segment to be filled; NULL: the budget has no room for one now. */
struct rg_memory_entry *rg_memory_entry_make_locked(struct rg_memory *memory);
/* What is filled shall be sealed. */
void rg_memory_filling_end_locked(struct rg_memory *memory);
/* Tells all how much was looked up. With the lock of the table. */
void rg_memory_clock_tell(struct rg_memory *memory);
/* Counts what the lines add up to that were read last. */
void rg_memory_measure_locked(struct rg_memory *memory);

#endif
