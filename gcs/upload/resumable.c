/* An object by one session that goes on where the server got to (Cloud Storage, "Resumable
 * uploads").
 *
 *   POST uploadType=resumable -> session -> PUT bytes a-b/T -> 308, Range: persisted -> ...
 *                                                           -> 200: stored
 *   PUT fails  -> back off -> PUT bytes * / * -> 308: go on from what is persisted
 *                                             -> 200: stored, its answer had been lost
 *                                             -> 404, 410: a new session, from the start
 *
 * What the server says is persisted is believed, whatever was sent; a part is kept until all of it
 * is. Bytes are never sent again before the server was asked. Memory is sent by one request, a file
 * in chunks of part_size. The last request carries the CRC32C of all, which the service checks. */
#include "gcs/request/idempotency.h"
#include "gcs/upload/upload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sessions that were lost, one after the other. */
#define SESSIONS_MAX 4

static void out_of_memory(struct rg_upload_op *op)
{
    rg_operation_fail(&op->operation, RG_STATUS_NO_RESOURCES, "no memory for a request");
}

static void session_target(const struct rg_gcs_call *call, struct rg_target *target, char *text)
{
    rg_target_init(target, text, RG_TARGET_SIZE_MAX, rg_upload_op_of(call)->session);
}

static void begin_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_request *request = &call->request;
    const struct rg_upload_op *op = rg_upload_op_of(call);
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text), request->client->endpoint.path);
    rg_target_add(&target, "/upload/storage/v1/b/");
    rg_target_add_name(&target, request->bucket);
    rg_target_add(&target, "/o");
    rg_target_query(&target, "uploadType", "resumable");
    rg_target_query(&target, "name", request->object);
    rg_target_conditions(&target, &op->conditions);
    rg_gcs_call_encode(call, encoder, "POST", &target);
    rg_h1_encode_header(encoder, "Content-Type", "application/json; charset=UTF-8");
    rg_h1_encode_header(encoder, "X-Upload-Content-Type", op->content_type);
    if (op->size != UINT64_MAX) {
        rg_h1_encode_header_u64(encoder, "X-Upload-Content-Length", op->size);
    }
}

static enum rg_status begin_judge(struct rg_gcs_call *call)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    if (call->answer.location == NULL) {
        rg_request_note(&call->request, RG_STATUS_BAD_RESPONSE, "the answer names no session");
        return RG_STATUS_BAD_RESPONSE;
    }
    free(op->session);
    op->session = call->answer.location;
    call->answer.location = NULL;
    return RG_STATUS_OK;
}

static void begin_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else if (op != NULL) {
        if (op->no_multipart) {
            /* It was not the bucket that was missing. */
            atomic_store(&op->operation.request->client->shared.no_multipart, true);
        }
        op->phase = RG_UPLOAD_PARTS;
    }
}

static void session_begin(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = begin_encode, .judge = begin_judge, .done = begin_done};
    struct rg_upload_attributes attributes = rg_upload_attributes_of(op);
    if (op->body == NULL) {
        op->body = rg_upload_resource_json(&attributes, op->operation.request->object, NULL);
    }
    if (op->body == NULL ||
        rg_gcs_call_prepare(&op->call, &ops, op->operation.request->object) < 0) {
        out_of_memory(op);
        return;
    }
    struct rg_request *request = &op->call.request;
    request->x.lead = (const uint8_t *)op->body;
    request->x.lead_size = strlen(op->body);
    request->idempotent = rg_operation_idempotent(RG_OPERATION_INSERT, &op->conditions, 0);
    op->persisted = op->sent_end = 0;
    op->sessions++;
    op->phase = RG_UPLOAD_BEGINNING;
    rg_upload_call_start(op, &op->call);
}

static bool all_is_filled(const struct rg_upload_op *op)
{
    for (uint32_t i = 0; i < op->slot_count; i++) {
        if (op->slots[i].state == RG_PART_FILLING) {
            return false;
        }
    }
    return op->part_next > 0 && op->offset_next == op->size;
}

/* The bytes that this request carries are op->persisted and on, as many as its body has. */
static void chunk_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_upload_op *op = rg_upload_op_of(call);
    uint64_t size = call->request.x.upload_size;
    char text[RG_TARGET_SIZE_MAX], range[96], total[24] = "*";
    struct rg_target target;
    session_target(call, &target, text);
    rg_gcs_call_encode(call, encoder, "PUT", &target);
    if (op->size != UINT64_MAX) {
        snprintf(total, sizeof(total), "%" PRIu64, op->size);
    }
    if (size == 0) {
        snprintf(range, sizeof(range), "bytes */%s", total);
    } else {
        snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%s", op->persisted,
                 op->persisted + size - 1, total);
    }
    rg_h1_encode_header(encoder, "Content-Range", range);
    if (op->persisted + size == op->size && all_is_filled(op)) {
        rg_gcs_call_encode_crc32c(encoder, rg_upload_crc(op));
    }
}

