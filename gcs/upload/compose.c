/* An object out of temporary ones: parts are written in parallel as objects of their own, joined by
 * "compose", at most 32 at a time, until one is left, and removed. Unlike a multipart upload this
 * can have conditions, which hold for the last step.
 *
 *   parts: o o o o ... -> joined by 32s, level by level -> the object -> all temporary ones removed
 *
 * Names of temporary objects begin with 128 random bits, and each is written on the condition that
 * there is none of it: so a step can be tried again, and nobody else's object can be removed. They
 * lie beside the bucket's other objects under ".ringest-parts/": a name of its own length could not
 * be derived from the object's, which may have all of the 1,024 bytes. */
#include "gcs/request/idempotency.h"
#include "gcs/upload/upload.h"
#include "gcs/wire/nonce.h"
#include "runtime/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPORARY_PREFIX ".ringest-parts/"
#define TEMPORARY_NAME_SIZE_MAX 96

static const struct rg_conditions absent = {.if_generation_match = RG_GENERATION_ABSENT};

static struct rg_upload_part *part_of(struct rg_gcs_call *call)
{
    return RG_CONTAINER_OF(call, struct rg_upload_part, call);
}

/* The name of the temporary object with this number, part or join. */
static void temporary_name(const struct rg_upload_op *op, uint32_t number,
                           char out_name[TEMPORARY_NAME_SIZE_MAX])
{
    snprintf(out_name, TEMPORARY_NAME_SIZE_MAX, "%s/%05" PRIu32, op->temporary, number);
}

static void out_of_memory(struct rg_upload_op *op)
{
    rg_operation_fail(&op->operation, RG_STATUS_NO_RESOURCES, "no memory for a request");
}

static void part_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    rg_upload_single_encode(call, encoder, &absent);
}

/* What was written has to be what was sent. */
static enum rg_status temporary_judge(struct rg_gcs_call *call)
{
    const struct rg_upload_part *part = part_of(call);
    struct rg_upload_record *record = &part->op->records[part->number];
    struct rg_object_resource object = {0};
    call->request.idempotent = false;
    enum rg_status status = rg_gcs_call_read_object(call, &object);
    if (status == RG_STATUS_OK &&
        (object.size != record->size || (object.has_crc32c && object.crc32c != record->crc))) {
        rg_request_note(&call->request, RG_STATUS_CHECKSUM,
                        "a temporary object has other bytes than were sent");
        status = RG_STATUS_CHECKSUM;
    }
    record->generation = object.generation;
    return status;
}

static void temporary_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_part *part = part_of(call);
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else if (op != NULL) {
        op->level_done += op->part_count > 0;
        rg_upload_part_free(part);
    }
}

static void part_send(struct rg_upload_op *op, struct rg_upload_part *part)
{
    static const struct rg_gcs_call_ops ops = {.encode = part_encode,
                                               .judge = temporary_judge,
                                               .refused = rg_upload_part_refused,
                                               .done = temporary_done};
    char name[TEMPORARY_NAME_SIZE_MAX];
    temporary_name(op, part->number, name);
    if (rg_upload_single_prepare(part, &ops, name, &absent) < 0) {
        out_of_memory(op);
        return;
    }
    op->records[part->number].begun = true;
    part->state = RG_PART_SENDING;
    rg_upload_call_start(op, &part->call);
}

static void join_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder,
                        const struct rg_conditions *conditions)
{
    const struct rg_request *request = &call->request;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text), request->client->endpoint.path);
    rg_target_add_object(&target, request->bucket, request->object);
    rg_target_add(&target, "/compose");
    rg_target_conditions(&target, conditions);
    rg_gcs_call_encode(call, encoder, "POST", &target);
    rg_h1_encode_header(encoder, "Content-Type", "application/json");
}

static void join_temporary_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    join_encode(call, encoder, &absent);
}

