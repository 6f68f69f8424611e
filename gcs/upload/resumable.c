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

enum session_step {
    SESSION_NEW = 0,
    SESSION_BEGINNING,  /* the request that makes the session is out */
    SESSION_SENDING,    /* chunks are sent, one after the other */
    SESSION_SEND_LATER, /* the same, after the alarm */
    SESSION_ASK_LATER,  /* the session is asked how far it got, after the alarm */
    SESSION_ASKING,     /* it is asked */
    SESSION_RESTARTING, /* it was lost, and another begins when nothing is out */
    SESSION_STEP_COUNT,
};

static const struct rg_upload_step steps[SESSION_STEP_COUNT] = {
    [SESSION_NEW] = {"new", 1 << SESSION_BEGINNING},
    [SESSION_BEGINNING] = {"beginning", 1 << SESSION_SENDING},
    [SESSION_SENDING] = {"sending", 1 << SESSION_SEND_LATER | 1 << SESSION_ASK_LATER |
                                        1 << SESSION_RESTARTING},
    [SESSION_SEND_LATER] = {"send later", 1 << SESSION_SENDING},
    [SESSION_ASK_LATER] = {"ask later", 1 << SESSION_ASKING},
    [SESSION_ASKING] = {"asking", 1 << SESSION_SENDING | 1 << SESSION_RESTARTING},
    [SESSION_RESTARTING] = {"restarting", 1 << SESSION_BEGINNING},
};

struct resumable {
    struct rg_upload_op *op;
    char *session;                /* owned; its target. NULL: there is none, or none any more */
    uint32_t sessions;            /* made so far */
    uint64_t persisted, sent_end; /* bytes of this session */
    struct rg_retry retry;        /* counts the failures since the last progress */
    enum rg_status failed;        /* of the last try */
    struct rg_alarm alarm;        /* of SEND_LATER and ASK_LATER */
    char *body;                   /* owned; of the request that makes a session */
};

static struct resumable *resumable_of(const struct rg_upload_op *op)
{
    RG_ASSERT(op->method == &rg_upload_resumable_method && op->own != NULL);
    return op->own;
}

static struct rg_loop *loop_of(const struct rg_upload_op *op)
{
    return op->operation.request->client_loop->loop;
}

static void session_forget(struct resumable *own)
{
    free(own->session);
    own->session = NULL;
}

static void session_target(const struct rg_gcs_call *call, struct rg_target *target, char *text)
{
    rg_target_init(target, text, RG_TARGET_SIZE_MAX);
    rg_target_add(target, resumable_of(rg_upload_op_of(call))->session);
}

static void begin_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_request *request = &call->request;
    const struct rg_upload_op *op = rg_upload_op_of(call);
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add(&target, "/upload/storage/v1/b/");
    rg_target_add_name(&target, request->bucket);
    rg_target_add(&target, "/o");
    rg_target_query(&target, "uploadType", "resumable");
    rg_target_query(&target, "name", request->object);
    rg_target_conditions(&target, &op->conditions);
    rg_gcs_call_encode(call, encoder, "POST", &target);
    rg_h1_encode_header(encoder, "Content-Type", "application/json; charset=UTF-8");
    rg_h1_encode_header(encoder, "X-Upload-Content-Type", op->attributes.content_type);
    if (op->parts.source.size != UINT64_MAX) {
        rg_h1_encode_header_u64(encoder, "X-Upload-Content-Length", op->parts.source.size);
    }
}

static enum rg_status begin_check(struct rg_gcs_call *call)
{
    struct resumable *own = resumable_of(rg_upload_op_of(call));
    if (call->answer.location == NULL) {
        rg_request_note(&call->request, RG_STATUS_BAD_RESPONSE, "the answer names no session");
        return RG_STATUS_BAD_RESPONSE;
    }
    free(own->session);
    own->session = call->answer.location;
    call->answer.location = NULL;
    return RG_STATUS_OK;
}

