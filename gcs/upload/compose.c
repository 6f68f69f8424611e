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
#include "gcs/upload/single.h"
#include "gcs/wire/checksum.h"
#include "gcs/wire/nonce.h"
#include "runtime/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPORARY_PREFIX ".ringest-parts/"
#define TEMPORARY_NAME_SIZE_MAX 96
#define TEMPORARY_MIN 16

static const struct rg_conditions absent = {.if_generation_match = RG_GENERATION_ABSENT};

enum compose_step {
    COMPOSE_NEW = 0,
    COMPOSE_PARTS,   /* parts are written as temporary objects */
    COMPOSE_JOINING, /* they are joined, level by level */
    COMPOSE_LAST,    /* the join that makes the object is out */
    COMPOSE_GAVE_UP, /* a temporary object could not be removed, so no other is tried */
    COMPOSE_STEP_COUNT,
};

static const struct rg_upload_step steps[COMPOSE_STEP_COUNT] = {
    [COMPOSE_NEW] = {"new", 1 << COMPOSE_PARTS},
    [COMPOSE_PARTS] = {"parts", 1 << COMPOSE_JOINING | 1 << COMPOSE_GAVE_UP},
    [COMPOSE_JOINING] = {"joining", 1 << COMPOSE_LAST | 1 << COMPOSE_GAVE_UP},
    [COMPOSE_LAST] = {"last", 1 << COMPOSE_GAVE_UP},
    [COMPOSE_GAVE_UP] = {"gave up", 1 << COMPOSE_GAVE_UP},
};

/* A temporary object. */
struct temporary {
    uint64_t size;
    int64_t generation;
    uint32_t crc;
    bool is_begun; /* something of it may be on the server */
};

struct compose {
    char prefix[64];             /* what the names of temporary objects begin with */
    struct temporary *temporary; /* owned; the parts, by number, then what was joined */
    uint32_t count, capacity;
    uint32_t *level; /* owned; numbers of those that are still to be joined, in order */
    uint32_t level_count;
    uint32_t level_next, level_done; /* groups of the level that are begun, and joined */
    char *body;                      /* owned; of the last join */
};

static struct compose *compose_of(const struct rg_upload_op *op)
{
    RG_ASSERT(op->method == &rg_upload_compose_method && op->own != NULL);
    return op->own;
}

/* The temporary object of this number, zeroed when it is new; NULL: no memory. */
static struct temporary *temporary_at(struct compose *own, uint32_t number)
{
    if (number >= own->capacity) {
        uint32_t capacity = RG_MAX(RG_MAX(2 * own->capacity, number + 1), (uint32_t)TEMPORARY_MIN);
        struct temporary *all = reallocarray(own->temporary, capacity, sizeof(*own->temporary));
        if (all == NULL) {
            return NULL;
        }
        own->temporary = all;
        own->capacity = capacity;
    }
    while (own->count <= number) {
        own->temporary[own->count++] = (struct temporary){0};
    }
    return &own->temporary[number];
}

/* The name of the temporary object with this number, part or join. */
static void temporary_name(const struct compose *own, uint32_t number,
                           char out_name[TEMPORARY_NAME_SIZE_MAX])
{
    snprintf(out_name, TEMPORARY_NAME_SIZE_MAX, "%s/%05" PRIu32, own->prefix, number);
}

static void part_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    rg_upload_single_encode(call, encoder, &absent);
}

/* What was written has to be what was sent. */
static enum rg_status temporary_check(struct rg_gcs_call *call)
{
    const struct rg_upload_part *part = rg_upload_part_of(call);
    struct temporary *temporary = &compose_of(rg_upload_op_of(call))->temporary[part->number];
    struct rg_object_resource object = {0};
    call->request.idempotent = false;
    enum rg_status status = rg_gcs_call_read_object(call, &object);
    if (status == RG_STATUS_OK && (object.size != temporary->size ||
                                   (object.has_crc32c && object.crc32c != temporary->crc))) {
        rg_request_note(&call->request, RG_STATUS_CHECKSUM,
                        "a temporary object has other bytes than were sent");
        status = RG_STATUS_CHECKSUM;
    }
    temporary->generation = object.generation;
    return status;
}

static void temporary_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_part *part = rg_upload_part_of(call);
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op != NULL && status != RG_STATUS_OK) {
        rg_operation_fail_by(&op->operation, &call->request);
    } else if (op != NULL) {
        compose_of(op)->level_done += op->step == COMPOSE_JOINING;
        rg_upload_part_free(part);
    }
}

static void part_send(struct rg_upload_op *op, struct rg_upload_part *part)
{
    static const struct rg_gcs_call_ops ops = {.encode = part_encode,
                                               .check = temporary_check,
                                               .refused = rg_upload_part_refused,
                                               .done = temporary_done};
    struct compose *own = compose_of(op);
    struct temporary *temporary = temporary_at(own, part->number);
    char name[TEMPORARY_NAME_SIZE_MAX];
    temporary_name(own, part->number, name);
    if (temporary == NULL || rg_upload_single_prepare(part, &ops, name, &absent) < 0) {
        rg_upload_out_of_memory(op);
        return;
    }
    *temporary = (struct temporary){.size = part->size, .crc = part->crc, .is_begun = true};
    rg_upload_part_become(part, RG_PART_SENDING);
    rg_upload_call_start(op, &part->call);
}

