/* A copy opens its source, describes the destination, and appends the source as a whole; see
 * rewrite.h. A rewrite in several calls keeps the source open in a session, so that all calls
 * are about one version. The last call copies the bytes. */
#include "emulator/api/rewrite.h"

#include "emulator/api/access.h"
#include "emulator/api/encryption.h"
#include "emulator/api/resource.h"
#include "emulator/api/upload.h"
#include "emulator/request/body.h"
#include "emulator/request/sessions.h"
#include "emulator/store/model/clock.h"
#include "emulator/store/model/protection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define XML_TYPE "application/xml; charset=UTF-8"
#define JSON_TYPE "application/json; charset=UTF-8"

/* A rewrite between two of its calls. The lock of `base` protects the rest. */
struct rewrite {
    struct rg_session base;
    struct rg_store_object source; /* Open. */
    uint64_t done;                 /* Bytes that the client was told are copied. */
    uint64_t per_call;             /* What the first call asked for. */
    char *place; /* Source and destination, which have to be the same in each call. Owned. */
};

/* One call. */
struct copy {
    const struct rg_api_request *request;
    struct rg_h1_slice source_bucket, source_name, bucket, name;
    struct rg_store_object source; /* Open, or type NULL. */
    struct rg_upload *upload;
};

static void session_destroy(struct rg_session *base)
{
    struct rewrite *rewrite = RG_CONTAINER_OF(base, struct rewrite, base);
    rg_store_object_close(&rewrite->source);
    free(rewrite->place);
    free(rewrite);
}

static const struct rg_session_type rewrite_type = {session_destroy};

static bool find_buckets(struct rg_server_call *call, const struct copy *copy,
                         struct rg_bucket **out_source)
{
    struct rg_store *store = rg_service_of(call)->store;
    const struct rg_h1_slice *names[] = {&copy->source_bucket, &copy->bucket};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        struct rg_bucket *bucket = rg_store_find_bucket(store, *names[i]);
        if (bucket == NULL) {
            rg_reply_no_bucket(call);
            return false;
        }
        if (!rg_reply_check_payer(call, copy->request, bucket)) {
            return false;
        }
        *out_source = i == 0 ? bucket : *out_source;
    }
    return true;
}

static bool keeps_key(const struct copy *copy)
{
    return copy->request->action == RG_ACTION_MOVE || copy->request->action == RG_ACTION_RESTORE;
}

/* Opens the source with its conditions checked, and checks those of the destination. False with
 * the call answered. */
static bool open_source(struct rg_server_call *call, struct copy *copy)
{
    struct rg_store_conditions conditions;
    struct rg_bucket *bucket = NULL;
    const char *bad_name;
    if (rg_api_request_source_conditions(copy->request, &conditions, &bad_name) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "%s is not a number.", bad_name);
        return false;
    }
    if (!find_buckets(call, copy, &bucket)) {
        return false;
    }
    int rc = -ENOENT;
    if (rg_store_object_name_valid(copy->source_name)) {
        rc = rg_bucket_open_version(bucket, copy->source_name,
                                    conditions.generation.set ? conditions.generation.value : 0,
                                    &copy->source);
    }
    rc = rc == 0 ? rg_store_conditions_check(&conditions, &copy->source.info) : rc;
    if (rc < 0) {
        rg_reply_store_error(call, rc, copy->source_bucket, copy->source_name);
        return false;
    }
    /* An object that is moved keeps its encryption key, although the request does not name it. */
    return keeps_key(copy) ||
           rg_encryption_check(call, copy->request->head, true, &copy->source.info);
}

/* The destination is described as the body says; with one that says nothing as the source is, but
 * for its access control list, its holds and its storage class. */
static bool describe(struct rg_server_call *call, struct copy *copy, yyjson_val *root,
                     bool from_source)
{
    struct rg_upload *upload = copy->upload;
    const struct rg_store_object_info *source = &copy->source.info;
    if (from_source && !rg_description_is_said(root)) {
        memcpy(upload->description.info.content_type, source->content_type,
               sizeof(source->content_type));
        memcpy(upload->description.info.content_encoding, source->content_encoding,
               sizeof(source->content_encoding));
        rg_attributes_clear(&upload->description.list, "");
        rg_attributes_copy(&upload->description.list, source->attributes);
        rg_attributes_clear(&upload->description.list, RG_ATTRIBUTES_ACL); /* Not copied. */
        rg_description_set_holds(&upload->description);
        if (!keeps_key(copy)) {
            rg_description_set_class(&upload->description);
        }
        if (!keeps_key(copy) &&
            !rg_encryption_take(call, copy->request->head, &upload->description.list)) {
            return false;
        }
        if (!rg_access_take_predefined(call, &upload->description.bucket, &upload->description.list,
                                       copy->request)) {
            return false;
        }
    }
    /* The bytes stay the same. */
    memcpy(upload->description.info.md5, source->md5, sizeof(source->md5));
    upload->size_hint = 0;
    /* Names and hashes in the resource are ignored: clients send those of the source. */
    return rg_upload_set_name(call, upload, copy->name) &&
           (root == NULL || rg_description_take_json(call, &upload->description, root, true));
}

