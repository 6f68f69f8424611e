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

#define ETAGS_MIN 16
/* What one part takes in the body that completes the upload, with its ETag escaped at worst. */
#define COMPLETE_PART_SIZE_MAX (96 + 5 * RG_GCS_CALL_ETAG_SIZE_MAX)

enum multipart_step {
    MULTIPART_NEW = 0,
    MULTIPART_BEGINNING,  /* the request that makes the upload is out */
    MULTIPART_PARTS,      /* it has an id, and parts are sent */
    MULTIPART_COMPLETING, /* the request that makes the object out of them is out */
    MULTIPART_STEP_COUNT,
};

static const struct rg_upload_step steps[MULTIPART_STEP_COUNT] = {
    [MULTIPART_NEW] = {"new", 1 << MULTIPART_BEGINNING},
    [MULTIPART_BEGINNING] = {"beginning", 1 << MULTIPART_PARTS},
    [MULTIPART_PARTS] = {"parts", 1 << MULTIPART_COMPLETING},
    [MULTIPART_COMPLETING] = {"completing", 0},
};

struct multipart {
    bool is_unknown; /* the server knows no such uploads */
    char *id;        /* owned; NULL: there is none, or none any more */
    /* Owned; the ETags of parts that were sent, by number. */
    char (*etags)[RG_GCS_CALL_ETAG_SIZE_MAX];
    uint32_t etag_capacity;
    char *body; /* owned; of the request that completes it */
};

static struct multipart *multipart_of(const struct rg_upload_op *op)
{
    RG_ASSERT(op->method == &rg_upload_multipart_method && op->own != NULL);
    return op->own;
}

/* Room for the ETag of this part. False: no memory. */
static bool etags_reserve(struct multipart *own, uint32_t number)
{
    if (number < own->etag_capacity) {
        return true;
    }
    uint32_t capacity = RG_MAX(RG_MAX(2 * own->etag_capacity, number + 1), (uint32_t)ETAGS_MIN);
    char(*etags)[RG_GCS_CALL_ETAG_SIZE_MAX] =
        reallocarray(own->etags, capacity, sizeof(*own->etags));
    if (etags == NULL) {
        return false;
    }
    own->etags = etags;
    own->etag_capacity = capacity;
    return true;
}

/* The upload is over, or is to be. */
static void id_forget(struct multipart *own)
{
    free(own->id);
    own->id = NULL;
}

/* "/BUCKET/OBJECT" */
static void target_begin(const struct rg_gcs_call *call, struct rg_target *target, char *text)
{
    const struct rg_request *request = &call->request;
    rg_target_init(target, text, RG_TARGET_SIZE_MAX);
    rg_target_add(target, "/");
    rg_target_add_name(target, request->bucket);
    rg_target_add(target, "/");
    rg_target_add_name(target, request->object);
}

static void begin_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    target_begin(call, &target, text);
    rg_target_add(&target, "?uploads");
    rg_gcs_call_encode(call, encoder, "POST", &target);
    rg_upload_encode_attributes(&rg_upload_op_of(call)->attributes, encoder);
}

static int answer_parse(struct rg_gcs_call *call, struct rg_xml_answer *out_answer)
{
    return rg_xml_answer_parse(call->answer.body, call->answer.body_size, out_answer);
}

static enum rg_status begin_check(struct rg_gcs_call *call)
{
    struct multipart *own = multipart_of(rg_upload_op_of(call));
    struct rg_xml_answer answer;
    if (answer_parse(call, &answer) < 0 || answer.upload_id[0] == '\0') {
        rg_request_note(&call->request, RG_STATUS_BAD_RESPONSE, "the answer names no upload");
        return RG_STATUS_BAD_RESPONSE;
    }
    free(own->id);
    own->id = strdup(answer.upload_id);
    return own->id != NULL ? RG_STATUS_OK : RG_STATUS_NO_RESOURCES;
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
    multipart_of(rg_upload_op_of(call))->is_unknown = knows_no_multipart(&request->x);
    if (http_status == 501) {
        /* It will not know them later either. */
        rg_request_note(request, RG_STATUS_BAD_REQUEST, "the server knows no multipart uploads");
    }
}

static void begin_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK && op->choice == RG_UPLOAD_CHOSEN_BY_US &&
        multipart_of(op)->is_unknown) {
        /* What was read ahead is sent by the session. */
        op->choice = RG_UPLOAD_CHOSEN_AGAIN;
        rg_upload_op_set_method(op, RG_UPLOAD_RESUMABLE);
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
        rg_upload_step(op, MULTIPART_PARTS);
    }
}

static void part_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_upload_part *part = rg_upload_part_of(call);
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    target_begin(call, &target, text);
    rg_target_query_i64(&target, "partNumber", (int64_t)part->number + 1);
    rg_target_query(&target, "uploadId", multipart_of(rg_upload_op_of(call))->id);
    rg_gcs_call_encode(call, encoder, "PUT", &target);
    rg_gcs_call_encode_crc32c(encoder, part->crc);
}

static enum rg_status part_check(struct rg_gcs_call *call)
{
    const struct rg_upload_part *part = rg_upload_part_of(call);
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
    struct rg_upload_part *part = rg_upload_part_of(call);
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else if (op != NULL) {
        strcpy(multipart_of(op)->etags[part->number], call->answer.etag);
        rg_upload_part_free(part);
    }
}

static void complete_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    target_begin(call, &target, text);
    rg_target_query(&target, "uploadId", multipart_of(rg_upload_op_of(call))->id);
    rg_gcs_call_encode(call, encoder, "POST", &target);
    rg_h1_encode_header(encoder, "Content-Type", "application/xml");
}

