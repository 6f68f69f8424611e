/* Where the bytes of an upload come from: memory of the caller, a file, or the stream of a writer.
 *
 *   rg_upload_source_begin -> rg_upload_source_fill -> `filled` -> rg_upload_source_drop
 *
 * A part is filled piece by piece, and each piece is added to the part's CRC32C before the next:
 * what was read is still in the cache then, and summing up a large part does not hold up the loop.
 * A source that fails fails its operation. */
#ifndef RG_GCS_UPLOAD_SOURCE_H
#define RG_GCS_UPLOAD_SOURCE_H

#include "gcs/request/operation.h"
#include "gcs/upload/part.h"

enum rg_upload_source_kind {
    RG_UPLOAD_SOURCE_MEMORY = 0,
    RG_UPLOAD_SOURCE_FILE,
    RG_UPLOAD_SOURCE_STREAM,
};

struct rg_upload_source {
    struct rg_operation *operation;
    /* A part that was FILLING is FILLED. Comes on the loop. */
    void (*filled)(struct rg_upload_part *part);
    enum rg_upload_source_kind kind;
    uint64_t size;       /* UINT64_MAX: of a stream that has not ended */
    const uint8_t *data; /* borrowed */
    int fd;              /* borrowed */
    uint64_t file_offset;
    bool disk_waits;          /* a read of the file had to wait for a disk */
    struct rg_stream *stream; /* borrowed */
};

/* Makes a zeroed part a free slot of the source. */
void rg_upload_source_prepare(struct rg_upload_source *source, struct rg_upload_part *part);
/* Gives the part, whose number and offset are set, its size, `size_max` at most: it is FILLING, or
 * already FILLED. False: there are no bytes for it now, and it stays FREE. */
bool rg_upload_source_begin(struct rg_upload_part *part, uint64_t size_max);
/* Begins to fill a part that is FILLING. */
void rg_upload_source_fill(struct rg_upload_part *part);
/* Stops filling; what is being read is still out. */
void rg_upload_source_call_off(struct rg_upload_part *part);
/* Gives the part's memory back. */
void rg_upload_source_drop(struct rg_upload_part *part);

#endif
