/* The memory that the slots of an index lie in: mapped by all processes that have it.
 *
 * It is a shared memory segment (shmget(2)) of one user, since the system has nothing else that
 * stays when the last process ends, and that nobody can cut off while it is mapped: to touch a page
 * of a file that another has made shorter is SIGBUS. The file of the index (cache/index_file.h)
 * says which segment it is, and the segment which file.
 *
 *   made (attached) -> named by a file -> attached and detached -> removed; gone with the last one
 *
 * Whoever is killed between making and naming leaves a segment that no file names. One that nobody
 * has attached is removed by whoever opens an index next. Any thread. */
#ifndef RG_CACHE_INDEX_MEMORY_H
#define RG_CACHE_INDEX_MEMORY_H

#include "cache/format.h"

#include <stdatomic.h>

/* A key may lie in any slot of its line. */
#define RG_CACHE_LINE_SLOTS 128
#define RG_CACHE_LINE_SIZE RG_KIB(2)
#define RG_CACHE_INDEX_PATH_SIZE_MAX 256

/* As it lies there; written by other processes at any time, and by any thread. */
struct rg_cache_slot {
    _Atomic uint64_t hash, word;
};
static_assert(sizeof(struct rg_cache_slot) * RG_CACHE_LINE_SLOTS == RG_CACHE_LINE_SIZE, "a line");

struct rg_cache_index_memory {
    int id; /* -1: of this process alone */
    struct rg_cache_nonce nonce;
    uint64_t lines;
    struct rg_cache_slot *slots; /* NULL: none */
    void *bytes;                 /* what is attached, or mapped */
};

/* Makes memory of so many lines, all zeros, for the index whose file has that path; NULL: for this
 * process alone. 0 or a negative errno. */
int rg_cache_index_memory_make(struct rg_cache_index_memory *memory, const char *path,
                               uint64_t lines);
/* Attaches what a file names: 0; -ENOENT: there is no such memory; or another negative errno. */
int rg_cache_index_memory_attach(struct rg_cache_index_memory *memory, int id,
                                 const struct rg_cache_nonce *nonce, uint64_t lines);
void rg_cache_index_memory_detach(struct rg_cache_index_memory *memory);
/* It is gone as soon as nobody has it attached. What is another's by now stays. */
void rg_cache_index_memory_remove(int id, const struct rg_cache_nonce *nonce);
/* Removes what nobody has attached, and of which is_named says that no file names it. */
void rg_cache_index_memory_sweep(bool (*is_named)(const char *path, int id,
                                                  const struct rg_cache_nonce *nonce));
/* Tells spaces of segments apart: a container may have its own. */
uint64_t rg_cache_index_memory_space(void);

#endif
