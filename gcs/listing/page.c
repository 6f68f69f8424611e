/* The request for one page (Cloud Storage JSON API, "objects: list"): see page.h. The answer is
 * parsed into a lease; if there is no memory for one, the request waits for it. */
#include "gcs/listing/page.h"

#include "gcs/wire/list_parser.h"
#include "gcs/wire/names.h"
#include "gcs/wire/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a page of the service needs at most. Any page at all may need three times as much. */
#define LIST_MEMORY_USUAL(body_size) ((body_size)*4 + 4096)
/* The longest page token, prefix or offset. */
#define LIST_ARGUMENT_SIZE_MAX 8192

static const char list_fields[] =
    "nextPageToken,prefixes,items(name,size,generation,crc32c,updated)";

static int list_encode(struct rg_request *request, struct rg_h1_encoder *encoder)
{
    rg_h1_encode_request(encoder, "GET", request->list.target);
    return rg_request_encode_end(request, encoder);
}

static int list_head(struct rg_request *request, const struct rg_h1_head *head)
{
    RG_ASSERT(head->status >= 200 && head->status < 300);
    request->x.body_max = RG_LIST_BODY_SIZE_MAX;
    return RG_BODY_LEASE;
}

/* Parses a body into a lease, and into a larger one if that was too small. -ENOMEM: there is no
 * memory now, and `waiter` runs when there is. -EMSGSIZE: all memory would not be enough. */
static int list_parse(struct rg_request *request, const char *body, size_t body_size,
                      struct rg_completion *completion)
{
    struct rg_list_state *state = &request->list;
    struct rg_loop *loop = request->client_loop->loop;
    size_t bound = rg_list_page_size_bound(body_size);
    size_t size_max = RG_MIN(bound, rg_slab_size_max(loop->slabs));
    for (;;) {
        state->page_size = RG_MIN(state->page_size, size_max);
        struct rg_lease *lease = rg_loop_take_slab(loop, state->page_size, &state->waiter);
        if (lease == NULL) {
            return -ENOMEM;
        }
        struct rg_list_page *page;
        const char *problem;
        int rc = rg_list_page_parse(body, body_size, lease->data, lease->capacity, &page, &problem);
        if (rc == 0) {
            completion->data = page;
            completion->size = sizeof(*page);
            completion->lease = lease;
            return 0;
        }
        rg_lease_release(lease);
        if (rc != -ENOSPC) {
            rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
            return rc;
        }
        if (state->page_size == size_max) {
            RG_ASSERT(size_max < bound);
            return -EMSGSIZE;
        }
        state->page_size = size_max;
    }
}

static enum rg_status list_status(int rc)
{
    switch (rc) {
    case 0:
        return RG_STATUS_OK;
    case -ENOMEM:
        return RG_STATUS_NO_RESOURCES;
    case -EBADMSG:
        return RG_STATUS_BAD_RESPONSE;
    default:
        return RG_STATUS_TOO_LARGE;
    }
}

/* While a page waits for memory, its body moves to the heap, so that it holds no memory for which
 * others wait. */
static int body_set_aside(struct rg_request *request)
{
    struct rg_list_state *state = &request->list;
    state->body_size = (size_t)request->x.body_size;
    state->body = malloc(state->body_size + 1);
    if (state->body == NULL) {
        rg_loop_undefer(&state->waiter);
        return -ENOMEM;
    }
    memcpy(state->body, request->x.body, state->body_size);
    return 0;
}

static enum rg_status list_finish(struct rg_request *request, struct rg_completion *completion)
{
    size_t body_size = (size_t)request->x.body_size;
    request->list.page_size = LIST_MEMORY_USUAL(body_size);
    int rc = list_parse(request, (const char *)request->x.body, body_size, completion);
    if (rc == -ENOMEM) {
        rc = body_set_aside(request);
        if (rc == 0) {
            rg_request_await_memory(request);
        }
    }
    rg_lease_release(request->x.lease);
    return list_status(rc);
}

