/* See upload.h: what all uploads do, whatever their method. */
#include "gcs/upload/upload.h"

#include "gcs/request/part_memory.h"
#include "gcs/upload/attributes.h"
#include "runtime/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rg_loop *loop_of(const struct rg_upload_op *op)
{
    return op->operation.request->client_loop->loop;
}

static bool is_closing(const struct rg_upload_op *op)
{
    return rg_client_loop_is_closing(op->operation.request->client_loop);
}

static struct rg_part_memory *memory_of(const struct rg_upload_op *op)
{
    return &op->operation.request->client_loop->part_memory;
}

static struct rg_upload_op *op_of(struct rg_operation *operation)
{
    return RG_CONTAINER_OF(operation, struct rg_upload_op, operation);
}

struct rg_upload_op *rg_upload_op_of(const struct rg_gcs_call *call)
{
    return op_of(call->request.parent->operation);
}

/* A call publishes the object from PUBLISHING on, and none did before. */
static bool invariants(const struct rg_upload_op *op)
{
    return (op->state != RG_UPLOAD_UNPUBLISHED || op->publishing == NULL) &&
           (op->state != RG_UPLOAD_PUBLISHING || op->publishing != NULL);
}

void rg_upload_become(struct rg_upload_op *op, enum rg_upload_state state)
{
    static const struct {
        const char *name;
        uint8_t followers;
    } states[RG_UPLOAD_STATE_COUNT] = {
        /* A session may be answered as complete, or be lost, before its last request. */
        [RG_UPLOAD_UNPUBLISHED] = {"unpublished", 1 << RG_UPLOAD_PUBLISHING |
                                                      1 << RG_UPLOAD_COMPARING |
                                                      1 << RG_UPLOAD_STORED},
        [RG_UPLOAD_PUBLISHING] = {"publishing", 1 << RG_UPLOAD_PUBLISHING |
                                                    1 << RG_UPLOAD_COMPARING |
                                                    1 << RG_UPLOAD_STORED | 1 << RG_UPLOAD_UNKNOWN},
        [RG_UPLOAD_COMPARING] = {"comparing", 1 << RG_UPLOAD_PUBLISHING | 1 << RG_UPLOAD_STORED |
                                                  1 << RG_UPLOAD_UNKNOWN},
        [RG_UPLOAD_STORED] = {"stored", 0},
        [RG_UPLOAD_UNKNOWN] = {"unknown", 1 << RG_UPLOAD_COMPARING},
    };
    const struct rg_request *request = op->operation.request;
    RG_ASSERT((states[op->state].followers >> state & 1) != 0);
    rg_log(RG_LOG_DEBUG, "upload gs://%s/%s: %s -> %s", request->bucket, request->object,
           states[op->state].name, states[state].name);
    op->state = state;
    RG_VERIFY(invariants(op));
}

void rg_upload_step(struct rg_upload_op *op, uint8_t step)
{
    const struct rg_request *request = op->operation.request;
    const struct rg_upload_step *steps = op->method->steps;
    RG_ASSERT((steps[op->step].followers >> step & 1) != 0);
    rg_log(RG_LOG_DEBUG, "%s upload gs://%s/%s: %s -> %s", op->method->name, request->bucket,
           request->object, steps[op->step].name, steps[step].name);
    op->step = step;
}

static void own_free(struct rg_upload_op *op)
{
    if (op->own != NULL && op->method->release != NULL) {
        op->method->release(op);
    }
    free(op->own);
    op->own = NULL;
}

void rg_upload_op_set_method(struct rg_upload_op *op, enum rg_upload_method method)
{
    static const struct rg_upload_method_ops *const methods[] = {
        [RG_UPLOAD_SINGLE] = &rg_upload_single_method,
        [RG_UPLOAD_RESUMABLE] = &rg_upload_resumable_method,
        [RG_UPLOAD_MULTIPART] = &rg_upload_multipart_method,
        [RG_UPLOAD_COMPOSE] = &rg_upload_compose_method,
    };
    RG_ASSERT(method > RG_UPLOAD_AUTO && method < RG_ARRAY_LEN(methods));
    own_free(op);
    op->method = methods[method];
    op->step = 0;
}

void rg_upload_out_of_memory(struct rg_upload_op *op)
{
    rg_operation_fail(&op->operation, RG_STATUS_NO_RESOURCES, "no memory for a request");
}

/* What the server has all of may take effect after we have cleaned up, and only the answer to the
 * request that begins an upload tells what to clean up: such a call (`lasting`) gets a little time
 * to end by itself. */
