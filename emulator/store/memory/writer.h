/* Bytes of an object in memory, in the making: appended to a segment that grows, or shared with an
 * object that is there.
 *
 * Life: create -> append -> finish or destroy. */
#ifndef RG_EMULATOR_STORE_MEMORY_WRITER_H
#define RG_EMULATOR_STORE_MEMORY_WRITER_H

#include "emulator/store/memory/version.h"

struct rg_memory_writer;

/* `size_hint` is the size to come, 0 where it is not known. Returns owned. -ENOSPC, -ENOMEM. */
int rg_memory_writer_create(struct rg_memory_writer **out_writer, struct rg_memory_budget *budget,
                            uint64_t size_hint);
void rg_memory_writer_destroy(struct rg_memory_writer *writer);
/* -ENOSPC, -ENOMEM. */
int rg_memory_writer_append(struct rg_memory_writer *writer, const void *data, size_t size);
/* Shares the bytes of a version. -ENOMEM. */
int rg_memory_writer_append_version(struct rg_memory_writer *writer,
                                    const struct rg_version *version);
/* A version of what was written, with one reference. Takes the writer. NULL: out of memory. */
struct rg_version *rg_memory_writer_finish(struct rg_memory_writer *writer,
                                           const struct rg_store_object_info *info);

#endif
