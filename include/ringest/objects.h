/* Objects: what is stored about them, removing, copying, joining and changing them, and reading
 * many ranges of one.
 *
 * The rules of <ringest/gcs.h> hold: strings are copied, submit functions may be called from any
 * thread, never block, and return 0, -EAGAIN, -EINVAL or -EOWNERDEAD. */
#ifndef RINGEST_OBJECTS_H
#define RINGEST_OBJECTS_H

#include <ringest/gcs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One pair of an object's custom metadata. */
struct rg_metadata {
    const char *key, *value;
};

/* Everything the service tells about an object. Strings live in the lease of the completion; NULL
 * where the service did not tell. */
struct rg_object_info {
    const char *bucket;
    struct rg_object object; /* name, size, generation, crc32c, updated */
    int64_t metageneration;
    const char *content_type, *content_encoding, *cache_control, *storage_class, *etag;
    const char *time_created; /* RFC 3339 */
    const char *md5;          /* base64; composite objects have none */
    uint32_t component_count; /* 0: not a composite object */
    const struct rg_metadata *metadata;
    size_t metadata_count;
};

/* Asks what is stored about an object. Completion when OK: data is a const struct rg_object_info *,
 * in the lease; generation, object_size and object_crc32c too. */
struct rg_stat {
    const char *bucket, *object;
    int64_t generation; /* 0: the newest */
    struct rg_conditions conditions;
    uint64_t user_data, deadline_ns;
};
RG_API int rg_submit_stat_sized(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_stat *stat, size_t struct_size);

/* Removes an object. Retried when it names a generation or demands one. One that a retry finds gone
 * counts as removed, with found_done: by the try before, or by somebody else. With `exclusive` that
 * is RG_STATUS_NOT_FOUND: success means that this request removed it, but not the other way round,
 * because nothing is left that could tell. Completion when OK: found_done. */
struct rg_delete {
    const char *bucket, *object;
    int64_t generation; /* 0: the newest */
    struct rg_conditions conditions;
    uint64_t user_data, deadline_ns;
    bool exclusive;
};
RG_API int rg_submit_delete_sized(struct rg_client *client, struct rg_cq *cq,
                                  const struct rg_delete *del, size_t struct_size);

#define RG_DELETES_MAX 100 /* in one request: Cloud Storage, "Batch requests" */
/* Removes up to RG_DELETES_MAX objects by one request. Those that the service wants tried again
 * are, one by one, and so are all where the server knows no batches. Completion when OK: data is a
 * const struct rg_delete_result *, `size / sizeof` of them in the order of `deletes`; each has a
 * status of its own. user_data and deadline_ns of the items are not used. `item_size` is that of an
 * item as the program was compiled; later versions may have larger ones. Results stay as they are.
 */
struct rg_delete_many {
    const struct rg_delete *deletes;
    size_t count;
    uint64_t user_data, deadline_ns;
};
struct rg_delete_result {
    enum rg_status status;
    uint16_t http_status;
    bool found_done; /* as of a completion */
};
RG_API int rg_submit_delete_many_sized(struct rg_client *client, struct rg_cq *cq,
                                       const struct rg_delete_many *many, size_t struct_size,
                                       size_t item_size);
static inline int rg_submit_delete_many(struct rg_client *client, struct rg_cq *cq,
                                        const struct rg_delete_many *many)
{
    return rg_submit_delete_many_sized(client, cq, many, sizeof(*many), sizeof(*many->deletes));
}

/* Copies an object on the server, in as many steps as that takes ("objects: rewrite"), all of the
 * same generation. The copy's CRC32C is compared with the source's. Retried when it demands a
 * generation of the destination; where a retry finds that demand broken and what is there has size
 * and CRC32C of the source, that counts as success with found_done: it was copied by the try
 * before, or by somebody else. There is no exclusive copy, because its metadata is the source's.
 * Completion when OK: data is a const struct rg_object_info * of the copy; found_done. */
struct rg_copy {
    const char *source_bucket, *source_object;
    int64_t source_generation; /* 0: the newest */
    const char *bucket, *object;
    struct rg_conditions conditions;        /* of what is at the destination */
    struct rg_conditions source_conditions; /* of the source */
    uint64_t step_max; /* bytes of a step, a multiple of 1 MiB; 0: the service chooses */
    uint64_t user_data, deadline_ns;
};
RG_API int rg_submit_copy_sized(struct rg_client *client, struct rg_cq *cq,
                                const struct rg_copy *copy, size_t struct_size);

