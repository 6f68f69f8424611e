/* The description of a bucket, .ringest/%bucket. */
#ifndef RG_EMULATOR_STORE_DISK_DESCRIPTION_H
#define RG_EMULATOR_STORE_DISK_DESCRIPTION_H

#include "emulator/store/disk/files.h"
#include "emulator/store/model/bucket_info.h"

/* Puts what is kept over `info`; a line that means nothing is passed over. */
void rg_disk_description_load(const struct rg_disk_tree *tree, struct rg_bucket_info *info);
int rg_disk_description_save(struct rg_disk_tree *tree, const struct rg_bucket_info *info);

#endif
