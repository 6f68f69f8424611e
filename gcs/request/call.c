/* See call.h. */
#include "gcs/request/call.h"

#include "gcs/wire/list_parser.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most answers, and the explanation of a refusal. */
#define ANSWER_SIZE_USUAL RG_KIB(4)
/* An answer that does not say how long it is. */
#define ANSWER_SIZE_UNKNOWN RG_KIB(64)

static struct rg_gcs_call *call_of(struct rg_request *request)
{
    return RG_CONTAINER_OF(request, struct rg_gcs_call, request);
}

static void answer_clear(struct rg_gcs_call *call)
{
    free(call->answer.location);
    call->answer = (struct rg_gcs_call_answer){.body = ""};
}

/* Room for `size` bytes and a NUL. */
static bool space_reserve(struct rg_gcs_call *call, size_t size)
{
    if (size < call->space_size) {
        return true;
    }
    uint8_t *space = realloc(call->space, size + 1);
    if (space == NULL) {
        return false;
    }
    call->space = space;
    call->space_size = size + 1;
    call->request.refusal_space = space;
    call->request.refusal_space_size = size;
    return true;
}

static int call_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    struct rg_gcs_call *call = call_of(request);
    answer_clear(call);
    call->ops->encode(call, encoder);
    return rg_request_encode_end(request, encoder);
}

static bool slice_has_prefix(const struct rg_h1_slice *slice, const char *prefix)
{
    size_t size = strlen(prefix);
    return slice->size >= size && memcmp(slice->data, prefix, size) == 0;
}

static bool parse_decimal(const char *text, size_t size, uint64_t *out_number)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9' || rg_mul_overflow(number, 10, &number) ||
            rg_add_overflow(number, (uint64_t)(text[i] - '0'), &number)) {
            return false;
        }
    }
    *out_number = number;
    return size > 0;
}

/* "bytes=0-N" ("bytes 0-N" from some): N + 1 bytes are persisted. */
static int answer_range(struct rg_gcs_call *call, const struct rg_h1_slice *range)
{
    static const char *const prefixes[] = {"bytes=0-", "bytes 0-", "0-"};
    for (size_t i = 0; range != NULL && i < RG_ARRAY_LEN(prefixes); i++) {
        size_t size = strlen(prefixes[i]);
        uint64_t last;
        if (slice_has_prefix(range, prefixes[i])) {
            if (!parse_decimal(range->data + size, range->size - size, &last) ||
                last == UINT64_MAX) {
                return -EBADMSG;
            }
            call->answer.persisted = last + 1;
            return 0;
        }
    }
    return range == NULL ? 0 : -EBADMSG;
}

/* Path and query of a URL: whatever host it names, we only talk to our own endpoint. */
static int answer_location(struct rg_gcs_call *call, const struct rg_h1_slice *location)
{
    const char *text = location->data;
    size_t size = location->size;
    const char *scheme_end = memmem(text, size, "://", 3);
    if (scheme_end != NULL && scheme_end < (const char *)memchr(text, '/', size)) {
        const char *host = scheme_end + 3;
        const char *path = memchr(host, '/', size - (size_t)(host - text));
        size -= path != NULL ? (size_t)(path - text) : size;
        text = path;
    }
    if (size == 0 || text[0] != '/' || size >= RG_TARGET_SIZE_MAX ||
        rg_h1_target_span(text, size) != size) {
        return -EBADMSG;
    }
    free(call->answer.location);
    call->answer.location = strndup(text, size);
    return call->answer.location != NULL ? 0 : -ENOMEM;
}

