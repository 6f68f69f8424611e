/* Writing an object in one request (Cloud Storage JSON API, "objects: insert", uploadType=media).
 * The service cannot be told the checksum this way, nor metadata, so the checksum that it answers
 * with is compared, and an exclusive put, which has a nonce, and one with a storage class go by
 * uploadType=multipart. */
#include "gcs/request/idempotency.h"
#include "gcs/request/request.h"
#include "gcs/wire/list_parser.h"
#include "gcs/wire/target.h"
#include "gcs/wire/upload_text.h"
#include "gcs/wire/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PUT_TARGET_SIZE_MAX                                                                        \
    (RG_URL_PATH_SIZE_MAX + 192 + 3 * (RG_BUCKET_NAME_SIZE_MAX + RG_OBJECT_NAME_SIZE_MAX))
/* The answer is the object's metadata. */
#define PUT_ANSWER_SIZE_MAX RG_KIB(256)

static const char *type_of(const struct rg_put_state *put)
{
    return put->content_type != NULL ? put->content_type : "application/octet-stream";
}

static int put_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    const struct rg_put_state *put = &request->put;
    char text[PUT_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add(&target, "/upload/storage/v1/b/");
    rg_target_add_name(&target, request->bucket);
    rg_target_add(&target, "/o");
    rg_target_query(&target, "uploadType", put->lead != NULL ? "multipart" : "media");
    rg_target_query(&target, "name", request->object);
    rg_target_query_i64(&target, "ifGenerationMatch", put->if_generation_match);
    RG_ASSERT(rg_target_end(&target) > 0);
    rg_h1_encode_request(encoder, "POST", text);
    if (put->lead != NULL) {
        rg_multipart_encode_type(put->lead, encoder);
    } else {
        rg_h1_encode_header(encoder, "Content-Type", type_of(put));
    }
    const struct rg_exchange *x = &request->x;
    rg_h1_encode_header_u64(encoder, "Content-Length",
                            x->lead_size + x->upload_size + x->trail_size);
    return rg_request_encode_end(request, encoder);
}

static int put_head(struct rg_request *request, const struct rg_h1_head *head)
{
    RG_ASSERT(head->status >= 200 && head->status < 300);
    request->x.body_max = PUT_ANSWER_SIZE_MAX;
    return RG_BODY_LEASE;
}

static enum rg_status put_finish(struct rg_request *request, struct rg_completion *completion)
{
    const struct rg_put_state *put = &request->put;
    struct rg_exchange *x = &request->x;
    /* It is stored: whatever is wrong with the answer, another attempt could only fail by its own
     * condition. */
    request->idempotent = false;
    struct rg_object_resource object;
    const char *problem;
    int rc =
        rg_object_resource_parse((const char *)x->body, (size_t)x->body_size, &object, &problem);
    rg_lease_release(x->lease);
    if (rc < 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        return RG_STATUS_BAD_RESPONSE;
    }
    if (object.size != put->size || (object.has_crc32c && object.crc32c != put->crc)) {
        rg_request_note(request, RG_STATUS_CHECKSUM,
                        "%" PRIu64 " bytes were sent and %" PRIu64
                        " stored, or their CRC32C differs; delete generation %" PRId64,
                        put->size, object.size, object.generation);
        return RG_STATUS_CHECKSUM;
    }
    completion->status = RG_STATUS_OK;
    completion->generation = object.generation;
    completion->crc32c = put->crc;
    completion->size = put->size;
    completion->object_size = put->size;
    return RG_STATUS_OK;
}

static void put_release(struct rg_request *request)
{
    free(request->put.content_type);
    free(request->put.lead);
    free(request->put.trail);
    request->put.content_type = request->put.lead = request->put.trail = NULL;
}

static const struct rg_request_ops put_ops = {
    .verb = "put",
    .operation = RG_VERB_PUT,
    .traffic = RG_TRAFFIC_WRITE,
    .encode = put_encode,
    .head = put_head,
    .finish = put_finish,
    .release = put_release,
};

/* What frames the data of a put that says more than its type; an exclusive one has a nonce, by
 * which it is known again. */
static int frame_prepare(struct rg_request *request, const char *storage_class, bool exclusive)
{
    struct rg_put_state *put = &request->put;
    struct rg_exchange *x = &request->x;
    char nonce[RG_NONCE_SIZE + 1] = "";
    const struct rg_metadata pair = {RG_NONCE_KEY, nonce};
    const struct rg_upload_attributes attributes = {.content_type = type_of(put),
                                                    .storage_class = storage_class,
                                                    .metadata = &pair,
                                                    .metadata_count = exclusive ? 1 : 0};
    if (exclusive) {
        rg_nonce_draw(nonce);
    }
    int rc = rg_multipart_frame(&attributes, request->object, &put->crc, &put->lead, &put->trail);
    if (rc < 0) {
        return rc;
    }
    x->lead = (const uint8_t *)put->lead;
    x->lead_size = strlen(put->lead);
    x->trail = (const uint8_t *)put->trail;
    x->trail_size = strlen(put->trail);
    if (exclusive) {
        rg_verify_expect_nonce(&request->verify, nonce);
    }
    return 0;
}

/* NULL is none. */
static bool text_valid(const char *text)
{
    size_t size = text != NULL ? strlen(text) : 0;
    return text == NULL || (rg_h1_value_span(text, size) == size && rg_utf8_valid(text, size));
}

static int put_prepare(struct rg_request *request, const struct rg_put *put)
{
    bool valid = put->object != NULL && (put->data != NULL || put->size == 0) &&
                 put->if_generation_match >= RG_GENERATION_ABSENT;
    if (!valid || rg_request_set_names(request, put->bucket, put->object) < 0) {
        return -EINVAL;
    }
    if (!text_valid(put->content_type) || !text_valid(put->storage_class) ||
        (put->storage_class != NULL && put->storage_class[0] == '\0')) {
        return -EINVAL;
    }
    rg_request_prepare(request, &put_ops, put->user_data, put->deadline_ns);
    const struct rg_conditions conditions = {.if_generation_match = put->if_generation_match};
    request->idempotent = rg_operation_idempotent(RG_OPERATION_INSERT, &conditions, 0);
    request->x.upload = put->data;
    request->x.upload_size = put->size;
    request->put = (struct rg_put_state){
        .data = put->data,
        .size = put->size,
        .if_generation_match = put->if_generation_match,
        /* In the caller's thread, so that a large object does not hold up a loop. */
        .crc = rg_crc32c(0, put->data, put->size),
    };
    if (request->idempotent) {
        rg_verify_expect_written(&request->verify, request->put.size, request->put.crc);
    }
    if (put->content_type != NULL) {
        request->put.content_type = strdup(put->content_type);
        if (request->put.content_type == NULL) {
            return -ENOMEM;
        }
    }
    bool exclusive = request->idempotent && put->exclusive;
    bool framed = exclusive || put->storage_class != NULL;
    int rc = framed ? frame_prepare(request, put->storage_class, exclusive) : 0;
    if (rc < 0) {
        put_release(request);
    }
    return rc;
}

int rg_submit_put_sized(struct rg_client *client, struct rg_cq *cq, const struct rg_put *put,
                        size_t struct_size)
{
    struct rg_put own = {0};
    memcpy(&own, put, RG_MIN(struct_size, sizeof(own)));
    struct rg_request *request;
    int rc = rg_client_reserve(client, cq, &request);
    if (rc < 0) {
        return rc;
    }
    rc = put_prepare(request, &own);
    if (rc < 0) {
        rg_client_unreserve(request);
        return rc;
    }
    rg_client_post(request);
    return 0;
}