static void join_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder,
                        const struct rg_conditions *conditions)
{
    const struct rg_request *request = &call->request;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
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

/* The request's body: `count` of the level from `first` on. Returns owned, or NULL. */
static char *join_body(const struct rg_upload_op *op, uint32_t first, uint32_t count)
{
    const struct compose *own = compose_of(op);
    char text[RG_COMPOSE_SOURCES_MAX][TEMPORARY_NAME_SIZE_MAX];
    char *names[RG_COMPOSE_SOURCES_MAX];
    int64_t generations[RG_COMPOSE_SOURCES_MAX];
    RG_ASSERT(count > 0 && count <= RG_COMPOSE_SOURCES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = own->level[first + i];
        temporary_name(own, number, text[i]);
        names[i] = text[i];
        generations[i] = own->temporary[number].generation;
    }
    return rg_upload_compose_json(&op->attributes, names, generations, count);
}

/* Joins some of the level into a temporary object of its own. False: it failed. */
static bool join_start(struct rg_upload_op *op, struct rg_upload_part *part, uint32_t first,
                       uint32_t count)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = join_temporary_encode, .check = temporary_check, .done = temporary_done};
    struct compose *own = compose_of(op);
    char name[TEMPORARY_NAME_SIZE_MAX];
    part->number = own->count;
    struct temporary *joined = temporary_at(own, part->number);
    if (joined == NULL) {
        rg_upload_out_of_memory(op);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct temporary *source = &own->temporary[own->level[first + i]];
        joined->crc = rg_crc32c_combine(joined->crc, source->crc, source->size);
        joined->size += source->size;
    }
    temporary_name(own, part->number, name);
    rg_upload_part_become(part, RG_PART_SENDING);
    part->lead = join_body(op, first, count);
    if (part->lead == NULL || rg_gcs_call_prepare(&part->call, &ops, name) < 0) {
        rg_upload_out_of_memory(op);
        return false;
    }
    part->call.request.x.lead = (const uint8_t *)part->lead;
    part->call.request.x.lead_size = strlen(part->lead);
    rg_verify_expect_written(&part->call.request.verify, joined->size, joined->crc);
    joined->is_begun = true;
    rg_upload_call_start(op, &part->call);
    return rg_upload_is_running(op);
}

static void last_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    join_encode(call, encoder, &rg_upload_op_of(call)->conditions);
}

static enum rg_status last_check(struct rg_gcs_call *call)
{
    call->request.idempotent = false;
    return rg_upload_read_stored(call);
}

static void last_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_op *op = rg_upload_call_ended(call);
    if (op == NULL) {
        return;
    }
    if (status == RG_STATUS_OK) {
        rg_upload_become(op, RG_UPLOAD_STORED);
    } else if (!call->request.idempotent && rg_status_retryable(status)) {
        /* Without a condition it is not tried again, but it may have been done. */
        rg_request_note_child(op->operation.request, &call->request);
        rg_upload_become(op, RG_UPLOAD_COMPARING);
    } else {
        rg_operation_fail_by(&op->operation, &call->request);
    }
}

static void last_start(struct rg_upload_op *op)
{
    static const struct rg_gcs_call_ops ops = {
        .encode = last_encode, .check = last_check, .done = last_done};
    struct compose *own = compose_of(op);
    own->body = join_body(op, 0, own->level_count);
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
    request->idempotent = rg_operation_idempotent(RG_OPERATION_COMPOSE, &op->conditions, 0);
    if (request->idempotent) {
        rg_upload_expect(op, request, rg_upload_parts_total(&op->parts),
                         rg_upload_parts_crc(&op->parts));
    }
    rg_upload_step(op, COMPOSE_LAST);
    rg_upload_call_publish(op, &op->call);
}

/* All parts are there: they are the first level. */
static bool joining_begin(struct rg_upload_op *op)
{
    struct compose *own = compose_of(op);
    RG_ASSERT(own->count == op->parts.next);
    own->level = reallocarray(NULL, own->count, sizeof(*own->level));
    if (own->level == NULL) {
        rg_upload_out_of_memory(op);
        return false;
    }
    own->level_count = own->count;
    for (uint32_t i = 0; i < own->count; i++) {
        own->level[i] = i;
    }
    rg_upload_step(op, COMPOSE_JOINING);
    return true;
}

/* Joins groups of the level, in order, as many at a time as there are slots. True: all are done. */
static bool level_join(struct rg_upload_op *op, uint32_t groups)
{
    const uint32_t size_max = RG_COMPOSE_SOURCES_MAX;
    struct compose *own = compose_of(op);
    for (uint32_t i = 0; i < op->parts.slot_count && own->level_next < groups; i++) {
        struct rg_upload_part *part = &op->parts.slots[i];
        uint32_t first = own->level_next * size_max;
        if (part->state != RG_PART_FREE) {
            continue;
        }
        if (!join_start(op, part, first, RG_MIN(own->level_count - first, size_max))) {
            return false;
        }
        own->level_next++;
    }
    return own->level_done == groups;
}

