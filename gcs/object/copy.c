/* Copying an object on the server (Cloud Storage JSON API, "objects: rewrite").
 *
 *   stat the source -> step -> step with the last one's token -> ... -> done: compare the CRC32C
 *
 * The source's generation is pinned by the first request, so that all steps copy the same bytes and
 * its CRC32C is known. */
#include "gcs/request/idempotency.h"
#include "gcs/request/object_request.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STEP_SIZE_MIN RG_MIB(1) /* what one step copies at least, but for the last */
/* Steps in a row that copy nothing, up to which the service is believed. */
#define IDLE_STEPS_MAX 16

struct rg_copy_state {
    struct rg_request child; /* the stat, then each step in turn */
    struct rg_copy copy;     /* its strings are those below */
    struct rg_object source;
    uint64_t rewritten, steps_left;
    uint32_t idle_steps;
    char source_bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
    char source_object[RG_OBJECT_NAME_SIZE_MAX + 1];
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
    if (!request->settle.asking) {
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
    return rg_object_finish(request, parse_step, completion);
}

static const struct rg_request_ops step_ops = {
    .verb = "copy",
    .traffic = RG_TRAFFIC_WRITE,
    .encode = rg_object_encode,
    .head = rg_object_head,
    .finish = step_finish,
    .release = rg_object_release,
};

static void step_done(struct rg_request *child, struct rg_completion *completion);

static int step_prepare(struct rg_request *request, const char *token)
{
    struct rg_copy_state *state = request->copy;
    const struct rg_copy *copy = &state->copy;
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text), request->client->endpoint.path);
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
    rg_target_query(&target, "rewriteToken", token);
    struct rg_object_call call = {.method = "POST",
                                  .target = &target,
                                  .body = strdup("{}"), /* the metadata is the source's */
                                  .body_size = 2,
                                  .deadline_ns = copy->deadline_ns};
    if (call.body == NULL) {
        return -ENOMEM;
    }
    rg_request_init_child(&state->child, request, step_done);
    int rc = rg_request_set_names(&state->child, copy->bucket, copy->object);
    RG_ASSERT(rc == 0);
    rc = rg_object_prepare(&state->child, &step_ops, &call);
    if (rc < 0) {
        return rc;
    }
    state->child.idempotent = rg_operation_idempotent(RG_OPERATION_COPY, &copy->conditions, 0);
    if (state->child.idempotent && state->source.has_crc32c) {
        rg_settle_expect_written(&state->child, state->source.size, state->source.crc32c);
    }
    return 0;
}

static void step_start(struct rg_request *request, const char *token)
{
    int rc = step_prepare(request, token);
    if (rc < 0) {
        rg_request_note(request, rc == -ENOMEM ? RG_STATUS_NO_RESOURCES : RG_STATUS_BAD_RESPONSE,
                        rc == -ENOMEM ? "no memory for a step" : "the token is too long");
    } else if (rg_request_start(&request->copy->child)) {
        return;
    } else {
        rg_object_release(&request->copy->child);
        rg_request_note(request, RG_STATUS_CLOSED, "%s", "");
    }
    rg_request_fail(request);
}

/* True, with the failure noted, when the copy does not get on as the service documents. */
static bool is_stuck(struct rg_request *request, const struct rg_rewrite_answer *answer)
{
    struct rg_copy_state *state = request->copy;
    state->idle_steps = answer->rewritten > state->rewritten ? 0 : state->idle_steps + 1;
    if (answer->rewritten < state->rewritten || answer->rewritten > state->source.size ||
        state->idle_steps > IDLE_STEPS_MAX || state->steps_left == 0) {
        rg_request_note(request, RG_STATUS_BAD_RESPONSE,
                        "the copy does not come to an end: %" PRIu64 " of %" PRIu64
                        " bytes, after %" PRIu64 " before",
                        answer->rewritten, state->source.size, state->rewritten);
        return true;
    }
    state->rewritten = answer->rewritten;
    state->steps_left--;
    return false;
}

