/* See upload.h: the frame of an upload, which its method fills in. */
#include "gcs/upload/upload.h"

#include "gcs/request/part_memory.h"
#include "gcs/wire/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS_MIN 16

static struct rg_loop *loop_of(const struct rg_upload_op *op)
{
    return op->operation.request->client_loop->loop;
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

static void slots_free(struct rg_upload_op *op)
{
    for (uint32_t i = 0; i < op->slot_count; i++) {
        rg_upload_part_free(&op->slots[i]);
    }
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
    call_cancel(op, &op->call, status, op->phase == RG_UPLOAD_BEGINNING || op->in_doubt);
    for (uint32_t i = 0; i < op->slot_count; i++) {
        call_cancel(op, &op->slots[i].call, status, op->method->clean != NULL || op->in_doubt);
    }
}

/* What was read of the object is what was sent. */
static bool is_stored(const struct rg_upload_op *op)
{
    const struct rg_object_resource *stored = &op->stored;
    if (op->nonce[0] != '\0' && strcmp(stored->nonce, op->nonce) != 0) {
        return false;
    }
    return stored->size == rg_upload_total(op) && stored->has_crc32c &&
           stored->crc32c == rg_upload_crc(op);
}

static void check_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_request *request = &call->request;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text), request->client->endpoint.path);
    rg_target_add_object(&target, request->bucket, request->object);
    rg_target_query(&target, "prettyPrint", "false");
    rg_gcs_call_encode(call, encoder, "GET", &target);
}

static enum rg_status check_judge(struct rg_gcs_call *call)
{
    return rg_gcs_call_read_object(call, &rg_upload_op_of(call)->stored);
}

/* The answer to the question what is stored, after a failure. What is stored is none. */
static void doubt_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    (void)rg_upload_call_ended(call);
    struct rg_request *request = op->operation.request;
    if (status == RG_STATUS_OK && is_stored(op)) {
        op->found_done = op->nonce[0] == '\0';
        op->phase = RG_UPLOAD_STORED;
        rg_operation_resume(&op->operation);
    } else if (status != RG_STATUS_OK && status != RG_STATUS_NOT_FOUND) {
        snprintf(request->failure.text, sizeof(request->failure.text),
                 "it may be stored all the same, which cannot be read: %s", rg_status_text(status));
    }
}

/* Asks for what was cancelled when it may have been published. */
static void upload_verify(struct rg_operation *operation)
{
    static const struct rg_gcs_call_ops ops = {.encode = check_encode,
                                               .judge = check_judge,
                                               .done = doubt_done,
                                               .has_no_write_token = true};
    struct rg_upload_op *op = op_of(operation);
    if (op->in_doubt && !rg_client_loop_is_closing(operation->request->client_loop) &&
        rg_gcs_call_prepare(&op->call, &ops, operation->request->object) == 0) {
        op->in_doubt = false;
        op->clean_until_ns = loop_of(op)->now_ns + RG_UPLOAD_ASK_TIME_NS;
        rg_upload_call_start(op, &op->call);
    }
}

static bool upload_clean(struct rg_operation *operation)
{
    struct rg_upload_op *op = op_of(operation);
    return !rg_client_loop_is_closing(operation->request->client_loop) &&
           op->method->clean != NULL && op->method->clean(op);
}

static void upload_advance(struct rg_operation *operation)
{
    struct rg_upload_op *op = op_of(operation);
    op->method->advance(op);
}

/* Nothing is begun any more. Calls are cancelled now, not by the task: whether the server has had
 * all of the object was found out in this moment. */
static void stopping_begin(struct rg_upload_op *op)
{
    op->waiting = false;
    rg_loop_cancel_alarm(loop_of(op), &op->alarm);
    for (uint32_t i = 0; i < op->slot_count; i++) {
        rg_loop_undefer(&op->slots[i].task);
    }
    calls_cancel(op, RG_STATUS_CANCELLED);
}

