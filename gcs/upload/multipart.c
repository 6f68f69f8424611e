/* An object in parts that are sent in parallel: XML API, "Multipart uploads".
 *
 *   POST ?uploads -> id -> PUT ?partNumber=N&uploadId=id ... -> POST ?uploadId=id -> stored
 *
 * A part that is sent again replaces itself, so parts are idempotent. Completing is not, but its
 * answer, when lost, is made good by what is stored: if that has the size and the CRC32C of what
 * was sent, it was ours. The comparison is made anyway where the answer does not tell the
 * CRC32C. After a failure the upload is aborted, which removes its parts; one whose parts are
 * still arriving may keep some of them (Cloud Storage, "Abort a multipart upload"), which is why
 * nothing is aborted before everything that was sent has ended.
 *
 * The first request is tried again when its answer is lost, and the upload that it had begun stays:
 * which of several of one name is ours, no list of uploads proves, and another's is never aborted.
 *
 * Emulators and gateways may have no such uploads. Where AUTO has chosen the method, the upload
 * becomes a resumable session then, and so do all later ones of the client. */
#include "gcs/upload/upload.h"
#include "gcs/wire/xml_answer.h"
#include "runtime/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one part takes in the body that completes the upload, with its ETag escaped at worst. */
#define COMPLETE_PART_SIZE_MAX (96 + 5 * RG_GCS_CALL_ETAG_SIZE_MAX)

static struct rg_upload_part *part_of(struct rg_gcs_call *call)
{
    return RG_CONTAINER_OF(call, struct rg_upload_part, call);
}

/* "/BUCKET/OBJECT" */
static void target_begin(const struct rg_gcs_call *call, struct rg_target *target, char *text)
{
    const struct rg_request *request = &call->request;
    rg_target_init(target, text, RG_TARGET_SIZE_MAX, request->client->endpoint.path);
    rg_target_add(target, "/");
    rg_target_add_name(target, request->bucket);
    rg_target_add(target, "/");
    rg_target_add_name(target, request->object);
}

static void begin_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    struct rg_upload_attributes attributes = rg_upload_attributes_of(rg_upload_op_of(call));
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    target_begin(call, &target, text);
    rg_target_add(&target, "?uploads");
    rg_gcs_call_encode(call, encoder, "POST", &target);
    rg_upload_encode_attributes(&attributes, encoder);
}

static int answer_parse(struct rg_gcs_call *call, struct rg_xml_answer *out_answer)
{
    return rg_xml_answer_parse(call->answer.body, call->answer.body_size, out_answer);
}

static enum rg_status begin_judge(struct rg_gcs_call *call)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    struct rg_xml_answer answer;
    if (answer_parse(call, &answer) < 0 || answer.upload_id[0] == '\0') {
        rg_request_note(&call->request, RG_STATUS_BAD_RESPONSE, "the answer names no upload");
        return RG_STATUS_BAD_RESPONSE;
    }
    free(op->session);
    op->session = strdup(answer.upload_id);
    return op->session != NULL ? RG_STATUS_OK : RG_STATUS_NO_RESOURCES;
}

/* True for the answer of a server that has no such uploads. The service itself explains what it
 * refuses in XML. */
static bool knows_no_multipart(const struct rg_exchange *x)
{
    struct rg_xml_answer answer;
    if (x->http_status == 405 || x->http_status == 501) {
        return true;
    }
    return (x->http_status == 400 || x->http_status == 404) && x->lease == NULL &&
           (rg_xml_answer_parse((const char *)x->body, (size_t)x->body_size, &answer) < 0 ||
            strcmp(answer.root, "Error") != 0);
}

static void begin_refused(struct rg_gcs_call *call, uint16_t http_status)
{
    struct rg_request *request = &call->request;
    struct rg_upload_op *op = rg_upload_op_of(call);
    op->no_multipart = knows_no_multipart(&request->x);
    if (http_status == 501) {
        /* It will not know them later either. */
        rg_request_note(request, RG_STATUS_BAD_REQUEST, "the server knows no multipart uploads");
    }
}

