/* One read of an object into memory of the caller's: an operation (gcs/request/operation.h), which
 * is submitted and gives a completion.
 *
 * It is cut into pieces, each of them a get that is tried again and goes on by itself. Several are
 * out at once. All are of the generation that the object is FIXED to; a request that went out
 * before that was known, and is answered with another one, is sent again.
 *
 *   READING -> the completion
 *     |  ^
 *     v  |  nothing is out any more
 *   DISCARDING    it came from another generation, or all of an object came without its CRC32C */
#ifndef RG_CHECKPOINT_READ_H
#define RG_CHECKPOINT_READ_H

#include "checkpoint/object.h"

#include <ringest/checkpoint.h>

enum rg_checkpoint_read_kind {
    RG_CHECKPOINT_READ_SUBMITTED = 0, /* what it brings counts in the object's coverage */
    RG_CHECKPOINT_READ_WAITED_FOR,    /* its maker counts that */
};

/* Borrows the object until its `out` is 0 again, and the buffer until the completion. 0, -EAGAIN,
 * -EINVAL, -ENOMEM or -EOWNERDEAD. */
int rg_checkpoint_read_submit(struct rg_checkpoint_object *object, struct rg_cq *cq,
                              const struct rg_checkpoint_read *read,
                              enum rg_checkpoint_read_kind kind);
/* Cancels all reads of the object, and returns when they have ended. Not on a loop's thread. */
void rg_checkpoint_read_end_all(struct rg_checkpoint_object *object);

#endif
