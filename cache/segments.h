/* The segments that this process has open for reading, by their numbers in the index.
 *
 *   unknown -> open (pinned by places, or idle) -> let go: closed with its last pin
 *
 * Descriptors are few, so that those that nobody uses are closed when others are wanted. What could
 * not be opened, or read, is not tried again before rg_cache_segments_retry. Any thread. */
#ifndef RG_CACHE_SEGMENTS_H
#define RG_CACHE_SEGMENTS_H

#include "cache/files.h"

#include <pthread.h>
#include <stdatomic.h>

struct rg_cache_segment {
    struct rg_cache_nonce nonce;
    int fd, fd_direct; /* -1: none */
    uint32_t number;
    uint32_t pins;             /* under the lock */
    bool failed, listed, used; /* under the lock; listed: in the table */
    _Atomic uint64_t last_use; /* the clock of the cache */
};

struct rg_cache_segments {
    pthread_mutex_t lock;
    int folder;
    bool direct;    /* the file system has direct reads */
    bool is_remote; /* opening may wait for another host: nobody but the cache's thread does it */
    uint32_t open_count, open_max, sweep;
    struct rg_cache_segment **by_number;
};

/* 0 or -ENOMEM. */
int rg_cache_segments_init(struct rg_cache_segments *segments, int folder, bool direct,
                           bool is_remote);
/* Nothing is pinned. */
void rg_cache_segments_fini(struct rg_cache_segments *segments);

/* A segment that stays open until it is unpinned; NULL: it cannot be had now. `may_open`: by the
 * cache's thread. */
struct rg_cache_segment *rg_cache_segments_pin(struct rg_cache_segments *segments, uint32_t number,
                                               const struct rg_cache_nonce *nonce, bool may_open);
/* The cache's thread: opens one before anybody reads it, since that may wait for the disk. As long
 * as there are descriptors to spare. */
void rg_cache_segments_open_ahead(struct rg_cache_segments *segments, uint32_t number,
                                  const struct rg_cache_nonce *nonce);
void rg_cache_segments_unpin(struct rg_cache_segments *segments, struct rg_cache_segment *segment);
/* It cannot be read. */
void rg_cache_segments_fail(struct rg_cache_segments *segments, struct rg_cache_segment *segment);
/* When the segment of that number was used last by this process, or 0. */
uint64_t rg_cache_segments_use(struct rg_cache_segments *segments, uint32_t number,
                               const struct rg_cache_nonce *nonce);
/* The file is gone, or the number is another's. */
void rg_cache_segments_let_go(struct rg_cache_segments *segments, uint32_t number);
/* What failed may be tried again. */
void rg_cache_segments_retry(struct rg_cache_segments *segments);

#endif
