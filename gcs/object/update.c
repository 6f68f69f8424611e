/* Changing what is stored about an object (Cloud Storage JSON API, "objects: patch"). */
#include "gcs/request/idempotency.h"
#include "gcs/request/object_request.h"
#include "gcs/wire/json.h"
#include "gcs/wire/nonce.h"

#include <errno.h>
#include <string.h>

/* Where an attempt meets what a lost one has done, it says so by the metageneration that follows
 * the one that was demanded, and by what is stored. */
static enum rg_status update_finish(struct rg_request *request, struct rg_completion *completion)
{
    const struct rg_object_request_state *state = &request->object_request;
    enum rg_status status = rg_object_finish_info(request, completion);
    if (status != RG_STATUS_OK || !request->verify.asking) {
        return status;
    }
    const struct rg_object_info *info = completion->data;
    if (info->metageneration == state->metageneration + 1 &&
        rg_object_info_has(info, state->body, state->body_size)) {
        return RG_STATUS_OK;
    }
    rg_request_note(request, RG_STATUS_PRECONDITION, "somebody else has changed it");
    rg_lease_release(completion->lease);
    completion->lease = NULL;
    return RG_STATUS_PRECONDITION;
}

static const struct rg_request_ops update_ops = {
    .verb = "update",
    .traffic = RG_TRAFFIC_WRITE,
    .encode = rg_object_encode,
    .head = rg_object_head,
    .finish = update_finish,
    .release = rg_object_release,
};

/* `nonce`: "" for none. */
static int update_body(const struct rg_update *update, const char *nonce, char **out_body,
                       size_t *out_size)
{
    struct rg_json_writer writer;
    rg_json_begin(&writer);
    rg_json_add_text(&writer, writer.root, "contentType", update->content_type);
    rg_json_add_text(&writer, writer.root, "contentEncoding", update->content_encoding);
    rg_json_add_text(&writer, writer.root, "cacheControl", update->cache_control);
    rg_json_add_metadata(&writer, writer.root, update->metadata, update->metadata_count, nonce);
    return rg_json_write(&writer, out_body, out_size);
}

static int update_prepare(struct rg_request *request, const void *given)
{
    const struct rg_update *update = given;
    if (update->object == NULL || update->generation < 0 ||
        !rg_conditions_valid(&update->conditions) ||
        (update->metadata == NULL && update->metadata_count > 0) ||
        (update->exclusive && !rg_nonce_fits(update->metadata, update->metadata_count)) ||
        rg_request_set_names(request, update->bucket, update->object) < 0) {
        return -EINVAL;
    }
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, update->bucket, update->object);
    rg_target_query(&target, "prettyPrint", "false");
    rg_target_query(&target, "fields", RG_RESOURCE_FIELDS);
    rg_target_query_i64(&target, "generation", update->generation);
    rg_target_conditions(&target, &update->conditions);
    struct rg_object_call call = {.method = "PATCH",
                                  .target = &target,
                                  .user_data = update->user_data,
                                  .deadline_ns = update->deadline_ns};
    char nonce[RG_NONCE_SIZE + 1] = "";
    if (update->exclusive) {
        rg_nonce_draw(nonce);
    }
    int rc = update_body(update, nonce, &call.body, &call.body_size);
    if (rc == 0) {
        rc = rg_object_prepare(request, &update_ops, &call);
    }
    if (rc < 0) {
        return rc;
    }
    request->object_request.metageneration = update->conditions.if_metageneration_match;
    request->idempotent =
        rg_operation_idempotent(RG_OPERATION_UPDATE, &update->conditions, update->generation);
    if (request->idempotent) {
        rg_verify_expect_changed(&request->verify);
    }
    if (request->idempotent && update->exclusive) {
        rg_verify_expect_nonce(&request->verify, nonce);
    }
    return 0;
}

int rg_submit_update_sized(struct rg_client *client, struct rg_cq *cq,
                           const struct rg_update *update, size_t struct_size)
{
    struct rg_update own = {0};
    memcpy(&own, update, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, update_prepare, &own);
}
