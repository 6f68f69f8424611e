/* The memory tier of a cache: what the processes of one user on a host have read, in memory that
 * they share, from where it is handed out without a copy.
 *
 *   closed -> open (a thread seals what is full, finds what others have sealed, and lets go of what
 *   was evicted) -> closed; its memory stays as long as a lease points into it
 *
 * Records have the format of the cache's folder (cache/format.h), and their keys the generation, so
 * that nothing is old. A record is compared with its key at each read. Its CRC32C is compared at
 * each read while this process still fills its segment, and once by each process after that: the
 * kernel lets nobody change what is sealed (cache/memory_segment.h).
 *
 * All processes that name the same share have one budget, which the lines of a table add up to
 * (cache/memory_table.h). What is admitted when it is full is said by cache/policy.h.
 *
 * Any thread calls what has no other rule. In a forked child only rg_memory_close may be called,
 * and leases may be read and released; the child keeps no other memory. */
#ifndef RG_CACHE_MEMORY_H
#define RG_CACHE_MEMORY_H

#include "cache/format.h"

/* The smallest budget. */
#define RG_MEMORY_SIZE_MIN RG_MIB(16)

struct rg_lease;
struct rg_memory;
struct rg_memory_entry;

struct rg_memory_options {
    uint64_t size;     /* bytes of all processes; RG_MEMORY_SIZE_MIN at least */
    const char *share; /* the folder in memory where the table lies; NULL: of this process alone */
};

/* 0, or a negative errno and `why`, a line with the cause and the remedy. */
int rg_memory_open(struct rg_memory **out_memory, const struct rg_memory_options *options,
                   char *why, size_t why_size);
/* No block is out; leases may be. NULL is fine. */
void rg_memory_close(struct rg_memory *memory);

/* A block that was found and checked. */
struct rg_memory_block {
    struct rg_cache_record record;
    const uint8_t *body; /* record.body_size bytes, which nobody can change */
    struct rg_memory_entry *entry;
};
/* True: *out_block is valid until it is dropped. False is a miss. */
bool rg_memory_find(struct rg_memory *memory, const struct rg_cache_key *key,
                    struct rg_memory_block *out_block);
void rg_memory_drop(struct rg_memory *memory, struct rg_memory_block *block);
/* Whether a block may be there. */
bool rg_memory_has(struct rg_memory *memory, const struct rg_cache_key *key);
/* A lease of `size` bytes of the body, from `first` on, which may outlive the block and the tier.
 * NULL: no memory. */
struct rg_lease *rg_memory_lease(struct rg_memory *memory, const struct rg_memory_block *block,
                                 uint32_t first, size_t size);

/* Takes a copy of a block that missed, of body_size bytes that were checked. It is found from now
 * on, by others when they look. False: it is not admitted. */
bool rg_memory_put(struct rg_memory *memory, const struct rg_cache_key *key,
                   const struct rg_cache_record *record, const uint8_t *body, size_t body_size);
/* What is there of a key is not the object. */
void rg_memory_forget(struct rg_memory *memory, const struct rg_cache_key *key);
/* Seals what was put before, and looks for what others have sealed. */
void rg_memory_flush(struct rg_memory *memory);

struct rg_memory_stats {
    uint64_t hits, hit_bytes, misses;
    uint64_t written, written_bytes; /* records */
    uint64_t not_admitted;           /* it is full of what is in use */
    uint64_t bad_records;            /* found damaged */
    uint64_t evicted;                /* segments, by this process */
    uint64_t errors;
    /* Of all processes, at the last look: */
    uint64_t size, size_max;    /* bytes that are taken, and the budget */
    uint64_t segments, objects; /* objects: that this process can find */
};
void rg_memory_stats(struct rg_memory *memory, struct rg_memory_stats *out_stats);

#endif
