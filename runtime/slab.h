/* Memory for bodies, handed out as leases.
 *
 * Vocabulary. An *arena* is one loop's budget: one mapping, of which no page is touched before it
 * is needed. It is divided into *chunks* of 2 MiB, one huge page each. A chunk is cut into *slabs*
 * of one size class, or is part of a *run* of neighbouring chunks that is one large body. A *lease*
 * is a slab or a run that is out.
 *
 * Rules. One thread, the owner, takes: the first that does. Any thread releases. Last in, first
 * out: the slab that was released last is the next one taken, so that a steady stream of bodies
 * goes through the few slabs that are in the cache. Taking and releasing neither lock nor allocate.
 * When the budget has no room, taking fails and the next release wakes the owner: that is the
 * back-pressure.
 *
 * A forked child may read what its parent leased; the arena itself is of no use to it. */
#ifndef RG_RUNTIME_SLAB_H
#define RG_RUNTIME_SLAB_H

#include "runtime/base.h"

#include <ringest/runtime.h>
#include <stdalign.h>
#include <stdatomic.h>

struct rg_slab_arena;

/* Owners read `data` and `capacity`; the rest is the arena's. The struct lies apart from the data,
 * which a whole huge page then has room for. */
struct rg_lease {
    /* Aligned to a cache line; to 4096 bytes where the capacity is a multiple of that. */
    alignas(RG_CACHE_LINE) uint8_t *data;
    size_t capacity;             /* at least what was asked for */
    struct rg_slab_arena *arena; /* NULL: it was lent, see rg_lease_lend */
    union {
        struct rg_list free_node; /* among the free slabs of its class */
        void (*release)(struct rg_lease *lease);
    };
    struct rg_lease *returned; /* the one that another thread released before it */
    uint32_t chunk_index;
    _Atomic uint32_t shares; /* releases that are to come before the last one */
    bool out;
};

struct rg_slab_options {
    uint64_t budget; /* bytes; rounded down to whole chunks, but not below one */
    /* Called once with the whole mapping, to bind it to a NUMA node. May be NULL. */
    void (*bind)(void *context, void *address, size_t size);
    void *bind_context;
    /* Called by the thread whose release ends a dearth; it must be cheap and must not take or
     * release. The owner then takes again for everyone who waits, until it gets NULL, which asks
     * for the next call. May be NULL. */
    void (*wake)(void *context);
    void *wake_context;
    /* Registers memory with a device: a run, or a chunk of slabs, as one piece when it is taken
     * first, while all that is registered has at most pinned_max bytes. 0 or -errno: no more is. A
     * piece is unregistered before it is cut, merged or unmapped, when nobody has any of it. By the
     * owner. NULL: none is. */
    int (*pin)(void *context, void *address, size_t size);
    void (*unpin)(void *context, void *address);
    void *pin_context;
    uint64_t pinned_max;
};

struct rg_slab_stats {
    uint64_t leased_bytes; /* capacities that are out now */
    uint64_t leased_bytes_max;
    uint64_t starved_count; /* takes that found no room */
};

/* Returns owned. 0, -EINVAL (no budget), -ENOMEM (no address space). */
int rg_slab_arena_create(struct rg_slab_arena **out_arena, const struct rg_slab_options *options);

/* After the owner has ended, or by it. If leases are still out, which is the caller's error, their
 * memory stays: leaked rather than pulled from under a reader. NULL is fine. */
void rg_slab_arena_destroy(struct rg_slab_arena *arena);

/* A lease of at least `size` bytes, which the caller owns until rg_lease_release; its bytes are
 * what the last user left there. NULL when there is no room now. Owner only; `size` must not be
 * above rg_slab_size_max. */
struct rg_lease *rg_slab_take(struct rg_slab_arena *arena, size_t size);

/* Lets a lease that is out go to `more` others besides: that many releases only count, and the one
 * behind them gives it back. By a holder, on any thread. NULL is fine. */
void rg_lease_share(struct rg_lease *lease, uint32_t more);

/* Makes a lease of memory that is no arena's, of which others may have leases, too: nobody writes
 * there. `release` gets it back, by any thread. */
void rg_lease_lend(struct rg_lease *out_lease, const uint8_t *data, size_t size,
                   void (*release)(struct rg_lease *lease));

/* True if the device knows this memory. The holder, on any thread. */
bool rg_lease_is_pinned(const struct rg_lease *lease);

/* Makes the memory that is taken first resident, up to `size` bytes. Without it, chunks become so
 * when they are first taken. Owner only. */
void rg_slab_fault_in(struct rg_slab_arena *arena, uint64_t size);

/* The largest size that fits once everything else has come back. Any thread. */
size_t rg_slab_size_max(const struct rg_slab_arena *arena);

/* Any thread; the figures are each right, but not of one instant. */
void rg_slab_arena_stats(const struct rg_slab_arena *arena, struct rg_slab_stats *out_stats);

/* True if there was no room for what was taken last, and nothing has come back since. Any thread.
 */
bool rg_slab_arena_is_starved(const struct rg_slab_arena *arena);

/* True if the arena's books agree with each other: O(leases), for tests and verify builds. Owner
 * only. */
bool rg_slab_arena_is_sound(const struct rg_slab_arena *arena);

#endif
