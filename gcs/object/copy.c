/* Copying an object on the server (Cloud Storage JSON API, "objects: rewrite").
 *
 *   stat the source -> step -> step with the last one's token -> ... -> done: compare the CRC32C
 *
 * The source's generation is pinned by the first request, so that all steps copy the same bytes and
 * its CRC32C is known. With a storage class each step says the source's metadata, too; to its own
 * place also who may read it and the key that it is encrypted with, or the bucket's would be taken.
 */
#include "gcs/request/idempotency.h"
#include "gcs/request/object_request.h"
#include "gcs/request/operation.h"
#include "gcs/wire/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STEP_SIZE_MIN RG_MIB(1) /* what one step copies at least, but for the last */
/* Steps in a row that copy nothing, up to which the service is believed. */
#define IDLE_STEPS_MAX 16
#define CLASS_SIZE_MAX 63

struct rg_copy_state {
    struct rg_operation operation;
    struct rg_request child;      /* the stat, then each step in turn */
    struct rg_completion arrived; /* of the child that has ended; its lease is owned */
    struct rg_copy copy;          /* its strings are those below */
    struct rg_object source;
    uint64_t rewritten, steps_left;
    uint32_t idle_steps;
    bool has_child;              /* the stat was prepared */
    bool has_source;             /* it was answered */
    bool wants_acl;              /* asks for the source's access control list */
    struct rg_rewrite_said said; /* by each step; nothing: the metadata is the source's */
    char storage_class[CLASS_SIZE_MAX + 1];
    char source_bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
    char source_object[RG_OBJECT_NAME_SIZE_MAX + 1];
};

static struct rg_copy_state *state_of(struct rg_operation *operation)
{
    return RG_CONTAINER_OF(operation, struct rg_copy_state, operation);
}

static bool is_own_place(const struct rg_copy *copy)
{
    return strcmp(copy->bucket, copy->source_bucket) == 0 &&
           strcmp(copy->object, copy->source_object) == 0;
}

static int parse_source(struct rg_request *request, uint8_t *memory, size_t memory_size,
                        struct rg_completion *completion, const char **out_problem)
{
    struct rg_copy_state *state = state_of(request->parent->operation);
    const char *body = (const char *)request->x.body;
    size_t body_size = (size_t)request->x.body_size;
    struct rg_object_info *info;
    int rc = rg_object_info_parse(body, body_size, memory + RG_OBJECT_FRONT_SIZE,
                                  memory_size - RG_OBJECT_FRONT_SIZE, &info, out_problem);
    if (rc < 0) {
        return rc;
    }
    rg_object_complete_info(completion, info);
    if (state->copy.storage_class != NULL) {
        rc = rg_rewrite_say(body, body_size, state->copy.storage_class, is_own_place(&state->copy),
                            &state->said);
        *out_problem =
            rc == -ENOMEM ? "needs more memory than there is" : "has metadata that cannot be sent";
    }
    return rc;
}

static enum rg_status source_finish(struct rg_request *request, struct rg_completion *completion)
{
    return rg_object_finish(request, parse_source, completion);
}

/* Asks for all of the resource, also for what the library itself has no use for. */
static const struct rg_request_ops source_ops = {
    .verb = "stat",
    .operation = RG_VERB_STAT,
    .encode = rg_object_encode,
    .head = rg_object_head,
    .finish = source_finish,
    .release = rg_object_release,
};

static int parse_step(struct rg_request *request, uint8_t *memory, size_t memory_size,
                      struct rg_completion *completion, const char **out_problem)
{
    struct rg_rewrite_answer *answer = (struct rg_rewrite_answer *)memory;
    const char *body = (const char *)request->x.body;
    size_t body_size = (size_t)request->x.body_size;
    memory += RG_OBJECT_FRONT_SIZE;
    memory_size -= RG_OBJECT_FRONT_SIZE;
    completion->data = answer;
    if (!request->verify.asking) {
        return rg_rewrite_answer_parse(body, body_size, memory, memory_size, answer, out_problem);
    }
    struct rg_object_info *info;
    int rc = rg_object_info_parse(body, body_size, memory, memory_size, &info, out_problem);
    *answer = (struct rg_rewrite_answer){.done = true, .info = rc == 0 ? info : NULL};
    return rc;
}