static void ask_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    session_target(call, &target, text);
    rg_gcs_call_encode(call, encoder, "PUT", &target);
    rg_h1_encode_header(encoder, "Content-Range", "bytes */*");
}

static enum rg_status session_judge(struct rg_gcs_call *call)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    if (!call->answer.incomplete) {
        return rg_gcs_call_read_object(call, &op->stored);
    }
    /* More than we have ever sent in this session was not ours. */
    if (call->answer.persisted > op->sent_end) {
        rg_request_note(&call->request, RG_STATUS_BAD_RESPONSE,
                        "%" PRIu64 " bytes are said to be persisted, of %" PRIu64 " sent",
                        call->answer.persisted, op->sent_end);
        return RG_STATUS_BAD_RESPONSE;
    }
    return RG_STATUS_OK;
}

/* Another try, after a while. False: enough of them have failed. */
static bool retry_later(struct rg_upload_op *op, enum rg_status status, uint64_t retry_after_ns)
{
    struct rg_client_loop *client_loop = op->operation.request->client_loop;
    struct rg_retry_event event = {
        .status = status,
        .idempotent = true,
        .sent = true,
        .now_ns = client_loop->loop->now_ns,
        .deadline_ns = op->operation.request->deadline_ns,
    };
    uint64_t at_ns;
    op->retry.retry_after_ns = retry_after_ns;
    if (rg_client_loop_is_closing(client_loop) ||
        !rg_retry_next(&op->retry, &client_loop->retry_budget, &event, &at_ns)) {
        return false;
    }
    op->waiting = true;
    rg_loop_set_alarm(client_loop->loop, &op->alarm, at_ns);
    return true;
}

static void retry_reset(struct rg_upload_op *op)
{
    const struct rg_client_options *options = &op->operation.request->client->options;
    struct rg_retry_policy policy = {
        .attempts_max = options->attempts_max,
        .backoff_min_ns = options->backoff_min_ns,
        .backoff_max_ns = options->backoff_max_ns,
    };
    rg_retry_init(&op->retry, &policy, op->operation.request->submitted_ns ^ op->persisted);
}

/* Lets go of the parts that lie below what is persisted. */
static void parts_release(struct rg_upload_op *op)
{
    for (uint32_t i = 0; i < op->slot_count; i++) {
        struct rg_upload_part *part = &op->slots[i];
        bool kept = part->state == RG_PART_FILLED && part->offset + part->size > op->persisted;
        if (part->state == RG_PART_FILLED && !kept) {
            rg_upload_part_free(part);
        }
    }
}

static bool can_restart(const struct rg_upload_op *op)
{
    /* What a writer gave away, it cannot give again. */
    return op->sessions < SESSIONS_MAX && op->source != RG_UPLOAD_SOURCE_WRITER;
}

static bool restart(struct rg_upload_op *op)
{
    if (!can_restart(op)) {
        return false;
    }
    op->operation.request->failure.status = RG_STATUS_OK;
    op->operation.request->failure.text[0] = '\0';
    op->restart = true;
    op->phase = RG_UPLOAD_BEGIN;
    return true;
}

/* The session is gone. Where all was sent, that may be because it is complete. */
static void session_lost(struct rg_upload_op *op)
{
    free(op->session);
    op->session = NULL;
    rg_request_note(op->operation.request, RG_STATUS_SERVER, "the server has lost the session");
    if (op->sent_end == op->size) {
        op->phase = RG_UPLOAD_CHECKING;
    } else if (!restart(op)) {
        rg_operation_fail(&op->operation, RG_STATUS_SERVER, "%s", "");
    }
}

static bool is_gone(const struct rg_gcs_call *call)
{
    uint16_t http_status = call->request.failure.http_status;
    return http_status == 404 || http_status == 410;
}

/* The part that this byte is in. */
static struct rg_upload_part *part_at(struct rg_upload_op *op, uint64_t offset)
{
    for (uint32_t i = 0; i < op->slot_count; i++) {
        struct rg_upload_part *part = &op->slots[i];
        if (part->state != RG_PART_FREE && offset >= part->offset &&
            offset - part->offset < part->size) {
            return part;
        }
    }
    return NULL;
}

/* The answer tells how far the session got, or that the object is stored. */
static void session_answered(struct rg_upload_op *op, const struct rg_gcs_call *call, bool asked)
{
    if (!call->answer.incomplete) {
        op->phase = RG_UPLOAD_STORED;
        return;
    }
    uint64_t before = op->persisted;
    op->persisted = call->answer.persisted;
    op->phase = RG_UPLOAD_PARTS;
    if (op->persisted > before) {
        retry_reset(op);
        parts_release(op);
    } else if (op->persisted < before && part_at(op, op->persisted) == NULL) {
        /* It has lost what we no longer have. */
        session_lost(op);
    } else if (!asked && !retry_later(op, RG_STATUS_SERVER, 0)) {
        rg_operation_fail(&op->operation, RG_STATUS_SERVER,
                          "the server takes the bytes and persists none");
    }
}

