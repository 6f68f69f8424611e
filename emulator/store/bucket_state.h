/* What a bucket consists of: for bucket.c, bucket_folders.c, writer.c and store.c alone. */
#ifndef RG_EMULATOR_STORE_BUCKET_STATE_H
#define RG_EMULATOR_STORE_BUCKET_STATE_H

#include "emulator/store/folders.h"
#include "emulator/store/model/backend.h"
#include "emulator/store/model/bucket_info.h"
#include "emulator/store/synthetic_sets.h"

#include <pthread.h>
#include <stdatomic.h>

struct rg_bucket {
    struct rg_bucket *next; /* In its slot of the store. */
    char name[RG_STORE_BUCKET_NAME_SIZE_MAX];
    uint32_t name_size;
    const struct rg_store_backend *backend;
    void *written;                    /* The backend's. */
    _Atomic int64_t *last_generation; /* The store's. */
    pthread_mutex_t lock;             /* One change at a time, its conditions included. */
    struct rg_bucket_info info;       /* Under the lock. Its settings are owned. */
    _Atomic bool requester_pays;      /* As the info says. */
    _Atomic bool removed; /* It stays in its slot, because others may hold a pointer to it. */
    struct rg_folders *_Atomic folders; /* NULL: a flat namespace. Set once. */
    struct rg_synthetic_sets sets;      /* Fixed once the store is open. */
};

static inline struct rg_folders *rg_bucket_folders(struct rg_bucket *bucket)
{
    return atomic_load_explicit(&bucket->folders, memory_order_acquire);
}

/* A bucket of what the backend has opened. Takes `written`, also on failure. Returns owned. */
int rg_bucket_create(struct rg_bucket **out_bucket, struct rg_h1_slice name,
                     const struct rg_store_backend *backend, void *written,
                     const struct rg_bucket_info *info, _Atomic int64_t *last_generation);
void rg_bucket_destroy(struct rg_bucket *bucket);
/* Takes the set on success. Called before others know the bucket. -ENOMEM. */
int rg_bucket_add_set(struct rg_bucket *bucket, struct rg_synthetic *set);
/* Makes an object of what a backend's writer has, if the conditions hold. Takes the writer, also
 * on failure. Fills in info->generation and info->updated_us. */
int rg_bucket_commit(struct rg_bucket *bucket, struct rg_h1_slice name, void *writer,
                     const struct rg_store_conditions *conditions,
                     struct rg_store_object_info *info);

#endif
