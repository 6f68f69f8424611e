/* See buckets.h. What a bucket is described with is read in bucket_description.h. */
#include "emulator/api/json/buckets.h"

#include "emulator/api/access.h"
#include "emulator/api/fields.h"
#include "emulator/api/json/bucket_description.h"
#include "emulator/api/json/bucket_resource.h"
#include "emulator/api/json/folders.h"
#include "emulator/request/body.h"
#include "http/url.h"

#include <errno.h>
#include <stdlib.h>

/* How often somebody else may change the bucket between our reading and writing. */
#define CONFIGURE_ATTEMPTS_MAX 100

static void list_buckets(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct rg_h1_slice prefix = request->params[RG_PARAM_PREFIX];
    struct rg_h1_slice from = prefix;
    char next[RG_STORE_BUCKET_NAME_SIZE_MAX + 1];
    const char *separator = "";
    struct rg_resource_style style;
    rg_resource_style_of_request(&style, call, request, "items");
    rg_text_append_str(text, "{\"kind\":\"storage#buckets\",\"items\":[");
    struct rg_bucket *bucket;
    while ((bucket = rg_store_seek_bucket(rg_service_of(call)->store, from)) != NULL &&
           rg_text_starts_with(rg_bucket_name(bucket), prefix)) {
        rg_text_append_str(text, separator);
        rg_resource_append_bucket(text, &style, bucket);
        separator = ",";
        struct rg_h1_slice name = rg_bucket_name(bucket);
        memcpy(next, name.data, name.size);
        next[name.size] = '\0';
        from = (struct rg_h1_slice){next, name.size + 1};
    }
    rg_text_append_str(text, "]}");
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void reply_bucket(struct rg_server_call *call, const struct rg_api_request *request,
                         struct rg_bucket *bucket)
{
    struct rg_resource_style style;
    rg_resource_style_of_request(&style, call, request, NULL);
    rg_resource_append_bucket(&rg_call_of(call)->text, &style, bucket);
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

/* A change of a bucket's description. */
struct change {
    yyjson_val *root; /* NULL: the change is that its retention policy is locked. */
    bool replaces;
    int64_t metageneration; /* The one that is demanded, 0 for any, or RG_BUCKET_IS_NEW. */
};

/* One attempt. -EAGAIN when somebody else changed the bucket meanwhile; otherwise the call is
 * answered. */
static int try_change(struct rg_server_call *call, const struct rg_api_request *request,
                      struct rg_bucket *bucket, const struct change *change)
{
    struct rg_bucket_info info;
    struct rg_bucket_settings *known = rg_bucket_get_settings(bucket), *settings = NULL;
    rg_bucket_get_info(bucket, &info);
    int64_t expected = change->metageneration != 0 ? change->metageneration : info.metageneration;
    bool hierarchical = info.hierarchical, is_new = expected == RG_BUCKET_IS_NEW;
    bool described = change->root != NULL ? rg_bucket_describe(call, change->root, change->replaces,
                                                               known, &info, &settings)
                                          : rg_bucket_lock_retention(call, known, &info, &settings);
    int rc = 0;
    if (described) {
        info.settings = settings;
        rc = is_new || info.hierarchical == hierarchical
                 ? rg_bucket_configure(bucket, &info, expected)
                 : -EPERM;
        if (rc == -ESTALE && change->metageneration == 0) {
            rc = -EAGAIN;
        } else if (rc == -EPERM) {
            rg_reply_error(call, RG_API_BAD_REQUEST,
                           "A bucket has a hierarchical namespace from its creation on, or never.");
        } else if (rc < 0) {
            rg_reply_store_error(call, rc, rg_bucket_name(bucket), (struct rg_h1_slice){"", 0});
        } else {
            reply_bucket(call, request, bucket);
        }
    }
    rg_bucket_settings_unref(settings);
    rg_bucket_settings_unref(known);
    return rc;
}

static void change_bucket(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_bucket *bucket, const struct change *change)
{
    int rc = -EAGAIN;
    for (int i = 0; rc == -EAGAIN && i < CONFIGURE_ATTEMPTS_MAX; i++) {
        rc = try_change(call, request, bucket, change);
    }
    if (rc == -EAGAIN) {
        rg_reply_error(call, RG_API_UNAVAILABLE, "The bucket is changed too often.");
    }
}

/* Checks a description before the bucket is made, so that none is left behind when it is
 * refused. */
static bool check_description(struct rg_server_call *call, yyjson_val *root)
{
    struct rg_bucket_info info = {0};
    struct rg_bucket_settings *settings = NULL;
    bool described = rg_bucket_describe(call, root, true, NULL, &info, &settings);
    rg_bucket_settings_unref(settings);
    return described;
}

static void create_bucket(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice body)
{
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    yyjson_val *root = yyjson_doc_get_root(document);
    yyjson_val *value = yyjson_obj_get(root, "name");
    struct rg_h1_slice name = {yyjson_is_str(value) ? yyjson_get_str(value) : "",
                               (uint32_t)yyjson_get_len(value)};
    struct rg_bucket *bucket;
    if (!yyjson_is_str(value) || !rg_store_bucket_name_valid(name)) {
        rg_reply_error(call, RG_API_BUCKET_NAME, "Invalid bucket name: '%.*s'",
                       yyjson_is_str(value) ? (int)name.size : 0, name.data);
    } else if (check_description(call, root)) {
        int rc = rg_store_create_bucket(rg_service_of(call)->store, name, &bucket);
        if (rc == -EEXIST) {
            rg_reply_error(call, RG_API_CONFLICT,
                           "Your previous request to create the named bucket succeeded and you "
                           "already own it.");
        } else if (rc < 0) {
            rg_reply_store_error(call, rc, name, (struct rg_h1_slice){"", 0});
        } else {
            struct change change = {
                .root = root, .replaces = true, .metageneration = RG_BUCKET_IS_NEW};
            change_bucket(call, request, bucket, &change);
        }
    }
    yyjson_doc_free(document);
}

/* The condition of a request that changes a bucket. False with the call answered. */
static bool take_metageneration(struct rg_server_call *call, const struct rg_api_request *request,
                                int64_t *out)
{
    if (rg_api_request_int(request, RG_PARAM_IF_METAGENERATION_MATCH, 0, out) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "ifMetagenerationMatch is not a number.");
        return false;
    }
    return true;
}

static void update_bucket(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice body)
{
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    struct change change = {.root = yyjson_doc_get_root(document),
                            .replaces = rg_api_request_is(request, "PUT")};
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket != NULL && !yyjson_is_obj(change.root)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The description is not a JSON object.");
    } else if (bucket != NULL && take_metageneration(call, request, &change.metageneration)) {
        change_bucket(call, request, bucket, &change);
    }
    yyjson_doc_free(document);
}