static void begin_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK && op->is_auto && op->no_multipart) {
        /* What was read ahead is sent by the session. */
        rg_upload_op_set_method(op, RG_UPLOAD_RESUMABLE);
        op->phase = RG_UPLOAD_BEGIN;
    } else if (op != NULL && status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else if (op != NULL) {
        if (call->request.verify.maybe_done) {
            rg_log(
                RG_LOG_WARN,
                "gs://%s/%s: the answer to what begins an upload was lost; one without parts may "
                "be left, see `ringest rm --unfinished`",
                call->request.bucket, call->request.object);
        }
        op->phase = RG_UPLOAD_PARTS;
    }
}

static void part_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_upload_part *part = part_of(call);
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    target_begin(call, &target, text);
    rg_target_query_i64(&target, "partNumber", (int64_t)part->number + 1);
    rg_target_query(&target, "uploadId", part->op->session);
    rg_gcs_call_encode(call, encoder, "PUT", &target);
    rg_gcs_call_encode_crc32c(encoder, part->crc);
}

static enum rg_status part_judge(struct rg_gcs_call *call)
{
    const struct rg_upload_part *part = part_of(call);
    const struct rg_gcs_call_answer *answer = &call->answer;
    if (answer->etag[0] == '\0') {
        rg_request_note(&call->request, RG_STATUS_BAD_RESPONSE, "the answer has no usable ETag");
        return RG_STATUS_BAD_RESPONSE;
    }
    if (answer->hashes.has_crc32c && answer->hashes.crc32c != part->crc) {
        rg_request_note(&call->request, RG_STATUS_CHECKSUM, "part %" PRIu32 " was changed",
                        part->number + 1);
        return RG_STATUS_CHECKSUM;
    }
    return RG_STATUS_OK;
}

static void part_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_part *part = part_of(call);
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else if (op != NULL) {
        strcpy(op->records[part->number].etag, call->answer.etag);
        rg_upload_part_free(part);
    }
}

static void complete_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    target_begin(call, &target, text);
    rg_target_query(&target, "uploadId", rg_upload_op_of(call)->session);
    rg_gcs_call_encode(call, encoder, "POST", &target);
    rg_h1_encode_header(encoder, "Content-Type", "application/xml");
}

/* The service may answer 200 before it knows, and tell of a failure in the body. */
static enum rg_status complete_judge(struct rg_gcs_call *call)
{
    struct rg_xml_answer answer;
    if (answer_parse(call, &answer) == 0 && strcmp(answer.root, "Error") == 0) {
        rg_request_note(&call->request, RG_STATUS_SERVER, "%.100s: %.100s", answer.code,
                        answer.message);
        return RG_STATUS_SERVER;
    }
    return RG_STATUS_OK;
}

static void complete_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op == NULL) {
        return;
    }
    if (status == RG_STATUS_OK) {
        const struct rg_gcs_call_answer *answer = &call->answer;
        free(op->session);
        op->session = NULL;
        if (answer->hashes.has_crc32c && answer->generation != 0) {
            op->stored = (struct rg_object_resource){.size = rg_upload_total(op),
                                                     .generation = answer->generation,
                                                     .has_crc32c = true,
                                                     .crc32c = answer->hashes.crc32c};
            op->phase = RG_UPLOAD_STORED;
            return;
        }
    } else {
        /* Perhaps an attempt before the last one did it. */
        rg_request_note_child(op->operation.request, &call->request);
    }
    op->phase = RG_UPLOAD_CHECKING;
}

/* Returns owned. */
static char *complete_body(const struct rg_upload_op *op, size_t *out_size)
{
    size_t capacity = (size_t)op->part_next * COMPLETE_PART_SIZE_MAX + 128, size = 0;
    char *body = malloc(capacity);
    if (body == NULL) {
        return NULL;
    }
    size += (size_t)snprintf(body, capacity, "<CompleteMultipartUpload>");
    for (uint32_t i = 0; i < op->part_next; i++) {
        size += (size_t)snprintf(body + size, capacity - size,
                                 "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>", i + 1);
        bool fits = rg_xml_append_text(body, capacity, &size, op->records[i].etag);
        RG_ASSERT(fits);
        size += (size_t)snprintf(body + size, capacity - size, "</ETag></Part>");
    }
    size += (size_t)snprintf(body + size, capacity - size, "</CompleteMultipartUpload>");
    RG_ASSERT(size < capacity);
    *out_size = size;
    return body;
}

