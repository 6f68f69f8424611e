/* What the emulator holds: buckets, and in them objects by name in the order of their bytes.
 *
 * Objects come from two sources that a bucket may combine. What clients write goes to a backend:
 * memory, or files below a root folder. Synthetic sets are objects by formula that take no memory;
 * writing over one shadows it, deleting hides it (until the process ends).
 *
 * The life of a read: rg_store_open_object gives a version that nothing disturbs any more, whatever
 * is written or deleted meanwhile -> rg_store_object_read, any number of times ->
 * rg_store_object_close. The life of a write: rg_store_writer_create -> append -> commit or abort;
 * nobody sees anything of it before the commit, and then all of it.
 *
 * Any thread may call anything; one writer or open object belongs to one thread at a time. Buckets
 * are never freed before the store is, so a pointer to one stays valid, also when it is removed. */
#ifndef RG_EMULATOR_STORE_H
#define RG_EMULATOR_STORE_H

#include "emulator/attributes.h"
#include "emulator/bucket_settings.h"
#include "http/h1_decoder.h"
#include "runtime/base.h"

#define RG_STORE_NAME_SIZE_MAX 1024 /* Of an object, in bytes. */
/* Of a folder's name, with its "/", and of what an object's name has behind its folder, in buckets
 * with a hierarchical namespace. */
#define RG_STORE_FOLDER_SIZE_MAX 512
#define RG_STORE_BUCKET_NAME_SIZE_MAX 222 /* 63 without dots, which we do not insist on. */
#define RG_STORE_CONTENT_TYPE_SIZE_MAX 127
#define RG_STORE_CONTENT_ENCODING_SIZE_MAX 31
#define RG_STORE_MD5_SIZE 24          /* In base64. */
#define RG_STORE_LOCATION_SIZE_MAX 63 /* Of a bucket's location and storage class. */
#define RG_STORE_MEMORY_MAX_DEFAULT (UINT64_C(5) << 30)
#define RG_STORE_OBJECT_SIZE_MAX (UINT64_C(5) << 40)

