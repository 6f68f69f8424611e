/* See extent.h. */
#include "cache/extent.h"

static uint64_t hash_of(const struct rg_cache_key *key, const struct rg_cache_key_sizes *sizes,
                        uint64_t block)
{
    struct rg_cache_key other = *key;
    other.block = block;
    return rg_cache_key_hash(&other, sizes);
}

/* A record that begins at `begin`. */
static bool record_find(struct rg_cache_index *index, const struct rg_cache_key *key,
                        const struct rg_cache_key_sizes *sizes, uint64_t begin, uint64_t block,
                        struct rg_cache_extent *out_extent)
{
    struct rg_cache_found found;
    if (!rg_cache_index_find(index, hash_of(key, sizes, block), &found)) {
        return false;
    }
    uint64_t size = (uint64_t)found.size * RG_CACHE_UNIT;
    uint64_t header_size = rg_cache_header_size(sizes, RG_MIN(size, RG_CACHE_BLOCK_SIZE));
    uint64_t body_size = size - RG_MIN(size, header_size) + RG_CACHE_UNIT;
    uint64_t block_end = (begin / RG_CACHE_BLOCK_SIZE + 1) * RG_CACHE_BLOCK_SIZE;
    *out_extent = (struct rg_cache_extent){
        .block = block,
        .begin = begin,
        .end = RG_MIN(begin + body_size, block_end),
        .found = found,
    };
    return true;
}

/* The first byte of the part that a granule's note is of; *out_covers: whether it has `at`. False:
 * there is no note. */
static bool note_find(struct rg_cache_index *index, const struct rg_cache_key *key,
                      const struct rg_cache_key_sizes *sizes, uint64_t granule, uint64_t at,
                      uint64_t *out_begin, bool *out_covers)
{
    struct rg_cache_found found;
    if (!rg_cache_index_find(index, hash_of(key, sizes, RG_CACHE_NOTE | granule), &found)) {
        return false;
    }
    *out_begin = granule / RG_CACHE_GRANULES * RG_CACHE_BLOCK_SIZE + found.place;
    *out_covers = at >= *out_begin && at - *out_begin < (uint64_t)found.size * RG_CACHE_UNIT;
    return true;
}

/* Where the part begins that has `at`. Most often there is no note at all, which is asked first. */
static bool part_begin(struct rg_cache_index *index, const struct rg_cache_key *key,
                       const struct rg_cache_key_sizes *sizes, uint64_t at, uint64_t *out_begin)
{
    uint64_t granule = at / RG_CACHE_GRANULE_SIZE;
    bool covers = false;
    if (!note_find(index, key, sizes, granule, at, out_begin, &covers)) {
        return false;
    }
    if (!covers && granule % RG_CACHE_GRANULES != 0) {
        (void)note_find(index, key, sizes, granule - 1, at, out_begin, &covers);
    }
    if (!covers && (granule + 1) % RG_CACHE_GRANULES != 0) {
        (void)note_find(index, key, sizes, granule + 1, at, out_begin, &covers);
    }
    return covers;
}

bool rg_cache_extent_find(struct rg_cache_index *index, const struct rg_cache_key *key,
                          const struct rg_cache_key_sizes *sizes, uint64_t at, unsigned ways,
                          struct rg_cache_extent *out_extent)
{
    uint64_t block = at / RG_CACHE_BLOCK_SIZE, begin;
    if ((ways & RG_CACHE_BY_BLOCK) != 0 &&
        record_find(index, key, sizes, block * RG_CACHE_BLOCK_SIZE, block, out_extent)) {
        return true;
    }
    if ((ways & RG_CACHE_BY_BEGIN) != 0 &&
        record_find(index, key, sizes, at, RG_CACHE_PART | at, out_extent)) {
        return true;
    }
    return (ways & RG_CACHE_BY_NOTE) != 0 && part_begin(index, key, sizes, at, &begin) &&
           record_find(index, key, sizes, begin, RG_CACHE_PART | begin, out_extent);
}

uint32_t rg_cache_extent_notes(const struct rg_cache_key *key,
                               const struct rg_cache_key_sizes *sizes, size_t body_size,
                               struct rg_cache_content out_notes[RG_CACHE_GRANULES])
{
    uint64_t begin = rg_cache_key_first(key);
    if ((key->block & RG_CACHE_PART) == 0 || body_size == 0) {
        return 0;
    }
    RG_ASSERT(begin % RG_CACHE_BLOCK_SIZE + body_size <= RG_CACHE_BLOCK_SIZE);
    uint64_t last = (begin + body_size - 1) / RG_CACHE_GRANULE_SIZE;
    uint32_t count = 0;
    for (uint64_t granule = begin / RG_CACHE_GRANULE_SIZE; granule <= last; granule++) {
        out_notes[count++] = (struct rg_cache_content){
            .hash = hash_of(key, sizes, RG_CACHE_NOTE | granule),
            .place = (uint32_t)(begin % RG_CACHE_BLOCK_SIZE),
            .size = RG_CACHE_CONTENT_NOTE | (uint32_t)(body_size / RG_CACHE_UNIT * RG_CACHE_UNIT),
        };
    }
    return count;
}

/* A generation in a note: so many bits in its place, and in the units of its size. */
#define PLACE_BITS 20
#define NOTE_BITS 34
static_assert(RG_CACHE_BLOCK_SIZE == 1 << PLACE_BITS, "all places of notes");
static_assert(RG_CACHE_BLOCK_SIZE / RG_CACHE_UNIT == 1 << (NOTE_BITS - PLACE_BITS), "all sizes");

/* No record is of generation 0. */
static uint64_t newest_hash(const struct rg_cache_key *key, const struct rg_cache_key_sizes *sizes,
                            unsigned half)
{
    struct rg_cache_key other = *key;
    other.generation = 0;
    other.block = RG_CACHE_NOTE | half;
    return rg_cache_key_hash(&other, sizes);
}

void rg_cache_newest_notes(const struct rg_cache_key *key, const struct rg_cache_key_sizes *sizes,
                           struct rg_cache_content out_notes[2])
{
    for (unsigned half = 0; half < 2; half++) {
        uint64_t bits = (uint64_t)key->generation >> (half * NOTE_BITS);
        uint64_t units = bits >> PLACE_BITS & ((1 << (NOTE_BITS - PLACE_BITS)) - 1);
        out_notes[half] = (struct rg_cache_content){
            .hash = newest_hash(key, sizes, half),
            .place = (uint32_t)(bits & ((1 << PLACE_BITS) - 1)),
            .size = RG_CACHE_CONTENT_NOTE | (uint32_t)(units * RG_CACHE_UNIT),
        };
    }
}

int64_t rg_cache_newest_find(struct rg_cache_index *index, const struct rg_cache_key *key,
                             const struct rg_cache_key_sizes *sizes)
{
    uint64_t generation = 0;
    for (unsigned half = 0; half < 2; half++) {
        struct rg_cache_found found;
        if (!rg_cache_index_find(index, newest_hash(key, sizes, half), &found)) {
            return 0;
        }
        uint64_t bits = found.place | (uint64_t)found.size << PLACE_BITS;
        generation |= bits << (half * NOTE_BITS);
    }
    return generation <= INT64_MAX ? (int64_t)generation : 0;
}
