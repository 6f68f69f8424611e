/* What is stored about an object (Cloud Storage JSON API, "objects: get"). */
#include "gcs/request/object_request.h"

#include <errno.h>
#include <string.h>

static const struct rg_request_ops stat_ops = {
    .verb = "stat",
    .operation = RG_VERB_STAT,
    .encode = rg_object_encode,
    .head = rg_object_head,
    .finish = rg_object_finish_info,
    .release = rg_object_release,
};

static int stat_prepare(struct rg_request *request, const void *given)
{
    const struct rg_stat *stat = given;
    if (stat->object == NULL || stat->generation < 0 || !rg_conditions_valid(&stat->conditions) ||
        rg_request_set_names(request, stat->bucket, stat->object) < 0) {
        return -EINVAL;
    }
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, stat->bucket, stat->object);
    rg_target_query(&target, "prettyPrint", "false");
    rg_target_query(&target, "fields", RG_RESOURCE_FIELDS);
    rg_target_query_i64(&target, "generation", stat->generation);
    rg_target_conditions(&target, &stat->conditions);
    int rc = rg_object_prepare(request, &stat_ops,
                               &(struct rg_object_call){.method = "GET",
                                                        .target = &target,
                                                        .user_data = stat->user_data,
                                                        .deadline_ns = stat->deadline_ns});
    if (rc == 0 && stat->generation != 0) {
        rg_verify_expect_read(&request->verify, stat->generation);
    }
    return rc;
}

int rg_submit_stat_sized(struct rg_client *client, struct rg_cq *cq, const struct rg_stat *stat,
                         size_t struct_size)
{
    struct rg_stat own = {0};
    memcpy(&own, stat, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, stat_prepare, &own);
}
