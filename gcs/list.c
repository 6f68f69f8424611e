/* Reading one page of a listing (Cloud Storage JSON API, "objects: list"). */
#include "gcs/list_parser.h"
#include "gcs/names.h"
#include "gcs/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_RESULTS_MAX 1000
/* What the service's own pages need at most; what any page may need is three times as much. */
#define LIST_MEMORY_USUAL(body_size) ((body_size)*6 + 4096)
/* Of a page token, a prefix or an offset. */
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

/* Parses the page into a slab of this size. -ENOSPC: a larger one is needed; -ENOMEM: none is free.
 */
static int list_parse(struct rg_request *request, size_t size, struct rg_completion *completion)
{
    struct rg_exchange *x = &request->x;
    struct rg_slab_arena *slabs = request->part->loop->slabs;
    if (size > rg_slab_size_max(slabs)) {
        return -EMSGSIZE;
    }
    struct rg_lease *memory = rg_slab_take(slabs, size);
    if (memory == NULL) {
        return -ENOMEM;
    }
    struct rg_list_page *page;
    const char *problem;
    int rc = rg_list_page_parse((const char *)x->body, (size_t)x->body_size, memory->data,
                                memory->capacity, &page, &problem);
    if (rc < 0) {
        if (rc == -EBADMSG) {
            rg_request_note(request, RG_STATUS_BAD_RESPONSE, "the answer %s", problem);
        }
        rg_lease_release(memory);
        return rc;
    }
    completion->data = page;
    completion->size = sizeof(*page);
    completion->lease = memory;
    return 0;
}

static enum rg_status list_finish(struct rg_request *request, struct rg_completion *completion)
{
    size_t body_size = (size_t)request->x.body_size;
    int rc = list_parse(request, LIST_MEMORY_USUAL(body_size), completion);
    if (rc == -ENOSPC) {
        rc = list_parse(request, rg_list_page_size_bound(body_size), completion);
    }
    rg_lease_release(request->x.lease);
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

static void list_release(struct rg_request *request)
{
    free(request->list.target);
    request->list.target = NULL;
}

const struct rg_request_ops rg_list_ops = {
    .verb = "list",
    .encode = list_encode,
    .head = list_head,
    .finish = list_finish,
    .release = list_release,
};

struct target {
    char *text;
    size_t size, capacity;
};

static void target_add(struct target *target, const char *text)
{
    size_t size = strlen(text);
    RG_ASSERT(target->capacity - target->size > size);
    memcpy(target->text + target->size, text, size + 1);
    target->size += size;
}

static void target_add_encoded(struct target *target, const char *name, const char *value)
{
    if (value == NULL || *value == '\0') {
        return;
    }
    target_add(target, name);
    int size = rg_name_encode(value, strlen(value), target->text + target->size,
                              target->capacity - target->size);
    RG_ASSERT(size >= 0);
    target->size += (size_t)size;
    target->text[target->size] = '\0';
}

static size_t argument_size(const char *text)
{
    return text != NULL ? strlen(text) : 0;
}

static int list_target(const struct rg_client *client, const struct rg_list_request *list,
                       char **out_target)
{
    size_t size = 0;
    const char *const arguments[] = {list->prefix, list->delimiter, list->start_offset,
                                     list->end_offset, list->page_token};
    for (size_t i = 0; i < RG_ARRAY_LEN(arguments); i++) {
        if (argument_size(arguments[i]) > LIST_ARGUMENT_SIZE_MAX) {
            return -EINVAL;
        }
        size += argument_size(arguments[i]);
    }
    struct target target = {
        .capacity = 3 * (size + strlen(list->bucket)) + strlen(client->endpoint.path) + 512,
    };
    target.text = malloc(target.capacity);
    if (target.text == NULL) {
        return -ENOMEM;
    }
    char results[16];
    snprintf(results, sizeof(results), "%u",
             list->results_max != 0 ? list->results_max : LIST_RESULTS_MAX);
    target_add(&target, client->endpoint.path);
    target_add_encoded(&target, "/storage/v1/b/", list->bucket);
    target_add(&target, "/o?prettyPrint=false&projection=noAcl");
    target_add_encoded(&target, "&fields=", list_fields);
    target_add_encoded(&target, "&maxResults=", results);
    target_add_encoded(&target, "&prefix=", list->prefix);
    target_add_encoded(&target, "&delimiter=", list->delimiter);
    target_add_encoded(&target, "&startOffset=", list->start_offset);
    target_add_encoded(&target, "&endOffset=", list->end_offset);
    target_add_encoded(&target, "&pageToken=", list->page_token);
    *out_target = target.text;
    return 0;
}

static int list_prepare(struct rg_request *request, const struct rg_list_request *list)
{
    int rc = rg_request_set_names(request, list->bucket, NULL);
    if (rc < 0 || list->results_max > LIST_RESULTS_MAX) {
        return -EINVAL;
    }
    rg_request_prepare(request, &rg_list_ops, list->user_data, list->deadline_ns);
    request->list = (struct rg_list_state){0};
    snprintf(request->object, sizeof(request->object), "%s",
             list->prefix != NULL ? list->prefix : "");
    return list_target(request->client, list, &request->list.target);
}

int rg_submit_list_sized(struct rg_client *client, struct rg_cq *cq,
                         const struct rg_list_request *list, size_t struct_size)
{
    struct rg_list_request own = {0};
    memcpy(&own, list, RG_MIN(struct_size, sizeof(own)));
    struct rg_request *request;
    int rc = rg_client_reserve(client, cq, &request);
    if (rc < 0) {
        return rc;
    }
    rc = list_prepare(request, &own);
    if (rc < 0) {
        rg_client_unreserve(request);
        return rc;
    }
    rg_client_post(request);
    return 0;
}
