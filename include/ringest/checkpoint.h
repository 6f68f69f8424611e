/* Reading one object like a file: at any offset, small and large pieces, always the same
 * generation. To write one see rg_writer in <ringest/upload.h>; to read many ranges by one request
 * rg_submit_get_ranges in <ringest/objects.h>. */
#ifndef RINGEST_CHECKPOINT_H
#define RINGEST_CHECKPOINT_H

#include <ringest/objects.h>

RG_DECLS_BEGIN
struct rg_checkpoint_reader;
struct rg_checkpoint_reader_options {
    const char *bucket, *object;
    int64_t generation;    /* 0: the newest at the first answer, and the same from then on */
    uint64_t window_bytes; /* of blocks; 0: 32 MiB. At most a quarter of the runtime's memory_max */
};
/* Sends nothing yet. Close it before its client. Errors: -EINVAL, -ENOMEM, -EOWNERDEAD. */
RG_OPEN(rg_checkpoint_reader)

/* Reads into the caller's memory; any number at once, from any thread, by several requests where
 * they are large. rg_cancel ends one. When such reads have brought every byte of the object, in
 * whatever order, the CRC32C of each byte's first reading is compared with the object's. What is
 * read again is compared with the first reading where it begins and ends as earlier reads did;
 * otherwise TLS alone protects it. If one differs, this read and all later ones give
 * RG_STATUS_CHECKSUM. Completion when OK: data, size (less than was asked for only
 * at the object's end, 0 behind it), crc32c, generation, object_size, object_crc32c. Errors as of
 * any submit function, and -ENOMEM. */
struct rg_checkpoint_read {
    uint64_t offset, size; /* bytes */
    void *buf;             /* borrowed until the completion */
    uint64_t user_data, deadline_ns;
};
RG_API int rg_submit_checkpoint_read_sized(struct rg_checkpoint_reader *reader, struct rg_cq *cq,
                                           const struct rg_checkpoint_read *read,
                                           size_t struct_size);
static inline int rg_submit_checkpoint_read(struct rg_checkpoint_reader *reader, struct rg_cq *cq,
                                            const struct rg_checkpoint_read *read)
{
    return rg_submit_checkpoint_read_sized(reader, cq, read, sizeof(*read));
}

/* Pieces of this size and more are read like that by the call below. It takes smaller ones from
 * blocks in leased memory, and reads more of them ahead the longer reading is sequential. */
#define RG_CHECKPOINT_DIRECT_SIZE (UINT64_C(1) << 20)
/* Reads `size` bytes from `offset` on and returns how many: fewer only at the object's end. When
 * all bytes have been read in order, their CRC32C is compared with the object's. One thread at a
 * time. Errors: -ETIME (deadline_ns passed, CLOCK_MONOTONIC) and -EAGAIN (the client is full): call
 * again with the same arguments, or close; buf stays borrowed until then. -EIO: see
 * rg_checkpoint_reader_failure. -EOWNERDEAD. */
RG_API int64_t rg_checkpoint_reader_read(struct rg_checkpoint_reader *reader, uint64_t offset,
                                         void *buf, uint64_t size, uint64_t deadline_ns);
/* Ends a read that waits in another thread, or else the next wait, with -ETIME. Any thread. */
RG_API void rg_checkpoint_reader_interrupt(struct rg_checkpoint_reader *reader);
/* What failed in rg_checkpoint_reader_read, or NULL. Valid until the reader is closed. */
RG_API const struct rg_completion *
rg_checkpoint_reader_failure(const struct rg_checkpoint_reader *reader);
/* 0: not known yet. Any thread. */
RG_API int64_t rg_checkpoint_reader_generation(struct rg_checkpoint_reader *reader);
/* Cancels all reads, each of which gives its completion, and waits for them. */
RG_API void rg_checkpoint_reader_close(struct rg_checkpoint_reader *reader);

RG_DECLS_END
#endif
