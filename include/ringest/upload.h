/* Uploads of any size: in one request, resumable, in parallel parts, or as parts that are composed.
 *
 * Nobody sees anything of an object before all of it is there: what readers get is the old object
 * or the complete new one. */
#ifndef RINGEST_UPLOAD_H
#define RINGEST_UPLOAD_H

#include <ringest/objects.h>

#ifdef __cplusplus
extern "C" {
#endif

enum rg_upload_method {
    RG_UPLOAD_AUTO = 0,      /* by size and conditions, see below */
    RG_UPLOAD_SINGLE = 1,    /* one request (multipart/related, with the CRC32C to be checked) */
    RG_UPLOAD_RESUMABLE = 2, /* one session; goes on where the server got to */
    RG_UPLOAD_MULTIPART = 3, /* XML API multipart upload: parts in parallel, no conditions */
    RG_UPLOAD_COMPOSE = 4    /* temporary objects in parallel, then composed and removed */
};

/* Uploads an object whose bytes are in memory or in a file. AUTO takes SINGLE up to 8 MiB; above it
 * MULTIPART, or COMPOSE where there are conditions, which MULTIPART cannot have. SINGLE of a file
 * is for those of at most part_size * parts_inflight_max bytes, which it has in memory at once.
 * Where the server is found to know no XML API, AUTO takes RESUMABLE in place of MULTIPART.
 *
 * An upload that fails or is cancelled removes what it left on the server before it completes:
 * parts, its session, temporary objects (under ".ringest-parts/" in the bucket). Where the answer
 * to the request that begins a multipart upload is lost, nobody can tell which one it was: it
 * stays, without parts, until rg_submit_abort_upload or a lifecycle rule of the bucket
 * (AbortIncompleteMultipartUpload) removes it. A session whose first answer is lost is forgotten by
 * the service after a week; it holds nothing.
 *
 * An upload that is cancelled when the server may have all of it is asked for, which can take 11
 * seconds: it completes with OK where it is stored, and otherwise with RG_STATUS_CANCELLED. One
 * that runs into its deadline, or whose client is closed, may be stored all the same.
 *
 * The CRC32C of what was sent is compared with what is stored. When the answer that tells of
 * success is lost, what is there is looked at: size and CRC32C of what was sent count as success
 * with found_done, or, with `exclusive`, the nonce of this upload alone; see rg_put.
 *
 * Completion when OK: generation, crc32c, object_size, found_done. */
struct rg_upload {
    const char *bucket, *object;
    enum rg_upload_method method;
    const void *data; /* borrowed until the completion; NULL: the file */
    int fd; /* of a regular file, read at file_offset and on; borrowed. A file that shrinks
             * meanwhile gives RG_STATUS_SOURCE */
    uint64_t file_offset;
    uint64_t size;            /* bytes */
    const char *content_type; /* NULL: application/octet-stream */
    const char *content_encoding, *cache_control, *storage_class; /* NULL: the service's default */
    const struct rg_metadata *metadata;
    size_t metadata_count;
    struct rg_conditions conditions;
    uint64_t part_size; /* bytes; 0: 16 MiB. More for objects above 10,000 parts; at least 5 MiB
                         * with MULTIPART, a multiple of 256 KiB with RESUMABLE */
    uint32_t parts_inflight_max; /* 0: 8; at most 128. Memory is at most part_size times this, for
                                  * files; all uploads of a loop have 256 MiB together */
    uint64_t user_data, deadline_ns;
    bool exclusive; /* success means that this upload wrote it, and nobody else */
};
RG_API int rg_submit_upload_sized(struct rg_client *client, struct rg_cq *cq,
                                  const struct rg_upload *upload, size_t struct_size);
RG_SUBMIT_INLINE(upload, rg_upload)

/* Multipart uploads that were begun, and neither completed nor aborted: what killed programs leave.
 * Their parts are stored and paid for, and no object shows them. Those that a program is still at
 * look the same.
 *
 * One page of them, in the order of the objects' names, and of one name in that of the ids. The
 * next page begins behind its markers; a page may be empty and still have a next one. Completion
 * when OK: data is a const struct rg_uploads_page
 * *, in the lease. RG_STATUS_BAD_RESPONSE, or a refusal, where the server knows no such uploads. */
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
    const char *prefix;                 /* of the objects' names; NULL: all */
    const char *key_marker, *id_marker; /* of the page before; NULL: the first page */
    uint32_t results_max;               /* 0: 1000, which is also the limit */
    uint64_t user_data, deadline_ns;
};
RG_API int rg_submit_list_uploads_sized(struct rg_client *client, struct rg_cq *cq,
                                        const struct rg_list_uploads *list, size_t struct_size);