static void chunk_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op == NULL) {
        return;
    }
    if (status == RG_STATUS_OK) {
        session_answered(op, call, false);
    } else if (is_gone(call)) {
        session_lost(op);
    } else if (retry_later(op, status, call->request.retry.retry_after_ns)) {
        op->phase = RG_UPLOAD_ASKING;
    } else {
        rg_operation_fail_by(&op->operation, &call->request);
    }
}

static void ask_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op == NULL) {
        return;
    }
    if (status == RG_STATUS_OK) {
        session_answered(op, call, true);
    } else if (is_gone(call)) {
        session_lost(op);
    } else {
        rg_operation_fail_by(&op->operation, &call->request);
    }
}

/* Prepares a request to the session. False: it failed. */
static bool session_prepare(struct rg_upload_op *op, const struct rg_gcs_call_ops *ops)
{
    if (rg_gcs_call_prepare(&op->call, ops, op->operation.request->object) < 0) {
        out_of_memory(op);
        return false;
    }
    op->call.request.accepts = RG_HTTP_RESUME_INCOMPLETE;
    return true;
}

static void ask(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = ask_encode, .judge = session_judge, .done = ask_done};
    if (session_prepare(op, &ops)) {
        rg_upload_call_start(op, &op->call);
    }
}

/* Sends what comes next, when it is there. */
static void chunk_send(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = chunk_encode, .judge = session_judge, .done = chunk_done};
    const struct rg_upload_part *part = part_at(op, op->persisted);
    bool last = part == NULL && op->persisted == op->size && all_is_filled(op);
    if (!last && (part == NULL || part->state != RG_PART_FILLED)) {
        return;
    }
    if (!session_prepare(op, &ops)) {
        return;
    }
    struct rg_request *request = &op->call.request;
    request->idempotent = false;
    if (!last) {
        rg_upload_part_carry(part, op->persisted - part->offset, &request->x);
    }
    op->sent_end = RG_MAX(op->sent_end, op->persisted + request->x.upload_size);
    if (op->sent_end == op->size && all_is_filled(op)) {
        rg_upload_call_publish(op, &op->call);
    } else {
        rg_upload_call_start(op, &op->call);
    }
}

static void begin(struct rg_upload_op *op)
{
    if (op->restart) {
        if (op->operation.out > 0) {
            return;
        }
        for (uint32_t i = 0; i < op->slot_count; i++) {
            rg_upload_part_free(&op->slots[i]);
        }
        op->part_next = op->record_count = 0;
        op->offset_next = 0;
        op->restart = false;
    }
    session_begin(op);
}

static void stored(struct rg_upload_op *op)
{
    if (op->operation.out > 0) {
        rg_operation_fail(&op->operation, RG_STATUS_BAD_RESPONSE,
                          "it was answered before all was sent");
    } else {
        rg_upload_finish(op);
    }
}

static void resumable_advance(struct rg_upload_op *op)
{
    if (op->sessions == 0) {
        retry_reset(op);
    }
    if (op->phase == RG_UPLOAD_STORED) {
        stored(op);
        return;
    }
    if (op->phase == RG_UPLOAD_BEGIN) {
        begin(op);
    }
    if (op->phase != RG_UPLOAD_BEGIN && rg_upload_is_running(op)) {
        rg_upload_parts_fill(op);
    }
    if (!rg_upload_is_running(op) || op->waiting || op->call.out) {
        return;
    }
    if (op->phase == RG_UPLOAD_ASKING) {
        ask(op);
    } else if (op->phase == RG_UPLOAD_PARTS) {
        chunk_send(op);
    } else if (op->phase == RG_UPLOAD_CHECKING) {
        rg_upload_check(op);
    }
}

static void cancel_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    session_target(call, &target, text);
    rg_gcs_call_encode(call, encoder, "DELETE", &target);
}

static void cancel_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    /* 499 is the answer of success; of anything else the service forgets within a week. */
    (void)status;
    free(op->session);
    op->session = NULL;
    (void)rg_upload_call_ended(call);
}

static bool resumable_clean(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {.encode = cancel_encode, .done = cancel_done};
    if (op->session == NULL ||
        rg_gcs_call_prepare(&op->call, &ops, op->operation.request->object) < 0) {
        return false;
    }
    rg_upload_call_start(op, &op->call);
    return op->call.out;
}

const struct rg_upload_method_ops rg_upload_resumable_method = {
    .advance = resumable_advance,
    .clean = resumable_clean,
    .unstored = restart,
};