static void upload_changed(struct rg_operation *operation)
{
    struct rg_upload_op *op = op_of(operation);
    if (operation->state == RG_OPERATION_STOPPING) {
        stopping_begin(op);
    } else if (operation->state == RG_OPERATION_CLEANING) {
        op->clean_until_ns = loop_of(op)->now_ns + RG_UPLOAD_CLEAN_TIME_NS;
        slots_free(op);
    } else if (operation->state == RG_OPERATION_ENDED) {
        slots_free(op);
        rg_loop_cancel_alarm(loop_of(op), &op->alarm);
        rg_part_memory_leave(memory_of(op));
    }
}

static void upload_stop(struct rg_operation *operation, bool hurry)
{
    if (hurry) {
        calls_cancel(op_of(operation), RG_STATUS_CLOSED);
    }
}

void rg_upload_call_start(struct rg_upload_op *op, struct rg_gcs_call *call)
{
    if (!rg_upload_is_running(op)) {
        call->request.deadline_ns = op->clean_until_ns;
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
    rg_upload_call_start(op, call);
}

struct rg_upload_op *rg_upload_call_ended(struct rg_gcs_call *call)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    rg_operation_child_ended(&op->operation, &call->request);
    return rg_upload_is_running(op) ? op : NULL;
}

void rg_upload_finish(struct rg_upload_op *op)
{
    const struct rg_object_resource *stored = &op->stored;
    uint64_t total = rg_upload_total(op);
    uint32_t crc = rg_upload_crc(op);
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
        .found_done = op->found_done,
    };
    rg_operation_finish(&op->operation, &completion);
}

struct rg_upload_attributes rg_upload_attributes_of(const struct rg_upload_op *op)
{
    return (struct rg_upload_attributes){
        .content_type = op->content_type,
        .content_encoding = op->content_encoding,
        .cache_control = op->cache_control,
        .storage_class = op->storage_class,
        .metadata = op->metadata,
        .metadata_count = op->metadata_count,
    };
}

/* What would complete the upload was told that there is none, and what is there is not it. */
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

static void check_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op == NULL) {
        return;
    }
    bool doubted = op->operation.request->failure.status != RG_STATUS_OK;
    bool same = status == RG_STATUS_OK && is_stored(op);
    if (doubted && !same) {
        ending_explain(op->operation.request, status);
        if (op->method->unstored == NULL || !op->method->unstored(op)) {
            rg_operation_stop(&op->operation, op->operation.request->failure.status);
        }
    } else if (status == RG_STATUS_PERMISSION) {
        /* Who may only write: each part was checked by the service on its own. */
        op->stored = (struct rg_object_resource){.size = rg_upload_total(op)};
        op->phase = RG_UPLOAD_STORED;
    } else if (status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else {
        op->found_done = doubted && op->nonce[0] == '\0';
        op->operation.request->failure.status = RG_STATUS_OK;
        op->operation.request->failure.text[0] = '\0';
        op->phase = RG_UPLOAD_STORED;
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

enum rg_status rg_upload_judge_stored(struct rg_gcs_call *call)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    op->found_done = rg_verify_is_guess(&call->request.verify);
    return rg_gcs_call_read_object(call, &op->stored);
}

void rg_upload_check(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {.encode = check_encode,
                                               .judge = check_judge,
                                               .done = check_done,
                                               .has_no_write_token = true};
    op->phase = RG_UPLOAD_CHECKING;
    op->was_read = true;
    if (rg_gcs_call_prepare(&op->call, &ops, op->operation.request->object) < 0) {
        rg_operation_fail(&op->operation, RG_STATUS_NO_RESOURCES, "no memory for a request");
        return;
    }
    rg_upload_call_start(op, &op->call);
}

struct rg_upload_record *rg_upload_record_at(struct rg_upload_op *op, uint32_t number)
{
    if (number >= op->record_capacity) {
        uint32_t capacity = RG_MAX(RG_MAX(2 * op->record_capacity, number + 1), RECORDS_MIN);
        struct rg_upload_record *records = reallocarray(op->records, capacity, sizeof(*records));
        if (records == NULL) {
            return NULL;
        }
        op->records = records;
        op->record_capacity = capacity;
    }
    while (op->record_count <= number) {
        op->records[op->record_count++] = (struct rg_upload_record){0};
    }
    return &op->records[number];
}

uint64_t rg_upload_total(const struct rg_upload_op *op)
{
    return op->size != UINT64_MAX ? op->size : op->offset_next;
}

uint32_t rg_upload_crc(const struct rg_upload_op *op)
{
    uint32_t crc = 0;
    for (uint32_t i = 0; i < op->part_next && i < op->record_count; i++) {
        crc = rg_crc32c_combine(crc, op->records[i].crc, op->records[i].size);
    }
    return crc;
}

static uint32_t slots_busy(const struct rg_upload_op *op)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < op->slot_count; i++) {
        busy += op->slots[i].state != RG_PART_FREE;
    }
    return busy;
}