static int answer_hashes(struct rg_gcs_call *call, const struct rg_h1_head *head)
{
    const struct rg_h1_slice *hash = NULL;
    while ((hash = rg_h1_find_next(head, "x-goog-hash", hash)) != NULL) {
        int rc = rg_object_hashes_parse(&call->answer.hashes, hash->data, hash->size);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int answer_fields(struct rg_gcs_call *call, const struct rg_h1_head *head)
{
    struct rg_gcs_call_answer *answer = &call->answer;
    answer->http_status = head->status;
    const struct rg_h1_slice *override = rg_h1_find(head, "x-http-status-code-override");
    answer->incomplete = head->status == RG_HTTP_RESUME_INCOMPLETE ||
                         (override != NULL && slice_has_prefix(override, "308"));
    const struct rg_h1_slice *etag = rg_h1_find(head, "etag");
    if (etag != NULL && etag->size < sizeof(answer->etag)) {
        memcpy(answer->etag, etag->data, etag->size);
        answer->etag[etag->size] = '\0';
    }
    const struct rg_h1_slice *generation = rg_h1_find(head, "x-goog-generation");
    uint64_t number;
    if (generation != NULL && parse_decimal(generation->data, generation->size, &number) &&
        number <= INT64_MAX) {
        answer->generation = (int64_t)number;
    }
    const struct rg_h1_slice *location = rg_h1_find(head, "location");
    int rc = location != NULL ? answer_location(call, location) : 0;
    if (rc == 0 && answer->incomplete) {
        rc = answer_range(call, rg_h1_find(head, "range"));
    }
    return rc == 0 ? answer_hashes(call, head) : rc;
}

static int call_head(struct rg_request *request, const struct rg_h1_head *head)
{
    struct rg_gcs_call *call = call_of(request);
    answer_clear(call);
    if (answer_fields(call, head) < 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "a malformed field in the answer's head");
        return -EBADMSG;
    }
    size_t size = head->framing == RG_H1_BODY_LENGTH
                      ? (size_t)RG_MIN(head->content_length, RG_GCS_CALL_ANSWER_SIZE_MAX)
                      : ANSWER_SIZE_UNKNOWN;
    if (!space_reserve(call, size)) {
        rg_request_note(request, RG_STATUS_NO_RESOURCES, "no memory for the answer");
        return -ENOMEM;
    }
    request->x.body_max = call->space_size - 1;
    request->x.into = call->space;
    request->x.into_size = call->space_size - 1;
    return RG_BODY_INTO;
}

static enum rg_status call_finish(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_gcs_call *call = call_of(request);
    struct rg_exchange *x = &request->x;
    size_t size = (size_t)x->body_size;
    enum rg_status status = RG_STATUS_OK;
    if (x->lease != NULL) {
        /* What was asked after a lost answer is in a slab. */
        status = space_reserve(call, size) ? RG_STATUS_OK : RG_STATUS_NO_RESOURCES;
        if (status == RG_STATUS_OK) {
            memcpy(call->space, x->body, size);
        }
        rg_lease_release(x->lease);
    }
    if (status == RG_STATUS_OK) {
        call->space[size] = '\0';
        call->answer.body = (const char *)call->space;
        call->answer.body_size = size;
        status = call->ops->check != NULL ? call->ops->check(call) : RG_STATUS_OK;
    }
    completion->status = status;
    return status;
}

static void call_refused(struct rg_request *request, uint16_t http_status)
{
    struct rg_gcs_call *call = call_of(request);
    if (call->ops->refused != NULL) {
        call->ops->refused(call, http_status);
    }
}

static void call_release(struct rg_request *request)
{
    RG_ASSERT(request->done != NULL);
}

static const struct rg_request_ops call_ops = {
    .verb = "upload",
    .traffic = RG_TRAFFIC_WRITE,
    .encode = call_encode,
    .head = call_head,
    .finish = call_finish,
    .refused = call_refused,
    .release = call_release,
};

static void call_done(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_gcs_call *call = call_of(request);
    RG_ASSERT(call->out && completion->lease == NULL);
    call->out = false;
    call->ops->done(call, completion->status);
}

void rg_gcs_call_init(struct rg_gcs_call *call, struct rg_request *parent)
{
    rg_request_init_child(&call->request, parent, call_done);
    answer_clear(call);
}

void rg_gcs_call_fini(struct rg_gcs_call *call)
{
    RG_ASSERT(!call->out);
    answer_clear(call);
    free(call->space);
    call->space = NULL;
    call->space_size = 0;
}

int rg_gcs_call_prepare(struct rg_gcs_call *call, const struct rg_gcs_call_ops *ops,
                        const char *object)
{
    RG_ASSERT(!call->out && ops->encode != NULL && ops->done != NULL);
    struct rg_request *request = &call->request;
    const struct rg_request *parent = request->parent;
    call->ops = ops;
    answer_clear(call);
    if (!space_reserve(call, ANSWER_SIZE_USUAL)) {
        return -ENOMEM;
    }
    /* The operation's deadline is for the operation to keep. */
    rg_request_prepare(request, &call_ops, parent->user_data, 0);
    strcpy(request->bucket, parent->bucket);
    snprintf(request->object, sizeof(request->object), "%s", object);
    request->has_no_write_token = ops->has_no_write_token;
    request->refusal_space = call->space;
    request->refusal_space_size = call->space_size - 1;
    return 0;
}

bool rg_gcs_call_start(struct rg_gcs_call *call)
{
    call->out = rg_request_start(&call->request);
    if (!call->out) {
        rg_request_note(&call->request, RG_STATUS_CLOSED, "%s", "");
    }
    return call->out;
}

void rg_gcs_call_cancel(struct rg_gcs_call *call, enum rg_status status)
{
    if (call->out) {
        rg_request_cancel(&call->request, status);
    }
}

void rg_gcs_call_encode(const struct rg_gcs_call *call, struct rg_h1_encoder *encoder,
                        const char *method, const struct rg_target *target)
{
    const struct rg_exchange *x = &call->request.x;
    if (rg_target_end(target) < 0) {
        encoder->error = -ENOSPC;
        return;
    }
    rg_h1_encode_request(encoder, method, target->text);
    if (strcmp(method, "GET") != 0) {
        rg_h1_encode_header_u64(encoder, "Content-Length",
                                x->lead_size + x->upload_size + x->trail_size);
    }
}

void rg_gcs_call_encode_crc32c(struct rg_h1_encoder *encoder, uint32_t crc)
{
    char value[sizeof("crc32c=") + RG_CRC32C_TEXT_SIZE] = "crc32c=";
    rg_crc32c_format(crc, value + strlen(value));
    value[sizeof(value) - 1] = '\0';
    rg_h1_encode_header(encoder, "x-goog-hash", value);
}

enum rg_status rg_gcs_call_read_object(struct rg_gcs_call *call,
                                       struct rg_object_resource *out_object)
{
    const char *problem;
    int rc =
        rg_object_resource_parse(call->answer.body, call->answer.body_size, out_object, &problem);
    if (rc < 0) {
        rg_request_note(&call->request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        return RG_STATUS_BAD_RESPONSE;
    }
    return RG_STATUS_OK;
}
