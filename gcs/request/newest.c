/* See newest.h. The two halves of an entry are written one after the other, so that a reader may
 * see one object's hash beside another's generation: a wrong hint, and no more. */
#include "gcs/request/newest.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES (UINT32_C(1) << 16)

struct entry {
    _Atomic uint64_t hash; /* 0: free */
    _Atomic int64_t generation;
};

struct rg_newest {
    struct entry entries[ENTRIES];
};

/* FNV-1a, with the end of the bucket's name as one of the bytes. */
static uint64_t hash_of(const char *bucket, const char *object)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const char *parts[] = {bucket, object};
    for (size_t i = 0; i < RG_ARRAY_LEN(parts); i++) {
        for (const char *c = parts[i];; c++) {
            hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
            if (*c == '\0') {
                break;
            }
        }
    }
    return hash != 0 ? hash : 1;
}

static uint32_t place_of(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32) % ENTRIES;
}

int rg_newest_create(struct rg_newest **out_newest)
{
    *out_newest = calloc(1, sizeof(**out_newest));
    return *out_newest != NULL ? 0 : -ENOMEM;
}

void rg_newest_destroy(struct rg_newest *newest)
{
    free(newest);
}

void rg_newest_note(struct rg_newest *newest, const char *bucket, const char *object,
                    int64_t generation)
{
    uint64_t hash = hash_of(bucket, object);
    struct entry *entry = &newest->entries[place_of(hash)];
    atomic_store_explicit(&entry->generation, generation, memory_order_relaxed);
    atomic_store_explicit(&entry->hash, hash, memory_order_relaxed);
}

int64_t rg_newest_find(const struct rg_newest *newest, const char *bucket, const char *object)
{
    uint64_t hash = hash_of(bucket, object);
    const struct entry *entry = &newest->entries[place_of(hash)];
    if (atomic_load_explicit(&entry->hash, memory_order_relaxed) != hash) {
        return 0;
    }
    return atomic_load_explicit(&entry->generation, memory_order_relaxed);
}