static bool copy_bytes(struct rg_server_call *call, struct copy *copy,
                       struct rg_store_object_info *out_info)
{
    return rg_upload_open_writer(call, copy->upload) &&
           rg_upload_append_object(call, copy->upload, &copy->source) &&
           rg_upload_commit(call, copy->upload, out_info);
}

/* Makes the text that has to be the same in all calls of a rewrite. Returns owned. */
static char *describe_place(const struct copy *copy)
{
    struct rg_text text = {0};
    const struct rg_h1_slice *names[] = {&copy->source_bucket, &copy->source_name, &copy->bucket,
                                         &copy->name};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        rg_text_append_percent(&text, names[i]->data, names[i]->size);
        rg_text_append(&text, "\n", i + 1 < RG_ARRAY_LEN(names));
    }
    rg_text_append(&text, "", 1);
    if (text.failed) {
        rg_text_fini(&text);
    }
    return text.data;
}

/* The bytes that a call may move; 0: all of them. False with the call answered. */
static bool bytes_per_call(struct rg_server_call *call, const struct rg_api_request *request,
                           uint64_t *out)
{
    int64_t value;
    if (rg_api_request_int(request, RG_PARAM_MAX_BYTES_REWRITTEN, 0, &value) < 0 ||
        value % (1 << 20) != 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "maxBytesRewrittenPerCall has to be a multiple of 1 MiB.");
        return false;
    }
    *out = (uint64_t)value;
    return true;
}

static void reply_rewrite(struct rg_server_call *call, const struct copy *copy, uint64_t done,
                          const char *token, const struct rg_store_object_info *info)
{
    struct rg_text *text = &rg_call_of(call)->text;
    rg_text_printf(text,
                   "{\"kind\":\"storage#rewriteResponse\",\"totalBytesRewritten\":\"%" PRIu64
                   "\",\"objectSize\":\"%" PRIu64 "\",\"done\":%s",
                   done, copy->source.info.size, token == NULL ? "true" : "false");
    if (token != NULL) {
        rg_text_printf(text, ",\"rewriteToken\":\"%s\"", token);
    } else {
        rg_text_append_str(text, ",\"resource\":");
        rg_resource_append_object(text, &copy->upload->style, copy->upload->bucket,
                                  copy->upload->name, info);
    }
    rg_text_append_str(text, "}");
    rg_reply_text(call, 200, JSON_TYPE);
}

