/* Sources are appended one after the other; see compose.h. */
#include "emulator/api/json/compose.h"

#include "emulator/api/encryption.h"
#include "emulator/api/upload.h"
#include "emulator/request/body.h"

#include <errno.h>
#include <inttypes.h>

/* One composition. The generations of its sources are kept for deleting them. */
struct composition {
    struct rg_bucket *bucket;
    struct rg_upload *upload;
    const struct rg_h1_head *head;
    size_t count;
    yyjson_val *sources;
    int64_t generations[RG_COMPOSE_SOURCES_MAX];
    int64_t component_count;
};

/* Reads an integer that may be a string, as 64-bit integers are in this API. */
static bool json_int64(yyjson_val *value, struct rg_store_condition *out)
{
    if (value == NULL || yyjson_is_null(value)) {
        return true;
    }
    out->set = true;
    if (yyjson_is_str(value)) {
        struct rg_h1_slice text = {yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
        return rg_text_parse_int64(text, &out->value) == 0;
    }
    out->value = yyjson_get_sint(value);
    return yyjson_is_int(value) && out->value >= 0;
}

static struct rg_h1_slice class_or_default(struct rg_h1_slice class)
{
    return class.data != NULL ? class : rg_text_slice(RG_STORE_CLASS_DEFAULT);
}

/* Refuses a source of another class than the new object's, in the service's words. */
static bool check_class(struct rg_server_call *call, const struct composition *composition,
                        const struct rg_store_object *source)
{
    struct rg_h1_slice wanted =
        class_or_default(rg_attributes_get(composition->upload->attributes, RG_ATTRIBUTES_CLASS));
    struct rg_h1_slice class =
        class_or_default(rg_attributes_get(source->info.attributes, RG_ATTRIBUTES_CLASS));
    if (rg_text_compare(wanted, class) == 0) {
        return true;
    }
    rg_reply_error(call, RG_API_BAD_REQUEST,
                   "Cannot compose object with destination storage class %.*s from source "
                   "components that have different storage classes (%.*s)",
                   (int)wanted.size, wanted.data, (int)class.size, class.data);
    return false;
}

static bool append_source(struct rg_server_call *call, struct composition *composition,
                          yyjson_val *source)
{
    struct rg_upload *upload = composition->upload;
    yyjson_val *value = yyjson_obj_get(source, "name");
    struct rg_h1_slice name = {yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
    struct rg_store_conditions conditions = {0};
    struct rg_store_object object;
    yyjson_val *preconditions = yyjson_obj_get(source, "objectPreconditions");
    if (!yyjson_is_str(value) || !rg_store_object_name_valid(name) ||
        !json_int64(yyjson_obj_get(source, "generation"), &conditions.generation) ||
        !json_int64(yyjson_obj_get(preconditions, "ifGenerationMatch"),
                    &conditions.generation_match)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "A source object is not well described.");
        return false;
    }
    int rc =
        rg_bucket_open_version(composition->bucket, name, conditions.generation.value, &object);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, name);
        return false;
    }
    rc = rg_store_conditions_check(&conditions, &object.info);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, name);
    }
    bool appended = rc == 0 && rg_encryption_check(call, composition->head, false, &object.info) &&
                    check_class(call, composition, &object) &&
                    rg_upload_append_object(call, upload, &object);
    if (appended) {
        int64_t count = rg_attributes_component_count(object.info.attributes);
        composition->component_count += RG_MAX(count, INT64_C(1));
        composition->generations[composition->count++] = object.info.generation;
    }
    rg_store_object_close(&object);
    return appended;
}

static bool append_sources(struct rg_server_call *call, struct composition *composition)
{
    yyjson_arr_iter sources = yyjson_arr_iter_with(composition->sources);
    yyjson_val *source;
    while ((source = yyjson_arr_iter_next(&sources)) != NULL) {
        if (!append_source(call, composition, source)) {
            return false;
        }
    }
    return true;
}

static bool set_component_count(struct rg_server_call *call, struct composition *composition)
{
    struct rg_upload *upload = composition->upload;
    char digits[21];
    struct rg_h1_slice text = {
        digits, (uint32_t)rg_text_format_u64(digits, (uint64_t)composition->component_count)};
    (void)rg_attributes_set(&upload->description.list, rg_text_slice(RG_ATTRIBUTES_COMPONENT_COUNT),
                            text);
    rg_attributes_unref(upload->attributes);
    upload->attributes = NULL;
    bool finished = rg_description_finish(call, &upload->description, &upload->attributes);
    upload->description.info.attributes = upload->attributes;
    return finished;
}

/* Deletes the versions that were read, and none that came since. */
static void delete_sources(const struct composition *composition)
{
    yyjson_arr_iter sources = yyjson_arr_iter_with(composition->sources);
    yyjson_val *source;
    for (size_t i = 0; (source = yyjson_arr_iter_next(&sources)) != NULL; i++) {
        yyjson_val *value = yyjson_obj_get(source, "name");
        struct rg_h1_slice name = {yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
        struct rg_store_conditions conditions = {.generation = {true, composition->generations[i]}};
        (void)rg_bucket_remove_object(composition->bucket, name, &conditions);
    }
}

/* Takes the description of the new object. Clients send the resource of the object that it
 * replaces, so its checksums are ignored. No content type is made up. */
static bool take_destination(struct rg_server_call *call, struct rg_upload *upload,
                             yyjson_val *destination)
{
    upload->description.info.content_type[0] = '\0';
    if (destination != NULL && !yyjson_is_obj(destination)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The metadata is not a JSON object.");
        return false;
    }
    return rg_description_take_json(call, &upload->description, destination, true);
}

static void compose(struct rg_server_call *call, const struct rg_api_request *request,
                    struct composition *composition, yyjson_val *root)
{
    struct rg_upload *upload = composition->upload;
    struct rg_store_object_info info;
    upload->size_hint = 0;
    if (rg_upload_set_name(call, upload, request->object) &&
        take_destination(call, upload, yyjson_obj_get(root, "destination")) &&
        rg_upload_open_writer(call, upload) && append_sources(call, composition) &&
        set_component_count(call, composition) && rg_upload_commit(call, upload, &info)) {
        if (rg_api_request_true(request, RG_PARAM_DELETE_SOURCE_OBJECTS) ||
            yyjson_get_bool(yyjson_obj_get(root, "deleteSourceObjects"))) {
            delete_sources(composition);
        }
        rg_upload_reply(call, upload, &info);
    }
}

static void finish_compose(struct rg_server_call *call, const struct rg_api_request *request,
                           struct rg_h1_slice body)
{
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    yyjson_val *root = yyjson_doc_get_root(document);
    struct composition composition = {.head = request->head,
                                      .sources = yyjson_obj_get(root, "sourceObjects")};
    size_t count = yyjson_arr_size(composition.sources);
    composition.bucket = rg_reply_find_bucket(call, request);
    if (composition.bucket == NULL) {
        goto out;
    }
    if (count == 0) {
        rg_reply_error(call, RG_API_MISSING, "You must provide at least one source component.");
    } else if (count > RG_COMPOSE_SOURCES_MAX) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The number of source components provided (%zu) exceeds the maximum (%d).",
                       count, RG_COMPOSE_SOURCES_MAX);
    } else {
        composition.upload = rg_upload_create(call, request, request->bucket);
        if (composition.upload != NULL) {
            compose(call, request, &composition, root);
        }
        rg_upload_destroy(composition.upload);
    }
out:
    yyjson_doc_free(document);
}

void rg_compose_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    rg_body_collect(call, request, RG_BODY_SIZE_MAX, finish_compose);
}
