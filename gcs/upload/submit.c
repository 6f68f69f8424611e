/* Submitting an upload from memory or from a file: which method, and parts of what size. */
#include "gcs/upload/attributes.h"
#include "gcs/upload/upload.h"

#include <errno.h>
#include <string.h>

static uint64_t round_up(uint64_t size, uint64_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static enum rg_upload_method method_of(const struct rg_client *client,
                                       const struct rg_upload *upload)
{
    if (upload->method != RG_UPLOAD_AUTO) {
        return upload->method;
    }
    if (upload->size <= RG_UPLOAD_SINGLE_SIZE_MAX) {
        return RG_UPLOAD_SINGLE;
    }
    if (rg_conditions_any(&upload->conditions)) {
        return rg_upload_class_is_cold(upload->storage_class) ? RG_UPLOAD_RESUMABLE
                                                              : RG_UPLOAD_COMPOSE;
    }
    return atomic_load(&client->shared.no_multipart) ? RG_UPLOAD_RESUMABLE : RG_UPLOAD_MULTIPART;
}

/* Large enough that there are not too many. */
static uint64_t part_size_of(const struct rg_upload *upload, enum rg_upload_method method)
{
    uint64_t size = upload->part_size != 0 ? upload->part_size : RG_UPLOAD_PART_SIZE_DEFAULT;
    if (method == RG_UPLOAD_SINGLE) {
        return upload->size;
    }
    if (upload->method == RG_UPLOAD_AUTO) {
        /* Parts in parallel can become the chunks of a session. */
        size = round_up(size, RG_UPLOAD_CHUNK_UNIT);
    }
    if (method == RG_UPLOAD_RESUMABLE) {
        return upload->data != NULL ? upload->size : round_up(size, RG_UPLOAD_CHUNK_UNIT);
    }
    uint64_t size_min = method == RG_UPLOAD_MULTIPART ? RG_UPLOAD_PART_SIZE_MIN : 1;
    uint64_t few = round_up(upload->size / RG_UPLOAD_PARTS_MAX + 1, RG_MIB(1));
    bool many = upload->size / size >= RG_UPLOAD_PARTS_MAX;
    return RG_MAX(RG_MAX(size, size_min), many ? few : 0);
}

static bool upload_valid(const struct rg_upload *upload, const struct rg_upload_spec *spec)
{
    uint64_t room;
    bool sized = upload->size <= RG_UPLOAD_OBJECT_SIZE_MAX && upload->object != NULL &&
                 (upload->data != NULL || upload->size == 0 || upload->fd >= 0) &&
                 upload->method >= RG_UPLOAD_AUTO && upload->method <= RG_UPLOAD_COMPOSE &&
                 upload->part_size <= RG_UPLOAD_PART_SIZE_MAX &&
                 upload->parts_inflight_max <= RG_UPLOAD_INFLIGHT_MAX &&
                 upload->file_offset <= (uint64_t)INT64_MAX - upload->size;
    if (!sized || (spec->method == RG_UPLOAD_MULTIPART && rg_conditions_any(&upload->conditions))) {
        return false;
    }
    /* A file that goes by one request is in memory as a whole. */
    uint64_t part_size = upload->part_size != 0 ? upload->part_size : RG_UPLOAD_PART_SIZE_DEFAULT;
    uint64_t parts =
        upload->parts_inflight_max != 0 ? upload->parts_inflight_max : RG_UPLOAD_INFLIGHT_DEFAULT;
    bool whole = spec->method == RG_UPLOAD_SINGLE && upload->data == NULL;
    return !whole || rg_mul_overflow(part_size, parts, &room) || upload->size <= room;
}

static uint32_t slots_of(const struct rg_upload *upload, const struct rg_upload_spec *spec)
{
    uint64_t parts =
        spec->part_size > 0 ? (upload->size + spec->part_size - 1) / spec->part_size : 1;
    uint64_t slots =
        upload->parts_inflight_max != 0 ? upload->parts_inflight_max : RG_UPLOAD_INFLIGHT_DEFAULT;
    if (spec->method == RG_UPLOAD_RESUMABLE) {
        /* One is sent while the next is read. */
        slots = RG_MIN(slots, 2U);
    }
    return (uint32_t)RG_MAX(RG_MIN(slots, parts), 1U);
}

static int upload_prepare(struct rg_request *request, const struct rg_upload *upload)
{
    struct rg_upload_spec spec = {
        .method = method_of(request->client, upload),
        .attributes = {.content_type = upload->content_type,
                       .content_encoding = upload->content_encoding,
                       .cache_control = upload->cache_control,
                       .storage_class = upload->storage_class,
                       .metadata = upload->metadata,
                       .metadata_count = upload->metadata_count},
        .conditions = upload->conditions,
        .exclusive = upload->exclusive,
    };
    if (!upload_valid(upload, &spec) ||
        rg_request_set_names(request, upload->bucket, upload->object) < 0) {
        return -EINVAL;
    }
    spec.part_size = part_size_of(upload, spec.method);
    spec.slot_count = slots_of(upload, &spec);
    struct rg_upload_op *op;
    int rc = rg_upload_op_create(&op, request, &spec);
    if (rc < 0) {
        return rc;
    }
    struct rg_upload_source *source = &op->parts.source;
    bool is_memory = upload->data != NULL || upload->size == 0;
    source->kind = is_memory ? RG_UPLOAD_SOURCE_MEMORY : RG_UPLOAD_SOURCE_FILE;
    source->data = upload->data;
    source->fd = upload->fd;
    source->file_offset = upload->file_offset;
    source->size = upload->size;
    if (upload->method == RG_UPLOAD_AUTO) {
        op->choice = RG_UPLOAD_CHOSEN_BY_US;
    }
    rg_request_prepare(request, &rg_upload_ops, upload->user_data, upload->deadline_ns);
    return 0;
}

int rg_submit_upload_sized(struct rg_client *client, struct rg_cq *cq,
                           const struct rg_upload *upload, size_t struct_size)
{
    struct rg_upload own = {0};
    memcpy(&own, upload, RG_MIN(struct_size, sizeof(own)));
    struct rg_request *request;
    int rc = rg_client_reserve(client, cq, &request);
    if (rc < 0) {
        return rc;
    }
    rc = upload_prepare(request, &own);
    if (rc < 0) {
        rg_client_unreserve(request);
        return rc;
    }
    rg_client_post(request);
    return 0;
}
