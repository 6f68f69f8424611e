/* A key as bytes, and its hash. Pure functions.
 *
 * The hash is SipHash-2-4 of the whole key, 64 bits. It only says where to look: two keys of the
 * same hash take each other's place in the index, and what is found is compared with the whole key.
 * So it need not be longer, and its own key may be a constant, which all hosts of a folder have in
 * common.
 */
#ifndef RG_CACHE_KEY_H
#define RG_CACHE_KEY_H

#include "runtime/base.h"

#define RG_CACHE_BLOCK_SIZE RG_MIB(1)

/* Which bytes. Generations are unlike within one bucket of one service only, hence the origin. */
struct rg_cache_key {
    const char *origin; /* the endpoint: "storage.googleapis.com", "127.0.0.1:9000" */
    const char *bucket, *object;
    int64_t generation; /* above 0 */
    /* Bytes from block * RG_CACHE_BLOCK_SIZE on; or RG_CACHE_PART and the first byte of a range
     * that is less than a block. RG_CACHE_NOTE: of no record, see cache/extent.h. */
    uint64_t block;
};
#define RG_CACHE_PART (UINT64_C(1) << 63)
#define RG_CACHE_NOTE (UINT64_C(1) << 62)

static inline uint64_t rg_cache_key_first(const struct rg_cache_key *key)
{
    bool is_part = (key->block & RG_CACHE_PART) != 0;
    return is_part ? key->block & ~RG_CACHE_PART : key->block * RG_CACHE_BLOCK_SIZE;
}

#define RG_CACHE_ORIGIN_SIZE_MAX 512
#define RG_CACHE_BUCKET_SIZE_MAX 255
#define RG_CACHE_OBJECT_SIZE_MAX 1024

/* Sizes of a key's texts without their NULs. */
struct rg_cache_key_sizes {
    uint16_t origin, bucket, object;
};

bool rg_cache_key_is_same(const struct rg_cache_key *a, const struct rg_cache_key *b);

/* False: a text is too long, or the generation is none. Such a key is never cached. */
bool rg_cache_key_measure(const struct rg_cache_key *key, struct rg_cache_key_sizes *out_sizes);
/* Of a key that was measured. Never 0. */
uint64_t rg_cache_key_hash(const struct rg_cache_key *key, const struct rg_cache_key_sizes *sizes);

#endif
