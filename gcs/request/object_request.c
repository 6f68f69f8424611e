/* See object_request.h. */
#include "gcs/request/object_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int rg_object_submit(struct rg_client *client, struct rg_cq *cq,
                     int (*prepare)(struct rg_request *request, const void *given),
                     const void *given)
{
    struct rg_request *request;
    int rc = rg_client_reserve(client, cq, &request);
    if (rc < 0) {
        return rc;
    }
    rc = prepare(request, given);
    if (rc < 0) {
        rg_client_unreserve(request);
        return rc;
    }
    rg_client_post(request);
    return 0;
}

int rg_object_prepare(struct rg_request *request, const struct rg_request_ops *ops,
                      const struct rg_object_call *call)
{
    int size = rg_target_end(call->target);
    char *target = size >= 0 ? strdup(call->target->text) : NULL;
    if (target == NULL) {
        free(call->body);
        return size < 0 ? -EINVAL : -ENOMEM;
    }
    rg_request_prepare(request, ops, call->user_data, call->deadline_ns);
    request->object_request = (struct rg_object_request_state){
        .method = call->method,
        .content_type =
            call->content_type != NULL ? call->content_type : "application/json; charset=UTF-8",
        .target = target,
        .body = call->body,
        .body_size = call->body_size,
    };
    request->x.upload = (const uint8_t *)call->body;
    request->x.upload_size = call->body_size;
    return 0;
}

int rg_object_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    const struct rg_object_request_state *state = &request->object_request;
    rg_h1_encode_request(encoder, state->method, state->target);
    if (state->body != NULL) {
        rg_h1_encode_header(encoder, "Content-Type", state->content_type);
        rg_h1_encode_header_u64(encoder, "Content-Length", state->body_size);
    }
    return rg_request_encode_end(request, encoder);
}

int rg_object_head(struct rg_request *request, const struct rg_h1_head *head)
{
    RG_ASSERT(head->status >= 200 && head->status < 300);
    request->x.body_max = RG_RESOURCE_BODY_SIZE_MAX;
    return RG_BODY_LEASE;
}

void rg_object_release(struct rg_request *request)
{
    struct rg_object_request_state *state = &request->object_request;
    free(state->target);
    free(state->body);
    free(state->names);
    *state = (struct rg_object_request_state){0};
}

static enum rg_status answer_parse(struct rg_request *request, rg_object_parse *parse,
                                   struct rg_completion *completion)
{
    struct rg_slab_arena *slabs = request->client_loop->loop->slabs;
    size_t body_size = (size_t)request->x.body_size;
    size_t size = RG_OBJECT_FRONT_SIZE + rg_object_info_size_bound(body_size);
    if (size > rg_slab_size_max(slabs)) {
        return RG_STATUS_TOO_LARGE;
    }
    struct rg_lease *memory = rg_slab_take(slabs, size);
    if (memory == NULL) {
        rg_request_note(request, RG_STATUS_NO_RESOURCES, "no memory for what the answer says");
        return RG_STATUS_NO_RESOURCES;
    }
    const char *problem;
    completion->status = RG_STATUS_OK;
    completion->lease = memory;
    if (parse(request, memory->data, memory->capacity, completion, &problem) < 0) {
        rg_lease_release(memory);
        completion->lease = NULL;
        rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        return RG_STATUS_BAD_RESPONSE;
    }
    return RG_STATUS_OK;
}

enum rg_status rg_object_finish(struct rg_request *request, rg_object_parse *parse,
                                struct rg_completion *completion)
{
    if (strcmp(request->object_request.method, "GET") != 0) {
        /* It is done: whatever is wrong with the answer, another attempt could only do it twice. */
        request->idempotent = false;
    }
    enum rg_status status = answer_parse(request, parse, completion);
    rg_lease_release(request->x.lease);
    return status;
}

void rg_object_complete_info(struct rg_completion *completion, const struct rg_object_info *info)
{
    completion->data = info;
    completion->size = sizeof(*info);
    completion->generation = info->object.generation;
    completion->object_size = info->object.size;
    completion->object_crc32c = info->object.crc32c;
    completion->has_object_crc32c = info->object.has_crc32c;
}

static int parse_info(struct rg_request *request, uint8_t *memory, size_t memory_size,
                      struct rg_completion *completion, const char **out_problem)
{
    struct rg_object_info *info;
    int rc = rg_object_info_parse((const char *)request->x.body, (size_t)request->x.body_size,
                                  memory + RG_OBJECT_FRONT_SIZE, memory_size - RG_OBJECT_FRONT_SIZE,
                                  &info, out_problem);
    if (rc == 0) {
        rg_object_complete_info(completion, info);
    }
    return rc;
}

enum rg_status rg_object_finish_info(struct rg_request *request, struct rg_completion *completion)
{
    return rg_object_finish(request, parse_info, completion);
}
