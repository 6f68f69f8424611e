/* The folders of a bucket with a hierarchical namespace, and the objects that move with them.
 * Writing an object makes the folders that it lies in. Names are valid, and of the conditions only
 * those of the metageneration count. */
#ifndef RG_EMULATOR_STORE_BUCKET_FOLDERS_H
#define RG_EMULATOR_STORE_BUCKET_FOLDERS_H

#include "emulator/store/bucket.h"
#include "emulator/store/folders.h"

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

/* Completes a rename that the last process died in. Called before others know the bucket. */
int rg_bucket_recover_folders(struct rg_bucket *bucket);

#endif
