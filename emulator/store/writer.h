/* An object in the making. Nobody sees anything of it before it is committed, and then all of it.
 *
 * Life: rg_store_writer_create -> append, any number of times -> commit, seal or abort, after which
 * the writer is gone, whatever is returned. It belongs to one thread at a time. */
#ifndef RG_EMULATOR_STORE_WRITER_H
#define RG_EMULATOR_STORE_WRITER_H

#include "emulator/store/store.h"

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
/* Turns what was written into an open object that has no name: to be appended, and closed. */
int rg_store_writer_seal(struct rg_store_writer *writer, struct rg_store_object *out_object);
uint32_t rg_store_writer_crc32c(const struct rg_store_writer *writer);
uint64_t rg_store_writer_size(const struct rg_store_writer *writer);
/* Makes the object visible if the conditions hold. `attributes` gives content type, encoding, MD5
 * and attributes; the rest is filled in and handed out. */
int rg_store_writer_commit(struct rg_store_writer *writer,
                           const struct rg_store_conditions *conditions,
                           const struct rg_store_object_info *attributes,
                           struct rg_store_object_info *out_info);
void rg_store_writer_abort(struct rg_store_writer *writer);

#endif
