/* Tar archives as datasets: each is an object, a *shard*, with many samples laid out as WebDataset
 * does. Neighbouring members with the same key are a sample. The key is the name up to the first
 * dot of its last part, the rest in lower case the extension: "a/0001.seg.PNG" is "seg.png" of
 * "a/0001". Skipped: members that are not regular files, have no dot or nothing behind it, or whose
 * name's first part has the form "__x__".
 *
 * A *scan* of shards makes an *index* of where samples lie, by which <ringest/dataset.h> reads
 * them. It reads little but headers where members are large. docs/TAR_INDEX.md has the format. */
#ifndef RINGEST_TAR_H
#define RINGEST_TAR_H

#include <ringest/listing.h>

RG_DECLS_BEGIN
#define RG_TAR_KEY_SIZE_MAX 4096      /* bytes */
#define RG_TAR_EXTENSION_SIZE_MAX 255 /* bytes */
#define RG_TAR_MEMBERS_MAX 64         /* of one sample */

struct rg_tar_index;
/* Opens an index and verifies every byte: a file, whose memory processes share; a descriptor, which
 * stays the caller's; or bytes, which are copied. Errors: those of opening a file; -EBADMSG (not an
 * index, or damaged); `error` (may be NULL) gets a line that names the file and the place. */
RG_API int rg_tar_index_open(struct rg_tar_index **out_index, const char *path, char *error,
                             size_t error_size);
RG_API int rg_tar_index_open_fd(struct rg_tar_index **out_index, int fd, char *error,
                                size_t error_size);
RG_API int rg_tar_index_open_memory(struct rg_tar_index **out_index, const void *data, size_t size,
                                    char *error, size_t error_size);
/* As rg_manifest_data, rg_manifest_fd and rg_manifest_digest. */
RG_API const void *rg_tar_index_data(const struct rg_tar_index *index, size_t *out_size);
RG_API int rg_tar_index_fd(const struct rg_tar_index *index);
RG_API void rg_tar_index_digest(const struct rg_tar_index *index, uint8_t digest[RG_DIGEST_SIZE]);
/* Writes a temporary file, which gets its name when it is complete. Errors: those of writing. */
RG_API int rg_tar_index_save(const struct rg_tar_index *index, const char *path);
RG_API void rg_tar_index_close(struct rg_tar_index *index);

RG_API uint64_t rg_tar_index_count(const struct rg_tar_index *index);
RG_API uint64_t rg_tar_index_shard_count(const struct rg_tar_index *index);
RG_API const char *rg_tar_index_bucket(const struct rg_tar_index *index);

/* Shards keep the order they were given in; names last as long as the index. 0 or -ERANGE. */
struct rg_tar_shard {
    const char *name;
    uint64_t size;         /* bytes */
    int64_t generation;    /* that was scanned */
    uint64_t first, count; /* its first sample, and how many it has */
};
RG_API int rg_tar_index_shard_sized(const struct rg_tar_index *index, uint64_t number,
                                    struct rg_tar_shard *out_shard, size_t struct_size);
static inline int rg_tar_index_shard(const struct rg_tar_index *index, uint64_t number,
                                     struct rg_tar_shard *out_shard)
{
    return rg_tar_index_shard_sized(index, number, out_shard, sizeof(*out_shard));
}
struct rg_tar_part {
    const char *extension; /* without a NUL; lives as long as the index */
    uint32_t extension_size;
    uint64_t offset; /* from the beginning of the sample, in bytes */
    uint64_t size;
};

/* A sample: its members, in the order of the shard, lie in one range of it. */
struct rg_tar_sample {
    uint64_t shard;
    uint64_t offset, size; /* of that range, in bytes; it includes the headers between members */
    uint32_t key_size, part_count;
    struct rg_tar_part parts[RG_TAR_MEMBERS_MAX];
    char key[RG_TAR_KEY_SIZE_MAX + 1]; /* NUL-terminated */
};
/* 0, -ERANGE, or -EBADMSG (the file was damaged meanwhile). */
RG_API int rg_tar_index_get(const struct rg_tar_index *index, uint64_t number,
                            struct rg_tar_sample *out_sample);
/* Unwanted bytes between members or neighbouring samples are read along if they are at most so
 * many; otherwise another request is made. */
#define RG_TAR_GAP_MAX (16 * 1024)

/* Reads samples in order at little cost, with all or some members. One thread at a time. */
struct rg_tar_cursor;
/* `members`: the extensions that are wanted, copied; none: all. Borrows the index. Errors: -EINVAL
 * (more than RG_TAR_MEMBERS_MAX, or an extension that is too long), -ENOMEM. */
RG_API int rg_tar_cursor_open(struct rg_tar_cursor **out_cursor, const struct rg_tar_index *index,
                              const char *const *members, size_t member_count);
/* A sample, valid until the next call. With `members`, `parts` are only those, perhaps none.
 * `offset` is then where the first one begins in the shard, `size` how many bytes a reader with the
 * same members gives, and the parts' offsets count within these. Errors: as rg_tar_index_get. */
RG_API int rg_tar_cursor_get(struct rg_tar_cursor *cursor, uint64_t number,
                             const struct rg_tar_sample **out_sample);
RG_API void rg_tar_cursor_close(struct rg_tar_cursor *cursor);

#define RG_TAR_SCAN_SHARDS_DEFAULT 64
#define RG_TAR_SCAN_SHARDS_MAX 4096

struct rg_tar_scan_options {
    size_t struct_size;
    const char *bucket;
    const struct rg_object *shards; /* name and generation (0: the newest) are used; copied */
    uint64_t shard_count;
    const struct rg_tar_index *known; /* older index or NULL, kept: unchanged shards are copied */
    uint32_t shards_at_once; /* one request is out for each; 0: RG_TAR_SCAN_SHARDS_DEFAULT */
};
RG_INIT(rg_tar_scan_options)

/* open -> run, again while it returns -ETIME or -EINTR -> finish -> close. One thread at a time. */
struct rg_tar_scan;
/* Sends nothing yet. -EINVAL (`error`, which may be NULL, gets a line), -ENOMEM, -EOWNERDEAD. */
RG_API int rg_tar_scan_open(struct rg_tar_scan **out_scan, struct rg_client *client,
                            const struct rg_tar_scan_options *options, char *error,
                            size_t error_size);
/* Scans until deadline_ns. 0: done; -ETIME or -EINTR: call again. Final errors: -EREMOTEIO (a
 * request), -EBADMSG (a shard is damaged), -ENOMEM, -EFBIG. */
RG_API int rg_tar_scan_run(struct rg_tar_scan *scan, uint64_t deadline_ns);
/* After a final error: one line for people, and the shard's name, both valid until close. With
 * -EREMOTEIO also the completion of the request; its lease stays the scan's. */
RG_API const char *rg_tar_scan_failure(const struct rg_tar_scan *scan, const char **out_shard,
                                       struct rg_completion *out_completion);
/* Shards that are done, and how many of them were read and not copied from the older index. */
RG_API uint64_t rg_tar_scan_done(const struct rg_tar_scan *scan, uint64_t *out_read);
/* After run returned 0, once: *out_index is the caller's. Errors: -ENOMEM. */
RG_API int rg_tar_scan_finish(struct rg_tar_scan *scan, struct rg_tar_index **out_index);
/* Cancels the requests in flight and waits for them. */
RG_API void rg_tar_scan_close(struct rg_tar_scan *scan);

RG_DECLS_END
#endif
