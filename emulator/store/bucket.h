/* A bucket: written objects over synthetic ones, by name in the order of their bytes. A written
 * object shadows a synthetic one of its name; deleting one hides it until the process ends.
 *
 * Any thread may call anything. Searches run beside everything else; changes run one at a time. */
#ifndef RG_EMULATOR_STORE_BUCKET_H
#define RG_EMULATOR_STORE_BUCKET_H

#include "emulator/store/model/bucket_info.h"
#include "emulator/store/model/object.h"

struct rg_bucket;

struct rg_h1_slice rg_bucket_name(const struct rg_bucket *bucket);

void rg_bucket_get_info(struct rg_bucket *bucket, struct rg_bucket_info *out_info);
/* Returns owned. */
struct rg_bucket_settings *rg_bucket_get_settings(struct rg_bucket *bucket);
/* What the info says, without a lock. */
bool rg_bucket_requester_pays(struct rg_bucket *bucket);
/* For the first description of a bucket, right after its creation. */
#define RG_BUCKET_IS_NEW INT64_C(-1)
/* Takes over all but the times and the metageneration, and keeps it where objects are kept. -ESTALE
 * when the metageneration is not `metageneration` any more; 0 is any. -EPERM: it becomes
 * hierarchical or ceases to be, other than right after its creation. */
int rg_bucket_configure(struct rg_bucket *bucket, const struct rg_bucket_info *info,
                        int64_t metageneration);

bool rg_bucket_is_hierarchical(struct rg_bucket *bucket);

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
/* Removes the live version of that generation, whose bytes have moved to another name. It does
 * not become soft-deleted. 0, -ENOENT, -ESTALE. */
int rg_bucket_move_away(struct rg_bucket *bucket, struct rg_h1_slice name, int64_t generation);
/* 0, -ENOENT, or what rg_store_conditions_check and rg_protection_check say. */
int rg_bucket_remove_object(struct rg_bucket *bucket, struct rg_h1_slice name,
                            const struct rg_store_conditions *conditions);

/* What rg_store_conditions_check says of the object as it is now. */
int rg_bucket_check_conditions(struct rg_bucket *bucket, struct rg_h1_slice name,
                               const struct rg_store_conditions *conditions);

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

#endif
