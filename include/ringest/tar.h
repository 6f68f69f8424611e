/* Tar archives as datasets: each is an object (a *shard*) that holds many samples, as WebDataset
 * has it, and samples are read by themselves, in any order.
 *
 * Members of a shard that follow each other and have the same key make a sample. The key is the
 * name up to the first dot of its last part, what follows the dot is the extension, in which ASCII
 * letters are made small: "a/0001.seg.PNG" is "seg.png" of "a/0001". Passed over are members that
 * are no regular files, that have no dot or none behind a key, and whose name's first part has the
 * form "__x__".
 *
 * An *index* says where the samples of a list of shards lie. It is made by a *scan*, which reads
 * headers only where members are large, and can be kept in a file (docs/TAR_INDEX.md). A reader
 * (<ringest/dataset.h>) takes one in place of objects. */
#ifndef RINGEST_TAR_H
#define RINGEST_TAR_H

#include <ringest/listing.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of a key in bytes, of an extension in bytes, and of the members of one sample. */
#define RG_TAR_KEY_SIZE_MAX 4096
#define RG_TAR_EXTENSION_SIZE_MAX 255
#define RG_TAR_MEMBERS_MAX 64

struct rg_tar_index;

/* Opens an index that was saved, and verifies every byte of it. Processes that open the same file
 * share its memory. Errors: what opening the file gives; -EBADMSG (no index, or damaged); `error`
 * (may be NULL) gets a line that names the file and says where. */
RG_API int rg_tar_index_open(struct rg_tar_index **out_index, const char *path, char *error,
                             size_t error_size);
/* The same from a descriptor, which stays the caller's; and from bytes, which are copied. */
RG_API int rg_tar_index_open_fd(struct rg_tar_index **out_index, int fd, char *error,
                                size_t error_size);
RG_API int rg_tar_index_open_memory(struct rg_tar_index **out_index, const void *data, size_t size,
                                    char *error, size_t error_size);
/* The bytes of it as a file has them; they live as long as the index. Any thread. */
RG_API const void *rg_tar_index_data(const struct rg_tar_index *index, size_t *out_size);
/* As rg_manifest_fd and rg_manifest_digest. */
RG_API int rg_tar_index_fd(const struct rg_tar_index *index);
RG_API void rg_tar_index_digest(const struct rg_tar_index *index, uint8_t digest[RG_DIGEST_SIZE]);
/* Writes it to a file, which appears under its name when it is complete and replaces what was
 * there. Errors: what writing a file gives. */
RG_API int rg_tar_index_save(const struct rg_tar_index *index, const char *path);
/* NULL is fine. */
RG_API void rg_tar_index_close(struct rg_tar_index *index);

/* Samples of all shards together; and shards. Any thread. */
RG_API uint64_t rg_tar_index_count(const struct rg_tar_index *index);
RG_API uint64_t rg_tar_index_shard_count(const struct rg_tar_index *index);
RG_API const char *rg_tar_index_bucket(const struct rg_tar_index *index);

/* A shard, in the order they were given in. Strings live as long as the index. */
struct rg_tar_shard {
    const char *name;
    uint64_t size;      /* bytes */
    int64_t generation; /* that was scanned */
    uint64_t first;     /* its first sample */
    uint64_t count;     /* its samples */
};
/* 0 or -ERANGE. Any thread. */
RG_API int rg_tar_index_shard_sized(const struct rg_tar_index *index, uint64_t number,
                                    struct rg_tar_shard *out_shard, size_t struct_size);
static inline int rg_tar_index_shard(const struct rg_tar_index *index, uint64_t number,
                                     struct rg_tar_shard *out_shard)
{
    return rg_tar_index_shard_sized(index, number, out_shard, sizeof(*out_shard));
}

/* One member of a sample. */
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
/* 0, -ERANGE, or -EBADMSG where the file was damaged meanwhile. Any thread. */
RG_API int rg_tar_index_get(const struct rg_tar_index *index, uint64_t number,
                            struct rg_tar_sample *out_sample);

