/* Listing of whole buckets: exact and parallel, and manifests of what was listed. */
#ifndef RINGEST_LISTING_H
#define RINGEST_LISTING_H

#include <ringest/objects.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A listing walks all names of a bucket that match, in parallel by splitting the space of names
 * where there turn out to be many. Each name comes exactly once. It begins with one plain page, so
 * that what fits a page costs one request.
 *
 * open -> next (-> completion) -> next ... -> a page without objects and prefixes: the end -> close
 *
 * Memory is bounded: requests_max pages are ahead of the caller at most. Pages may be short, but
 * are never empty before the end: the service's own, which may be, are passed over. */
struct rg_listing;
struct rg_listing_options {
    const char *bucket;
    const char *prefix;       /* NULL: all */
    const char *delimiter;    /* NULL: none */
    const char *glob;         /* match of whole names ("objects: list", matchGlob); NULL: all */
    const char *start_offset; /* names >= it; NULL: from the first */
    const char *end_offset;   /* names < it; NULL: to the last */
    bool versions;            /* all generations and not only the live ones */
    bool folders_as_prefixes; /* with delimiter "/": empty folders of hierarchical buckets too */
    bool ordered;             /* pages come in the order of names */
    uint32_t requests_max;    /* out at once; 0: 16. 1: one page after the other; at most 1024 */
    uint32_t results_max;     /* names in a page at most; 0: 1000, which is also the limit */
};
/* Opens one; no packet is sent before the first call of next. Everything is copied. Errors: -EINVAL
 * (a name, an offset or a number that the service would refuse, or text that is not UTF-8),
 * -ENOMEM, -EOWNERDEAD. */
RG_API int rg_listing_open_sized(struct rg_listing **out_listing, struct rg_client *client,
                                 const struct rg_listing_options *options, size_t struct_size);
static inline int rg_listing_open(struct rg_listing **out_listing, struct rg_client *client,
                                  const struct rg_listing_options *options)
{
    return rg_listing_open_sized(out_listing, client, options, sizeof(*options));
}
/* Asks for the next page; one at a time may be out. Completion when OK: data is a const struct
 * rg_list_page *, in the lease, with next_page_token NULL. A failure ends the listing, and every
 * later call has the same one; after a cancelled call the next one goes on. Returns 0, -EAGAIN (the
 * queue is full), -EBUSY (one is out), -EOWNERDEAD. */
RG_API int rg_listing_next(struct rg_listing *listing, struct rg_cq *cq, uint64_t user_data);
/* Ends it, at any time before its client is closed; a page that is out completes first, CANCELLED
 * or not. Waits for that. NULL is fine. */
RG_API void rg_listing_close(struct rg_listing *listing);

/* Whether an object only stands for a folder, as some tools make them: it is empty, and its name
 * ends in "/". */
RG_API bool rg_object_is_folder_marker(const struct rg_object *object);

/* A manifest: the names, sizes, generations and CRC32C of objects, in the order of names, that many
 * processes can share, in a file or in memory. The format is in docs/MANIFEST.md: compact,
 * checksummed, read by mmap. */
struct rg_manifest;
struct rg_manifest_writer;
/* The file is written beside `path` and appears there when it is closed; NULL: in memory, for
 * rg_manifest_writer_finish. Errors: -EINVAL (the bucket's name), -ENOMEM, and what making a file
 * gives. */
RG_API int rg_manifest_writer_open(struct rg_manifest_writer **out_writer, const char *path,
                                   const char *bucket);
/* Of a file, objects must come in the order of their names' bytes, generations of one name in
 * theirs; in memory they keep the order that they come in. Errors: -EINVAL (not so, or no valid
 * name: the object is left out); what writing gives, for good. */
RG_API int rg_manifest_writer_add(struct rg_manifest_writer *writer,
                                  const struct rg_object *object);
/* Makes the file appear under its name, complete; with `abandon`, or after an error of writing, it
 * never does. Frees the writer. NULL is fine. */
RG_API int rg_manifest_writer_close(struct rg_manifest_writer *writer, bool abandon);
/* Of one in memory, in place of close: *out_manifest is the caller's. Frees the writer in any case.
 * Errors: -EINVAL (it is of a file), -ENOMEM, -ENOSPC. */
RG_API int rg_manifest_writer_finish(struct rg_manifest_writer *writer,
                                     struct rg_manifest **out_manifest);

/* Opens and verifies a manifest. Errors: what opening the file gives, -EBADMSG (not a manifest, or
 * damaged; *error says where). */
RG_API int rg_manifest_open(struct rg_manifest **out_manifest, const char *path, char *error,
                            size_t error_size);
/* The same from a descriptor, which stays the caller's; and from bytes, which are copied. */
RG_API int rg_manifest_open_fd(struct rg_manifest **out_manifest, int fd, char *error,
                               size_t error_size);
RG_API int rg_manifest_open_memory(struct rg_manifest **out_manifest, const void *data, size_t size,
                                   char *error, size_t error_size);
/* The bytes of it as a file has them; they live as long as the manifest. Any thread. */
RG_API const void *rg_manifest_data(const struct rg_manifest *manifest, size_t *out_size);
/* What another process opens it from without a copy: the file's descriptor, or that of sealed
 * memory, which nobody can change. -1: it is memory of this process's own, because it is small or
 * memfd_create is forbidden. It belongs to the manifest. */
RG_API int rg_manifest_fd(const struct rg_manifest *manifest);
/* SHA-256 of these bytes: the same objects in the same order have the same one. Takes half a second
 * for each GB. */
#define RG_DIGEST_SIZE 32
RG_API void rg_manifest_digest(const struct rg_manifest *manifest, uint8_t digest[RG_DIGEST_SIZE]);
RG_API uint64_t rg_manifest_count(const struct rg_manifest *manifest);
RG_API const char *rg_manifest_bucket(const struct rg_manifest *manifest);
/* Fills *out_object; its name is copied to `name`, of RG_OBJECT_NAME_SIZE_MAX + 1 bytes. 0,
 * -ERANGE, or -EBADMSG. Any thread. */
RG_API int rg_manifest_get(const struct rg_manifest *manifest, uint64_t index,
                           struct rg_object *out_object, char *name);
RG_API void rg_manifest_close(struct rg_manifest *manifest);

/* Finds objects one after the other at less cost: what follows the last one is decoded from there.
 * A cursor belongs to one thread at a time, and borrows the manifest. 0 or -ENOMEM. */
struct rg_manifest_cursor;
RG_API int rg_manifest_cursor_open(struct rg_manifest_cursor **out_cursor,
                                   const struct rg_manifest *manifest);
/* As rg_manifest_get; the name is the cursor's, and valid until the next call. */
RG_API int rg_manifest_cursor_get(struct rg_manifest_cursor *cursor, uint64_t index,
                                  struct rg_object *out_object);
/* NULL is fine. */
RG_API void rg_manifest_cursor_close(struct rg_manifest_cursor *cursor);

#ifdef __cplusplus
}
#endif

#endif