static void out_of_memory(struct rg_upload_op *op)
{
    rg_operation_fail(&op->operation, RG_STATUS_NO_RESOURCES, "no memory for a request");
}

static void begin(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = begin_encode,
        .judge = begin_judge,
        .refused = begin_refused,
        .done = begin_done,
        .has_no_write_token = true,
    };
    if (rg_gcs_call_prepare(&op->call, &ops, op->operation.request->object) < 0) {
        out_of_memory(op);
        return;
    }
    op->phase = RG_UPLOAD_BEGINNING;
    rg_upload_call_start(op, &op->call);
}

static void part_send(struct rg_upload_op *op, struct rg_upload_part *part)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = part_encode,
        .judge = part_judge,
        .refused = rg_upload_part_refused,
        .done = part_done,
        .has_no_write_token = true,
    };
    if (part->number >= RG_UPLOAD_PARTS_MAX) {
        rg_operation_fail(&op->operation, RG_STATUS_TOO_LARGE,
                          "more than %d parts in %" PRIu64
                          " bytes; use a larger part_size, or a size_hint",
                          RG_UPLOAD_PARTS_MAX, part->offset);
        return;
    }
    if (rg_gcs_call_prepare(&part->call, &ops, op->operation.request->object) < 0) {
        out_of_memory(op);
        return;
    }
    rg_upload_part_carry(part, 0, &part->call.request.x);
    part->state = RG_PART_SENDING;
    rg_upload_call_start(op, &part->call);
}

static void parts_advance(struct rg_upload_op *op)
{
    struct rg_upload_part *part;
    while (rg_upload_is_running(op) && (part = rg_upload_part_filled(op)) != NULL) {
        part_send(op, part);
    }
}

static void complete(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {.encode = complete_encode,
                                               .judge = complete_judge,
                                               .done = complete_done,
                                               .has_no_write_token = true};
    size_t size;
    op->body = complete_body(op, &size);
    if (op->body == NULL ||
        rg_gcs_call_prepare(&op->call, &ops, op->operation.request->object) < 0) {
        out_of_memory(op);
        return;
    }
    op->call.request.x.upload = (const uint8_t *)op->body;
    op->call.request.x.upload_size = size;
    op->phase = RG_UPLOAD_PUBLISHING;
    rg_upload_call_publish(op, &op->call);
}

/* Filling begins at once, beside the request that makes the upload. */
static void multipart_advance(struct rg_upload_op *op)
{
    if (op->phase == RG_UPLOAD_BEGIN) {
        begin(op);
    }
    if (op->phase <= RG_UPLOAD_PARTS && rg_upload_is_running(op)) {
        rg_upload_parts_fill(op);
    }
    if (op->phase == RG_UPLOAD_PARTS && rg_upload_is_running(op)) {
        parts_advance(op);
    }
    if (op->phase == RG_UPLOAD_PARTS && rg_upload_is_running(op) && rg_upload_parts_done(op)) {
        complete(op);
    } else if (op->phase == RG_UPLOAD_CHECKING && op->operation.out == 0 &&
               rg_upload_is_running(op)) {
        rg_upload_check(op);
    } else if (op->phase == RG_UPLOAD_STORED) {
        rg_upload_finish(op);
    }
}

static void abort_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    target_begin(call, &target, text);
    rg_target_query(&target, "uploadId", rg_upload_op_of(call)->session);
    rg_gcs_call_encode(call, encoder, "DELETE", &target);
}

static void abort_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    /* What was aborted, or is unknown, is gone; of anything else the service's own rules for old
     * uploads are left. */
    (void)status;
    free(op->session);
    op->session = NULL;
    (void)rg_upload_call_ended(call);
}

static bool multipart_clean(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = abort_encode, .done = abort_done, .has_no_write_token = true};
    if (op->session == NULL ||
        rg_gcs_call_prepare(&op->call, &ops, op->operation.request->object) < 0) {
        return false;
    }
    rg_upload_call_start(op, &op->call);
    return op->call.out;
}

const struct rg_upload_method_ops rg_upload_multipart_method = {
    .advance = multipart_advance,
    .clean = multipart_clean,
};
