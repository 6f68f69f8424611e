/* Objects: metadata, deleting, copying, composing, changing, and reading many ranges of one. The
 * rules of <ringest/gcs.h> hold for all requests. */
#ifndef RINGEST_OBJECTS_H
#define RINGEST_OBJECTS_H

#include <ringest/gcs.h>

RG_DECLS_BEGIN
struct rg_metadata {
    const char *key, *value;
};
/* Everything the service tells about an object. Strings are in the lease, or NULL if not told. */
struct rg_object_info {
    const char *bucket;
    struct rg_object object; /* name, size, generation, crc32c, updated */
    int64_t metageneration;
    const char *content_type, *content_encoding, *cache_control, *storage_class, *etag;
    const char *time_created, *md5; /* RFC 3339; base64, none for composite objects */
    uint32_t component_count;       /* 0: not a composite object */
    const struct rg_metadata *metadata;
    size_t metadata_count;
};

/* Asks what is stored about an object. Completion when OK: data is a const struct rg_object_info *,
 * in the lease; generation, object_size and object_crc32c too. */
struct rg_stat {
    const char *bucket, *object;
    int64_t generation;
    struct rg_conditions conditions;
    uint64_t user_data, deadline_ns;
};
RG_SUBMIT(stat, rg_stat)

/* Deletes an object. Sent again after a lost answer only with a generation or condition. If the
 * object is then gone: OK with found_done, or with `exclusive` RG_STATUS_NOT_FOUND, because nothing
 * can prove who deleted it. Completion when OK: found_done. */
struct rg_delete {
    const char *bucket, *object;
    int64_t generation;
    struct rg_conditions conditions;
    uint64_t user_data, deadline_ns;
    bool exclusive;
};
RG_SUBMIT(delete, rg_delete)

#define RG_DELETES_MAX 100 /* in one request: Cloud Storage, "Batch requests" */
/* Deletes up to RG_DELETES_MAX objects by one request. Items that the service wants tried again are
 * sent one by one; so are all if the server has no batches. user_data and deadline_ns of the items
 * are not used. Completion when OK: data is a const struct rg_delete_result *, one for each item,
 * in order. */
struct rg_delete_many {
    const struct rg_delete *deletes;
    size_t count;
    uint64_t user_data, deadline_ns;
};
struct rg_delete_result {
    enum rg_status status;
    uint16_t http_status;
    bool found_done;    /* as of a completion */
    const char *detail; /* why it was not removed, in the lease; NULL if it was */
};
RG_SUBMIT_ITEMS(delete_many, rg_delete_many, deletes)

/* Copies an object on the server in steps ("objects: rewrite") of one generation; compares CRC32Cs.
 * Sent again after a lost answer only with a condition on the destination's generation; if that
 * then fails, a destination with the source's size, CRC32C and the storage class is OK with
 * found_done. Never exclusive, as metadata is the source's. To its own place, which is how a
 * storage class is changed, only while the source is the newest generation. Completion when OK:
 * data is a const struct rg_object_info *. */
struct rg_copy {
    const char *source_bucket, *source_object;
    int64_t source_generation;
    const char *bucket, *object;
    struct rg_conditions conditions, source_conditions; /* on the destination, on the source */
    uint64_t step_max; /* bytes of a step, a multiple of 1 MiB; 0: the service chooses */
    uint64_t user_data, deadline_ns;
    const char *storage_class; /* such as NEARLINE; NULL: the default of the destination's bucket */
};
RG_SUBMIT(copy, rg_copy)

#define RG_COMPOSE_SOURCES_MAX 32 /* Cloud Storage, "Composite objects" */
/* Joins objects of one bucket. Sent again like a copy; if the condition then fails, a destination
 * with `crc32c` is OK with found_done, or with `exclusive` only one with this request's nonce, see
 * rg_put. Conditions "not match": -EINVAL. Completion when OK: a const struct rg_object_info *. */
struct rg_compose_source {
    const char *object;
    int64_t generation;
};
struct rg_compose {
    const char *bucket, *object;
    const struct rg_compose_source *sources;
    size_t source_count;
    const char *content_type; /* NULL: application/octet-stream */
    const struct rg_metadata *metadata;
    size_t metadata_count;
    struct rg_conditions conditions;
    uint32_t crc32c; /* that the result must have, if has_crc32c */
    bool has_crc32c;
    uint64_t user_data, deadline_ns;
    bool exclusive;            /* success only if this request made it */
    const char *storage_class; /* all sources must have it; NULL: the default of the bucket */
};
RG_SUBMIT(compose, rg_compose)

/* Changes metadata: NULL leaves a field alone, "" removes it. Sent again after a lost answer only
 * with a condition on the metageneration. If that then fails and all that was sent is there: OK
 * with found_done; with `exclusive` a nonce is part of it, so that only this request counts.
 * Completion when OK: data is a const struct rg_object_info *. */
struct rg_update {
    const char *bucket, *object;
    int64_t generation;
    const char *content_type, *content_encoding, *cache_control;
    const struct rg_metadata *metadata; /* pairs to set; value NULL: to remove */
    size_t metadata_count;
    struct rg_conditions conditions;
    uint64_t user_data, deadline_ns;
    bool exclusive; /* success only if this request changed it */
};
RG_SUBMIT(update, rg_update)

#define RG_RANGES_MAX 4096
/* Reads many ranges of one generation; if the object is replaced meanwhile, all are read again.
 * Ranges at most gap_max apart share a request, larger ones are divided. A range that ends behind
 * the object is shortened, one that begins there gives RG_STATUS_RANGE, an empty one reads nothing.
 *
 * Completion when OK: data is a const struct rg_range_result *, one for each range, in order; also
 * generation, object_size, object_crc32c; compared with it if the ranges cover the object. */
struct rg_range {
    uint64_t offset, length; /* bytes */
    void *buf;               /* `length` bytes, borrowed until the completion; NULL: leased */
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
    uint32_t requests_max;     /* at once, up to 64; 0: 8 */
    uint64_t user_data, deadline_ns;
    bool no_checksum; /* results have no CRC32C */
};
RG_SUBMIT_ITEMS(get_ranges, rg_get_ranges, ranges)

RG_DECLS_END
#endif