static enum rg_status step_finish(struct rg_request *request, struct rg_completion *completion)
{
    static_assert(sizeof(struct rg_rewrite_answer) <= RG_OBJECT_FRONT_SIZE, "it lies in front");
    enum rg_status status = rg_object_finish(request, parse_step, completion);
    if (status != RG_STATUS_OK || !request->verify.asking) {
        return status;
    }
    /* Where the class is changed, the same bytes were there before. */
    const struct rg_copy *copy = &state_of(request->parent->operation)->copy;
    const struct rg_rewrite_answer *answer = completion->data;
    const char *class = answer->info->storage_class;
    if (copy->storage_class == NULL ||
        (class != NULL && strcasecmp(class, copy->storage_class) == 0)) {
        return RG_STATUS_OK;
    }
    rg_request_note(
        request, RG_STATUS_PRECONDITION,
        "what is there has the same bytes and another storage class, %s: an earlier try "
        "wrote it, and the bucket chooses classes itself (Autoclass), or somebody else "
        "did",
        class != NULL ? class : "unknown");
    rg_lease_release(completion->lease);
    completion->lease = NULL;
    return RG_STATUS_PRECONDITION;
}

static const struct rg_request_ops step_ops = {
    .verb = "copy",
    .operation = RG_VERB_COPY,
    .traffic = RG_TRAFFIC_WRITE,
    .encode = rg_object_encode,
    .head = rg_object_head,
    .finish = step_finish,
    .release = rg_object_release,
};

static void child_done(struct rg_request *child, struct rg_completion *completion)
{
    struct rg_copy_state *state = state_of(child->parent->operation);
    state->arrived = *completion;
    rg_operation_child_ended(&state->operation, child);
}

static int step_prepare(struct rg_copy_state *state, const char *token)
{
    struct rg_request *request = state->operation.request;
    const struct rg_copy *copy = &state->copy;
    const struct rg_rewrite_said *said = &state->said;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, copy->source_bucket, copy->source_object);
    rg_target_add(&target, "/rewriteTo/b/");
    rg_target_add_name(&target, copy->bucket);
    rg_target_add(&target, "/o/");
    rg_target_add_name(&target, copy->object);
    rg_target_query(&target, "prettyPrint", "false");
    rg_target_query(&target, "projection", "noAcl");
    rg_target_query_i64(&target, "sourceGeneration", state->source.generation);
    rg_target_query_i64(&target, "maxBytesRewrittenPerCall", (int64_t)copy->step_max);
    rg_target_conditions(&target, &copy->conditions);
    rg_target_source_conditions(&target, &copy->source_conditions);
    rg_target_query(&target, "destinationKmsKeyName", said->kms_key);
    rg_target_query(&target, "rewriteToken", token);
    struct rg_object_call call = {.method = "POST",
                                  .target = &target,
                                  .body = strdup(said->body != NULL ? said->body : "{}"),
                                  .body_size = said->body != NULL ? said->body_size : 2,
                                  .deadline_ns = copy->deadline_ns};
    if (call.body == NULL) {
        return -ENOMEM;
    }
    rg_request_init_child(&state->child, request, child_done);
    int rc = rg_request_set_names(&state->child, copy->bucket, copy->object);
    RG_ASSERT(rc == 0);
    rc = rg_object_prepare(&state->child, &step_ops, &call);
    if (rc < 0) {
        return rc;
    }
    state->child.idempotent = rg_operation_idempotent(RG_OPERATION_COPY, &copy->conditions, 0);
    if (state->child.idempotent && state->source.has_crc32c) {
        rg_verify_expect_written(&state->child.verify, state->source.size, state->source.crc32c);
    }
    return 0;
}

static void step_start(struct rg_copy_state *state, const char *token)
{
    int rc = step_prepare(state, token);
    if (rc == 0) {
        (void)rg_operation_child_start(&state->operation, &state->child);
    } else if (rc == -ENOMEM) {
        rg_operation_fail(&state->operation, RG_STATUS_NO_RESOURCES, "no memory for a step");
    } else {
        rg_operation_fail(&state->operation, RG_STATUS_BAD_RESPONSE, "the token is too long");
    }
}

/* The answer of a step that was not the last one. */
static void step_answered(struct rg_copy_state *state, const struct rg_rewrite_answer *answer)
{
    state->idle_steps = answer->rewritten > state->rewritten ? 0 : state->idle_steps + 1;
    if (answer->rewritten < state->rewritten || answer->rewritten > state->source.size ||
        state->idle_steps > IDLE_STEPS_MAX || state->steps_left == 0) {
        /* It does not get on as the service documents. */
        rg_operation_fail(&state->operation, RG_STATUS_BAD_RESPONSE,
                          "the copy does not come to an end: %" PRIu64 " of %" PRIu64
                          " bytes, after %" PRIu64 " before",
                          answer->rewritten, state->source.size, state->rewritten);
        return;
    }
    state->rewritten = answer->rewritten;
    state->steps_left--;
    step_start(state, answer->token);
}

