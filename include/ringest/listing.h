/* Listing of whole buckets: exact and parallel, and manifests of what was listed. */
#ifndef RINGEST_LISTING_H
#define RINGEST_LISTING_H

#include <ringest/objects.h>

RG_DECLS_BEGIN
/* A listing gives every matching name of a bucket exactly once. It begins with one plain page, and
 * where there are many names it divides them into ranges that it lists in parallel. At most
 * requests_max pages are ahead of the caller. Pages may be short, but only the last one is empty:
 * open -> next (-> completion) -> next ... -> a page without objects and prefixes -> close. */
struct rg_listing;
struct rg_listing_options {
    const char *bucket;
    const char *prefix, *delimiter; /* NULL: all names; none */
    const char *glob; /* match of whole names ("objects: list", matchGlob); NULL: all */
    const char *start_offset, *end_offset; /* start <= names < end; NULL: unbounded */
    bool versions;                         /* all generations and not only the live ones */
    bool folders_as_prefixes; /* with delimiter "/": empty folders of hierarchical buckets too */
    bool ordered;             /* pages come in the order of names */
    uint32_t requests_max;    /* out at once; 0: 16. 1: one page after the other; at most 1024 */
    uint32_t results_max;     /* names in a page at most; 0: 1000, which is also the limit */
};
/* Copies everything, and sends nothing before the first rg_listing_next. Errors: -EINVAL (text that
 * is not UTF-8, or a value that the service would refuse), -ENOMEM, -EOWNERDEAD. */
RG_OPEN(rg_listing)
/* Asks for the next page, one at a time. Completion when OK: data is a const struct rg_list_page *,
 * in the lease, with next_page_token NULL. After a failure every later call fails the same way;
 * after a cancellation the next call goes on. 0, -EAGAIN (the queue is full), -EBUSY (the last page
 * has not come yet), -EOWNERDEAD. */
RG_API int rg_listing_next(struct rg_listing *listing, struct rg_cq *cq, uint64_t user_data);
/* At any time before its client is closed. Waits until a page that was asked for has completed. */
RG_API void rg_listing_close(struct rg_listing *listing);
/* Whether an object only stands for a folder: it is empty, and its name ends in "/". */
RG_API bool rg_object_is_folder_marker(const struct rg_object *object);

/* A manifest: names, sizes, generations and CRC32C of objects, in the order of names, in a file or
 * in memory, that processes can share by mmap. docs/MANIFEST.md has the format. */
struct rg_manifest;
struct rg_manifest_writer;
/* Writes a temporary file beside `path`; NULL: memory, for rg_manifest_writer_finish. Errors:
 * -EINVAL (the bucket's name), -ENOMEM, and those of making a file. */
RG_API int rg_manifest_writer_open(struct rg_manifest_writer **out_writer, const char *path,
                                   const char *bucket);
/* In a file, objects must come in the order of their names' bytes, generations of one name too; in
 * memory they keep the order they are added in. Errors: -EINVAL (wrong order or name; the object is
 * left out); those of writing, which are final. */
RG_API int rg_manifest_writer_add(struct rg_manifest_writer *writer,
                                  const struct rg_object *object);
/* Frees the writer. The file gets its name; with `abandon` or after an error it is removed. */
RG_API int rg_manifest_writer_close(struct rg_manifest_writer *writer, bool abandon);
/* Instead of close, in memory: *out_manifest is the caller's. Frees the writer in any case. Errors:
 * -EINVAL (it writes a file), -ENOMEM, -ENOSPC. */
RG_API int rg_manifest_writer_finish(struct rg_manifest_writer *writer,
                                     struct rg_manifest **out_manifest);

/* Opens and verifies a file, a descriptor (it stays the caller's), or bytes (copied). Errors: those
 * of opening, -EBADMSG (not a manifest, or damaged: `error`, which may be NULL, says where). */
RG_API int rg_manifest_open(struct rg_manifest **out_manifest, const char *path, char *error,
                            size_t error_size);
RG_API int rg_manifest_open_fd(struct rg_manifest **out_manifest, int fd, char *error,
                               size_t error_size);
RG_API int rg_manifest_open_memory(struct rg_manifest **out_manifest, const void *data, size_t size,
                                   char *error, size_t error_size);
/* Its bytes, as a file has them, valid until it is closed. */
RG_API const void *rg_manifest_data(const struct rg_manifest *manifest, size_t *out_size);
/* The manifest's own descriptor of its file or sealed memory, from which another process can open
 * it without a copy. -1: private memory, because it is small or memfd_create is forbidden. */
RG_API int rg_manifest_fd(const struct rg_manifest *manifest);
/* SHA-256 of its bytes: equal for the same objects in the same order. Half a second for each GB. */
#define RG_DIGEST_SIZE 32
RG_API void rg_manifest_digest(const struct rg_manifest *manifest, uint8_t digest[RG_DIGEST_SIZE]);
RG_API uint64_t rg_manifest_count(const struct rg_manifest *manifest);
RG_API const char *rg_manifest_bucket(const struct rg_manifest *manifest);
/* Fills *out_object; copies the name to `name`, of RG_OBJECT_NAME_SIZE_MAX + 1 bytes. 0, -ERANGE,
 * or -EBADMSG. */
RG_API int rg_manifest_get(const struct rg_manifest *manifest, uint64_t index,
                           struct rg_object *out_object, char *name);
RG_API void rg_manifest_close(struct rg_manifest *manifest);

/* Reads objects one after the other at less cost. Borrows the manifest. One thread at a time. */
struct rg_manifest_cursor;
RG_API int rg_manifest_cursor_open(struct rg_manifest_cursor **out_cursor,
                                   const struct rg_manifest *manifest);
/* As rg_manifest_get; the name is valid until the next call. */
RG_API int rg_manifest_cursor_get(struct rg_manifest_cursor *cursor, uint64_t index,
                                  struct rg_object *out_object);
RG_API void rg_manifest_cursor_close(struct rg_manifest_cursor *cursor);

RG_DECLS_END
#endif