static void lock_retention(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct change change = {0};
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket == NULL || !take_metageneration(call, request, &change.metageneration)) {
        return;
    }
    if (change.metageneration == 0) {
        rg_reply_error(call, RG_API_MISSING, "Required parameter: ifMetagenerationMatch");
        return;
    }
    change_bucket(call, request, bucket, &change);
}

static void get_bucket(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket != NULL) {
        reply_bucket(call, request, bucket);
    }
}

static void get_storage_layout(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket != NULL) {
        struct rg_text *text = &rg_call_of(call)->text;
        struct rg_h1_slice name = rg_bucket_name(bucket);
        struct rg_bucket_info info;
        rg_bucket_get_info(bucket, &info);
        rg_text_printf(text,
                       "{\"kind\":\"storage#storageLayout\",\"bucket\":\"%.*s\",\"location\":",
                       (int)name.size, name.data);
        rg_text_append_json(text, info.location, strlen(info.location));
        rg_text_printf(text,
                       ",\"locationType\":\"multi-region\","
                       "\"hierarchicalNamespace\":{\"enabled\":%s}}",
                       info.hierarchical ? "true" : "false");
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
}

/* Grants each permission that is asked for: everybody may do everything. */
static void test_permissions(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct rg_h1_slice path, query, name, value;
    if (rg_reply_find_bucket(call, request) == NULL) {
        return;
    }
    rg_text_append_str(text, "{\"kind\":\"storage#testIamPermissionsResponse\",\"permissions\":[");
    const char *separator = "";
    rg_url_target_split(request->head->target, &path, &query);
    while (rg_url_query_next(&query, &name, &value)) {
        if (rg_text_equals(name, "permissions")) { /* "storage.objects.get" has nothing escaped. */
            rg_text_append_str(text, separator);
            rg_text_append_json(text, value.data, value.size);
            separator = ",";
        }
    }
    rg_text_append_str(text, "]}");
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

/* The policy of a bucket that nobody has given one. */
#define DEFAULT_ACL                                                                                \
    "[{\"entity\":\"project-owners-0\",\"role\":\"OWNER\"},"                                       \
    "{\"entity\":\"project-editors-0\",\"role\":\"OWNER\"},"                                       \
    "{\"entity\":\"project-viewers-0\",\"role\":\"READER\"}]"

static void append_acl(struct rg_text *text, const struct rg_bucket_settings *settings,
                       const char *member)
{
    struct rg_h1_slice json = rg_bucket_settings_json(settings);
    yyjson_doc *document = yyjson_read(json.data, json.size, 0);
    yyjson_val *acl = yyjson_obj_get(yyjson_doc_get_root(document), member);
    char *entries = yyjson_is_arr(acl) ? yyjson_val_write(acl, YYJSON_WRITE_NOFLAG, NULL) : NULL;
    rg_text_append_str(text, entries != NULL ? entries : DEFAULT_ACL);
    free(entries);
    yyjson_doc_free(document);
}

/* Access control lists are kept where they are part of a resource, and not entry by entry. */
static void start_acl(struct rg_server_call *call, const struct rg_api_request *request,
                      const char *member, bool get)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket == NULL || !rg_access_check_read(call, bucket, get)) {
        return;
    }
    struct rg_bucket_settings *settings = rg_bucket_get_settings(bucket);
    rg_text_printf(text, "{\"kind\":\"storage#%s\",\"items\":",
                   strcmp(member, "acl") == 0 ? "bucketAccessControls" : "objectAccessControls");
    append_acl(text, settings, member);
    rg_text_append_str(text, "}");
    rg_bucket_settings_unref(settings);
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void start_buckets(struct rg_server_call *call, const struct rg_api_request *request,
                          bool get)
{
    if (get) {
        list_buckets(call, request);
    } else if (!rg_api_request_is(request, "POST")) {
        rg_reply_error(call, RG_API_METHOD, "The path knows no such method.");
    } else if (rg_api_request_true(request, RG_PARAM_ENABLE_OBJECT_RETENTION)) {
        rg_reply_error(call, RG_API_NOT_IMPLEMENTED,
                       "enableObjectRetention: retention of single objects is not implemented by "
                       "this emulator.");
    } else {
        rg_body_collect(call, request, RG_BODY_SIZE_MAX, create_bucket);
    }
}

