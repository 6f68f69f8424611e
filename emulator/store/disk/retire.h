/* What becomes of versions that are replaced or removed. The bucket is locked. */
#ifndef RG_EMULATOR_STORE_DISK_RETIRE_H
#define RG_EMULATOR_STORE_DISK_RETIRE_H

#include "emulator/store/disk/versions.h"
#include "emulator/store/model/backend.h"

/* Gives the live version its second name, as a noncurrent or soft-deleted one. Its first name stays
 * for the caller to replace or remove. Nothing is done when there is no live version. */
int rg_disk_version_keep(struct rg_disk_tree *tree, struct rg_h1_slice name, const char *path,
                         int64_t now_us, const struct rg_store_fate *fate);
/* A noncurrent version becomes a soft-deleted one. */
int rg_disk_version_soften(struct rg_disk_tree *tree, const char *path, int64_t generation,
                           const struct rg_store_fate *fate);
/* Removes a version that is not the live one. */
int rg_disk_version_remove(struct rg_disk_tree *tree, const char *path, int64_t generation);

#endif