/* The request's body: `count` records of the level from `first` on. Returns owned, or NULL. */
static char *join_body(const struct rg_upload_op *op, uint32_t first, uint32_t count)
{
    char text[RG_COMPOSE_SOURCES_MAX][TEMPORARY_NAME_SIZE_MAX];
    char *names[RG_COMPOSE_SOURCES_MAX];
    int64_t generations[RG_COMPOSE_SOURCES_MAX];
    struct rg_upload_attributes attributes = rg_upload_attributes_of(op);
    RG_ASSERT(count > 0 && count <= RG_COMPOSE_SOURCES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = op->level[first + i];
        temporary_name(op, number, text[i]);
        names[i] = text[i];
        generations[i] = op->records[number].generation;
    }
    return rg_upload_compose_json(&attributes, names, generations, count);
}

/* Joins some of the level into a record of its own. False: it failed. */
static bool join_start(struct rg_upload_op *op, struct rg_upload_part *part, uint32_t first,
                       uint32_t count)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = join_temporary_encode, .judge = temporary_judge, .done = temporary_done};
    char name[TEMPORARY_NAME_SIZE_MAX];
    part->number = op->record_count;
    struct rg_upload_record *record = rg_upload_record_at(op, part->number);
    if (record == NULL) {
        out_of_memory(op);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct rg_upload_record *source = &op->records[op->level[first + i]];
        record->crc = rg_crc32c_combine(record->crc, source->crc, source->size);
        record->size += source->size;
    }
    temporary_name(op, part->number, name);
    part->lead = join_body(op, first, count);
    if (part->lead == NULL || rg_gcs_call_prepare(&part->call, &ops, name) < 0) {
        out_of_memory(op);
        return false;
    }
    part->call.request.x.lead = (const uint8_t *)part->lead;
    part->call.request.x.lead_size = strlen(part->lead);
    rg_verify_expect_written(&part->call.request.verify, record->size, record->crc);
    record->begun = true;
    part->state = RG_PART_SENDING;
    rg_upload_call_start(op, &part->call);
    return rg_upload_is_running(op);
}

static void last_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    join_encode(call, encoder, &rg_upload_op_of(call)->conditions);
}

static enum rg_status last_judge(struct rg_gcs_call *call)
{
    call->request.idempotent = false;
    return rg_upload_judge_stored(call);
}

static void last_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op == NULL) {
        return;
    }
    if (status == RG_STATUS_OK) {
        op->phase = RG_UPLOAD_STORED;
    } else if (!call->request.idempotent && rg_status_retryable(status)) {
        /* Without a condition it is not tried again, but it may have been done. */
        rg_request_note_child(op->operation.request, &call->request);
        op->phase = RG_UPLOAD_CHECKING;
    } else {
        rg_operation_fail_by(&op->operation, &call->request);
    }
}

static void last_start(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = last_encode, .judge = last_judge, .done = last_done};
    free(op->body);
    op->body = join_body(op, 0, op->level_count);
    if (op->body == NULL ||
        rg_gcs_call_prepare(&op->call, &ops, op->operation.request->object) < 0) {
        out_of_memory(op);
        return;
    }
    struct rg_request *request = &op->call.request;
    request->x.lead = (const uint8_t *)op->body;
    request->x.lead_size = strlen(op->body);
    request->idempotent = rg_operation_idempotent(RG_OPERATION_COMPOSE, &op->conditions, 0);
    if (request->idempotent) {
        rg_upload_expect(op, request, rg_upload_total(op), rg_upload_crc(op));
    }
    op->phase = RG_UPLOAD_PUBLISHING;
    rg_upload_call_publish(op, &op->call);
}

/* All parts are there: they are the first level. */
static bool joining_begin(struct rg_upload_op *op)
{
    op->level = reallocarray(NULL, op->part_next, sizeof(*op->level));
    if (op->level == NULL) {
        out_of_memory(op);
        return false;
    }
    op->part_count = op->level_count = op->part_next;
    op->level_done = op->level_next = 0;
    for (uint32_t i = 0; i < op->part_count; i++) {
        op->level[i] = i;
    }
    return true;
}

/* The groups of a level are joined in order, so their records are the last ones, and the next
 * level.
 */
