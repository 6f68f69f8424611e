/* The file in which an index lies: found, or made whole and given its name. Like the region of a
 * host (gcs/host/region.h), but that it may be replaced by a larger one.
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

#include "cache/format.h"

/* Of the layout: with it, the name of the file changes. */
#define RG_CACHE_INDEX_VERSION 2
#define RG_CACHE_INDEX_PATH_SIZE_MAX 256
#define RG_CACHE_INDEX_HEADER_SIZE RG_KIB(4)

/* A number has 16 bits; 0 is none. */
#define RG_CACHE_SEGMENTS_MAX 65535
/* Half a page: a line is read by one call, which costs as much as one for a single slot. */
#define RG_CACHE_LINE_SLOTS 128
#define RG_CACHE_LINE_SIZE RG_KIB(2)
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
};

struct rg_cache_index_file {
    const char *share; /* NULL: no name */
    char path[RG_CACHE_INDEX_PATH_SIZE_MAX];
    int fd;
};

uint64_t rg_cache_index_file_size(uint64_t lines);
uint64_t rg_cache_index_slots_offset(void);

/* Opens what is there, or makes one of that many lines. 0, or a negative errno and `why`. */
int rg_cache_index_file_open(struct rg_cache_index_file *file, uint64_t lines, char *why,
                             size_t why_size);
void rg_cache_index_file_close(struct rg_cache_index_file *file);
/* A new file of that many lines without a name, all its memory taken. The descriptor, or a negative
 * errno. */
int rg_cache_index_file_make(const struct rg_cache_index_file *file, uint64_t lines);
/* Puts a descriptor of rg_cache_index_file_make in the place of the file. 0 or a negative errno,
 * and then it is closed. */
int rg_cache_index_file_replace(struct rg_cache_index_file *file, int fd);
/* Removes what others have left in the folder (see above). Those that are in use stay, and so does
 * what only has such a name. */
void rg_cache_index_file_sweep(const struct rg_cache_index_file *file);
/* Whether another has been put into its place, or it was removed. */
bool rg_cache_index_file_is_gone(const struct rg_cache_index_file *file);
/* Locks of this opening, which the kernel gives up with the process. 0 or a negative errno. */
int rg_cache_index_file_lock(const struct rg_cache_index_file *file, uint64_t number);
void rg_cache_index_file_unlock(const struct rg_cache_index_file *file, uint64_t number);

#endif