/* The copy is there: is it what the source is? False: the operation has failed. */
static bool is_equal(struct rg_copy_state *state, const struct rg_object_info *info)
{
    const struct rg_object *source = &state->source, *copy = &info->object;
    bool same_crc = !source->has_crc32c || !copy->has_crc32c || copy->crc32c == source->crc32c;
    if (copy->size == source->size && same_crc) {
        return true;
    }
    rg_operation_fail(&state->operation, RG_STATUS_CHECKSUM,
                      "the source has %" PRIu64 " bytes with CRC32C %s"
                      ", the copy %" PRIu64 " with %s; delete generation %" PRId64,
                      source->size, rg_crc32c_text(source->crc32c).text, copy->size,
                      rg_crc32c_text(copy->crc32c).text, copy->generation);
    return false;
}

/* True: the operation is over. */
static bool step_take(struct rg_copy_state *state, struct rg_completion *completion)
{
    const struct rg_rewrite_answer *answer = completion->data;
    if (!answer->done) {
        step_answered(state, answer);
        return false;
    }
    if (!is_equal(state, answer->info)) {
        return false;
    }
    rg_object_complete_info(completion, answer->info);
    rg_operation_finish(&state->operation, completion);
    return true;
}

/* The cause of a failed child is that of the copy. */
static void child_note(struct rg_copy_state *state)
{
    struct rg_request *request = state->operation.request;
    const struct rg_request *child = &state->child;
    if (state->has_source) {
        rg_request_note_child(request, child);
        return;
    }
    request->failure.os_error = child->failure.os_error;
    request->failure.http_status = child->failure.http_status;
    rg_request_note(request, child->failure.status, "the source gs://%s/%s: %s",
                    state->copy.source_bucket, state->copy.source_object, child->failure.text);
}

/* Neither a newer object nor metadata that were changed since are written over. */
static void own_place_guard(struct rg_copy_state *state, const struct rg_object_info *info)
{
    struct rg_conditions *conditions = &state->copy.conditions;
    if (conditions->if_generation_match == 0) {
        conditions->if_generation_match = info->object.generation;
    }
    if (state->said.body != NULL && conditions->if_metageneration_match == 0) {
        conditions->if_metageneration_match = info->metageneration;
    }
}

static void source_take(struct rg_copy_state *state, const struct rg_object_info *info)
{
    state->source = (struct rg_object){.size = info->object.size,
                                       .generation = info->object.generation,
                                       .crc32c = info->object.crc32c,
                                       .has_crc32c = info->object.has_crc32c};
    state->has_source = true;
    if (is_own_place(&state->copy)) {
        own_place_guard(state, info);
    }
    state->steps_left = state->source.size / STEP_SIZE_MIN + IDLE_STEPS_MAX;
    step_start(state, NULL);
}

static int source_prepare(struct rg_copy_state *state)
{
    const struct rg_copy *copy = &state->copy;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, copy->source_bucket, copy->source_object);
    rg_target_query(&target, "prettyPrint", "false");
    rg_target_query(&target, "projection", state->wants_acl ? "full" : NULL);
    rg_target_query_i64(&target, "generation", copy->source_generation);
    rg_target_conditions(&target, &copy->source_conditions);
    rg_request_init_child(&state->child, state->operation.request, child_done);
    int rc = rg_request_set_names(&state->child, copy->source_bucket, copy->source_object);
    RG_ASSERT(rc == 0);
    return rg_object_prepare(&state->child, &source_ops,
                             &(struct rg_object_call){.method = "GET",
                                                      .target = &target,
                                                      .deadline_ns = copy->deadline_ns});
}

static void source_start(struct rg_copy_state *state)
{
    if (source_prepare(state) < 0) {
        rg_operation_fail(&state->operation, RG_STATUS_NO_RESOURCES, "%s", "");
        return;
    }
    state->has_child = true;
    (void)rg_operation_child_start(&state->operation, &state->child);
}

/* In most buckets access is by a policy of theirs: objects have no list, and it takes a permission
 * to ask for one that changing a class does not. */