static void memory_came(struct rg_task *task)
{
    struct rg_request *request = RG_CONTAINER_OF(task, struct rg_request, list.waiter);
    struct rg_list_state *state = &request->list;
    struct rg_completion completion = {.http_status = request->x.http_status};
    RG_ASSERT(request->state == RG_REQUEST_MEMORY);
    int rc = list_parse(request, state->body, state->body_size, &completion);
    if (rc == -ENOMEM) {
        return;
    }
    free(state->body);
    state->body = NULL;
    rg_request_answered(request, list_status(rc), &completion);
}

static void list_release(struct rg_request *request)
{
    rg_loop_undefer(&request->list.waiter);
    free(request->list.body);
    free(request->list.target);
    request->list.body = request->list.target = NULL;
}

static const struct rg_request_ops list_ops = {
    .verb = "list",
    .operation = RG_VERB_LIST,
    .encode = list_encode,
    .head = list_head,
    .finish = list_finish,
    .release = list_release,
};

static size_t argument_size(const char *text)
{
    return text != NULL ? strlen(text) : 0;
}

static int list_target(const struct rg_list_question *question, char **out_target)
{
    const struct rg_list_request *list = &question->list;
    size_t size = 0;
    const char *const arguments[] = {list->prefix,     list->delimiter,  list->start_offset,
                                     list->end_offset, list->page_token, question->glob};
    for (size_t i = 0; i < RG_ARRAY_LEN(arguments); i++) {
        if (argument_size(arguments[i]) > LIST_ARGUMENT_SIZE_MAX) {
            return -EINVAL;
        }
        size += argument_size(arguments[i]);
    }
    size_t capacity = RG_NAME_ENCODED_SIZE_MAX(size + strlen(list->bucket)) + 512;
    char *text = malloc(capacity);
    if (text == NULL) {
        return -ENOMEM;
    }
    struct rg_target target;
    rg_target_init(&target, text, capacity);
    rg_target_add_object(&target, list->bucket, NULL);
    rg_target_add(&target, "/o");
    rg_target_query(&target, "prettyPrint", "false");
    rg_target_query(&target, "projection", "noAcl");
    rg_target_query(&target, "fields", list_fields);
    rg_target_query_i64(&target, "maxResults",
                        list->results_max != 0 ? list->results_max : RG_LIST_RESULTS_MAX);
    rg_target_query(&target, "prefix", list->prefix);
    rg_target_query(&target, "delimiter", list->delimiter);
    rg_target_query(&target, "matchGlob", question->glob);
    rg_target_query(&target, "versions", question->versions ? "true" : NULL);
    rg_target_query(&target, "includeFoldersAsPrefixes",
                    question->folders_as_prefixes ? "true" : NULL);
    rg_target_query(&target, "startOffset", list->start_offset);
    rg_target_query(&target, "endOffset", list->end_offset);
    rg_target_query(&target, "pageToken", list->page_token);
    RG_ASSERT(rg_target_end(&target) > 0);
    *out_target = text;
    return 0;
}

int rg_list_prepare(struct rg_request *request, const struct rg_list_question *question)
{
    const struct rg_list_request *list = &question->list;
    int rc = rg_request_set_names(request, list->bucket, NULL);
    if (rc < 0 || list->results_max > RG_LIST_RESULTS_MAX) {
        return -EINVAL;
    }
    rg_request_prepare(request, &list_ops, list->user_data, list->deadline_ns);
    request->list = (struct rg_list_state){.waiter.run = memory_came};
    snprintf(request->object, sizeof(request->object), "%s",
             list->prefix != NULL ? list->prefix : "");
    return list_target(question, &request->list.target);
}

int rg_submit_list_sized(struct rg_client *client, struct rg_cq *cq,
                         const struct rg_list_request *list, size_t struct_size)
{
    struct rg_list_question own = {.glob = NULL};
    memcpy(&own.list, list, RG_MIN(struct_size, sizeof(own.list)));
    struct rg_request *request;
    int rc = rg_client_reserve(client, cq, &request);
    if (rc < 0) {
        return rc;
    }
    rc = rg_list_prepare(request, &own);
    if (rc < 0) {
        rg_client_unreserve(request);
        return rc;
    }
    rg_client_post(request);
    return 0;
}
