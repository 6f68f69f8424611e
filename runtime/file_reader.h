/* Reading regular files. What the page cache has is read by the loop itself, when its owner is
 * about to look at it; the rest waits for a disk, which must not hold up the loop. A file has no
 * readiness to wait for, so a backend without reads of its own has threads for them: they are
 * started with the first such read and end with the reader. */
#ifndef RG_RUNTIME_FILE_READER_H
#define RG_RUNTIME_FILE_READER_H

#include "runtime/op.h"

#define RG_FILE_READER_THREADS_MAX 4

struct rg_file_reader;

/* Reads what the op asks for as far as it is in memory: true with the op's result, which may be
 * short; false where nothing of it is, or where the system cannot tell. */
bool rg_file_read_cached(struct rg_op *op);

/* `wake` is called by a thread when there is something to take. 0 or -ENOMEM. */
int rg_file_reader_create(struct rg_file_reader **out_reader, void (*wake)(void *context),
                          void *context);
/* Waits for the reads that were started; no more are accepted. NULL is fine. */
void rg_file_reader_destroy(struct rg_file_reader *reader);
/* Reads as the op says; it stays with the reader until it is taken. */
void rg_file_reader_start(struct rg_file_reader *reader, struct rg_op *op);
/* What has been read since the last call, linked by ready_next, each with its result. */
struct rg_op *rg_file_reader_take(struct rg_file_reader *reader);

#endif
