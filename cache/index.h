/* Where records may be: a hint that the processes of a host share, in memory.
 *
 *   file:    header (4 KiB) | table of segments, 32 bytes each
 *   memory:  slots, 16 bytes each, in lines of 128
 *
 * A slot has the hash of a key, the number of a segment, and the record's place and size there. It
 * lies in the line that follows from the hash, from a slot on that does so, too, before any that
 * was never used: most often the first or second that is looked at. It is checked against itself
 * and the nonce of its segment, so that half of a slot, or one of a segment that is gone, is none.
 * The table gives numbers to segments and notes when each was used; it is read and written by
 * system calls, and rarely. The slots are mapped (cache/index_memory.h). No lock is taken to look
 * something up or to put something in. Whatever is lost or mixed up by that costs a miss.
 *
 * When the slots are 78 in 100 full, whoever notices writes a table of 8/7 the size and puts it in
 * the place of the old one. The others find that the old one has no name any more.
 *
 * find and forget: any thread. All else: the cache's one thread. */
#ifndef RG_CACHE_INDEX_H
#define RG_CACHE_INDEX_H

#include "cache/index_file.h"

struct rg_cache_index;

struct rg_cache_found {
    uint32_t number;      /* of the segment */
    uint32_t place, size; /* in units */
    struct rg_cache_nonce nonce;
};

/* `share` is the folder, or NULL: memory of this process. `folder_id` tells caches apart. 0, or a
 * negative errno and `why`. */
int rg_cache_index_open(struct rg_cache_index **out_index, const char *share, uint64_t folder_id,
                        char *why, size_t why_size);
void rg_cache_index_close(struct rg_cache_index *index);

/* Where a record of that hash may be. */
bool rg_cache_index_find(struct rg_cache_index *index, uint64_t hash,
                         struct rg_cache_found *out_found);
/* It is not there, is damaged, or is of no use any more. */
void rg_cache_index_forget(struct rg_cache_index *index, uint64_t hash);
/* Bytes of a segment's records that this process has forgotten. */
uint64_t rg_cache_index_forgotten(const struct rg_cache_index *index, uint32_t number);

/* Of something that is to be put in soon: its slot is far away in memory. */
void rg_cache_index_prefetch(const struct rg_cache_index *index, uint64_t hash);
/* Puts in one record, or a note, of a segment with a number. */
void rg_cache_index_insert(struct rg_cache_index *index, uint32_t number,
                           const struct rg_cache_content *content);
/* The number of a segment, which it gets if it has none. 0: there is none left, or the table is
 * held by another process just now. */
uint32_t rg_cache_index_number(struct rg_cache_index *index, const struct rg_cache_nonce *nonce);
/* These three change nothing where the number is another segment's by now. */
void rg_cache_index_drop(struct rg_cache_index *index, uint32_t number);
void rg_cache_index_set_listed(struct rg_cache_index *index, uint32_t number,
                               const struct rg_cache_nonce *nonce);
void rg_cache_index_set_use(struct rg_cache_index *index, uint32_t number, uint64_t last_use);
/* What the table said of a number at the last look. */
const struct rg_cache_numbered *rg_cache_index_at(const struct rg_cache_index *index,
                                                  uint32_t number);
uint32_t rg_cache_index_numbers(const struct rg_cache_index *index);
/* Only one process at a time lists a segment. */
bool rg_cache_index_hold(struct rg_cache_index *index, uint32_t number);
void rg_cache_index_release(struct rg_cache_index *index, uint32_t number);

/* Adds to the clock, and returns what it says. */
uint64_t rg_cache_index_tick(struct rg_cache_index *index, uint64_t bytes);
/* Looks at the table of segments again. True: the index is another one now, and has to be told all
 * that this process knows. */
bool rg_cache_index_refresh(struct rg_cache_index *index);
/* Makes room where it is wanted. */
void rg_cache_index_grow(struct rg_cache_index *index);
/* Records, roughly, and bytes of memory. */
void rg_cache_index_measure(const struct rg_cache_index *index, uint64_t *out_objects,
                            uint64_t *out_bytes);

#endif
