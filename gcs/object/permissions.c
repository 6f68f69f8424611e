/* What the credentials may do to a bucket (Cloud Storage JSON API, "buckets:
 * testIamPermissions"). */
#include "gcs/request/object_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The longest name of a permission; those of the service have some 40 characters. */
#define PERMISSION_SIZE_MAX 100

static_assert(RG_PERMISSIONS_MAX * (PERMISSION_SIZE_MAX + sizeof("&permissions=")) <
                  RG_TARGET_SIZE_MAX - RG_URL_PATH_SIZE_MAX - 3 * RG_BUCKET_NAME_SIZE_MAX - 64,
              "they fit a request target, when nothing in them must be encoded");

static int parse_granted(struct rg_request *request, uint8_t *memory, size_t memory_size,
                         struct rg_completion *completion, const char **out_problem)
{
    const struct rg_object_request_state *state = &request->object_request;
    bool *granted = (bool *)memory;
    static_assert(RG_PERMISSIONS_MAX * sizeof(*granted) <= RG_OBJECT_FRONT_SIZE,
                  "they lie in front");
    completion->data = granted;
    completion->size = state->name_count * sizeof(*granted);
    return rg_permissions_parse((const char *)request->x.body, (size_t)request->x.body_size,
                                memory + RG_OBJECT_FRONT_SIZE, memory_size - RG_OBJECT_FRONT_SIZE,
                                state->names, state->name_count, granted, out_problem);
}

static enum rg_status permissions_finish(struct rg_request *request,
                                         struct rg_completion *completion)
{
    return rg_object_finish(request, parse_granted, completion);
}

static const struct rg_request_ops permissions_ops = {
    .verb = "test permissions on",
    .encode = rg_object_encode,
    .head = rg_object_head,
    .finish = permissions_finish,
    .release = rg_object_release,
};

/* Packs the names, each with its NUL, and adds them to the query. */
static int names_pack(const struct rg_test_permissions *test, struct rg_target *target,
                      char **out_names)
{
    char *names = calloc(test->count, PERMISSION_SIZE_MAX + 1);
    if (names == NULL) {
        return -ENOMEM;
    }
    *out_names = names;
    for (size_t i = 0; i < test->count; i++) {
        const char *name = test->permissions[i];
        size_t size = name != NULL ? strlen(name) : 0;
        if (size == 0 || size > PERMISSION_SIZE_MAX) {
            free(*out_names);
            return -EINVAL;
        }
        memcpy(names, name, size + 1);
        names += size + 1;
        rg_target_query(target, "permissions", name);
    }
    return 0;
}

static int permissions_prepare(struct rg_request *request, const void *given)
{
    const struct rg_test_permissions *test = given;
    if (test->permissions == NULL || test->count == 0 || test->count > RG_PERMISSIONS_MAX ||
        rg_request_set_names(request, test->bucket, NULL) < 0) {
        return -EINVAL;
    }
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, test->bucket, NULL);
    rg_target_add(&target, "/iam/testPermissions");
    char *names;
    int rc = names_pack(test, &target, &names);
    if (rc < 0) {
        return rc;
    }
    rc = rg_object_prepare(request, &permissions_ops,
                           &(struct rg_object_call){.method = "GET",
                                                    .target = &target,
                                                    .user_data = test->user_data,
                                                    .deadline_ns = test->deadline_ns});
    if (rc < 0) {
        free(names);
        return rc;
    }
    request->object_request.names = names;
    request->object_request.name_count = test->count;
    return 0;
}

int rg_submit_test_permissions_sized(struct rg_client *client, struct rg_cq *cq,
                                     const struct rg_test_permissions *test, size_t struct_size)
{
    struct rg_test_permissions own = {0};
    memcpy(&own, test, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, permissions_prepare, &own);
}
