/* Records on their way to a file: a few pieces of memory that are filled, written and filled again.
 *
 *   free -> filling (by any thread) -> full -> being written (by the cache's thread) -> free
 *
 * Where nothing is free, a record is not taken: what waits is bounded. A place in the batch is
 * given under the lock, and the body copied without it. */
#ifndef RG_CACHE_BATCH_H
#define RG_CACHE_BATCH_H

#include "cache/format.h"

#include <pthread.h>

/* A huge page, or some: the memory of a batch. The larger it is, the less a byte's write costs. */
#define RG_CACHE_BATCH_SIZE_MIN RG_MIB(2)
#define RG_CACHE_BATCH_SIZE_MAX RG_MIB(8)
#define RG_CACHE_BATCH_RECORDS 4096
/* One is filled while one is written, and two wait. */
#define RG_CACHE_BATCH_COUNT 4

struct rg_cache_batch {
    struct rg_list node;
    uint8_t *data; /* NULL until it is used for the first time */
    size_t size;
    struct rg_cache_content *contents; /* places count from the batch's beginning */
    uint32_t count;                    /* of these: records, and notes */
    uint32_t records, copying;
    uint64_t begun_ns;
};

struct rg_cache_batches {
    pthread_mutex_t lock;
    pthread_cond_t more; /* for the cache's thread; its owner waits, too */
    struct rg_list free, full;
    struct rg_cache_batch *filling;
    uint32_t writing;  /* 1: the thread has one */
    size_t batch_size; /* bytes that one may have */
    struct rg_cache_batch all[RG_CACHE_BATCH_COUNT];
};

/* A batch is a small part of a segment, so that segments have about the size that was meant. */
void rg_cache_batches_init(struct rg_cache_batches *batches, uint64_t segment_size);
void rg_cache_batches_fini(struct rg_cache_batches *batches);

/* Copies a record. False: there is no room now. Any thread. */
bool rg_cache_batches_put(struct rg_cache_batches *batches, const struct rg_cache_key *key,
                          const struct rg_cache_key_sizes *sizes, uint64_t hash,
                          const struct rg_cache_record *record, const uint8_t *body,
                          size_t body_size);

/* Notes for the index, which come with the records of a batch that is being filled; or not at all.
 */
void rg_cache_batches_note(struct rg_cache_batches *batches, const struct rg_cache_content *notes,
                           uint32_t count);

/* The cache's thread, with the lock, which is given up meanwhile: takes memory for the batch that
 * is to be filled next, so that nobody else waits for it. False: that has some, or cannot have any.
 */
bool rg_cache_batches_prepare_locked(struct rg_cache_batches *batches);
/* The cache's thread, with the lock held. A batch that is to be written, its end filled up with
 * zeros to RG_CACHE_ALIGNMENT; NULL: none. */
struct rg_cache_batch *rg_cache_batches_take_locked(struct rg_cache_batches *batches);
void rg_cache_batches_give_locked(struct rg_cache_batches *batches, struct rg_cache_batch *batch);
/* What is being filled shall be written, if it was begun before that time. */
void rg_cache_batches_close_locked(struct rg_cache_batches *batches, uint64_t begun_before_ns);
bool rg_cache_batches_are_empty_locked(const struct rg_cache_batches *batches);

#endif
