/* What the emulator holds: buckets, and in them objects by name in the order of their bytes.
 *
 * Objects come from two sources that a bucket may combine. What clients write goes to a backend:
 * memory, or files below a root folder. Synthetic sets are objects by formula that take no memory;
 * writing over one shadows it, deleting hides it (until the process ends).
 *
 * Reading is by rg_bucket_open_object and object.h, writing by writer.h.
 *
 * Any thread may call anything. Buckets are never freed before the store is, so a pointer to one
 * stays valid, also when it is removed. */
#ifndef RG_EMULATOR_STORE_STORE_H
#define RG_EMULATOR_STORE_STORE_H

#include "emulator/store/bucket.h"

#define RG_STORE_MEMORY_MAX_DEFAULT (UINT64_C(5) << 30)
struct rg_store_options {
    /* Folder whose folders are the buckets, made when only it is missing; NULL: objects live in
     * memory. */
    const char *root;
    uint64_t memory_max;          /* Bytes of objects in memory; 0: RG_STORE_MEMORY_MAX_DEFAULT. */
    const char *const *synthetic; /* BUCKET/PREFIX:COUNT:SIZE */
    size_t synthetic_count;
    const char *const *buckets; /* Made where they are not there yet. */
    size_t bucket_count;
    bool strict_buckets; /* No object makes its bucket. */
};

struct rg_store;

/* On failure `error` holds one line that names the bad value. Returns owned. */
int rg_store_open(struct rg_store **out_store, const struct rg_store_options *options, char *error,
                  size_t error_size);
/* Every object is closed and every writer ended. NULL does nothing. */
void rg_store_close(struct rg_store *store);

/* NULL when there is none of that name, or when the name cannot be one. */
struct rg_bucket *rg_store_find_bucket(struct rg_store *store, struct rg_h1_slice name);
/* 0, or -EEXIST with the one that is there. The name is valid. */
int rg_store_create_bucket(struct rg_store *store, struct rg_h1_slice name,
                           struct rg_bucket **out_bucket);
/* The bucket that an object is to be put into, which is made if it is not there; -ENOENT where
 * buckets are strict. The name is valid. */
int rg_store_bucket_to_write(struct rg_store *store, struct rg_h1_slice name,
                             struct rg_bucket **out_bucket);
bool rg_store_is_strict(const struct rg_store *store);
/* The first bucket whose name is at or behind `from`; NULL: no more. */
struct rg_bucket *rg_store_seek_bucket(struct rg_store *store, struct rg_h1_slice from);
/* 0, -ENOENT, or -ENOTEMPTY while there is an object, noncurrent ones included, or a folder. What
 * is being written to it fails then. */
int rg_store_remove_bucket(struct rg_store *store, struct rg_h1_slice name);

#endif
