/* See key.h. */
#include "cache/key.h"

#include <openssl/siphash.h>
#include <string.h>

#define TEXTS_SIZE_MAX                                                                             \
    (RG_CACHE_ORIGIN_SIZE_MAX + RG_CACHE_BUCKET_SIZE_MAX + RG_CACHE_OBJECT_SIZE_MAX + 3)

static const uint64_t hash_key[2] = {UINT64_C(0x72696e6765737443), UINT64_C(0x6163686531303031)};

static bool measure(const char *text, size_t size_max, uint16_t *out_size)
{
    size_t size = strnlen(text, size_max + 1);
    *out_size = (uint16_t)size;
    return size > 0 && size <= size_max;
}

bool rg_cache_key_is_same(const struct rg_cache_key *a, const struct rg_cache_key *b)
{
    return a->generation == b->generation && a->block == b->block &&
           strcmp(a->object, b->object) == 0 && strcmp(a->bucket, b->bucket) == 0 &&
           strcmp(a->origin, b->origin) == 0;
}

bool rg_cache_key_measure(const struct rg_cache_key *key, struct rg_cache_key_sizes *out_sizes)
{
    struct rg_cache_key_sizes sizes;
    if (key->generation <= 0 || !measure(key->origin, RG_CACHE_ORIGIN_SIZE_MAX, &sizes.origin) ||
        !measure(key->bucket, RG_CACHE_BUCKET_SIZE_MAX, &sizes.bucket) ||
        !measure(key->object, RG_CACHE_OBJECT_SIZE_MAX, &sizes.object)) {
        return false;
    }
    *out_sizes = sizes;
    return true;
}

static size_t put(uint8_t *out, size_t at, const void *data, size_t size)
{
    memcpy(out + at, data, size);
    return at + size;
}

uint64_t rg_cache_key_hash(const struct rg_cache_key *key, const struct rg_cache_key_sizes *sizes)
{
    uint8_t bytes[2 * sizeof(uint64_t) + TEXTS_SIZE_MAX];
    size_t size = put(bytes, 0, &key->generation, sizeof(key->generation));
    size = put(bytes, size, &key->block, sizeof(key->block));
    /* With their NULs, so that no two keys are the same bytes. */
    size = put(bytes, size, key->origin, sizes->origin + 1U);
    size = put(bytes, size, key->bucket, sizes->bucket + 1U);
    size = put(bytes, size, key->object, sizes->object + 1U);
    uint64_t hash = SIPHASH_24(hash_key, bytes, size);
    return hash != 0 ? hash : 1;
}
