/* One version of an object: the facts of it, and its bytes while it is open. An open version stays
 * as it is, whatever is written or deleted meanwhile.
 *
 * Life of an open version: whoever keeps it opens it -> rg_store_object_read, any number of times
 * -> rg_store_object_close. It belongs to one thread at a time. */
#ifndef RG_EMULATOR_STORE_MODEL_OBJECT_H
#define RG_EMULATOR_STORE_MODEL_OBJECT_H

#include "emulator/store/model/attributes.h"
#include "emulator/store/model/names.h"

/* The facts of one version of an object. */
struct rg_store_object_info {
    uint64_t size;
    int64_t generation; /* Microseconds since 1970, made unique: it grows with every write of the
                           store. */
    int64_t metageneration;
    int64_t updated_us;
    int64_t deleted_us; /* When a noncurrent version was replaced or deleted; 0: it is live. */
    /* When a version became soft-deleted, and from when on it is gone; 0: it is not
     * soft-deleted. */
    int64_t soft_deleted_us, hard_delete_us;
    uint32_t crc32c;
    bool has_crc32c; /* False only in listings, of files that were never read through the store. */
    bool has_attributes; /* Listings tell this, and not the attributes. */
    char content_type[RG_STORE_CONTENT_TYPE_SIZE_MAX + 1];
    char content_encoding[RG_STORE_CONTENT_ENCODING_SIZE_MAX + 1]; /* Empty: none. */
    /* In base64, as it is always told. Empty for composed objects, synthetic objects, and files
     * that did not come through the store. */
    char md5[RG_STORE_MD5_SIZE + 1];
    /* Borrowed: of an open object until it is closed, else from whoever filled this in. */
    const struct rg_attributes *attributes;
};

struct rg_store_object;

/* How the bytes of an open object are reached. */
struct rg_store_object_type {
    size_t (*read)(struct rg_store_object *object, uint64_t offset, const uint8_t **out_data);
    void (*close)(struct rg_store_object *object); /* NULL: nothing to do. */
};

/* An open version. Zeroed is closed. Small enough to live in a call's state: opening a synthetic
 * object or one in memory allocates nothing. */
struct rg_store_object {
    struct rg_store_object_info info;
    const struct rg_store_object_type *type;
    void *owner;
    uint64_t position; /* Where a synthetic object starts in its table. */
};

/* Points *out_data at the bytes from `offset`, which is below the size, and returns how many follow
 * in one piece, at least 1. They are valid until the next read or close. */
size_t rg_store_object_read(struct rg_store_object *object, uint64_t offset,
                            const uint8_t **out_data);
void rg_store_object_close(struct rg_store_object *object);

struct rg_store_condition {
    bool set;
    int64_t value;
};

/* What a request demands of the object as it is. Zeroed demands nothing. */
struct rg_store_conditions {
    struct rg_store_condition generation; /* `generation=`: another version does not exist. */
    struct rg_store_condition generation_match, generation_not_match; /* 0: no object. */
    struct rg_store_condition metageneration_match, metageneration_not_match;
};

/* Checks them against an object, NULL when there is none. 0; -ENOENT when the generation asked for
 * is not there; -ESTALE when a match fails; -EALREADY when a not-match fails. */
int rg_store_conditions_check(const struct rg_store_conditions *conditions,
                              const struct rg_store_object_info *info);

struct rg_store_entry {
    char name[RG_STORE_NAME_SIZE_MAX];
    uint32_t name_size;
    struct rg_store_object_info info;
};

static inline struct rg_h1_slice rg_store_entry_name(const struct rg_store_entry *entry)
{
    return (struct rg_h1_slice){entry->name, entry->name_size};
}

#endif