static void joining_advance(struct rg_upload_op *op)
{
    const uint32_t size_max = RG_COMPOSE_SOURCES_MAX;
    if (op->level_count <= size_max) {
        last_start(op);
        return;
    }
    uint32_t groups = (op->level_count + size_max - 1) / size_max;
    for (uint32_t i = 0; i < op->slot_count && op->level_next < groups; i++) {
        uint32_t first = op->level_next * size_max;
        if (op->slots[i].state != RG_PART_FREE) {
            continue;
        }
        if (!join_start(op, &op->slots[i], first, RG_MIN(op->level_count - first, size_max))) {
            return;
        }
        op->level_next++;
    }
    if (op->level_done < groups) {
        return;
    }
    for (uint32_t i = 0; i < groups; i++) {
        op->level[i] = op->record_count - groups + i;
    }
    op->level_count = groups;
    op->level_done = op->level_next = 0;
    joining_advance(op);
}

static void remove_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_request *request = &call->request;
    const struct rg_upload_part *part = part_of(call);
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text), request->client->endpoint.path);
    rg_target_add_object(&target, request->bucket, request->object);
    rg_target_query_i64(&target, "generation", part->op->records[part->number].generation);
    rg_gcs_call_encode(call, encoder, "DELETE", &target);
}

static void remove_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_part *part = part_of(call);
    struct rg_upload_op *op = part->op;
    if (status == RG_STATUS_OK || status == RG_STATUS_NOT_FOUND) {
        op->records[part->number].begun = false;
    } else {
        op->clean_failed = true;
    }
    (void)rg_upload_call_ended(call);
    rg_upload_part_free(part);
}

static bool remove_start(struct rg_upload_op *op, struct rg_upload_part *part, uint32_t number)
{
    static const struct rg_gcs_call_ops ops = {.encode = remove_encode, .done = remove_done};
    char name[TEMPORARY_NAME_SIZE_MAX];
    temporary_name(op, number, name);
    if (rg_gcs_call_prepare(&part->call, &ops, name) < 0) {
        return false;
    }
    part->call.request.deadline_ns =
        op->operation.request->client_loop->loop->now_ns + RG_UPLOAD_CLEAN_TIME_NS;
    part->number = number;
    part->state = RG_PART_SENDING;
    rg_upload_call_start(op, &part->call);
    return part->call.out;
}

/* As many at a time as there are slots. Gives up where one could not be removed. */
static bool compose_clean(struct rg_upload_op *op)
{
    uint32_t slot = 0;
    bool started = false;
    for (uint32_t i = 0; i < op->record_count && slot < op->slot_count; i++) {
        if (!op->records[i].begun) {
            continue;
        }
        if (op->clean_failed || !remove_start(op, &op->slots[slot++], i)) {
            rg_log(RG_LOG_WARN, "temporary objects could not be removed: gs://%s/%s/",
                   op->operation.request->bucket, op->temporary);
            return started;
        }
        started = true;
    }
    return started;
}

static void compose_advance(struct rg_upload_op *op)
{
    if (op->phase == RG_UPLOAD_BEGIN) {
        char random[RG_NONCE_SIZE + 1];
        rg_nonce_draw(random);
        snprintf(op->temporary, sizeof(op->temporary), "%s%s", TEMPORARY_PREFIX, random);
        op->phase = RG_UPLOAD_PARTS;
    }
    if (op->phase == RG_UPLOAD_PARTS && op->part_count == 0) {
        struct rg_upload_part *part;
        rg_upload_parts_fill(op);
        while (rg_upload_is_running(op) && (part = rg_upload_part_filled(op)) != NULL) {
            part_send(op, part);
        }
        if (!rg_upload_is_running(op) || !rg_upload_parts_done(op) || !joining_begin(op)) {
            return;
        }
    }
    if (op->phase == RG_UPLOAD_PARTS) {
        joining_advance(op);
    } else if (op->phase == RG_UPLOAD_CHECKING && op->operation.out == 0) {
        rg_upload_check(op);
    } else if (op->phase == RG_UPLOAD_STORED && op->operation.out == 0) {
        /* Nothing more starts on a client that closes; what is stored is no failure for that. */
        if (rg_client_loop_is_closing(op->operation.request->client_loop) || !compose_clean(op)) {
            rg_upload_finish(op);
        }
    }
}

const struct rg_upload_method_ops rg_upload_compose_method = {
    .advance = compose_advance,
    .clean = compose_clean,
};
