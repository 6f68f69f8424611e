/* What the store demands of a place that keeps written objects, bucket by bucket.
 *
 * `open` and the searches run on any number of threads, beside everything else. Functions that
 * change names run one at a time for a bucket: the store holds its lock. */
#ifndef RG_EMULATOR_STORE_MODEL_BACKEND_H
#define RG_EMULATOR_STORE_MODEL_BACKEND_H

#include "emulator/store/model/bucket_info.h"
#include "emulator/store/model/object.h"
#include "emulator/wire/text.h"

/* What becomes of a version that is replaced or removed. */
struct rg_store_fate {
    bool kept;              /* It becomes noncurrent; with a duration below, soft-deleted. */
    int64_t soft_delete_us; /* For how long, from when it is replaced or removed. */
};

/* Soft-deleted versions are found only by searches for them, and only until their time is over. */
struct rg_store_backend {
    /* `generation` 0 is the live version. `soft`: the soft-deleted one of that generation. */
    int (*open)(void *bucket, struct rg_h1_slice name, int64_t generation, bool soft,
                struct rg_store_object *out_object);
    /* The first live object at or behind `from`. */
    int (*seek)(void *bucket, struct rg_h1_slice from, struct rg_store_entry *out_entry);
    /* The first version, live or not, behind generation `after` of the name `from`, or of a name
     * behind it. */
    int (*seek_version)(void *bucket, struct rg_h1_slice from, int64_t after, bool soft,
                        struct rg_store_entry *out_entry);
    int (*begin)(void *bucket, uint64_t size_hint, void **out_writer);
    int (*append)(void *writer, const void *data, size_t size);
    /* Appends a whole object that this backend opened, without reading its bytes. -ENOTSUP: that
     * is not possible, and the caller reads it. */
    int (*append_object)(void *writer, struct rg_store_object *object);
    /* Makes the object visible. `fate` says what becomes of the version that is there. `info` is
     * complete; `generation` and `updated_us` may be changed to what could be stored. Takes the
     * writer, also on failure. */
    int (*commit)(void *writer, struct rg_h1_slice name, struct rg_store_object_info *info,
                  const struct rg_store_fate *fate);
    /* Makes an open object of no name out of the bytes. Takes the writer, also on failure. */
    int (*seal)(void *writer, const struct rg_store_object_info *info,
                struct rg_store_object *out_object);
    void (*abort)(void *writer);
    /* Describes the version of generation info->generation anew. */
    int (*update)(void *bucket, struct rg_h1_slice name, const struct rg_store_object_info *info);
    /* `generation` 0 is the live version. */
    int (*remove)(void *bucket, struct rg_h1_slice name, int64_t generation,
                  const struct rg_store_fate *fate);
    /* Keeps the description of the bucket; NULL where nothing outlasts the process. */
    int (*save_info)(void *bucket, const struct rg_bucket_info *info);
    /* Gives the live version another name, under which there is no live version. Its generation
     * and all that is known of it stay. If the process dies in it, the next process calls it
     * again to complete the move. */
    int (*move)(void *bucket, struct rg_h1_slice from, struct rg_h1_slice to);
    /* The log of folders; see folders.h. Loading appends to a text, nothing when there is no log.
     * NULL where nothing outlasts the process. */
    int (*load_folders)(void *bucket, struct rg_text *text);
    int (*append_folders)(void *bucket, const struct rg_text *lines);
    int (*replace_folders)(void *bucket, const struct rg_text *text);
    /* Removes what is left of a bucket without objects. */
    int (*erase)(void *bucket);
    void (*close)(void *bucket);
};

#endif