RG_SUBMIT_INLINE(list_uploads, rg_list_uploads)

/* Ends one of them and removes its parts; the object, if there is one, stays as it is. A part that
 * is on its way at the same moment may stay: ask again whether it is gone. Completion: OK, or
 * RG_STATUS_NOT_FOUND where there is no such upload any more. */
struct rg_abort_upload {
    const char *bucket, *object, *id;
    uint64_t user_data, deadline_ns;
};
RG_API int rg_submit_abort_upload_sized(struct rg_client *client, struct rg_cq *cq,
                                        const struct rg_abort_upload *abort, size_t struct_size);
RG_SUBMIT_INLINE(abort_upload, rg_abort_upload)

/* A stream into one object.
 *
 * open -> write ... write -> finish (-> completion) -> close
 *                         -> close: aborted, nothing is left on the server
 *
 * rg_writer_write copies into parts and returns how many bytes it took, at least 1, or -EAGAIN when
 * no more parts may be there at once (see rg_writer_wait), -ENOMEM, or -EIO when the upload has
 * failed: finish tells why. One thread at a time. Closed before its client.
 *
 * A small object takes one request. Beyond that, parts are sized by size_hint, and grow where there
 * is none; there are more of them at once as long as that raises the throughput, and fewer after a
 * 429 or 503. All that are there have 256 MiB at most, as far as bytes are copied. part_size and
 * parts_inflight_max take the place of these rules, and their product that of the bound. MULTIPART
 * can have 10,000 parts: without a size_hint, a stream ends at about 1 TiB. */
struct rg_writer;
struct rg_writer_options {
    const char *bucket, *object;
    /* AUTO: COMPOSE with conditions, or where size_hint is more than MULTIPART can have; else
     * MULTIPART, or RESUMABLE where the server is found to know no XML API */
    enum rg_upload_method method;
    const char *content_type, *content_encoding, *cache_control, *storage_class;
    const struct rg_metadata *metadata;
    size_t metadata_count;
    struct rg_conditions conditions;
    uint64_t part_size; /* bytes; 0: adapts, from 8 MiB on */
    uint32_t
        parts_inflight_max; /* with the one that is filled; at most 128. 0: adapts, from 4 on */
    uint64_t size_hint;     /* bytes that are to be expected, 5 TiB at most; 0: not known. It may be
                             * wrong */
    bool exclusive;         /* as of rg_upload */
};
RG_API int rg_writer_open_sized(struct rg_writer **out_writer, struct rg_client *client,
                                const struct rg_writer_options *options, size_t struct_size);
static inline int rg_writer_open(struct rg_writer **out_writer, struct rg_client *client,
                                 const struct rg_writer_options *options)
{
    return rg_writer_open_sized(out_writer, client, options, sizeof(*options));
}
RG_API int64_t rg_writer_write(struct rg_writer *writer, const void *data, size_t size);
/* Like rg_writer_write, but the bytes are sent from where they are: they must be there, unchanged,
 * until rg_writer_settled says that their part of the stream is, or the completion is there, or the
 * writer is closed. A few bytes at a time are copied all the same. */
RG_API int64_t rg_writer_lend(struct rg_writer *writer, const void *data, size_t size);
/* Like rg_writer_lend, for a program that wants a CRC32C of part of the stream: *crc32c, that of
 * what comes before or 0, becomes that of it followed by the bytes that were taken. They are summed
 * up once, for the program and the upload. */
RG_API int64_t rg_writer_lend_sum(struct rg_writer *writer, const void *data, size_t size,
                                  uint32_t *crc32c);
/* How many bytes, from the first one of the stream on, are with the service for good: memory that
 * was lent for them is the caller's again. What was taken is at most twice the bound of the parts
 * ahead of it. */
RG_API uint64_t rg_writer_settled(struct rg_writer *writer);
/* Waits until write or finish takes something, or deadline_ns (CLOCK_MONOTONIC; UINT64_MAX: none):
 * 0, -ETIME, or -EIO. */
RG_API int rg_writer_wait(struct rg_writer *writer, uint64_t deadline_ns);
/* Sends what is left and publishes the object; its one completion goes to `cq`. 0, -EAGAIN or
 * -ENOMEM. */
RG_API int rg_writer_finish(struct rg_writer *writer, struct rg_cq *cq, uint64_t user_data);
/* Frees the writer, after its completion; without rg_writer_finish the upload is aborted and waited
 * for. NULL is fine. */
RG_API void rg_writer_close(struct rg_writer *writer);

#ifdef __cplusplus
}
#endif

#endif