/* The facts of one version of an object. */
struct rg_store_object_info {
    uint64_t size;
    int64_t
        generation; /* Grows with every write of the store: microseconds since 1970, made unique. */
    int64_t metageneration;
    int64_t updated_us;
    int64_t deleted_us; /* When a noncurrent version was replaced or deleted; 0: it is live. */
    /* Of a soft-deleted version: when it became one, and from when on it is gone. Others have 0. */
    int64_t soft_deleted_us, hard_delete_us;
    uint32_t crc32c;
    bool has_crc32c; /* False only in listings, of files that were never read through the store. */
    bool has_attributes; /* In listings this is all that is told of them. */
    char content_type[RG_STORE_CONTENT_TYPE_SIZE_MAX + 1];
    char content_encoding[RG_STORE_CONTENT_ENCODING_SIZE_MAX + 1]; /* Empty: none. */
    /* In base64, as it is always told. Empty: of what was put together from other objects, of
     * synthetic objects, and of files that did not come through the store. */
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

struct rg_store_options {
    /* Folder whose folders are the buckets, made when only it is missing; NULL: objects live in
     * memory. */
    const char *root;
    uint64_t memory_max;          /* Bytes of objects in memory; 0: RG_STORE_MEMORY_MAX_DEFAULT. */
    const char *const *synthetic; /* BUCKET/PREFIX:COUNT:SIZE */
    size_t synthetic_count;
};

struct rg_store;
struct rg_bucket;

/* On failure `error` holds one line that names the bad value. Returns owned. */
int rg_store_open(struct rg_store **out_store, const struct rg_store_options *options, char *error,
                  size_t error_size);
/* Every object is closed and every writer ended. NULL does nothing. */
void rg_store_close(struct rg_store *store);

/* Microseconds since 1970. */
int64_t rg_store_now_us(void);

bool rg_store_bucket_name_valid(struct rg_h1_slice name);
/* Something that can be the value of a header field, as content types have to be: no control
 * characters, no space at either end, at most `size_max` bytes. */
bool rg_store_attribute_valid(struct rg_h1_slice value, size_t size_max);
/* 1..1024 bytes of UTF-8, no CR or LF, neither "." nor "..". */
bool rg_store_object_name_valid(struct rg_h1_slice name);

/* NULL when there is none of that name, or when the name cannot be one. */
struct rg_bucket *rg_store_find_bucket(struct rg_store *store, struct rg_h1_slice name);
/* 0, or -EEXIST with the one that is there. The name is valid. */
int rg_store_create_bucket(struct rg_store *store, struct rg_h1_slice name,
                           struct rg_bucket **out_bucket);
/* The first bucket whose name is at or behind `from`; NULL: no more. */
struct rg_bucket *rg_store_seek_bucket(struct rg_store *store, struct rg_h1_slice from);
struct rg_h1_slice rg_bucket_name(const struct rg_bucket *bucket);

/* What a bucket is described by. Texts end in a NUL. */
struct rg_bucket_info {
    int64_t created_us, updated_us, metageneration;
    bool versioning;     /* What is replaced or deleted stays as a noncurrent version. */
    bool uniform_access; /* Told, and nothing else: everybody may do everything. */
    bool hierarchical;   /* It has folders; for good from its creation on. */
    /* For how long what is deleted or replaced for good stays soft-deleted, 0: not at all; and
     * since when that is so. */
    int64_t soft_delete_us, soft_delete_since_us;
    bool requester_pays;   /* Requests have to say who pays for them. */
    bool no_public_access; /* Nobody may be let in whom nobody knows. */
    bool holds_by_default; /* What is written is under an event-based hold. */
    bool retention_locked; /* The retention may only grow. */
    int64_t
        retention_us; /* How old an object has to be to be removed or replaced; 0: of any age. */
    /* All that is told beside; borrowed by who configures, NULL from rg_bucket_get_info. */
    struct rg_bucket_settings *settings;
    char location[RG_STORE_LOCATION_SIZE_MAX + 1];
    char storage_class[RG_STORE_LOCATION_SIZE_MAX + 1];
};

void rg_bucket_get_info(struct rg_bucket *bucket, struct rg_bucket_info *out_info);
/* Returns owned. */
struct rg_bucket_settings *rg_bucket_get_settings(struct rg_bucket *bucket);
/* As the info says, and quicker. */
bool rg_bucket_requester_pays(struct rg_bucket *bucket);
/* Right after its creation a bucket is described for the first time. */
#define RG_BUCKET_IS_NEW INT64_C(-1)
/* Takes over all but the times and the metageneration, and keeps it where objects are kept. -ESTALE
 * when the metageneration is not `metageneration` any more; 0 is any. -EPERM: it becomes
 * hierarchical or ceases to be, other than right after its creation. */
int rg_bucket_configure(struct rg_bucket *bucket, const struct rg_bucket_info *info,
                        int64_t metageneration);
/* 0, -ENOENT, or -ENOTEMPTY while there is an object, noncurrent ones included, or a folder. What
 * is being written to it fails then. */
int rg_store_remove_bucket(struct rg_store *store, struct rg_h1_slice name);

/* 0, -ENOENT, or what the file system says. The caller closes *out_object. */
int rg_bucket_open_object(struct rg_bucket *bucket, struct rg_h1_slice name,
                          struct rg_store_object *out_object);
/* The version of that generation, live or not; 0 is the live one. */
int rg_bucket_open_version(struct rg_bucket *bucket, struct rg_h1_slice name, int64_t generation,
                           struct rg_store_object *out_object);
/* Describes the version of generation info->generation anew: content type and encoding, attributes.
 * 0 with the rest filled in; -EAGAIN when its metageneration is not info->metageneration any more;
 * -ENOENT. */
int rg_bucket_update_object(struct rg_bucket *bucket, struct rg_h1_slice name,
                            struct rg_store_object_info *info);
/* The soft-deleted version of that generation. 0, -ENOENT. */
int rg_bucket_open_soft_deleted(struct rg_bucket *bucket, struct rg_h1_slice name,
                                int64_t generation, struct rg_store_object *out_object);
/* Removes the live version of that generation, whose bytes live on under another name: it is not
 * soft-deleted. 0, -ENOENT, -ESTALE. */
int rg_bucket_move_away(struct rg_bucket *bucket, struct rg_h1_slice name, int64_t generation);
/* 0, -ENOENT, or what rg_store_conditions_check and rg_protection_check say. */
int rg_bucket_remove_object(struct rg_bucket *bucket, struct rg_h1_slice name,
                            const struct rg_store_conditions *conditions);

/* What rg_store_conditions_check says of the object as it is now. */
int rg_bucket_check_conditions(struct rg_bucket *bucket, struct rg_h1_slice name,
                               const struct rg_store_conditions *conditions);

struct rg_store_entry {
    char name[RG_STORE_NAME_SIZE_MAX];
    uint32_t name_size;
    struct rg_store_object_info info;
};

/* The first object whose name is at or behind `from`. 0, or -ENOENT: no more. */
int rg_bucket_seek_object(struct rg_bucket *bucket, struct rg_h1_slice from,
                          struct rg_store_entry *out_entry);

/* The same for versions: the first behind generation `after` of the name `from`, or of a name
 * behind it. Those of one name come with the oldest first. */
int rg_bucket_seek_version(struct rg_bucket *bucket, struct rg_h1_slice from, int64_t after,
                           struct rg_store_entry *out_entry);

/* The same for soft-deleted versions, which no other search finds. */
int rg_bucket_seek_soft_deleted(struct rg_bucket *bucket, struct rg_h1_slice from, int64_t after,
                                struct rg_store_entry *out_entry);

struct rg_folder_info {
    int64_t created_us, updated_us, metageneration;
};

struct rg_folder_entry {
    char name[RG_STORE_FOLDER_SIZE_MAX];
    uint32_t name_size;
    struct rg_folder_info info;
};

/* The name of an object that ends in "/", and is not too long. */
bool rg_store_folder_name_valid(struct rg_h1_slice name);
bool rg_bucket_is_hierarchical(struct rg_bucket *bucket);

/* Folders of a hierarchical bucket, by valid names. Writing an object makes those that it lies in.
 * Of the conditions only those of the metageneration count. */

/* -ENOENT. */
int rg_bucket_get_folder(struct rg_bucket *bucket, struct rg_h1_slice name,
                         struct rg_folder_info *out_info);
/* The first one at or behind `from`; -ENOENT: no more, as in a bucket that has none. */
int rg_bucket_seek_folder(struct rg_bucket *bucket, struct rg_h1_slice from,
                          struct rg_folder_entry *out_entry);
/* -EEXIST; -ENOTDIR when the one above it is not there, unless `recursive`; -ENOSPC: too many. */
int rg_bucket_create_folder(struct rg_bucket *bucket, struct rg_h1_slice name, bool recursive,
                            struct rg_folder_info *out_info);
/* -ENOENT; -ENOTEMPTY: an object or a folder is in it; what rg_store_conditions_check says. */
int rg_bucket_remove_folder(struct rg_bucket *bucket, struct rg_h1_slice name,
                            const struct rg_store_conditions *conditions);
/* Renames a folder with all that is in it; objects keep their generations. Others see objects at
 * their new names one after the other, but nobody else writes meanwhile. -ENOENT; -EEXIST: there is
 * something of the new name; -ENOTDIR: not the folder above it; -EINVAL: it would lie in itself;
 * -ENAMETOOLONG; what rg_store_conditions_check says. After any other failure the next store of
 * the same root completes it. */
int rg_bucket_rename_folder(struct rg_bucket *bucket, struct rg_h1_slice from,
                            struct rg_h1_slice to, const struct rg_store_conditions *conditions,
                            struct rg_folder_info *out_info);

struct rg_store_writer;

/* Starts an object of a valid name; an unknown bucket springs into being. `size_hint` is the size
 * to come, 0 where it is not known. -ENOSPC: objects in memory would exceed the budget.
 * -ENAMETOOLONG: for a hierarchical bucket. */
int rg_store_writer_create(struct rg_store_writer **out_writer, struct rg_store *store,
                           struct rg_h1_slice bucket, struct rg_h1_slice name, uint64_t size_hint);
int rg_store_writer_append(struct rg_store_writer *writer, const void *data, size_t size);
/* Appends a whole open object; without reading its bytes where they lie in the same kind of
 * place. */
int rg_store_writer_append_object(struct rg_store_writer *writer, struct rg_store_object *object);
/* Turns what was written into an open object that has no name: to be appended, and closed. The
 * writer is gone afterwards, whatever is returned. */
int rg_store_writer_seal(struct rg_store_writer *writer, struct rg_store_object *out_object);
uint32_t rg_store_writer_crc32c(const struct rg_store_writer *writer);
uint64_t rg_store_writer_size(const struct rg_store_writer *writer);
/* Makes the object visible if the conditions hold. `attributes` gives content type, encoding, MD5
 * and attributes; the rest is filled in and handed out. The writer is gone afterwards, whatever is
 * returned. */
int rg_store_writer_commit(struct rg_store_writer *writer,
                           const struct rg_store_conditions *conditions,
                           const struct rg_store_object_info *attributes,
                           struct rg_store_object_info *out_info);
void rg_store_writer_abort(struct rg_store_writer *writer);

#endif