/* The groups of a level are joined in order, so they are the last temporary objects, and the next
 * level. */
static void joining_advance(struct rg_upload_op *op)
{
    const uint32_t size_max = RG_COMPOSE_SOURCES_MAX;
    struct compose *own = compose_of(op);
    while (own->level_count > size_max) {
        uint32_t groups = (own->level_count + size_max - 1) / size_max;
        if (!level_join(op, groups)) {
            return;
        }
        for (uint32_t i = 0; i < groups; i++) {
            own->level[i] = own->count - groups + i;
        }
        own->level_count = groups;
        own->level_done = own->level_next = 0;
    }
    last_start(op);
}

static void remove_encode(struct rg_gcs_call *call, struct rg_h1_encoder *encoder)
{
    const struct rg_request *request = &call->request;
    const struct compose *own = compose_of(rg_upload_op_of(call));
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, request->bucket, request->object);
    rg_target_query_i64(&target, "generation",
                        own->temporary[rg_upload_part_of(call)->number].generation);
    rg_gcs_call_encode(call, encoder, "DELETE", &target);
}

static void remove_done(struct rg_gcs_call *call, enum rg_status status)
{
    struct rg_upload_part *part = rg_upload_part_of(call);
    struct rg_upload_op *op = rg_upload_op_of(call);
    if (status == RG_STATUS_OK || status == RG_STATUS_NOT_FOUND) {
        compose_of(op)->temporary[part->number].is_begun = false;
    } else {
        rg_upload_step(op, COMPOSE_GAVE_UP);
    }
    (void)rg_upload_call_ended(call);
    rg_upload_part_free(part);
}

static bool remove_start(struct rg_upload_op *op, struct rg_upload_part *part, uint32_t number)
{
    static const struct rg_gcs_call_ops ops = {.encode = remove_encode, .done = remove_done};
    char name[TEMPORARY_NAME_SIZE_MAX];
    temporary_name(compose_of(op), number, name);
    if (rg_gcs_call_prepare(&part->call, &ops, name) < 0) {
        return false;
    }
    part->call.request.deadline_ns =
        op->operation.request->client_loop->loop->now_ns + RG_UPLOAD_CLEAN_TIME_NS;
    part->number = number;
    rg_upload_part_become(part, RG_PART_SENDING);
    rg_upload_call_start(op, &part->call);
    return part->call.out;
}

/* As many at a time as there are slots. Gives up where one could not be removed. */
static bool compose_clean(struct rg_upload_op *op)
{
    const struct compose *own = compose_of(op);
    uint32_t slot = 0;
    bool started = false;
    for (uint32_t i = 0; i < own->count && slot < op->parts.slot_count; i++) {
        if (!own->temporary[i].is_begun) {
            continue;
        }
        if (op->step == COMPOSE_GAVE_UP || !remove_start(op, &op->parts.slots[slot++], i)) {
            rg_log(RG_LOG_WARN, "temporary objects could not be removed: gs://%s/%s/",
                   op->operation.request->bucket, own->prefix);
            return started;
        }
        started = true;
    }
    return started;
}

static bool compose_stored(struct rg_upload_op *op)
{
    if (op->operation.out > 0) {
        return false;
    }
    /* Nothing more starts on a client that closes; what is stored is no failure for that. */
    return rg_client_loop_is_closing(op->operation.request->client_loop) || !compose_clean(op);
}

static void parts_advance(struct rg_upload_op *op)
{
    struct rg_upload_part *part;
    rg_upload_parts_fill(&op->parts);
    while (rg_upload_is_running(op) && (part = rg_upload_parts_filled(&op->parts)) != NULL) {
        part_send(op, part);
    }
}

static void compose_advance(struct rg_upload_op *op)
{
    if (op->step == COMPOSE_NEW) {
        struct compose *own = compose_of(op);
        char random[RG_NONCE_SIZE + 1];
        rg_nonce_draw(random);
        snprintf(own->prefix, sizeof(own->prefix), "%s%s", TEMPORARY_PREFIX, random);
        rg_upload_step(op, COMPOSE_PARTS);
    }
    if (op->step == COMPOSE_PARTS) {
        parts_advance(op);
        if (!rg_upload_is_running(op) || !rg_upload_parts_done(&op->parts) || !joining_begin(op)) {
            return;
        }
    }
    if (op->step == COMPOSE_JOINING) {
        joining_advance(op);
    }
}

static void compose_release(struct rg_upload_op *op)
{
    struct compose *own = compose_of(op);
    free(own->temporary);
    free(own->level);
    free(own->body);
}

const struct rg_upload_method_ops rg_upload_compose_method = {
    .name = "compose",
    .steps = steps,
    .own_size = sizeof(struct compose),
    .advance = compose_advance,
    .stored = compose_stored,
    .clean = compose_clean,
    .release = compose_release,
};