static void call_cancel(struct rg_upload_op *op, struct rg_gcs_call *call, enum rg_status status,
                        bool lasting)
{
    struct rg_request *request = &call->request;
    bool under_way = call->out && request->state == RG_REQUEST_OUT && request->x.request_whole;
    if (lasting && under_way && status != RG_STATUS_CLOSED) {
        request->idempotent = false;
        rg_loop_set_alarm(loop_of(op), &request->deadline,
                          loop_of(op)->now_ns + RG_UPLOAD_GRACE_NS);
    } else {
        rg_gcs_call_cancel(call, status);
    }
}

static void calls_cancel(struct rg_upload_op *op, enum rg_status status)
{
    bool is_unknown = op->state == RG_UPLOAD_UNKNOWN;
    bool is_beginning = op->step != 0 && op->step == op->method->step_beginning;
    call_cancel(op, &op->call, status, is_beginning || is_unknown);
    for (uint32_t i = 0; i < op->parts.slot_count; i++) {
        call_cancel(op, &op->parts.slots[i].call, status, op->method->clean != NULL || is_unknown);
    }
}

bool rg_upload_call_prepare(struct rg_upload_op *op, const struct rg_gcs_call_ops *ops)
{
    if (rg_gcs_call_prepare(&op->call, ops, op->operation.request->object) < 0) {
        rg_upload_out_of_memory(op);
        return false;
    }
    return true;
}

void rg_upload_call_start(struct rg_upload_op *op, struct rg_gcs_call *call)
{
    if (!rg_upload_is_running(op)) {
        call->request.deadline_ns = op->stopped_until_ns;
    }
    if (rg_gcs_call_start(call)) {
        rg_operation_child_started(&op->operation);
    } else {
        rg_operation_fail_by(&op->operation, &call->request);
        rg_operation_wake(&op->operation);
    }
}

void rg_upload_call_publish(struct rg_upload_op *op, struct rg_gcs_call *call)
{
    op->publishing = call;
    rg_upload_become(op, RG_UPLOAD_PUBLISHING);
    rg_upload_call_start(op, call);
}

struct rg_upload_op *rg_upload_call_ended(struct rg_gcs_call *call)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    rg_operation_child_ended(&op->operation, &call->request);
    return rg_upload_is_running(op) ? op : NULL;
}

void rg_upload_part_refused(struct rg_gcs_call *call, uint16_t http_status)
{
    struct rg_stream *stream = rg_upload_op_of(call)->parts.source.stream;
    if (stream != NULL && (http_status == 429 || http_status == 503)) {
        rg_stream_throttle(stream);
    }
}

void rg_upload_expect(const struct rg_upload_op *op, struct rg_request *request, uint64_t size,
                      uint32_t crc)
{
    if (op->nonce[0] != '\0') {
        rg_verify_expect_nonce(&request->verify, op->nonce);
    } else {
        rg_verify_expect_written(&request->verify, size, crc);
    }
}

enum rg_status rg_upload_read_stored(struct rg_gcs_call *call)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    op->may_be_other = rg_verify_is_guess(&call->request.verify);
    return rg_gcs_call_read_object(call, &op->stored);
}

/* What was read of the object is what was sent. */
static bool is_what_was_sent(const struct rg_upload_op *op)
{
    const struct rg_object_resource *stored = &op->stored;
    if (op->nonce[0] != '\0' && strcmp(stored->nonce, op->nonce) != 0) {
        return false;
    }
    return stored->size == rg_upload_parts_total(&op->parts) && stored->has_crc32c &&
           stored->crc32c == rg_upload_parts_crc(&op->parts);
}

static void compare_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_request *request = &call->request;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, request->bucket, request->object);
    rg_target_query(&target, "prettyPrint", "false");
    rg_gcs_call_encode(call, encoder, "GET", &target);
}

static enum rg_status compare_check(struct rg_gcs_call *call)
{
    return rg_gcs_call_read_object(call, &rg_upload_op_of(call)->stored);
}

/* The server knows no such upload any more, and what is there is not what was sent. */
static void ending_explain(struct rg_request *request, enum rg_status status)
{
    if (request->failure.status != RG_STATUS_NOT_FOUND ||
        (status != RG_STATUS_OK && status != RG_STATUS_NOT_FOUND)) {
        return;
    }
    request->failure.status = RG_STATUS_PRECONDITION;
    snprintf(request->failure.text, sizeof(request->failure.text),
             "the upload is over, and %s: somebody has ended it, or %s it since",
             status == RG_STATUS_OK ? "what is there is not what was sent" : "nothing is there",
             status == RG_STATUS_OK ? "replaced" : "removed");
}

/* What is stored has been read, or cannot be. A failure that was noted at the operation's request
 * is why it was asked; without one the answer was good, and had no CRC32C. */
