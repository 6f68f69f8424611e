/* Written objects as files below a root folder, in one folder for each bucket. A folder that a user
 * has filled by hand is served as it lies there, and no object's name can leave it (file_name.h).
 *
 * One process serves a root folder at a time. A restart finds everything that was there. */
#ifndef RG_EMULATOR_STORE_DISK_DISK_H
#define RG_EMULATOR_STORE_DISK_DISK_H

#include "emulator/store/model/backend.h"

extern const struct rg_store_backend rg_disk_backend;

/* `root_fd` is the folder of buckets, which stays open. -ENOENT when the bucket is not there,
 * unless `create`. What is kept of its description is put over `info`. Returns owned; the backend's
 * close ends it. */
int rg_disk_bucket_open(void **out_bucket, int root_fd, struct rg_h1_slice name, bool create,
                        struct rg_bucket_info *info);

#endif
