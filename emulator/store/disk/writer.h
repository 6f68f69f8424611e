/* Writing a file: bytes into .ringest/%t… -> the record of the new generation -> rename over the
 * object, which is the moment of the change -> the old record is removed. A process that dies in
 * between leaves the old object with its record, or the new one with its own. Nothing is synced:
 * this is for tests, and what a power failure leaves is up to the file system.
 *
 * A writer is made by begin and ended by commit, seal or abort, as backend.h says of each. */
#ifndef RG_EMULATOR_STORE_DISK_WRITER_H
#define RG_EMULATOR_STORE_DISK_WRITER_H

#include "emulator/store/disk/files.h"
#include "emulator/store/model/backend.h"

int rg_disk_writer_begin(struct rg_disk_tree *tree, void **out_writer);
int rg_disk_writer_append(void *self, const void *data, size_t size);
int rg_disk_writer_append_object(void *self, struct rg_store_object *object);
void rg_disk_writer_abort(void *self);
int rg_disk_writer_commit(void *self, struct rg_h1_slice name, struct rg_store_object_info *info,
                          const struct rg_store_fate *fate);
int rg_disk_writer_seal(void *self, const struct rg_store_object_info *info,
                        struct rg_store_object *out_object);

#endif
