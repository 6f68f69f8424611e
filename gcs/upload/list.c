/* Multipart uploads that nobody has finished: what there is of them, and ending one (Cloud Storage
 * XML API, "List multipart uploads" and "Abort a multipart upload"). */
#include "gcs/request/object_request.h"
#include "gcs/wire/uploads_parser.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UPLOADS_RESULTS_MAX 1000
/* The longest prefix or marker. */
#define ARGUMENT_SIZE_MAX 4096

static int list_head(struct rg_request *request, const struct rg_h1_head *head)
{
    RG_ASSERT(head->status >= 200 && head->status < 300);
    request->x.body_max = RG_UPLOADS_BODY_SIZE_MAX;
    return RG_BODY_LEASE;
}

static enum rg_status page_parse(struct rg_request *request, struct rg_completion *completion)
{
    struct rg_slab_arena *slabs = request->client_loop->loop->slabs;
    size_t body_size = (size_t)request->x.body_size;
    size_t size = rg_uploads_page_size_bound(body_size);
    if (size > rg_slab_size_max(slabs)) {
        return RG_STATUS_TOO_LARGE;
    }
    struct rg_lease *memory = rg_slab_take(slabs, size);
    if (memory == NULL) {
        rg_request_note(request, RG_STATUS_NO_RESOURCES, "no memory for what the answer says");
        return RG_STATUS_NO_RESOURCES;
    }
    struct rg_uploads_page *page;
    const char *problem;
    int rc = rg_uploads_page_parse((const char *)request->x.body, body_size, memory->data,
                                   memory->capacity, &page, &problem);
    if (rc < 0) {
        rg_lease_release(memory);
        enum rg_status status = rc == -ENOMEM ? RG_STATUS_NO_RESOURCES : RG_STATUS_BAD_RESPONSE;
        rg_request_note(request, status, "the answer %s", problem);
        return status;
    }
    completion->status = RG_STATUS_OK;
    completion->lease = memory;
    completion->data = page;
    completion->size = sizeof(*page);
    return RG_STATUS_OK;
}

static enum rg_status list_finish(struct rg_request *request, struct rg_completion *completion)
{
    enum rg_status status = page_parse(request, completion);
    rg_lease_release(request->x.lease);
    return status;
}

static const struct rg_request_ops list_ops = {
    .verb = "list uploads",
    .encode = rg_object_encode,
    .head = list_head,
    .finish = list_finish,
    .release = rg_object_release,
};

static size_t argument_size(const char *text)
{
    return text != NULL ? strlen(text) : 0;
}

static int list_prepare(struct rg_request *request, const void *given)
{
    const struct rg_list_uploads *list = given;
    bool valid = argument_size(list->prefix) <= ARGUMENT_SIZE_MAX &&
                 argument_size(list->key_marker) <= ARGUMENT_SIZE_MAX &&
                 argument_size(list->id_marker) <= ARGUMENT_SIZE_MAX &&
                 list->results_max <= UPLOADS_RESULTS_MAX;
    if (!valid || rg_request_set_names(request, list->bucket, NULL) < 0) {
        return -EINVAL;
    }
    snprintf(request->object, sizeof(request->object), "%s",
             list->prefix != NULL ? list->prefix : "");
    char text[RG_URL_PATH_SIZE_MAX + 3 * (RG_BUCKET_NAME_SIZE_MAX + 3 * ARGUMENT_SIZE_MAX) + 128];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add(&target, "/");
    rg_target_add_name(&target, list->bucket);
    rg_target_add(&target, "?uploads");
    target.has_query = true;
    rg_target_query(&target, "prefix", list->prefix);
    rg_target_query(&target, "key-marker", list->key_marker);
    rg_target_query(&target, "upload-id-marker", list->id_marker);
    rg_target_query_i64(&target, "max-uploads", list->results_max);
    return rg_object_prepare(request, &list_ops,
                             &(struct rg_object_call){.method = "GET",
                                                      .target = &target,
                                                      .user_data = list->user_data,
                                                      .deadline_ns = list->deadline_ns});
}

int rg_submit_list_uploads_sized(struct rg_client *client, struct rg_cq *cq,
                                 const struct rg_list_uploads *list, size_t struct_size)
{
    struct rg_list_uploads own = {0};
    memcpy(&own, list, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, list_prepare, &own);
}

static int abort_head(struct rg_request *request, const struct rg_h1_head *head)
{
    (void)rg_object_head(request, head);
    return RG_BODY_DISCARD;
}

static enum rg_status abort_finish(struct rg_request *request, struct rg_completion *completion)
{
    rg_lease_release(request->x.lease);
    completion->status = RG_STATUS_OK;
    return RG_STATUS_OK;
}

static const struct rg_request_ops abort_ops = {
    .verb = "abort an upload of",
    .traffic = RG_TRAFFIC_WRITE,
    .encode = rg_object_encode,
    .head = abort_head,
    .finish = abort_finish,
    .release = rg_object_release,
};

static int abort_prepare(struct rg_request *request, const void *given)
{
    const struct rg_abort_upload *abort = given;
    size_t id_size = argument_size(abort->id);
    if (id_size == 0 || id_size > ARGUMENT_SIZE_MAX || abort->object == NULL ||
        rg_request_set_names(request, abort->bucket, abort->object) < 0) {
        return -EINVAL;
    }
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add(&target, "/");
    rg_target_add_name(&target, abort->bucket);
    rg_target_add(&target, "/");
    rg_target_add_name(&target, abort->object);
    rg_target_query(&target, "uploadId", abort->id);
    int rc = rg_object_prepare(request, &abort_ops,
                               &(struct rg_object_call){.method = "DELETE",
                                                        .target = &target,
                                                        .user_data = abort->user_data,
                                                        .deadline_ns = abort->deadline_ns});
    if (rc < 0) {
        return rc;
    }
    /* An id is of one upload, and never comes again. */
    request->idempotent = true;
    request->has_no_write_token = true;
    rg_verify_expect_removed(&request->verify);
    return 0;
}

int rg_submit_abort_upload_sized(struct rg_client *client, struct rg_cq *cq,
                                 const struct rg_abort_upload *abort, size_t struct_size)
{
    struct rg_abort_upload own = {0};
    memcpy(&own, abort, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, abort_prepare, &own);
}
