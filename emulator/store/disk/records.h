/* What is known of a version beside its bytes: checksums, content type, metadata. A record is a
 * file of its own, named after the object's path and the generation, .ringest/PATH%gGENERATION.
 * Extended attributes would do without a second file, but tmpfs before Linux 6.6 and many network
 * file systems have none. */
#ifndef RG_EMULATOR_STORE_DISK_RECORDS_H
#define RG_EMULATOR_STORE_DISK_RECORDS_H

#include "emulator/store/disk/files.h"
#include "emulator/store/model/object.h"

void rg_disk_record_path(char out[RG_DISK_PATH_MAX], const char *path, int64_t generation);
/* Reads the record of generation info->generation over `info`. -ENOENT also when what lies there
 * does not describe a file of info->size bytes. On success the caller owns info->attributes. */
int rg_disk_record_read(const struct rg_disk_tree *tree, const char *path,
                        struct rg_store_object_info *info);
int rg_disk_record_write(struct rg_disk_tree *tree, const char *path,
                         const struct rg_store_object_info *info);
void rg_disk_record_remove(struct rg_disk_tree *tree, const char *path, int64_t generation);

#endif