#define RG_COMPOSE_SOURCES_MAX 32 /* Cloud Storage, "Composite objects" */
/* Joins objects of one bucket into one. Retried like a copy; where a retry finds the demand broken,
 * what is there counts as success with found_done if it has the CRC32C (has_crc32c), or with
 * `exclusive` if it carries the nonce of this request; see rg_put. Conditions of the kind "not
 * match" are not known here and give -EINVAL. Completion when OK: data is a const struct
 * rg_object_info *; found_done. */
struct rg_compose_source {
    const char *object;
    int64_t generation; /* 0: the newest */
};
struct rg_compose {
    const char *bucket, *object;
    const struct rg_compose_source *sources;
    size_t source_count;
    const char *content_type; /* NULL: application/octet-stream */
    const struct rg_metadata *metadata;
    size_t metadata_count;
    struct rg_conditions conditions;
    uint32_t crc32c; /* the result is to have, if has_crc32c; compared with what is stored */
    bool has_crc32c;
    uint64_t user_data, deadline_ns;
    bool exclusive; /* success means that this request made it, and nobody else */
};
RG_API int rg_submit_compose_sized(struct rg_client *client, struct rg_cq *cq,
                                   const struct rg_compose *compose, size_t struct_size);

/* Changes what is stored about an object, not its bytes. NULL leaves a field alone, "" removes it.
 * Retried when it demands a metageneration; where a retry finds that one higher, and what is there
 * is what was sent, that counts as success with found_done: the try before has changed it, or
 * somebody else in the same way. With `exclusive` a nonce is among what is sent, so that it was
 * this request. Completion when OK: data is a const struct rg_object_info *; found_done. */
struct rg_update {
    const char *bucket, *object;
    int64_t generation;
    const char *content_type, *content_encoding, *cache_control;
    const struct rg_metadata *metadata; /* pairs to set; value NULL: to remove */
    size_t metadata_count;
    struct rg_conditions conditions;
    uint64_t user_data, deadline_ns;
    bool exclusive; /* success means that this request changed it, and nobody else */
};
RG_API int rg_submit_update_sized(struct rg_client *client, struct rg_cq *cq,
                                  const struct rg_update *update, size_t struct_size);

#define RG_RANGES_MAX 4096
/* Reads many ranges of one object, all of the same generation. Ranges that are no further apart
 * than `gap_max` share a request of at most `request_size_max`; a range that is larger is read by
 * several.
 *
 * A range that ends behind the object is shortened; one that begins there gives RG_STATUS_RANGE.
 * For a range of length 0 nothing is read. An object that is replaced meanwhile is read again, as
 * it is then.
 *
 * Completion when OK: data is a const struct rg_range_result *, `size / sizeof` of them in the
 * order of `ranges`; their data pointers are the callers' buffers, or lie in the lease; generation,
 * object_size and object_crc32c too. When the ranges cover the whole object, in any order, their
 * CRC32C are combined and compared with the object's. */
struct rg_range {
    uint64_t offset, length; /* bytes */
    void *buf; /* length bytes, borrowed until the completion; NULL: leased, of that length */
};
struct rg_range_result {
    const void *data;
    uint64_t size;
    uint32_t crc32c;
};
struct rg_get_ranges {
    const char *bucket, *object;
    int64_t generation; /* 0: the newest when the first answer comes; the same for all */
    const struct rg_range *ranges;
    size_t count;
    uint64_t gap_max;          /* bytes read for nothing to save a request; 0: 64 KiB */
    uint64_t request_size_max; /* 0: 8 MiB */
    uint32_t requests_max;     /* out at once, up to 64; 0: 8 */
    uint64_t user_data, deadline_ns;
    bool no_checksum; /* compute no CRC32C; the results have none */
};
RG_API int rg_submit_get_ranges_sized(struct rg_client *client, struct rg_cq *cq,
                                      const struct rg_get_ranges *get, size_t struct_size,
                                      size_t item_size);
static inline int rg_submit_get_ranges(struct rg_client *client, struct rg_cq *cq,
                                       const struct rg_get_ranges *get)
{
    return rg_submit_get_ranges_sized(client, cq, get, sizeof(*get), sizeof(*get->ranges));
}

#define RG_SUBMIT_INLINE(name, type)                                                               \
    static inline int rg_submit_##name(struct rg_client *client, struct rg_cq *cq,                 \
                                       const struct type *request)                                 \
    {                                                                                              \
        return rg_submit_##name##_sized(client, cq, request, sizeof(*request));                    \
    }
RG_SUBMIT_INLINE(stat, rg_stat)
RG_SUBMIT_INLINE(delete, rg_delete)
RG_SUBMIT_INLINE(copy, rg_copy)
RG_SUBMIT_INLINE(compose, rg_compose)
RG_SUBMIT_INLINE(update, rg_update)

#ifdef __cplusplus
}
#endif

#endif
