/* Open versions that lie on disk. */
#ifndef RG_EMULATOR_STORE_DISK_OBJECT_H
#define RG_EMULATOR_STORE_DISK_OBJECT_H

#include "emulator/store/disk/versions.h"

#define RG_DISK_READ_SIZE RG_KIB(64)

struct rg_disk_file {
    int fd;
    struct rg_attributes *attributes;
    uint8_t buffer[RG_DISK_READ_SIZE];
};

/* The owner of an object of this type is an rg_disk_file. */
extern const struct rg_store_object_type rg_disk_file_type;

/* As a backend's `open`. A file that was put there by hand is read for its checksum, which is kept
 * where we may write. */
int rg_disk_object_open(struct rg_disk_tree *tree, struct rg_h1_slice name, int64_t generation,
                        bool soft, struct rg_store_object *out_object);

#endif