static bool source_ended(const struct rg_upload_op *op)
{
    return op->part_next > 0 && op->offset_next == op->size;
}

bool rg_upload_parts_done(const struct rg_upload_op *op)
{
    return source_ended(op) && slots_busy(op) == 0;
}

static bool stream_take(struct rg_upload_op *op, struct rg_upload_part *part)
{
    part->buffer = rg_stream_take(op->stream, part->number == 0, &op->size);
    if (part->buffer != NULL) {
        part->size = part->filled = part->buffer->size;
        part->crc = part->buffer->crc;
    }
    return part->buffer != NULL;
}

/* Gives the slot the next part. False: there is none for now. */
static bool part_begin(struct rg_upload_op *op, struct rg_upload_part *part)
{
    if (source_ended(op)) {
        return false;
    }
    part->number = op->part_next;
    part->offset = op->offset_next;
    if (op->source == RG_UPLOAD_SOURCE_WRITER) {
        if (!stream_take(op, part)) {
            return false;
        }
        part->state = RG_PART_FILLED;
    } else {
        part->size = RG_MIN(op->part_size, op->size - op->offset_next);
        part->filled = 0;
        part->crc = 0;
        part->state = RG_PART_FILLING;
    }
    op->part_next++;
    op->offset_next += part->size;
    struct rg_upload_record *record = rg_upload_record_at(op, part->number);
    if (record == NULL) {
        rg_operation_fail(&op->operation, RG_STATUS_NO_RESOURCES,
                          "no memory for the list of parts");
        return false;
    }
    *record = (struct rg_upload_record){.size = part->size, .crc = part->crc};
    return true;
}

/* A disk is asked for many parts at once. The page cache is not: part by part, the first is sent
 * while the second is read, and fewer are in memory than may be where the network keeps up. */
static bool fills_one_by_one(const struct rg_upload_op *op)
{
    return op->source == RG_UPLOAD_SOURCE_FILE && !op->disk_waits;
}

static bool is_filling(const struct rg_upload_op *op)
{
    for (uint32_t i = 0; i < op->slot_count; i++) {
        if (op->slots[i].state == RG_PART_FILLING) {
            return true;
        }
    }
    return false;
}

void rg_upload_parts_fill(struct rg_upload_op *op)
{
    for (uint32_t i = 0; i < op->slot_count && rg_upload_is_running(op); i++) {
        if (fills_one_by_one(op) && is_filling(op)) {
            break;
        }
        struct rg_upload_part *part = &op->slots[i];
        if (part->state != RG_PART_FREE) {
            continue;
        }
        if (!part_begin(op, part)) {
            break;
        }
        if (part->state == RG_PART_FILLING) {
            rg_upload_source_fill(part);
        }
    }
}

void rg_upload_part_carry(const struct rg_upload_part *part, uint64_t skip, struct rg_exchange *x)
{
    RG_ASSERT(skip <= part->size);
    x->upload_size = part->size - skip;
    if (part->buffer != NULL && part->buffer->piece_count > 0) {
        x->pieces = part->buffer->pieces;
        x->piece_count = part->buffer->piece_count;
        x->upload_skip = skip;
    } else {
        x->upload = part->data != NULL ? part->data + skip : NULL;
    }
}

