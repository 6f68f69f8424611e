/* The files of an object's versions. The live one lies at the object's path, a noncurrent or
 * soft-deleted one at .ringest/PATH%vGENERATION.
 *
 * A generation is the modification time of the file in microseconds, so that a file that was put
 * there by hand has one. A version that is kept gets its second name before the first goes; while
 * it is the live one, the second name does not count. */
#ifndef RG_EMULATOR_STORE_DISK_VERSIONS_H
#define RG_EMULATOR_STORE_DISK_VERSIONS_H

#include "emulator/store/disk/records.h"

/* The path of a version that is not the live one. */
void rg_disk_version_path(char out[RG_DISK_PATH_MAX], const char *path, int64_t generation);
/* The generation of the live version at `path`; 0: there is none. */
int64_t rg_disk_current_generation(const struct rg_disk_tree *tree, const char *path);
/* Gives a file the generation info->generation, and says which one the file system made of it. */
int rg_disk_set_generation(int fd, struct rg_store_object_info *info);

/* Opens the file of a version, 0 for the live one, and says what is known of it. Returns the file;
 * the caller owns out_info->attributes. `has_crc32c` stays false for a file that was put there by
 * hand and never read. */
int rg_disk_version_open(const struct rg_disk_tree *tree, const char *path, int64_t generation,
                         struct rg_store_object_info *out_info);
/* The same by a generation that may be the live version's: then it is found as such. `soft` finds
 * only soft-deleted versions, which nothing else does. */
int rg_disk_generation_open(const struct rg_disk_tree *tree, const char *path, int64_t generation,
                            bool soft, struct rg_store_object_info *out_info);
/* The reference that came with opening. */
struct rg_attributes *rg_disk_owned_attributes(const struct rg_store_object_info *info);
/* Whether it is soft-deleted and not gone, or with `soft` false: not soft-deleted. */
bool rg_disk_is_of_kind(const struct rg_store_object_info *info, bool soft);

#endif