static void begin_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else if (op != NULL) {
        if (op->choice == RG_UPLOAD_CHOSEN_AGAIN) {
            /* It was not the bucket that was missing. */
            atomic_store(&op->operation.request->client->shared.no_multipart, true);
        }
        rg_upload_step(op, SESSION_SENDING);
    }
}

static void session_begin(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = begin_encode, .check = begin_check, .done = begin_done};
    struct resumable *own = resumable_of(op);
    if (own->body == NULL) {
        own->body = rg_upload_resource_json(&op->attributes, op->operation.request->object, NULL);
    }
    if (own->body == NULL) {
        rg_upload_out_of_memory(op);
        return;
    }
    if (!rg_upload_call_prepare(op, &ops)) {
        return;
    }
    struct rg_request *request = &op->call.request;
    request->x.lead = (const uint8_t *)own->body;
    request->x.lead_size = strlen(own->body);
    request->idempotent = rg_operation_idempotent(RG_OPERATION_INSERT, &op->conditions, 0);
    own->persisted = own->sent_end = 0;
    own->sessions++;
    rg_upload_step(op, SESSION_BEGINNING);
    rg_upload_call_start(op, &op->call);
}

/* The bytes that this request carries are own->persisted and on, as many as its body has. */
static void chunk_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_upload_op *op = rg_upload_op_of(call);
    const struct resumable *own = resumable_of(op);
    uint64_t size = call->request.x.upload_size, whole = op->parts.source.size;
    char text[RG_TARGET_SIZE_MAX], range[96], total[24] = "*";
    struct rg_target target;
    session_target(call, &target, text);
    rg_gcs_call_encode(call, encoder, "PUT", &target);
    if (whole != UINT64_MAX) {
        snprintf(total, sizeof(total), "%" PRIu64, whole);
    }
    if (size == 0) {
        snprintf(range, sizeof(range), "bytes */%s", total);
    } else {
        snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%s", own->persisted,
                 own->persisted + size - 1, total);
    }
    rg_h1_encode_header(encoder, "Content-Range", range);
    if (own->persisted + size == whole && rg_upload_parts_all_filled(&op->parts)) {
        rg_gcs_call_encode_crc32c(encoder, rg_upload_parts_crc(&op->parts));
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

static enum rg_status session_check(struct rg_gcs_call *call)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    const struct resumable *own = resumable_of(op);
    if (!call->answer.incomplete) {
        return rg_gcs_call_read_object(call, &op->stored);
    }
    /* More than we have ever sent in this session was not ours. */
    if (call->answer.persisted > own->sent_end) {
        rg_request_note(&call->request, RG_STATUS_BAD_RESPONSE,
                        "%" PRIu64 " bytes are said to be persisted, of %" PRIu64 " sent",
                        call->answer.persisted, own->sent_end);
        return RG_STATUS_BAD_RESPONSE;
    }
    return RG_STATUS_OK;
}

/* The next step, after a while. False: enough tries have failed. */
static bool step_later(struct rg_upload_op *op, enum session_step step, enum rg_status status,
                       uint64_t retry_after_ns)
{
    struct resumable *own = resumable_of(op);
    struct rg_client_loop *client_loop = op->operation.request->client_loop;
    struct rg_retry_event event = {
        .status = status,
        .idempotent = true,
        .sent = true,
        .now_ns = client_loop->loop->now_ns,
        .deadline_ns = op->operation.request->deadline_ns,
    };
    uint64_t at_ns;
    own->retry.retry_after_ns = retry_after_ns;
    own->failed = status;
    if (rg_client_loop_is_closing(client_loop) ||
        !rg_retry_next(&own->retry, &client_loop->retry_budget, &event, &at_ns)) {
        return false;
    }
    rg_upload_step(op, step);
    rg_loop_set_alarm(client_loop->loop, &own->alarm, at_ns);
    return true;
}

