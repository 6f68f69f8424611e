/* Uploads of any size: in one request, resumable, in parallel parts, or as parts that are composed.
 * Readers see the old object or the complete new one, never a part. */
#ifndef RINGEST_UPLOAD_H
#define RINGEST_UPLOAD_H

#include <ringest/objects.h>

RG_DECLS_BEGIN
enum rg_upload_method {
    RG_UPLOAD_AUTO = 0,      /* by size and conditions, see below */
    RG_UPLOAD_SINGLE = 1,    /* one request (multipart/related, with the CRC32C to be checked) */
    RG_UPLOAD_RESUMABLE = 2, /* one session; goes on where the server got to */
    RG_UPLOAD_MULTIPART = 3, /* XML API multipart upload: parts in parallel, no conditions */
    RG_UPLOAD_COMPOSE = 4    /* temporary objects in parallel, then composed and removed */
};

/* Uploads an object from memory or a file. AUTO is SINGLE up to 8 MiB; above, MULTIPART, or COMPOSE
 * with conditions, or RESUMABLE where the server knows no XML API, and with conditions for
 * NEARLINE, COLDLINE and ARCHIVE, where temporary objects are paid for a month or longer. SINGLE
 * reads a file into memory: part_size * parts_inflight_max bytes at most.
 *
 * A failed or cancelled upload first removes its parts, session and temporary objects (below
 * ".ringest-parts/"). If the answer that begins one is lost, a multipart upload without parts stays
 * until rg_submit_abort_upload or a lifecycle rule; an empty session stays for a week.
 *
 * If one is cancelled when the server may have all of it, the object is looked up for up to 11 s:
 * OK if it is stored, else RG_STATUS_CANCELLED. After a deadline or the closing of the client it
 * may be stored all the same. Lost answers are verified as with rg_put, CRC32C always compared.
 * Completion when OK: generation, crc32c, object_size, found_done. */
struct rg_upload {
    const char *bucket, *object;
    enum rg_upload_method method;
    const void *data; /* borrowed until the completion; NULL: the file */
    int fd;           /* of a regular file; borrowed. If it shrinks meanwhile: RG_STATUS_SOURCE */
    uint64_t file_offset;
    uint64_t size;            /* bytes */
    const char *content_type; /* NULL: application/octet-stream */
    const char *content_encoding, *cache_control, *storage_class; /* NULL: the service's default */
    const struct rg_metadata *metadata;
    size_t metadata_count;
    struct rg_conditions conditions;
    /* Bytes; 0: 16 MiB, more above 10,000 parts. MULTIPART: at least 5 MiB; RESUMABLE: a multiple
     * of 256 KiB. Files take so much memory for each part, all uploads of a loop 256 MiB. */
    uint64_t part_size;
    uint32_t parts_inflight_max; /* 0: 8; at most 128 */
    uint64_t user_data, deadline_ns;
    bool exclusive; /* success only if this upload wrote it */
};
RG_SUBMIT(upload, rg_upload)

/* Multipart uploads that were neither completed nor aborted: killed programs leave them, their
 * parts cost money, and no object shows them. Those that are still in use look the same.
 * Lists a page, sorted by object name, then id; the next one begins behind the markers, also after
 * an empty page. Completion when OK: data is a const struct rg_uploads_page *, in the lease.
 * RG_STATUS_BAD_RESPONSE or a refusal: the server has no such uploads. */
struct rg_unfinished_upload {
    const char *object, *id;
    const char *initiated; /* RFC 3339; NULL: not told */
};
struct rg_uploads_page {
    const struct rg_unfinished_upload *uploads;
    size_t count;
    const char *next_key_marker, *next_id_marker; /* NULL: this is the last page */
};
struct rg_list_uploads {
    const char *bucket;
    const char *prefix, *key_marker, *id_marker; /* markers of the page before; NULL: none */
    uint32_t results_max;                        /* 0: 1000, which is also the limit */
    uint64_t user_data, deadline_ns;
};
RG_SUBMIT(list_uploads, rg_list_uploads)

/* Aborts one and removes its parts, except one that arrives at the same moment: list again.
 * Completion: OK, or RG_STATUS_NOT_FOUND if there is no such upload. */