/* The service may answer 200 before it knows, and tell of a failure in the body. */
static enum rg_status complete_check(struct rg_gcs_call *call)
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
        id_forget(multipart_of(op));
        if (answer->hashes.has_crc32c && answer->generation != 0) {
            op->stored = (struct rg_object_resource){.size = rg_upload_parts_total(&op->parts),
                                                     .generation = answer->generation,
                                                     .has_crc32c = true,
                                                     .crc32c = answer->hashes.crc32c};
            rg_upload_become(op, RG_UPLOAD_STORED);
            return;
        }
    } else {
        /* Perhaps an attempt before the last one did it. */
        rg_request_note_child(op->operation.request, &call->request);
    }
    rg_upload_become(op, RG_UPLOAD_COMPARING);
}

/* Returns owned. */
static char *complete_body(const struct rg_upload_op *op, size_t *out_size)
{
    const struct multipart *own = multipart_of(op);
    size_t capacity = (size_t)op->parts.next * COMPLETE_PART_SIZE_MAX + 128, size = 0;
    char *body = malloc(capacity);
    if (body == NULL) {
        return NULL;
    }
    size += (size_t)snprintf(body, capacity, "<CompleteMultipartUpload>");
    for (uint32_t i = 0; i < op->parts.next; i++) {
        size += (size_t)snprintf(body + size, capacity - size,
                                 "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>", i + 1);
        bool fits = rg_xml_append_text(body, capacity, &size, own->etags[i]);
        RG_ASSERT(fits);
        size += (size_t)snprintf(body + size, capacity - size, "</ETag></Part>");
    }
    size += (size_t)snprintf(body + size, capacity - size, "</CompleteMultipartUpload>");
    RG_ASSERT(size < capacity);
    *out_size = size;
    return body;
}

static void begin(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = begin_encode,
        .check = begin_check,
        .refused = begin_refused,
        .done = begin_done,
        .has_no_write_token = true,
    };
    if (rg_upload_call_prepare(op, &ops)) {
        rg_upload_step(op, MULTIPART_BEGINNING);
        rg_upload_call_start(op, &op->call);
    }
}

static void part_send(struct rg_upload_op *op, struct rg_upload_part *part)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = part_encode,
        .check = part_check,
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
    if (!etags_reserve(multipart_of(op), part->number) ||
        rg_gcs_call_prepare(&part->call, &ops, op->operation.request->object) < 0) {
        rg_upload_out_of_memory(op);
        return;
    }
    rg_upload_part_carry(part, 0, &part->call.request.x);
    rg_upload_part_become(part, RG_PART_SENDING);
    rg_upload_call_start(op, &part->call);
}

static void parts_advance(struct rg_upload_op *op)
{
    struct rg_upload_part *part;
    while (rg_upload_is_running(op) && (part = rg_upload_parts_filled(&op->parts)) != NULL) {
        part_send(op, part);
    }
}

static void complete(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {.encode = complete_encode,
                                               .check = complete_check,
                                               .done = complete_done,
                                               .has_no_write_token = true};
    struct multipart *own = multipart_of(op);
    size_t size;
    own->body = complete_body(op, &size);
    if (own->body == NULL) {
        rg_upload_out_of_memory(op);
        return;
    }
    if (!rg_upload_call_prepare(op, &ops)) {
        return;
    }
    op->call.request.x.upload = (const uint8_t *)own->body;
    op->call.request.x.upload_size = size;
    rg_upload_step(op, MULTIPART_COMPLETING);
    rg_upload_call_publish(op, &op->call);
}

/* Filling begins at once, beside the request that makes the upload. */
static void multipart_advance(struct rg_upload_op *op)
{
    if (op->step == MULTIPART_NEW) {
        begin(op);
    }
    if (op->step <= MULTIPART_PARTS && rg_upload_is_running(op)) {
        rg_upload_parts_fill(&op->parts);
    }
    if (op->step == MULTIPART_PARTS && rg_upload_is_running(op)) {
        parts_advance(op);
    }
    if (op->step == MULTIPART_PARTS && rg_upload_is_running(op) &&
        rg_upload_parts_done(&op->parts)) {
        complete(op);
    }
}

static void abort_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    target_begin(call, &target, text);
    rg_target_query(&target, "uploadId", multipart_of(rg_upload_op_of(call))->id);
    rg_gcs_call_encode(call, encoder, "DELETE", &target);
}

static void abort_done(struct rg_gcs_call *call, enum rg_status status)
{
    /* What was aborted, or is unknown, is gone; of anything else the service's own rules for old
     * uploads are left. */
    (void)status;
    id_forget(multipart_of(rg_upload_op_of(call)));
    (void)rg_upload_call_ended(call);
}

static bool multipart_clean(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = abort_encode, .done = abort_done, .has_no_write_token = true};
    if (multipart_of(op)->id == NULL || !rg_upload_call_prepare(op, &ops)) {
        return false;
    }
    rg_upload_call_start(op, &op->call);
    return op->call.out;
}

static void multipart_release(struct rg_upload_op *op)
{
    struct multipart *own = multipart_of(op);
    free(own->id);
    free(own->etags);
    free(own->body);
}

const struct rg_upload_method_ops rg_upload_multipart_method = {
    .name = "multipart",
    .steps = steps,
    .own_size = sizeof(struct multipart),
    .step_beginning = MULTIPART_BEGINNING,
    .advance = multipart_advance,
    .clean = multipart_clean,
    .release = multipart_release,
};