static void alarm_fire(struct rg_alarm *alarm)
{
    struct rg_upload_op *op = RG_CONTAINER_OF(alarm, struct resumable, alarm)->op;
    rg_upload_step(op, op->step == SESSION_ASK_LATER ? SESSION_ASKING : SESSION_SENDING);
    rg_metric_add(&loop_of(op)->metrics.retries[resumable_of(op)->failed], 1);
    rg_operation_wake(&op->operation);
}

static void retry_reset(struct rg_upload_op *op)
{
    struct resumable *own = resumable_of(op);
    const struct rg_client_options *options = &op->operation.request->client->options;
    struct rg_retry_policy policy = {
        .attempts_max = options->attempts_max,
        .backoff_min_ns = options->backoff_min_ns,
        .backoff_max_ns = options->backoff_max_ns,
    };
    rg_retry_init(&own->retry, &policy, op->operation.request->submitted_ns ^ own->persisted);
}

/* Lets go of the parts that lie below what is persisted. */
static void parts_release(struct rg_upload_op *op)
{
    for (uint32_t i = 0; i < op->parts.slot_count; i++) {
        struct rg_upload_part *part = &op->parts.slots[i];
        uint64_t end = part->offset + part->size;
        if (part->state == RG_PART_FILLED && end <= resumable_of(op)->persisted) {
            rg_upload_part_free(part);
        }
    }
}

/* What a writer gave away, it cannot give again. */
static bool can_restart(const struct rg_upload_op *op)
{
    return resumable_of(op)->sessions < SESSIONS_MAX &&
           op->parts.source.kind != RG_UPLOAD_SOURCE_STREAM;
}

/* Begins again with another session. False: it cannot. */
static bool restart(struct rg_upload_op *op)
{
    if (!can_restart(op)) {
        return false;
    }
    op->operation.request->failure.status = RG_STATUS_OK;
    op->operation.request->failure.text[0] = '\0';
    if (op->state == RG_UPLOAD_COMPARING) {
        rg_upload_become(op, RG_UPLOAD_PUBLISHING);
    }
    rg_upload_step(op, SESSION_RESTARTING);
    return true;
}

/* The session is gone. Where all was sent, that may be because it is complete. */
static void session_lost(struct rg_upload_op *op)
{
    struct resumable *own = resumable_of(op);
    session_forget(own);
    rg_request_note(op->operation.request, RG_STATUS_SERVER, "the server has lost the session");
    if (own->sent_end == op->parts.source.size) {
        rg_upload_become(op, RG_UPLOAD_COMPARING);
    } else if (!restart(op)) {
        rg_operation_fail(&op->operation, RG_STATUS_SERVER, "%s", "");
    }
}

static bool is_gone(const struct rg_gcs_call *call)
{
    uint16_t http_status = call->request.failure.http_status;
    return http_status == 404 || http_status == 410;
}

/* The answer tells how far the session got, or that the object is stored. */
static void session_answered(struct rg_upload_op *op, const struct rg_gcs_call *call)
{
    if (!call->answer.incomplete) {
        rg_upload_become(op, RG_UPLOAD_STORED);
        return;
    }
    struct resumable *own = resumable_of(op);
    uint64_t before = own->persisted;
    bool was_asked = op->step == SESSION_ASKING;
    own->persisted = call->answer.persisted;
    if (was_asked) {
        rg_upload_step(op, SESSION_SENDING);
    }
    if (own->persisted > before) {
        retry_reset(op);
        parts_release(op);
    } else if (own->persisted < before && rg_upload_parts_at(&op->parts, own->persisted) == NULL) {
        /* It has lost what we no longer have. */
        session_lost(op);
    } else if (!was_asked && !step_later(op, SESSION_SEND_LATER, RG_STATUS_SERVER, 0)) {
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
        session_answered(op, call);
    } else if (is_gone(call)) {
        session_lost(op);
    } else if (!step_later(op, SESSION_ASK_LATER, status, call->request.retry.retry_after_ns)) {
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
        session_answered(op, call);
    } else if (is_gone(call)) {
        session_lost(op);
    } else {
        rg_operation_fail_by(&op->operation, &call->request);
    }
}

