/* Changing a description; see update.h. */
#include "emulator/api/json/update.h"

#include "emulator/api/access.h"
#include "emulator/api/description.h"
#include "emulator/api/media.h"
#include "emulator/api/resource.h"
#include "emulator/request/body.h"
#include "emulator/request/reply.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

/* How often somebody else may change the object between our reading and writing. */
#define UPDATE_ATTEMPTS_MAX 100

static void reply_updated(struct rg_server_call *call, const struct rg_api_request *request,
                          const struct rg_store_object_info *info)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_resource_style style;
    rg_resource_style_of_request(&style, call, request, NULL);
    rg_resource_append_object(&state->text, &style, request->bucket, request->object, info);
    rg_reply_text(call, 200, "application/json; charset=UTF-8");
}

/* One attempt: false when the object was changed meanwhile. The call is answered otherwise. */
static bool try_update(struct rg_server_call *call, const struct rg_api_request *request,
                       yyjson_val *root)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_bucket *bucket;
    struct rg_description description = {0};
    struct rg_attributes *attributes = NULL;
    bool patch = rg_api_request_is(request, "PATCH"), done = true;
    if (!rg_media_open_to_change(call, request)) {
        return true;
    }
    bucket = rg_store_find_bucket(rg_service_of(call)->store, request->bucket);
    description.info = state->object.info;
    rg_description_set_bucket(&description, bucket);
    if (patch) {
        rg_attributes_copy(&description.list, state->object.info.attributes);
    } else {
        strcpy(description.info.content_type, RG_DESCRIPTION_CONTENT_TYPE);
        description.info.content_encoding[0] = '\0';
    }
    rg_store_object_close(&state->object);
    if (rg_description_take_json(call, &description, root, !patch) &&
        rg_access_take_predefined(call, &description.bucket, &description.list, request) &&
        rg_description_finish(call, &description, &attributes)) {
        description.info.attributes = attributes;
        int rc = rg_bucket_update_object(bucket, request->object, &description.info);
        done = rc != -EAGAIN;
        if (rc == 0) {
            reply_updated(call, request, &description.info);
        } else if (done) {
            rg_reply_store_error(call, rc, request->bucket, request->object);
        }
    }
    rg_attributes_unref(attributes);
    rg_description_fini(&description);
    return done;
}

static void finish_update(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice body)
{
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    yyjson_val *root = yyjson_doc_get_root(document);
    if (!yyjson_is_obj(root)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The metadata is not a JSON object.");
    } else {
        bool done = false;
        for (int i = 0; !done && i < UPDATE_ATTEMPTS_MAX; i++) {
            done = try_update(call, request, root);
        }
        if (!done) {
            rg_reply_error(call, RG_API_UNAVAILABLE, "The object is changed too often.");
        }
    }
    yyjson_doc_free(document);
}

void rg_update_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    rg_body_collect(call, request, RG_BODY_SIZE_MAX, finish_update);
}