static void start_bucket(struct rg_server_call *call, const struct rg_api_request *request,
                         bool get)
{
    if (get) {
        get_bucket(call, request);
    } else if (rg_api_request_is(request, "DELETE")) {
        rg_reply_remove_bucket(call, request);
    } else if (rg_api_request_is(request, "PATCH") || rg_api_request_is(request, "PUT")) {
        rg_body_collect(call, request, RG_BODY_SIZE_MAX, update_bucket);
    } else {
        rg_reply_error(call, RG_API_METHOD, "A bucket knows no such method.");
    }
}

static void start_part(struct rg_server_call *call, const struct rg_api_request *request, bool get)
{
    if (rg_folder_api_is(request)) {
        rg_folder_api_start(call, request);
    } else if (get && rg_text_equals(request->part, "storageLayout")) {
        get_storage_layout(call, request);
    } else if (get && rg_text_equals(request->part, "iam/testPermissions")) {
        test_permissions(call, request);
    } else if (rg_api_request_is(request, "POST") &&
               rg_text_equals(request->part, "lockRetentionPolicy")) {
        lock_retention(call, request);
    } else if (rg_text_equals(request->part, "acl")) {
        start_acl(call, request, "acl", get);
    } else if (rg_text_equals(request->part, "defaultObjectAcl")) {
        start_acl(call, request, "defaultObjectAcl", get);
    } else {
        rg_reply_error(call, RG_API_NOT_IMPLEMENTED,
                       "%.*s of %.*s of a bucket is not implemented by this emulator.",
                       (int)request->head->method.size, request->head->method.data,
                       (int)request->part.size, request->part.data);
    }
}

void rg_bucket_api_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    bool get = rg_api_request_is(request, "GET") || rg_api_request_is(request, "HEAD");
    if (request->route == RG_ROUTE_JSON_BUCKETS) {
        start_buckets(call, request, get);
    } else if (request->route == RG_ROUTE_JSON_BUCKET) {
        start_bucket(call, request, get);
    } else {
        start_part(call, request, get);
    }
}
