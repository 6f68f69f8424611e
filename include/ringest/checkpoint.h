/* Reading one object as a file is read: from any place, small and large pieces, always of the same
 * generation. For writing see rg_writer in <ringest/upload.h>, for many ranges at once
 * rg_submit_get_ranges in <ringest/objects.h>. */
#ifndef RINGEST_CHECKPOINT_H
#define RINGEST_CHECKPOINT_H

#include <ringest/objects.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Pieces of RG_CHECKPOINT_DIRECT_SIZE and more are read straight into the caller's memory, by
 * several requests at once. Smaller ones come out of blocks in leased memory, which are read ahead,
 * ever more of them, as long as reading goes on where it left off. */
#define RG_CHECKPOINT_DIRECT_SIZE (UINT64_C(1) << 20)

struct rg_checkpoint_reader;
struct rg_checkpoint_reader_options {
    const char *bucket, *object;
    int64_t generation;    /* 0: the newest when the first answer comes; the same from then on */
    uint64_t window_bytes; /* of blocks; 0: 32 MiB. At most a quarter of the runtime's memory_max */
};
/* Sends nothing yet. Errors: -EINVAL, -ENOMEM, -EOWNERDEAD. Closed before its client. */
RG_API int rg_checkpoint_reader_open_sized(struct rg_checkpoint_reader **out_reader,
                                           struct rg_client *client,
                                           const struct rg_checkpoint_reader_options *options,
                                           size_t struct_size);
static inline int rg_checkpoint_reader_open(struct rg_checkpoint_reader **out_reader,
                                            struct rg_client *client,
                                            const struct rg_checkpoint_reader_options *options)
{
    return rg_checkpoint_reader_open_sized(out_reader, client, options, sizeof(*options));
}

/* Reads `size` bytes from `offset` on, fewer only where the object ends: how many. -ETIME when
 * deadline_ns (CLOCK_MONOTONIC) passes: call again with the same arguments, or close; buf is
 * borrowed until then. -EAGAIN: the client has no room for a request; the same. -EIO: see
 * rg_checkpoint_reader_failure. -EOWNERDEAD. One thread at a time.
 *
 * When all bytes have been read in order, from the first to the last, their CRC32C is compared with
 * the object's. */
RG_API int64_t rg_checkpoint_reader_read(struct rg_checkpoint_reader *reader, uint64_t offset,
                                         void *buf, uint64_t size, uint64_t deadline_ns);
/* Makes a read that waits in another thread return -ETIME now, or the next one that has to wait.
 * Any thread. */
RG_API void rg_checkpoint_reader_interrupt(struct rg_checkpoint_reader *reader);
/* What failed; NULL: nothing did. Stays until the reader is closed, which releases its lease. */
RG_API const struct rg_completion *
rg_checkpoint_reader_failure(const struct rg_checkpoint_reader *reader);
/* 0: not known yet. */
RG_API int64_t rg_checkpoint_reader_generation(const struct rg_checkpoint_reader *reader);
/* Ends it: what is out is cancelled and waited for. NULL is fine. */
RG_API void rg_checkpoint_reader_close(struct rg_checkpoint_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
