/* Between the store and where it keeps written objects: the two sides of one bucket.
 *
 * `open` and `seek` run on any number of threads beside everything else. `commit` and `remove` run
 * one at a time for a bucket: the store holds its lock. */
#ifndef RG_EMULATOR_BACKEND_H
#define RG_EMULATOR_BACKEND_H

#include "emulator/store.h"

struct rg_store_backend {
    int (*open)(void *bucket, struct rg_h1_slice name, struct rg_store_object *out_object);
    int (*seek)(void *bucket, struct rg_h1_slice from, struct rg_store_entry *out_entry);
    int (*begin)(void *bucket, uint64_t size_hint, void **out_writer);
    int (*append)(void *writer, const void *data, size_t size);
    /* Replaces what is there. `info` is complete; `generation` and `updated_us` may be changed to
     * what could be stored. Takes the writer, also on failure. */
    int (*commit)(void *writer, struct rg_h1_slice name, struct rg_store_object_info *info);
    void (*abort)(void *writer);
    int (*remove)(void *bucket, struct rg_h1_slice name);
    void (*close)(void *bucket);
};

/* Bytes that objects in memory may take, over all buckets. */
struct rg_memory_budget {
    _Atomic uint64_t used;
    uint64_t max;
};

extern const struct rg_store_backend rg_memory_backend;
extern const struct rg_store_backend rg_disk_backend;

/* Each returns owned; ended by the backend's close. */
int rg_memory_bucket_open(void **out_bucket, struct rg_memory_budget *budget);
/* `root_fd` is the folder of buckets. -ENOENT when the bucket is not there, unless `create`. */
int rg_disk_bucket_open(void **out_bucket, int root_fd, struct rg_h1_slice name, bool create);

#endif