void rg_upload_part_refused(struct rg_gcs_call *call, uint16_t http_status)
{
    struct rg_upload_op *op = rg_upload_op_of(call);
    if (op->stream != NULL && (http_status == 429 || http_status == 503)) {
        rg_stream_throttle(op->stream);
    }
}

struct rg_upload_part *rg_upload_part_filled(struct rg_upload_op *op)
{
    for (uint32_t i = 0; i < op->slot_count; i++) {
        if (op->slots[i].state == RG_PART_FILLED) {
            return &op->slots[i];
        }
    }
    return NULL;
}

void rg_upload_part_free(struct rg_upload_part *part)
{
    RG_ASSERT(!part->call.out);
    rg_loop_undefer(&part->task);
    rg_upload_source_drop(part);
    free(part->lead);
    free(part->trail);
    part->lead = part->trail = NULL;
    part->state = RG_PART_FREE;
}

static void upload_start(struct rg_request *request)
{
    struct rg_upload_op *op = op_of(request->operation);
    rg_part_memory_enter(memory_of(op));
    rg_gcs_call_init(&op->call, request);
    for (uint32_t i = 0; i < op->slot_count; i++) {
        rg_gcs_call_init(&op->slots[i].call, request);
    }
    rg_operation_start(request);
}

/* The server may have all of what publishes the object, from this try or one before. */
static bool may_be_stored(const struct rg_upload_op *op)
{
    const struct rg_gcs_call *call = op->publishing;
    if (op->phase == RG_UPLOAD_CHECKING || call == NULL) {
        return op->phase == RG_UPLOAD_CHECKING;
    }
    return call->request.verify.maybe_done || (call->out && call->request.x.request_whole);
}

/* What is stored stays stored; otherwise the operation ends when it has cleaned up. Whoever cancels
 * is told the truth; whoever has no more time, that it is in doubt. */