/* Prepares a request to the session. False: it failed. */
static bool session_prepare(struct rg_upload_op *op, const struct rg_gcs_call_ops *ops)
{
    if (!rg_upload_call_prepare(op, ops)) {
        return false;
    }
    op->call.request.accepts = RG_HTTP_RESUME_INCOMPLETE;
    return true;
}

static void ask(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = ask_encode, .check = session_check, .done = ask_done};
    if (session_prepare(op, &ops)) {
        rg_upload_call_start(op, &op->call);
    }
}

/* Sends what comes next, when it is there. */
static void chunk_send(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = chunk_encode, .check = session_check, .done = chunk_done};
    struct resumable *own = resumable_of(op);
    const struct rg_upload_part *part = rg_upload_parts_at(&op->parts, own->persisted);
    uint64_t whole = op->parts.source.size;
    bool all_filled = rg_upload_parts_all_filled(&op->parts);
    bool last = part == NULL && own->persisted == whole && all_filled;
    if (!last && (part == NULL || part->state != RG_PART_FILLED)) {
        return;
    }
    if (!session_prepare(op, &ops)) {
        return;
    }
    struct rg_request *request = &op->call.request;
    request->idempotent = false;
    if (!last) {
        rg_upload_part_carry(part, own->persisted - part->offset, &request->x);
    }
    own->sent_end = RG_MAX(own->sent_end, own->persisted + request->x.upload_size);
    if (own->sent_end == whole && all_filled) {
        rg_upload_call_publish(op, &op->call);
    } else {
        rg_upload_call_start(op, &op->call);
    }
}

static void begin(struct rg_upload_op *op)
{
    struct resumable *own = resumable_of(op);
    own->op = op;
    rg_alarm_init(&own->alarm, alarm_fire);
    retry_reset(op);
    session_begin(op);
}

static void begin_again(struct rg_upload_op *op)
{
    if (op->operation.out == 0) {
        rg_upload_parts_restart(&op->parts);
        session_begin(op);
    }
}

static void resumable_advance(struct rg_upload_op *op)
{
    if (op->step == SESSION_NEW) {
        begin(op);
    } else if (op->step == SESSION_RESTARTING) {
        begin_again(op);
    }
    if (op->step != SESSION_RESTARTING && rg_upload_is_running(op)) {
        rg_upload_parts_fill(&op->parts);
    }
    if (!rg_upload_is_running(op) || op->call.out) {
        return;
    }
    if (op->step == SESSION_ASKING) {
        ask(op);
    } else if (op->step == SESSION_SENDING) {
        chunk_send(op);
    }
}

static bool resumable_stored(struct rg_upload_op *op)
{
    if (op->operation.out > 0) {
        rg_operation_fail(&op->operation, RG_STATUS_BAD_RESPONSE,
                          "it was answered before all was sent");
        return false;
    }
    return true;
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
    /* 499 is the answer of success; of anything else the service forgets within a week. */
    (void)status;
    session_forget(resumable_of(rg_upload_op_of(call)));
    (void)rg_upload_call_ended(call);
}

static bool resumable_clean(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {.encode = cancel_encode, .done = cancel_done};
    if (resumable_of(op)->session == NULL || !rg_upload_call_prepare(op, &ops)) {
        return false;
    }
    rg_upload_call_start(op, &op->call);
    return op->call.out;
}

static void resumable_call_off(struct rg_upload_op *op)
{
    rg_loop_cancel_alarm(loop_of(op), &resumable_of(op)->alarm);
}

static void resumable_release(struct rg_upload_op *op)
{
    struct resumable *own = resumable_of(op);
    free(own->session);
    free(own->body);
}

const struct rg_upload_method_ops rg_upload_resumable_method = {
    .name = "resumable",
    .steps = steps,
    .own_size = sizeof(struct resumable),
    .step_beginning = SESSION_BEGINNING,
    .advance = resumable_advance,
    .stored = resumable_stored,
    .go_on = restart,
    .call_off = resumable_call_off,
    .clean = resumable_clean,
    .release = resumable_release,
};