/* The copy is there: is it what the source is? */
static bool is_equal(struct rg_request *request, const struct rg_object_info *info)
{
    const struct rg_object *source = &request->copy->source, *copy = &info->object;
    bool same_crc = !source->has_crc32c || !copy->has_crc32c || copy->crc32c == source->crc32c;
    if (copy->size == source->size && same_crc) {
        return true;
    }
    rg_request_note(request, RG_STATUS_CHECKSUM,
                    "the source has %" PRIu64 " bytes with CRC32C %08" PRIx32 ", the copy %" PRIu64
                    " with %08" PRIx32 "; delete generation %" PRId64,
                    source->size, source->crc32c, copy->size, copy->crc32c, copy->generation);
    return false;
}

static void step_done(struct rg_request *child, struct rg_completion *completion)
{
    struct rg_request *request = child->parent;
    rg_object_count_child(request, completion);
    if (completion->status != RG_STATUS_OK) {
        rg_request_note_child(request, child);
        rg_request_fail(request);
        return;
    }
    const struct rg_rewrite_answer *answer = completion->data;
    if (!answer->done) {
        if (is_stuck(request, answer)) {
            rg_request_fail(request);
        } else {
            step_start(request, answer->token);
        }
        rg_lease_release(completion->lease);
        return;
    }
    if (!is_equal(request, answer->info)) {
        rg_lease_release(completion->lease);
        rg_request_fail(request);
        return;
    }
    rg_object_complete_info(completion, answer->info);
    rg_request_finish(request, completion);
}

static void stat_done(struct rg_request *child, struct rg_completion *completion)
{
    struct rg_request *request = child->parent;
    struct rg_copy_state *state = request->copy;
    rg_object_count_child(request, completion);
    if (completion->status != RG_STATUS_OK) {
        rg_request_note(request, child->failure.status, "the source gs://%s/%s: %s",
                        state->copy.source_bucket, state->copy.source_object, child->failure.text);
        request->failure.os_error = child->failure.os_error;
        request->failure.http_status = child->failure.http_status;
        rg_request_fail(request);
        return;
    }
    const struct rg_object_info *info = completion->data;
    state->source = (struct rg_object){.size = info->object.size,
                                       .generation = info->object.generation,
                                       .crc32c = info->object.crc32c,
                                       .has_crc32c = info->object.has_crc32c};
    state->steps_left = state->source.size / STEP_SIZE_MIN + IDLE_STEPS_MAX;
    rg_lease_release(completion->lease);
    step_start(request, NULL);
}

static void copy_start(struct rg_request *request)
{
    struct rg_copy_state *state = request->copy;
    const struct rg_copy *copy = &state->copy;
    struct rg_stat stat = {.bucket = copy->source_bucket,
                           .object = copy->source_object,
                           .generation = copy->source_generation,
                           .conditions = copy->source_conditions,
                           .deadline_ns = copy->deadline_ns};
    rg_request_init_child(&state->child, request, stat_done);
    int rc = rg_stat_prepare(&state->child, &stat);
    if (rc == 0 && rg_request_start(&state->child)) {
        return;
    }
    if (rc == 0) {
        rg_object_release(&state->child);
    }
    rg_request_note(request, rc == 0 ? RG_STATUS_CLOSED : RG_STATUS_NO_RESOURCES, "%s", "");
    rg_request_fail(request);
}

/* A child is always out. */
static void copy_cancel(struct rg_request *request, enum rg_status status)
{
    rg_request_cancel(&request->copy->child, status);
}

static void copy_release(struct rg_request *request)
{
    free(request->copy);
    request->copy = NULL;
}

static const struct rg_request_ops copy_ops = {
    .verb = "copy to",
    .start = copy_start,
    .cancel = copy_cancel,
    .release = copy_release,
};

static int copy_prepare(struct rg_request *request, const void *given)
{
    const struct rg_copy *copy = given;
    if (copy->object == NULL || copy->source_object == NULL || copy->source_generation < 0 ||
        copy->step_max % STEP_SIZE_MIN != 0 || copy->step_max > INT64_MAX ||
        !rg_conditions_valid(&copy->conditions) || !rg_conditions_valid(&copy->source_conditions)) {
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
    rg_request_prepare(request, &copy_ops, copy->user_data, copy->deadline_ns);
    request->copy = state;
    return 0;
}

int rg_submit_copy_sized(struct rg_client *client, struct rg_cq *cq, const struct rg_copy *copy,
                         size_t struct_size)
{
    struct rg_copy own = {0};
    memcpy(&own, copy, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, copy_prepare, &own);
}
