/* What is done with a cache's folder from the outside, without opening the cache: listing, checking
 * and removing. Other processes may use the cache meanwhile. Any thread; each call waits for the
 * disk. */
#ifndef RG_CACHE_FOLDER_H
#define RG_CACHE_FOLDER_H

#include "cache/format.h"

/* One record. Strings live until the callback returns. */
struct rg_cache_entry {
    const char *segment; /* the file's name */
    struct rg_cache_key key;
    uint64_t object_size;
    uint32_t body_size;
    int error; /* verify: 0, or -EBADMSG: its bytes are damaged */
    /* How far the walk is: bytes of files before this record, and in all. */
    uint64_t bytes_before, bytes_all;
};

struct rg_cache_folder_totals {
    uint64_t segments, records, size; /* size: bytes of files */
    uint64_t damaged_records;
    uint64_t removed_segments, removed_bytes;
    uint64_t left_alone; /* files that are not the cache's, or of another version */
};

/* Stops the walk when it returns something else than 0. */
typedef int rg_cache_entry_fn(void *context, const struct rg_cache_entry *entry);

/* Each record of the folder, by its header. 0, what `each` returned, or a negative errno. */
int rg_cache_list(const char *folder, rg_cache_entry_fn *each, void *context,
                  struct rg_cache_folder_totals *out_totals);
/* Reads everything and checks it; `each` (may be NULL) gets all records, with what is wrong. In a
 * segment that is not sealed, what is wrong is on its way there, and left out. With `remove`
 * segments that have damaged ones are removed. 0, what `each` returned, or a negative errno. */
int rg_cache_verify(const char *folder, bool remove, rg_cache_entry_fn *each, void *context,
                    struct rg_cache_folder_totals *out_totals);
/* Removes the segments that were used the longest time ago until at most size_max bytes are left,
 * and what dead writers left. 0 or a negative errno. */
int rg_cache_prune(const char *folder, uint64_t size_max,
                   struct rg_cache_folder_totals *out_totals);

#endif