/* Starts a session that has moved `per_call` bytes. Takes the source. */
static void begin_session(struct rg_server_call *call, struct copy *copy, uint64_t per_call)
{
    struct rewrite *rewrite = calloc(1, sizeof(*rewrite));
    char *place = describe_place(copy);
    if (rewrite == NULL || place == NULL) {
        free(rewrite);
        free(place);
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    rg_session_init(&rewrite->base, &rewrite_type);
    rewrite->place = place;
    rewrite->done = rewrite->per_call = per_call;
    rewrite->source = copy->source;
    if (rg_sessions_add(rg_service_of(call)->sessions, &rewrite->base) < 0) {
        rg_reply_error(call, RG_API_INTERNAL, "No random numbers.");
    } else {
        reply_rewrite(call, copy, per_call, rewrite->base.id, NULL);
    }
    copy->source.type = NULL; /* The session's. */
    rg_session_unref(&rewrite->base);
}

static void finish_rewrite(struct rg_server_call *call, struct copy *copy, yyjson_val *root)
{
    struct rg_store_object_info info;
    if (describe(call, copy, root, true) && copy_bytes(call, copy, &info)) {
        reply_rewrite(call, copy, copy->source.info.size, NULL, &info);
    }
}

static void continue_locked(struct rg_server_call *call, struct copy *copy, struct rewrite *rewrite,
                            yyjson_val *root)
{
    char *place = describe_place(copy);
    uint64_t per_call;
    bool same = place != NULL && strcmp(place, rewrite->place) == 0;
    free(place);
    if (!bytes_per_call(call, copy->request, &per_call)) {
        return;
    }
    if (!same || (per_call != 0 && per_call != rewrite->per_call)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The rewrite token belongs to another rewrite than this.");
        return;
    }
    copy->source =
        rewrite->source; /* The session's source is lent to the copy while we hold the lock. */
    rewrite->done = per_call == 0 ? copy->source.info.size : rewrite->done + per_call;
    if (rewrite->done < copy->source.info.size) {
        reply_rewrite(call, copy, rewrite->done, rewrite->base.id, NULL);
    } else {
        rg_sessions_remove(rg_service_of(call)->sessions, &rewrite->base);
        finish_rewrite(call, copy, root);
    }
    rewrite->source = copy->source;
    copy->source.type = NULL;
}

static void continue_rewrite(struct rg_server_call *call, struct copy *copy, yyjson_val *root)
{
    struct rg_session *base = rg_sessions_find(rg_service_of(call)->sessions, &rewrite_type,
                                               copy->request->params[RG_PARAM_REWRITE_TOKEN]);
    if (base == NULL) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The rewrite token is not one of ours.");
        return;
    }
    pthread_mutex_lock(&base->lock);
    continue_locked(call, copy, RG_CONTAINER_OF(base, struct rewrite, base), root);
    pthread_mutex_unlock(&base->lock);
    rg_session_unref(base);
}

static bool check_destination(struct rg_server_call *call, const struct copy *copy)
{
    struct rg_bucket *bucket =
        rg_store_find_bucket(rg_service_of(call)->store, copy->upload->bucket);
    int rc = rg_bucket_check_conditions(bucket, copy->name, &copy->upload->conditions);
    if (rc < 0) {
        rg_reply_store_error(call, rc, copy->upload->bucket, copy->name);
    }
    return rc == 0;
}

static void rewrite_object(struct rg_server_call *call, struct copy *copy, yyjson_val *root)
{
    uint64_t per_call;
    if (rg_api_request_has(copy->request, RG_PARAM_REWRITE_TOKEN)) {
        continue_rewrite(call, copy, root);
    } else if (bytes_per_call(call, copy->request, &per_call) && open_source(call, copy) &&
               check_destination(call, copy)) {
        if (per_call > 0 && per_call < copy->source.info.size) {
            begin_session(call, copy, per_call);
        } else {
            finish_rewrite(call, copy, root);
        }
    }
}

/* Removes the version that was moved, and none that came since. */
static void remove_source(struct rg_server_call *call, const struct copy *copy)
{
    struct rg_bucket *bucket =
        rg_store_find_bucket(rg_service_of(call)->store, copy->source_bucket);
    if (rg_text_compare(copy->source_name, copy->name) != 0) {
        (void)rg_bucket_move_away(bucket, copy->source_name, copy->source.info.generation);
    }
}

/* Opens the soft-deleted version that is to be restored. False with the call answered. */
static bool open_deleted(struct rg_server_call *call, struct copy *copy)
{
    struct rg_bucket *bucket = rg_reply_find_bucket(call, copy->request);
    int64_t generation;
    if (bucket == NULL) {
        return false;
    }
    if (rg_api_request_int(copy->request, RG_PARAM_GENERATION, 0, &generation) < 0 ||
        generation <= 0) {
        rg_reply_error(call, RG_API_MISSING,
                       "The generation of the soft-deleted object is needed.");
        return false;
    }
    int rc = -ENOENT;
    if (rg_store_object_name_valid(copy->source_name)) {
        rc = rg_bucket_open_soft_deleted(bucket, copy->source_name, generation, &copy->source);
    }
    if (rc < 0) {
        rg_reply_store_error(call, rc, copy->source_bucket, copy->source_name);
    }
    return rc == 0;
}

/* Makes a new object of a soft-deleted version, which stays until its time is over. */
static void restore_object(struct rg_server_call *call, struct copy *copy)
{
    struct rg_store_object_info info;
    if (open_deleted(call, copy) && describe(call, copy, NULL, true) &&
        copy_bytes(call, copy, &info)) {
        rg_upload_reply(call, copy->upload, &info);
    }
}

/* Refuses to move an object that may not be removed. False with the call answered. */
static bool check_removable(struct rg_server_call *call, const struct copy *copy)
{
    int rc = rg_protection_check(copy->upload->description.bucket.retention_us, &copy->source.info,
                                 rg_store_now_us());
    if (rc < 0) {
        rg_reply_store_error(call, rc, copy->source_bucket, copy->source_name);
    }
    return rc == 0;
}