static bool is_refused(enum rg_status status)
{
    return status == RG_STATUS_PERMISSION || status == RG_STATUS_BAD_REQUEST;
}

static void copy_advance(struct rg_operation *operation)
{
    struct rg_copy_state *state = state_of(operation);
    struct rg_completion completion = state->arrived;
    if (operation->out > 0) {
        return;
    }
    state->arrived.lease = NULL;
    if (!state->has_child) {
        source_start(state);
    } else if (!state->has_source && state->wants_acl && is_refused(completion.status)) {
        state->wants_acl = false;
        source_start(state);
    } else if (completion.status != RG_STATUS_OK) {
        child_note(state);
        rg_operation_stop(operation, completion.status);
    } else if (!state->has_source) {
        source_take(state, completion.data);
    } else if (step_take(state, &completion)) {
        return;
    }
    rg_lease_release(completion.lease);
}

static void copy_stop(struct rg_operation *operation, bool hurry)
{
    struct rg_copy_state *state = state_of(operation);
    if (operation->out > 0) {
        rg_request_cancel(&state->child, hurry ? RG_STATUS_CLOSED : operation->stopped_by);
    }
}

/* The answer of the last step may have come before the cancellation could take effect. */
static void copy_verify(struct rg_operation *operation)
{
    struct rg_copy_state *state = state_of(operation);
    const struct rg_rewrite_answer *answer = state->arrived.data;
    if (!state->has_child || operation->request->failure.status != RG_STATUS_OK) {
        return;
    }
    if (state->arrived.status != RG_STATUS_OK) {
        child_note(state);
    } else if (state->has_source && answer->done) {
        rg_operation_resume(operation);
    }
}

static void copy_free(struct rg_operation *operation)
{
    struct rg_copy_state *state = state_of(operation);
    rg_lease_release(state->arrived.lease);
    rg_rewrite_said_fini(&state->said);
    free(state);
}

static const struct rg_operation_ops operation_ops = {
    .advance = copy_advance,
    .stop = copy_stop,
    .verify = copy_verify,
    .free = copy_free,
};

static const struct rg_request_ops copy_ops = {
    .verb = "copy to",
    .operation = RG_VERB_COPY,
    .start = rg_operation_start,
    .cancel = rg_operation_cancel,
    .release = rg_operation_release,
};

/* It is one word of the service's. */
static bool class_valid(const char *class)
{
    size_t size = class != NULL ? strlen(class) : 1;
    bool valid = size > 0 && size <= CLASS_SIZE_MAX;
    for (const char *c = class; valid && c != NULL && *c != '\0'; c++) {
        valid = *c > ' ' && *c <= '~';
    }
    return valid;
}

static int copy_prepare(struct rg_request *request, const void *given)
{
    const struct rg_copy *copy = given;
    if (copy->object == NULL || copy->source_object == NULL || copy->source_generation < 0 ||
        copy->step_max % STEP_SIZE_MIN != 0 || copy->step_max > INT64_MAX ||
        !rg_conditions_valid(&copy->conditions) || !rg_conditions_valid(&copy->source_conditions) ||
        !class_valid(copy->storage_class)) {
        return -EINVAL;
    }
    /* The request takes and checks both pairs of names, one after the other. */
    if (rg_request_set_names(request, copy->source_bucket, copy->source_object) < 0 ||
        rg_request_set_names(request, copy->bucket, copy->object) < 0) {
        return -EINVAL;
    }
    struct rg_copy_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return -ENOMEM;
    }
    state->copy = *copy;
    strcpy(state->source_bucket, copy->source_bucket);
    strcpy(state->source_object, copy->source_object);
    state->copy.source_bucket = state->source_bucket;
    state->copy.source_object = state->source_object;
    state->copy.bucket = request->bucket;
    state->copy.object = request->object;
    if (copy->storage_class != NULL) {
        strcpy(state->storage_class, copy->storage_class);
        state->copy.storage_class = state->storage_class;
        state->wants_acl = is_own_place(&state->copy);
    }
    rg_request_prepare(request, &copy_ops, copy->user_data, copy->deadline_ns);
    rg_operation_init(&state->operation, &operation_ops, request);
    return 0;
}

int rg_submit_copy_sized(struct rg_client *client, struct rg_cq *cq, const struct rg_copy *copy,
                         size_t struct_size)
{
    struct rg_copy own = {0};
    memcpy(&own, copy, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, copy_prepare, &own);
}