static void upload_cancel(struct rg_operation *operation, enum rg_status status)
{
    struct rg_upload_op *op = op_of(operation);
    struct rg_request *request = operation->request;
    if (op->phase == RG_UPLOAD_STORED) {
        if (status == RG_STATUS_CLOSED) {
            rg_operation_hurry(operation);
        }
        return;
    }
    /* A cause that was noted to be looked into has lost its interest. */
    request->failure.status = RG_STATUS_OK;
    request->failure.text[0] = '\0';
    bool doubtful = may_be_stored(op);
    op->in_doubt = doubtful && status == RG_STATUS_CANCELLED;
    rg_operation_fail(operation, status, "%s", doubtful ? "it may be stored all the same" : "");
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

const struct rg_request_ops rg_upload_ops = {
    .verb = "upload",
    .leaves_things = true,
    .start = upload_start,
    .cancel = rg_operation_cancel,
    .release = rg_operation_release,
};

/* NULL stays NULL. True: it can be sent in a field and in JSON. */
static bool attribute_copy(char **out_text, const char *text, size_t *size_left)
{
    if (text == NULL) {
        return true;
    }
    size_t size = strlen(text);
    if (rg_h1_value_span(text, size) != size || size > *size_left || !rg_utf8_valid(text, size) ||
        (size > 0 && (strchr(" \t", text[0]) != NULL || strchr(" \t", text[size - 1]) != NULL))) {
        return false;
    }
    *size_left -= size;
    *out_text = strdup(text);
    return true;
}

static int nonce_add(struct rg_upload_op *op)
{
    rg_nonce_draw(op->nonce);
    struct rg_metadata pair = {strdup(RG_NONCE_KEY), strdup(op->nonce)};
    op->metadata[op->metadata_count++] = pair;
    return pair.key != NULL && pair.value != NULL ? 0 : -ENOMEM;
}

static int metadata_copy(struct rg_upload_op *op, const struct rg_upload_spec *spec,
                         size_t *size_left)
{
    if (spec->metadata_count > RG_UPLOAD_ATTRIBUTES_SIZE_MAX ||
        (spec->exclusive && !rg_nonce_fits(spec->metadata, spec->metadata_count))) {
        return -EINVAL;
    }
    op->metadata = calloc(spec->metadata_count + 1, sizeof(*op->metadata));
    if (op->metadata == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < spec->metadata_count; i++) {
        const struct rg_metadata *from = &spec->metadata[i];
        char *key = NULL, *value = NULL;
        bool valid = from->key != NULL && from->value != NULL && *from->key != '\0' &&
                     rg_h1_token_span(from->key, strlen(from->key)) == strlen(from->key) &&
                     attribute_copy(&key, from->key, size_left) &&
                     attribute_copy(&value, from->value, size_left);
        op->metadata[op->metadata_count++] = (struct rg_metadata){key, value};
        if (!valid) {
            return -EINVAL;
        }
        if (key == NULL || value == NULL) {
            return -ENOMEM;
        }
    }
    return spec->exclusive ? nonce_add(op) : 0;
}

static int attributes_copy(struct rg_upload_op *op, const struct rg_upload_spec *spec)
{
    size_t size_left = RG_UPLOAD_ATTRIBUTES_SIZE_MAX;
    const char *type = spec->content_type != NULL ? spec->content_type : "application/octet-stream";
    if (!attribute_copy(&op->content_type, type, &size_left) ||
        !attribute_copy(&op->content_encoding, spec->content_encoding, &size_left) ||
        !attribute_copy(&op->cache_control, spec->cache_control, &size_left) ||
        !attribute_copy(&op->storage_class, spec->storage_class, &size_left)) {
        return -EINVAL;
    }
    bool short_of_memory = op->content_type == NULL ||
                           (spec->content_encoding != NULL && op->content_encoding == NULL) ||
                           (spec->cache_control != NULL && op->cache_control == NULL) ||
                           (spec->storage_class != NULL && op->storage_class == NULL);
    return short_of_memory ? -ENOMEM : metadata_copy(op, spec, &size_left);
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
    op->method = methods[method];
}

static void alarm_fire(struct rg_alarm *alarm)
{
    struct rg_upload_op *op = RG_CONTAINER_OF(alarm, struct rg_upload_op, alarm);
    op->waiting = false;
    rg_metric_add(&loop_of(op)->metrics.retries, 1);
    rg_operation_wake(&op->operation);
}

static int slots_create(struct rg_upload_op *op, uint32_t count)
{
    op->slots = calloc(count, sizeof(*op->slots));
    if (op->slots == NULL) {
        return -ENOMEM;
    }
    op->slot_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct rg_upload_part *part = &op->slots[i];
        part->op = op;
        part->task.run = rg_upload_source_run;
        rg_op_init(&part->reading, rg_upload_source_read);
    }
    return 0;
}

int rg_upload_op_create(struct rg_upload_op **out_op, struct rg_request *request,
                        const struct rg_upload_spec *spec)
{
    struct rg_upload_op *op = calloc(1, sizeof(*op));
    if (op == NULL) {
        return -ENOMEM;
    }
    rg_operation_init(&op->operation, &operation_ops, request);
    rg_alarm_init(&op->alarm, alarm_fire);
    op->conditions = spec->conditions;
    op->part_size = spec->part_size;
    op->size = UINT64_MAX;
    rg_upload_op_set_method(op, spec->method);
    int rc = rg_conditions_valid(&spec->conditions) ? attributes_copy(op, spec) : -EINVAL;
    if (rc == 0) {
        rc = slots_create(op, spec->slot_count);
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
    rg_gcs_call_fini(&op->call);
    for (uint32_t i = 0; i < op->slot_count; i++) {
        rg_gcs_call_fini(&op->slots[i].call);
    }
    for (size_t i = 0; i < op->metadata_count; i++) {
        free((char *)(uintptr_t)op->metadata[i].key);
        free((char *)(uintptr_t)op->metadata[i].value);
    }
    free(op->metadata);
    free(op->content_type);
    free(op->content_encoding);
    free(op->cache_control);
    free(op->storage_class);
    free(op->slots);
    free(op->records);
    free(op->session);
    free(op->body);
    free(op->level);
    free(op);
}