/* What lies between two members of a sample, or between neighbouring samples, and is not wanted, is
 * read along up to this many bytes; beyond, it takes another request. */
#define RG_TAR_GAP_MAX (16 * 1024)

/* Finds samples one after the other at little cost: one that follows the last is decoded alone. It
 * also leaves out members that are not wanted. A cursor belongs to one thread at a time. */
struct rg_tar_cursor;
/* `members`: the extensions that are wanted; none: all. Copied. The index is borrowed until the
 * cursor is closed. Errors: -EINVAL (more than RG_TAR_MEMBERS_MAX, or one that is longer than an
 * extension can be), -ENOMEM. */
RG_API int rg_tar_cursor_open(struct rg_tar_cursor **out_cursor, const struct rg_tar_index *index,
                              const char *const *members, size_t member_count);
/* The sample with a number, valid until the next call. Where members are left out, `parts` are the
 * others, perhaps none; their offsets are those in what a reader with the same members gives,
 * `offset` is where the first one lies in the shard, and `size` how much the reader gives. Errors:
 * those of rg_tar_index_get. */
RG_API int rg_tar_cursor_get(struct rg_tar_cursor *cursor, uint64_t number,
                             const struct rg_tar_sample **out_sample);
/* NULL is fine. */
RG_API void rg_tar_cursor_close(struct rg_tar_cursor *cursor);

#define RG_TAR_SCAN_SHARDS_DEFAULT 64
#define RG_TAR_SCAN_SHARDS_MAX 4096

/* See rg_runtime_options about growing. */
struct rg_tar_scan_options {
    size_t struct_size;
    const char *bucket;
    /* The shards: of each, name and generation (0: the newest) are used. Copied. */
    const struct rg_object *shards;
    uint64_t shard_count;
    /* An older index, borrowed until the scan is closed: its shards are taken over if they still
     * have the generation that they had. NULL: none. */
    const struct rg_tar_index *known;
    uint32_t shards_at_once; /* one request is out for each; 0: RG_TAR_SCAN_SHARDS_DEFAULT */
};
RG_API void rg_tar_scan_options_init_sized(struct rg_tar_scan_options *options, size_t struct_size);
static inline void rg_tar_scan_options_init(struct rg_tar_scan_options *options)
{
    rg_tar_scan_options_init_sized(options, sizeof(*options));
}

/* open -> run, until it says something else than that time is over -> finish -> close. A scan
 * belongs to one thread at a time. */
struct rg_tar_scan;
/* Sends nothing before the first run. Errors: -EINVAL with a line in `error` (may be NULL),
 * -ENOMEM, -EOWNERDEAD. */
RG_API int rg_tar_scan_open(struct rg_tar_scan **out_scan, struct rg_client *client,
                            const struct rg_tar_scan_options *options, char *error,
                            size_t error_size);
/* Goes on until deadline_ns. Returns 0: all is read; -ETIME or -EINTR: call again; or why it
 * failed, for good: -EREMOTEIO (a request), -EBADMSG (a shard is damaged), -ENOMEM, -EFBIG. */
RG_API int rg_tar_scan_run(struct rg_tar_scan *scan, uint64_t deadline_ns);
/* After a failure: one line for people, the name of the shard (both live as long as the scan) and,
 * with -EREMOTEIO, the completion of the request, whose lease remains the scan's. */
RG_API const char *rg_tar_scan_failure(const struct rg_tar_scan *scan, const char **out_shard,
                                       struct rg_completion *out_completion);
/* Shards that are done, and those of them that were read and not taken over. */
RG_API uint64_t rg_tar_scan_done(const struct rg_tar_scan *scan, uint64_t *out_read);
/* After run returned 0, once: *out_index is the caller's. Errors: -ENOMEM. */
RG_API int rg_tar_scan_finish(struct rg_tar_scan *scan, struct rg_tar_index **out_index);
/* Ends it: what is out is cancelled and waited for. NULL is fine. */
RG_API void rg_tar_scan_close(struct rg_tar_scan *scan);

#ifdef __cplusplus
}
#endif

#endif