static void copy_object(struct rg_server_call *call, struct copy *copy, yyjson_val *root)
{
    struct rg_store_object_info info;
    bool moves = copy->request->action == RG_ACTION_MOVE;
    if (open_source(call, copy) && (!moves || check_removable(call, copy)) &&
        describe(call, copy, root, true) && copy_bytes(call, copy, &info)) {
        if (moves) {
            remove_source(call, copy);
        }
        rg_upload_reply(call, copy->upload, &info);
    }
}

static void finish_copy(struct rg_server_call *call, const struct rg_api_request *request,
                        struct rg_h1_slice body)
{
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    yyjson_val *root = yyjson_doc_get_root(document);
    struct copy copy = {
        .request = request,
        .source_bucket = request->bucket,
        .source_name = request->object,
        .bucket = request->target_bucket,
        .name = request->target_object,
    };
    if (request->action == RG_ACTION_RESTORE) {
        copy.bucket = request->bucket;
        copy.name = request->object;
    }
    if (body.size > 0 && !yyjson_is_obj(root)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The metadata is not a JSON object.");
    } else {
        copy.upload = rg_upload_create(call, request, copy.bucket);
        if (copy.upload != NULL && request->action == RG_ACTION_REWRITE) {
            rewrite_object(call, &copy, root);
        } else if (copy.upload != NULL && request->action == RG_ACTION_RESTORE) {
            restore_object(call, &copy);
        } else if (copy.upload != NULL) {
            copy_object(call, &copy, root);
        }
    }
    rg_store_object_close(&copy.source);
    rg_upload_destroy(copy.upload);
    yyjson_doc_free(document);
}

void rg_rewrite_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    rg_body_collect(call, request, RG_BODY_SIZE_MAX, finish_copy);
}

static void reply_copied(struct rg_server_call *call, const struct rg_store_object_info *info)
{
    struct rg_text *text = &rg_call_of(call)->text;
    char etag[RG_REPLY_ETAG_SIZE_MAX + 3], time[RG_TEXT_RFC3339_SIZE + 1];
    rg_reply_format_etag(etag, info);
    rg_text_format_rfc3339(time, info->updated_us);
    rg_text_append_str(text, "<?xml version='1.0' encoding='UTF-8'?><CopyObjectResult "
                             "xmlns='http://doc.s3.amazonaws.com/2006-03-01'><ETag>");
    rg_text_append_xml(text, etag, strlen(etag));
    rg_text_printf(text, "</ETag><LastModified>%s</LastModified></CopyObjectResult>", time);
    if (text->failed) {
        rg_reply_text(call, 200, XML_TYPE);
        return;
    }
    struct rg_h1_encoder *head = rg_reply_start(call, 200);
    rg_h1_encode_header(head, "Content-Type", XML_TYPE);
    rg_reply_object_fields(head, info, false);
    rg_reply_finish(call, text->size);
}

static void finish_copy_xml(struct rg_server_call *call, const struct rg_api_request *request,
                            struct rg_h1_slice body)
{
    /* The names are decoded into a copy of the request, which may be changed. */
    struct rg_api_request own;
    struct rg_store_object_info info;
    const struct rg_h1_slice *directive = rg_h1_find(request->head, "x-goog-metadata-directive");
    bool replaces = directive != NULL && rg_text_equals(*directive, "REPLACE");
    (void)body;
    (void)rg_api_request_parse(&own, request->head);
    struct copy copy = {.request = &own, .bucket = own.bucket, .name = own.object};
    if (!rg_api_request_copy_source(&own, &copy.source_bucket, &copy.source_name)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "x-goog-copy-source is not /BUCKET/OBJECT.");
        return;
    }
    copy.upload = rg_upload_create(call, &own, copy.bucket);
    if (copy.upload != NULL && open_source(call, &copy) && describe(call, &copy, NULL, !replaces) &&
        (!replaces || rg_upload_take_fields(call, copy.upload, &own)) &&
        copy_bytes(call, &copy, &info)) {
        reply_copied(call, &info);
    }
    rg_store_object_close(&copy.source);
    rg_upload_destroy(copy.upload);
}

void rg_rewrite_start_xml(struct rg_server_call *call, const struct rg_api_request *request)
{
    rg_body_collect(call, request, RG_BODY_SIZE_MAX, finish_copy_xml);
}