static void compare_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op == NULL) {
        return;
    }
    struct rg_request *request = op->operation.request;
    bool has_failed = request->failure.status != RG_STATUS_OK;
    bool same = status == RG_STATUS_OK && is_what_was_sent(op);
    if (has_failed && !same) {
        ending_explain(request, status);
        if (op->method->go_on == NULL || !op->method->go_on(op)) {
            rg_operation_stop(&op->operation, request->failure.status);
        }
    } else if (status == RG_STATUS_PERMISSION) {
        /* Who may only write: each part was checked by the service on its own. */
        op->stored = (struct rg_object_resource){.size = rg_upload_parts_total(&op->parts)};
        rg_upload_become(op, RG_UPLOAD_STORED);
    } else if (status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else {
        op->may_be_other = has_failed && op->nonce[0] == '\0';
        request->failure.status = RG_STATUS_OK;
        request->failure.text[0] = '\0';
        rg_upload_become(op, RG_UPLOAD_STORED);
    }
}

static void compare(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {.encode = compare_encode,
                                               .check = compare_check,
                                               .done = compare_done,
                                               .has_no_write_token = true};
    op->was_read = true;
    if (rg_upload_call_prepare(op, &ops)) {
        rg_upload_call_start(op, &op->call);
    }
}

/* The same after a cancellation. */
static void verify_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    (void)rg_upload_call_ended(call);
    struct rg_request *request = op->operation.request;
    if (status == RG_STATUS_OK && is_what_was_sent(op)) {
        op->may_be_other = op->nonce[0] == '\0';
        rg_upload_become(op, RG_UPLOAD_STORED);
        rg_operation_resume(&op->operation);
    } else if (status != RG_STATUS_OK && status != RG_STATUS_NOT_FOUND) {
        snprintf(request->failure.text, sizeof(request->failure.text),
                 "it may be stored all the same, which cannot be read: %s", rg_status_text(status));
    }
}

static void upload_verify(struct rg_operation *operation)
{
    static const struct rg_gcs_call_ops ops = {.encode = compare_encode,
                                               .check = compare_check,
                                               .done = verify_done,
                                               .has_no_write_token = true};
    struct rg_upload_op *op = op_of(operation);
    if (op->state == RG_UPLOAD_UNKNOWN && !is_closing(op) && rg_upload_call_prepare(op, &ops)) {
        rg_upload_become(op, RG_UPLOAD_COMPARING);
        op->stopped_until_ns = loop_of(op)->now_ns + RG_UPLOAD_ASK_TIME_NS;
        rg_upload_call_start(op, &op->call);
    }
}

/* The object is there, as op->stored says. */
static void finish(struct rg_upload_op *op)
{
    const struct rg_object_resource *stored = &op->stored;
    uint64_t total = rg_upload_parts_total(&op->parts);
    uint32_t crc = rg_upload_parts_crc(&op->parts);
    RG_ASSERT(rg_upload_is_running(op));
    if (stored->size != total || (stored->has_crc32c && stored->crc32c != crc)) {
        rg_operation_fail(&op->operation, RG_STATUS_CHECKSUM,
                          "%" PRIu64 " bytes were sent and %" PRIu64
                          " %s, or their CRC32C differs; %s generation %" PRId64,
                          total, stored->size, op->was_read ? "are there" : "stored",
                          op->was_read ? "somebody has replaced it, or it is damaged:" : "delete",
                          stored->generation);
        return;
    }
    struct rg_completion completion = {
        .status = RG_STATUS_OK,
        .http_status = 200,
        .generation = stored->generation,
        .crc32c = crc,
        .size = total,
        .object_size = total,
        .object_crc32c = crc,
        .found_done = op->may_be_other,
    };
    rg_operation_finish(&op->operation, &completion);
}

/* True: the method has its own memory. */
static bool own_make(struct rg_upload_op *op)
{
    if (op->own == NULL && op->method->own_size > 0) {
        op->own = calloc(1, op->method->own_size);
        if (op->own == NULL) {
            rg_upload_out_of_memory(op);
            return false;
        }
    }
    return true;
}

static void upload_advance(struct rg_operation *operation)
{
    struct rg_upload_op *op = op_of(operation);
    if (op->state == RG_UPLOAD_STORED) {
        if (op->method->stored == NULL || op->method->stored(op)) {
            finish(op);
        }
    } else if (op->state == RG_UPLOAD_COMPARING) {
        if (operation->out == 0) {
            compare(op);
        }
    } else if (own_make(op)) {
        op->method->advance(op);
    }
}

static void call_off(struct rg_upload_op *op)
{
    rg_upload_parts_call_off(&op->parts);
    if (op->own != NULL && op->method->call_off != NULL) {
        op->method->call_off(op);
    }
}

