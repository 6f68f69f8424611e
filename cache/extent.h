/* Which bytes of an object may be there: the records that a range has to do with, by the index
 * alone, which is a hint.
 *
 * A whole block is found by its number, and a part by its first byte. So that a part is also found
 * by another byte of it, the index has *notes* beside the records, one for each granule of a block
 * that a part has bytes of: where that part begins, and its size in whole units, so that its last
 * bytes may not be found. The part that was written last has the note; another one that shares the
 * granule is found by the notes beside it.
 *
 * Two more notes tell the generation of an object that anybody has last seen to be the newest one,
 * half of it each, so that a process which begins need not read the object again. */
#ifndef RG_CACHE_EXTENT_H
#define RG_CACHE_EXTENT_H

#include "cache/index.h"

#define RG_CACHE_GRANULE_SIZE RG_KIB(64)
#define RG_CACHE_GRANULES (RG_CACHE_BLOCK_SIZE / RG_CACHE_GRANULE_SIZE)

struct rg_cache_extent {
    uint64_t block; /* of the record's key */
    /* Bytes of the object. The end may be above the true one, by less than two units. */
    uint64_t begin, end;
    struct rg_cache_found found;
};

/* The ways to look for a byte. Each costs a look into the index, and the last one or more. */
#define RG_CACHE_BY_BLOCK 1U
#define RG_CACHE_BY_BEGIN 2U /* a part that begins there */
#define RG_CACHE_BY_NOTE 4U
#define RG_CACHE_BY_ANY 7U

/* What has the byte `at` of the object that a measured key is of, whatever block the key names. Any
 * thread. */
bool rg_cache_extent_find(struct rg_cache_index *index, const struct rg_cache_key *key,
                          const struct rg_cache_key_sizes *sizes, uint64_t at, unsigned ways,
                          struct rg_cache_extent *out_extent);
/* The notes of a record of that key: as many as are returned; none of a whole block. */
uint32_t rg_cache_extent_notes(const struct rg_cache_key *key,
                               const struct rg_cache_key_sizes *sizes, size_t body_size,
                               struct rg_cache_content out_notes[RG_CACHE_GRANULES]);
/* Those of the newest generation, which is the key's. */
void rg_cache_newest_notes(const struct rg_cache_key *key, const struct rg_cache_key_sizes *sizes,
                           struct rg_cache_content out_notes[2]);
/* What they say of the object, whatever generation the key names; 0: nothing. */
int64_t rg_cache_newest_find(struct rg_cache_index *index, const struct rg_cache_key *key,
                             const struct rg_cache_key_sizes *sizes);

#endif
