/* Removing an object (Cloud Storage JSON API, "objects: delete"). */
#include "gcs/request/idempotency.h"
#include "gcs/request/object_request.h"

#include <errno.h>
#include <string.h>

static int delete_head(struct rg_request *request, const struct rg_h1_head *head)
{
    (void)rg_object_head(request, head);
    return RG_BODY_DISCARD;
}

static enum rg_status delete_finish(struct rg_request *request, struct rg_completion *completion)
{
    rg_lease_release(request->x.lease);
    completion->status = RG_STATUS_OK;
    return RG_STATUS_OK;
}

static const struct rg_request_ops delete_ops = {
    .verb = "delete",
    .operation = RG_VERB_DELETE,
    .traffic = RG_TRAFFIC_WRITE,
    .encode = rg_object_encode,
    .head = delete_head,
    .finish = delete_finish,
    .release = rg_object_release,
};

bool rg_delete_valid(const struct rg_delete *del)
{
    return del->object != NULL && del->generation >= 0 && rg_conditions_valid(&del->conditions);
}

void rg_delete_target(struct rg_target *target, const struct rg_delete *del)
{
    rg_target_init(target, target->text, target->capacity);
    rg_target_add_object(target, del->bucket, del->object);
    rg_target_query_i64(target, "generation", del->generation);
    rg_target_conditions(target, &del->conditions);
}

int rg_delete_prepare(struct rg_request *request, const void *given)
{
    const struct rg_delete *del = given;
    if (!rg_delete_valid(del) || rg_request_set_names(request, del->bucket, del->object) < 0) {
        return -EINVAL;
    }
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target = {.text = text, .capacity = sizeof(text)};
    rg_delete_target(&target, del);
    int rc = rg_object_prepare(request, &delete_ops,
                               &(struct rg_object_call){.method = "DELETE",
                                                        .target = &target,
                                                        .user_data = del->user_data,
                                                        .deadline_ns = del->deadline_ns});
    if (rc < 0) {
        return rc;
    }
    request->idempotent =
        rg_operation_idempotent(RG_OPERATION_DELETE, &del->conditions, del->generation);
    if (request->idempotent && !del->exclusive) {
        rg_verify_expect_removed(&request->verify);
    }
    return 0;
}

int rg_submit_delete_sized(struct rg_client *client, struct rg_cq *cq, const struct rg_delete *del,
                           size_t struct_size)
{
    struct rg_delete own = {0};
    memcpy(&own, del, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, rg_delete_prepare, &own);
}