static void upload_changed(struct rg_operation *operation)
{
    struct rg_upload_op *op = op_of(operation);
    if (operation->state == RG_OPERATION_STOPPING) {
        /* Calls are cancelled now, not by the task: whether the server has had all of the object
         * was found out in this moment. */
        call_off(op);
        calls_cancel(op, RG_STATUS_CANCELLED);
    } else if (operation->state == RG_OPERATION_CLEANING) {
        op->stopped_until_ns = loop_of(op)->now_ns + RG_UPLOAD_CLEAN_TIME_NS;
        rg_upload_parts_free_all(&op->parts);
    } else if (operation->state == RG_OPERATION_ENDED) {
        call_off(op);
        rg_upload_parts_free_all(&op->parts);
        rg_part_memory_leave(memory_of(op));
    }
}

static void upload_stop(struct rg_operation *operation, bool hurry)
{
    if (hurry) {
        calls_cancel(op_of(operation), RG_STATUS_CLOSED);
    }
}

static bool upload_clean(struct rg_operation *operation)
{
    struct rg_upload_op *op = op_of(operation);
    return !is_closing(op) && op->own != NULL && op->method->clean != NULL && op->method->clean(op);
}

/* The server may have all of what publishes the object, from this try or one before. */
static bool may_be_stored(const struct rg_upload_op *op)
{
    const struct rg_gcs_call *call = op->publishing;
    if (op->state != RG_UPLOAD_PUBLISHING) {
        return op->state == RG_UPLOAD_COMPARING;
    }
    return call->request.verify.maybe_done || (call->out && call->request.x.request_whole);
}

/* What is stored stays stored; otherwise the operation ends when it has cleaned up. Whoever cancels
 * learns the outcome; whoever has no more time learns that it is unknown. */
static void upload_cancel(struct rg_operation *operation, enum rg_status status)
{
    struct rg_upload_op *op = op_of(operation);
    struct rg_request *request = operation->request;
    if (op->state == RG_UPLOAD_STORED) {
        if (status == RG_STATUS_CLOSED) {
            rg_operation_hurry(operation);
        }
        return;
    }
    /* A cause that was noted to be looked into has lost its interest. */
    request->failure.status = RG_STATUS_OK;
    request->failure.text[0] = '\0';
    bool is_unknown = may_be_stored(op);
    if (is_unknown && status == RG_STATUS_CANCELLED) {
        rg_upload_become(op, RG_UPLOAD_UNKNOWN);
    }
    rg_operation_fail(operation, status, "%s", is_unknown ? "it may be stored all the same" : "");
}

static void upload_free(struct rg_operation *operation)
{
    rg_upload_op_destroy(op_of(operation));
}

static const struct rg_operation_ops operation_ops = {
    .advance = upload_advance,
    .stop = upload_stop,
    .verify = upload_verify,
    .clean = upload_clean,
    .changed = upload_changed,
    .cancel = upload_cancel,
    .free = upload_free,
};

static void upload_start(struct rg_request *request)
{
    struct rg_upload_op *op = op_of(request->operation);
    rg_part_memory_enter(memory_of(op));
    rg_gcs_call_init(&op->call, request);
    rg_upload_parts_start(&op->parts);
    rg_operation_start(request);
}

const struct rg_request_ops rg_upload_ops = {
    .verb = "upload",
    .operation = RG_VERB_PUT,
    .leaves_things = true,
    .start = upload_start,
    .cancel = rg_operation_cancel,
    .release = rg_operation_release,
};

int rg_upload_op_create(struct rg_upload_op **out_op, struct rg_request *request,
                        const struct rg_upload_spec *spec)
{
    struct rg_upload_op *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return -ENOMEM;
    }
    rg_operation_init(&op->operation, &operation_ops, request);
    op->conditions = spec->conditions;
    op->parts.part_size = spec->part_size;
    rg_upload_op_set_method(op, spec->method);
    int rc = rg_conditions_valid(&spec->conditions)
                 ? rg_upload_attributes_copy(&op->attributes, &spec->attributes,
                                             spec->exclusive ? op->nonce : NULL)
                 : -EINVAL;
    if (rc == 0) {
        rc = rg_upload_parts_init(&op->parts, &op->operation, spec->slot_count);
    }
    if (rc < 0) {
        rg_upload_op_destroy(op);
        return rc;
    }
    *out_op = op;
    return 0;
}

void rg_upload_op_destroy(struct rg_upload_op *op)
{
    if (op == NULL) {
        return;
    }
    RG_ASSERT(op->operation.state == RG_OPERATION_IDLE ||
              op->operation.state == RG_OPERATION_ENDED);
    own_free(op);
    rg_gcs_call_fini(&op->call);
    rg_upload_parts_fini(&op->parts);
    rg_upload_attributes_free(&op->attributes);
    free(op);
}
