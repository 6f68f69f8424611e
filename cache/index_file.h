/* The file of an index: found, or made whole and given its name. Like the region of a host
 * (gcs/host/region.h), but that it may be replaced by another one. It has the table of segments,
 * and names the memory in which the slots lie (cache/index_memory.h); the two come and go together.
 *
 * It is FOLDER/ringest-UID-cache-ID-vVERSION with mode 0600. Without a folder it is memory of this
 * process, without a name.
 *
 * Nobody tells an index that its cache was removed. So each opening holds a lock that the kernel
 * gives up with the process, and whoever opens an index sweeps the folder: it removes those of the
 * same user that nobody holds and that nobody has written for RG_CACHE_INDEX_IDLE_S. That costs a
 * cache that is used again no more than the time to make its index anew. */
#ifndef RG_CACHE_INDEX_FILE_H
#define RG_CACHE_INDEX_FILE_H

#include "cache/index_memory.h"

/* Of the layout: with it, the name of the file changes. */
#define RG_CACHE_INDEX_VERSION 4
#define RG_CACHE_INDEX_HEADER_SIZE RG_KIB(4)

/* A number has 16 bits; 0 is none. */
#define RG_CACHE_SEGMENTS_MAX 65535
#define RG_CACHE_INDEX_IDLE_S (24 * 3600)

enum rg_cache_segment_state {
    RG_CACHE_SEGMENT_NONE = 0, /* the number is free */
    RG_CACHE_SEGMENT_NUMBERED, /* its records come one by one, or are still to be listed */
    RG_CACHE_SEGMENT_LISTED,   /* all of its records were put in */
};

/* A line of the table of segments, as it lies there. */
struct rg_cache_numbered {
    struct rg_cache_nonce nonce;
    uint64_t last_use; /* the clock, in bytes looked up */
    uint32_t state, reserved;
};

struct rg_cache_index_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t lines;
    uint64_t clock; /* bytes that were looked up */
    int32_t memory_id;
    uint32_t reserved;
    struct rg_cache_nonce memory_nonce;
};

struct rg_cache_index_file {
    const char *share; /* NULL: no name */
    char path[RG_CACHE_INDEX_PATH_SIZE_MAX];
    int fd;
    struct rg_cache_index_memory memory;
};

/* Bytes of the file, without the slots. */
uint64_t rg_cache_index_file_size(void);

/* Opens what is there, or makes one of that many lines. 0, or a negative errno and `why`. */
int rg_cache_index_file_open(struct rg_cache_index_file *file, uint64_t lines, char *why,
                             size_t why_size);
void rg_cache_index_file_close(struct rg_cache_index_file *file);
/* A new one of that many lines for the same place, which is not there yet. 0 or a negative errno.
 */
int rg_cache_index_file_make(const struct rg_cache_index_file *file, uint64_t lines,
                             struct rg_cache_index_file *out_made);
/* Puts it into the place of the file. 0 or a negative errno; it has ended in both cases. */
int rg_cache_index_file_replace(struct rg_cache_index_file *file, struct rg_cache_index_file *made);
/* Removes what others have left in the folder (see above), and memory that no file names. Those
 * that are in use stay, and so does what only has such a name. */
void rg_cache_index_file_sweep(const struct rg_cache_index_file *file);
/* Whether another has been put into its place, or it was removed. */
bool rg_cache_index_file_is_gone(const struct rg_cache_index_file *file);
/* Locks of this opening, which the kernel gives up with the process. 0 or a negative errno. */
int rg_cache_index_file_lock(const struct rg_cache_index_file *file, uint64_t number);
void rg_cache_index_file_unlock(const struct rg_cache_index_file *file, uint64_t number);

#endif
