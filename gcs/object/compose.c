/* Joining objects into one (Cloud Storage JSON API, "objects: compose"). The service is not told
 * what CRC32C the result is to have; the one it answers with is compared. */
#include "gcs/request/idempotency.h"
#include "gcs/request/object_request.h"
#include "gcs/wire/checksum.h"
#include "gcs/wire/json.h"
#include "gcs/wire/names.h"
#include "gcs/wire/nonce.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static enum rg_status compose_finish(struct rg_request *request, struct rg_completion *completion)
{
    const struct rg_object_request_state *state = &request->object_request;
    enum rg_status status = rg_object_finish_info(request, completion);
    if (status != RG_STATUS_OK || !state->has_crc32c) {
        return status;
    }
    if (completion->has_object_crc32c && completion->object_crc32c == state->crc32c) {
        return RG_STATUS_OK;
    }
    rg_request_note(request, RG_STATUS_CHECKSUM,
                    "what was stored has CRC32C %s instead of %s"
                    "; delete generation %" PRId64,
                    rg_crc32c_text(completion->object_crc32c).text,
                    rg_crc32c_text(state->crc32c).text, completion->generation);
    rg_lease_release(completion->lease);
    completion->lease = NULL;
    return RG_STATUS_CHECKSUM;
}

static const struct rg_request_ops compose_ops = {
    .verb = "compose",
    .traffic = RG_TRAFFIC_WRITE,
    .encode = rg_object_encode,
    .head = rg_object_head,
    .finish = compose_finish,
    .release = rg_object_release,
};

static void add_source(struct rg_json_writer *writer, yyjson_mut_val *sources,
                       const struct rg_compose_source *source)
{
    yyjson_mut_val *object = yyjson_mut_arr_add_obj(writer->doc, sources);
    rg_json_add_text(writer, object, "name", source->object);
    rg_json_add_i64(writer, object, "generation", source->generation);
}

/* `nonce`: "" for none. */
static int compose_body(const struct rg_compose *compose, const char *nonce, char **out_body,
                        size_t *out_size)
{
    struct rg_json_writer writer;
    rg_json_begin(&writer);
    yyjson_mut_val *sources =
        rg_json_add(&writer, writer.root, "sourceObjects", yyjson_mut_arr(writer.doc));
    for (size_t i = 0; i < compose->source_count; i++) {
        add_source(&writer, sources, &compose->sources[i]);
    }
    yyjson_mut_val *destination =
        rg_json_add(&writer, writer.root, "destination", yyjson_mut_obj(writer.doc));
    rg_json_add_text(&writer, destination, "contentType",
                     compose->content_type != NULL ? compose->content_type
                                                   : "application/octet-stream");
    rg_json_add_text(&writer, destination, "storageClass", compose->storage_class);
    rg_json_add_metadata(&writer, destination, compose->metadata, compose->metadata_count, nonce);
    return rg_json_write(&writer, out_body, out_size);
}

static bool source_valid(const struct rg_compose_source *source)
{
    const char *problem;
    return source->object != NULL && source->generation >= 0 &&
           rg_object_name_check(source->object, strlen(source->object), &problem) == 0;
}

static bool compose_valid(const struct rg_compose *compose)
{
    /* The service knows no conditions of the other kind here, and would pass over them. */
    bool valid = compose->object != NULL && compose->sources != NULL &&
                 compose->source_count >= 1 && compose->source_count <= RG_COMPOSE_SOURCES_MAX &&
                 (compose->metadata != NULL || compose->metadata_count == 0) &&
                 rg_conditions_valid(&compose->conditions) &&
                 compose->conditions.if_generation_not_match == 0 &&
                 compose->conditions.if_metageneration_not_match == 0 &&
                 (compose->storage_class == NULL || compose->storage_class[0] != '\0');
    valid =
        valid && (!compose->exclusive || rg_nonce_fits(compose->metadata, compose->metadata_count));
    for (size_t i = 0; valid && i < compose->source_count; i++) {
        valid = source_valid(&compose->sources[i]);
    }
    return valid;
}

static int compose_prepare(struct rg_request *request, const void *given)
{
    const struct rg_compose *compose = given;
    if (!compose_valid(compose) ||
        rg_request_set_names(request, compose->bucket, compose->object) < 0) {
        return -EINVAL;
    }
    char text[RG_TARGET_SIZE_MAX];
    struct rg_target target;
    rg_target_init(&target, text, sizeof(text));
    rg_target_add_object(&target, compose->bucket, compose->object);
    rg_target_add(&target, "/compose");
    rg_target_query(&target, "prettyPrint", "false");
    rg_target_query(&target, "fields", RG_RESOURCE_FIELDS);
    rg_target_conditions(&target, &compose->conditions);
    struct rg_object_call call = {.method = "POST",
                                  .target = &target,
                                  .user_data = compose->user_data,
                                  .deadline_ns = compose->deadline_ns};
    char nonce[RG_NONCE_SIZE + 1] = "";
    if (compose->exclusive) {
        rg_nonce_draw(nonce);
    }
    int rc = compose_body(compose, nonce, &call.body, &call.body_size);
    if (rc == 0) {
        rc = rg_object_prepare(request, &compose_ops, &call);
    }
    if (rc < 0) {
        return rc;
    }
    request->object_request.crc32c = compose->crc32c;
    request->object_request.has_crc32c = compose->has_crc32c;
    request->idempotent = rg_operation_idempotent(RG_OPERATION_COMPOSE, &compose->conditions, 0);
    if (request->idempotent && compose->exclusive) {
        rg_verify_expect_nonce(&request->verify, nonce);
    } else if (request->idempotent && compose->has_crc32c) {
        rg_verify_expect_written(&request->verify, RG_VERIFY_ANY_SIZE, compose->crc32c);
    }
    return 0;
}

int rg_submit_compose_sized(struct rg_client *client, struct rg_cq *cq,
                            const struct rg_compose *compose, size_t struct_size)
{
    struct rg_compose own = {0};
    memcpy(&own, compose, RG_MIN(struct_size, sizeof(own)));
    return rg_object_submit(client, cq, compose_prepare, &own);
}