struct rg_abort_upload {
    const char *bucket, *object, *id;
    uint64_t user_data, deadline_ns;
};
RG_SUBMIT(abort_upload, rg_abort_upload)

/* A stream into one object. One thread at a time; close it before its client.
 *
 * open -> write ... write -> finish (-> completion) -> close
 *                         -> close: aborted, nothing is left on the server
 *
 * rg_writer_write copies and returns how many bytes it took, at least 1. -EAGAIN: no part is free,
 * see rg_writer_wait; -ENOMEM; -EIO: the upload has failed, finish tells why.
 *
 * A small object takes one request. Part size follows size_hint or grows with the stream; parts in
 * flight increase while that raises the throughput, and decrease after a 429 or 503; copied bytes
 * take 256 MiB at most. part_size and parts_inflight_max replace these rules, their product the
 * 256 MiB. MULTIPART has at most 10,000 parts: about 1 TiB without a size_hint. */
struct rg_writer;
struct rg_writer_options {
    const char *bucket, *object;
    enum rg_upload_method method; /* AUTO: as above, but COMPOSE for large size_hints */
    const char *content_type, *content_encoding, *cache_control, *storage_class;
    const struct rg_metadata *metadata;
    size_t metadata_count;
    struct rg_conditions conditions;
    uint64_t part_size;          /* bytes; 0: adapts, from 8 MiB on */
    uint32_t parts_inflight_max; /* the one being filled too; at most 128. 0: adapts, from 4 on */
    uint64_t size_hint;          /* bytes expected, 5 TiB at most; 0: not known. May be wrong */
    bool exclusive;              /* as in rg_upload */
};
RG_OPEN(rg_writer)
RG_API int64_t rg_writer_write(struct rg_writer *writer, const void *data, size_t size);
/* Like rg_writer_write, but sends the bytes from where they are, a few copied ones excepted. They
 * must not change until rg_writer_settled covers them, the completion comes, or close returns. */
RG_API int64_t rg_writer_lend(struct rg_writer *writer, const void *data, size_t size);
/* Like rg_writer_lend; also extends *crc32c (0 at first) by the bytes that were taken, which are
 * summed up only once, for the program and the upload. */
RG_API int64_t rg_writer_lend_sum(struct rg_writer *writer, const void *data, size_t size,
                                  uint32_t *crc32c);
/* Like rg_writer_lend, and tells when the memory is the caller's again: for each call that took
 * something one completion goes to `cq`, in the order of the stream, those of the last part after
 * rg_writer_finish and before its completion. OK: the bytes were sent; or copied, because a quarter
 * of `cq` or less was free (a queue with slots for the lends of all parts avoids that). Otherwise
 * the upload has failed or was closed. In any case: data, size and crc32c of what was taken.
 * -EAGAIN: no part is free, or `cq` is full. Wait for a completion while some are out, or else by
 * rg_writer_wait. */
RG_API int64_t rg_writer_lend_completed(struct rg_writer *writer, const void *data, size_t size,
                                        struct rg_cq *cq, uint64_t user_data);
/* Bytes from the start of the stream that the service has for good: memory lent for them is the
 * caller's again. Taken bytes beyond that are at most twice the memory bound of the parts. */
RG_API uint64_t rg_writer_settled(struct rg_writer *writer);
/* Waits until write or finish can go on, or deadline_ns (CLOCK_MONOTONIC). 0, -ETIME, or -EIO. */
RG_API int rg_writer_wait(struct rg_writer *writer, uint64_t deadline_ns);
/* From now on sends at most so many bytes in a second, in small pieces, so that other threads that
 * want the CPU lose a little at a time. 0, as at first: as fast as it goes. Any thread. */
RG_API void rg_writer_set_rate(struct rg_writer *writer, uint64_t bytes_per_s);
/* Sends the rest and publishes the object. One completion goes to `cq`. 0, -EAGAIN or -ENOMEM. */
RG_API int rg_writer_finish(struct rg_writer *writer, struct rg_cq *cq, uint64_t user_data);
/* Frees the writer, after its completion. Without rg_writer_finish, aborts the upload and waits. */
RG_API void rg_writer_close(struct rg_writer *writer);

RG_DECLS_END
#endif
