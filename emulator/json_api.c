/* What each JSON route answers to each method; see json_api.h. */
#include "emulator/json_api.h"

#include "emulator/batch.h"
#include "emulator/body.h"
#include "emulator/compose.h"
#include "emulator/description.h"
#include "emulator/fields.h"
#include "emulator/folder_api.h"
#include "emulator/glob.h"
#include "emulator/listing.h"
#include "emulator/media.h"
#include "emulator/resource.h"
#include "emulator/resumable.h"
#include "emulator/rewrite.h"
#include "emulator/upload.h"
#include "http/url.h"

#include <errno.h>
#include <yyjson.h>

#define US_PER_S INT64_C(1000000)
#define SOFT_DELETE_S_MIN (7 * 86400)
#define SOFT_DELETE_S_MAX (90 * 86400)

static void style_init(struct rg_server_call *call, const struct rg_api_request *request,
                       const char *outer, struct rg_resource_style *style)
{
    rg_resource_style_init(style, rg_api_of(call)->options.tls, rg_h1_find(request->head, "host"),
                           request->params[RG_PARAM_FIELDS], outer);
    style->acl = rg_api_request_wants_acl(request);
}

static bool is_true(struct rg_h1_slice value)
{
    return rg_text_equals(value, "true") || rg_text_equals(value, "True") ||
           rg_text_equals(value, "1");
}

static void list_buckets(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct rg_h1_slice prefix = request->params[RG_PARAM_PREFIX];
    struct rg_h1_slice from = prefix;
    char next[RG_STORE_BUCKET_NAME_SIZE_MAX + 1];
    const char *separator = "";
    struct rg_resource_style style;
    style_init(call, request, "items", &style);
    rg_text_append_str(text, "{\"kind\":\"storage#buckets\",\"items\":[");
    struct rg_bucket *bucket;
    while ((bucket = rg_store_seek_bucket(rg_api_of(call)->options.store, from)) != NULL &&
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

/* For how long what is deleted can be restored: not at all, or from 7 to 90 days. */
static bool take_soft_delete(struct rg_server_call *call, yyjson_val *policy,
                             struct rg_bucket_info *info)
{
    yyjson_val *value = yyjson_obj_get(policy, "retentionDurationSeconds");
    struct rg_h1_slice text = {yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
    int64_t seconds = yyjson_get_sint(value);
    bool valid = yyjson_is_str(value) ? rg_text_parse_int64(text, &seconds) == 0
                                      : yyjson_is_int(value) || yyjson_is_null(policy);
    if (!valid || (seconds != 0 && (seconds < SOFT_DELETE_S_MIN || seconds > SOFT_DELETE_S_MAX))) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "retentionDurationSeconds has to be 0, or from %d to %d.", SOFT_DELETE_S_MIN,
                       SOFT_DELETE_S_MAX);
        return false;
    }
    if (seconds * US_PER_S != info->soft_delete_us) {
        info->soft_delete_us = seconds * US_PER_S;
        info->soft_delete_since_us = rg_store_now_us();
    }
    return true;
}

/* What JSON says of a bucket, over what is known of it. False with the call answered. */
static bool take_bucket(struct rg_server_call *call, yyjson_val *root, struct rg_bucket_info *info)
{
    const struct {
        const char *member;
        char *out;
    } texts[] = {{"location", info->location}, {"storageClass", info->storage_class}};
    yyjson_val *versioning = yyjson_obj_get(root, "versioning");
    yyjson_val *policy = yyjson_obj_get(root, "softDeletePolicy");
    yyjson_val *hierarchy = yyjson_obj_get(root, "hierarchicalNamespace");
    yyjson_val *access =
        yyjson_obj_get(yyjson_obj_get(root, "iamConfiguration"), "uniformBucketLevelAccess");
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        yyjson_val *value = yyjson_obj_get(root, texts[i].member);
        struct rg_h1_slice text = {yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
        if (yyjson_is_str(value) && !rg_description_set(call, texts[i].member, text, texts[i].out,
                                                        RG_STORE_LOCATION_SIZE_MAX)) {
            return false;
        }
    }
    if (versioning != NULL) {
        info->versioning = yyjson_get_bool(yyjson_obj_get(versioning, "enabled"));
    }
    if (policy != NULL && !take_soft_delete(call, policy, info)) {
        return false;
    }
    if (access != NULL) {
        info->uniform_access = yyjson_get_bool(yyjson_obj_get(access, "enabled"));
    }
    if (hierarchy != NULL) {
        info->hierarchical = yyjson_get_bool(yyjson_obj_get(hierarchy, "enabled"));
    }
    if (info->hierarchical && (!info->uniform_access || info->versioning)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "A hierarchical namespace needs uniform bucket-level access, and has no "
                       "object versioning.");
        return false;
    }
    return true;
}

static void reply_bucket(struct rg_server_call *call, const struct rg_api_request *request,
                         struct rg_bucket *bucket)
{
    struct rg_resource_style style;
    style_init(call, request, NULL, &style);
    rg_resource_append_bucket(&rg_call_of(call)->text, &style, bucket);
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void get_bucket(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket != NULL) {
        reply_bucket(call, request, bucket);
    }
}

/* Describes a bucket by JSON, and answers with it. */
static void configure_bucket(struct rg_server_call *call, const struct rg_api_request *request,
                             struct rg_bucket *bucket, yyjson_val *root, bool is_new)
{
    struct rg_bucket_info info;
    int64_t metageneration;
    rg_bucket_get_info(bucket, &info);
    bool hierarchical = info.hierarchical;
    if (rg_api_request_int(request, RG_PARAM_IF_METAGENERATION_MATCH, 0, &metageneration) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "ifMetagenerationMatch is not a number.");
        return;
    }
    if (!take_bucket(call, root, &info)) {
        return;
    }
    int rc = is_new || info.hierarchical == hierarchical
                 ? rg_bucket_configure(bucket, &info, metageneration)
                 : -EPERM;
    if (rc == -EPERM) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "A bucket has a hierarchical namespace from its creation on, or never.");
    } else if (rc < 0) {
        rg_reply_store_error(call, rc, rg_bucket_name(bucket), (struct rg_h1_slice){"", 0});
    } else {
        reply_bucket(call, request, bucket);
    }
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
    struct rg_bucket_info wanted = {0};
    if (!yyjson_is_str(value) || !rg_store_bucket_name_valid(name)) {
        rg_reply_error(call, RG_API_BUCKET_NAME, "Invalid bucket name: '%.*s'",
                       yyjson_is_str(value) ? (int)name.size : 0, name.data);
    } else if (take_bucket(call, root, &wanted)) { /* Before there is anything. */
        int rc = rg_store_create_bucket(rg_api_of(call)->options.store, name, &bucket);
        if (rc == -EEXIST) {
            rg_reply_error(call, RG_API_CONFLICT,
                           "Your previous request to create the named bucket succeeded and you "
                           "already own it.");
        } else if (rc < 0) {
            rg_reply_store_error(call, rc, name, (struct rg_h1_slice){"", 0});
        } else if (yyjson_obj_size(root) > 1) {
            configure_bucket(call, request, bucket, root, true);
        } else {
            reply_bucket(call, request, bucket);
        }
    }
    yyjson_doc_free(document);
}

static void update_bucket(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice body)
{
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    yyjson_val *root = yyjson_doc_get_root(document);
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket != NULL && !yyjson_is_obj(root)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The description is not a JSON object.");
    } else if (bucket != NULL) {
        configure_bucket(call, request, bucket, root, false);
    }
    yyjson_doc_free(document);
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

/* Everybody may do everything: each of the permissions that are asked for is granted. */
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

/* False, with the call answered, when a parameter is malformed. */
static bool listing_query(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_api_listing_query *out)
{
    int64_t page_max;
    bool soft = is_true(request->params[RG_PARAM_SOFT_DELETED]);
    if (soft && is_true(request->params[RG_PARAM_VERSIONS])) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "softDeleted and versions exclude each other.");
        return false;
    }
    if (rg_api_request_int(request, RG_PARAM_MAX_RESULTS, RG_LISTING_PAGE_MAX, &page_max) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "maxResults is not a number.");
        return false;
    }
    if (!rg_fields_valid(request->params[RG_PARAM_FIELDS])) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "Invalid field selection.");
        return false;
    }
    if (is_true(request->params[RG_PARAM_INCLUDE_FOLDERS_AS_PREFIXES]) &&
        !rg_text_equals(request->params[RG_PARAM_DELIMITER], "/")) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "includeFoldersAsPrefixes needs the delimiter to be \"/\".");
        return false;
    }
    if (!rg_glob_valid(request->params[RG_PARAM_MATCH_GLOB])) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "matchGlob is not a valid pattern.");
        return false;
    }
    *out = (struct rg_api_listing_query){
        .glob = request->params[RG_PARAM_MATCH_GLOB],
        .soft_deleted = soft,
        .versions = soft || is_true(request->params[RG_PARAM_VERSIONS]),
        .prefix = request->params[RG_PARAM_PREFIX],
        .delimiter = request->params[RG_PARAM_DELIMITER],
        .start = request->params[RG_PARAM_START_OFFSET],
        .end = request->params[RG_PARAM_END_OFFSET],
        .token = request->params[RG_PARAM_PAGE_TOKEN],
        .page_max = page_max == 0 || page_max > RG_LISTING_PAGE_MAX ? RG_LISTING_PAGE_MAX
                                                                    : (uint32_t)page_max,
        .folders = is_true(request->params[RG_PARAM_INCLUDE_FOLDERS_AS_PREFIXES]),
        .trailing_delimiter = is_true(request->params[RG_PARAM_INCLUDE_TRAILING_DELIMITER]),
    };
    return true;
}

/* The two arrays of a page, as far as they are wanted. */
struct page {
    struct rg_text items, prefixes;
    bool wants_items, wants_prefixes;
};

/* Attributes are not in the listing; what became of the object since does not matter. */
static void append_item(struct rg_text *items, const struct rg_resource_style *style,
                        struct rg_bucket *bucket, struct rg_h1_slice name,
                        const struct rg_store_object_info *info)
{
    struct rg_store_object object;
    int (*open)(struct rg_bucket * bucket, struct rg_h1_slice name, int64_t generation,
                struct rg_store_object * out_object) =
        info->hard_delete_us != 0 ? rg_bucket_open_soft_deleted : rg_bucket_open_version;
    if (!info->has_attributes || open(bucket, name, info->generation, &object) < 0) {
        rg_resource_append_object(items, style, rg_bucket_name(bucket), name, info);
        return;
    }
    rg_resource_append_object(items, style, rg_bucket_name(bucket), name, &object.info);
    rg_store_object_close(&object);
}

static int list_page(struct rg_api_listing *listing, const struct rg_resource_style *style,
                     struct page *page)
{
    int kind;
    while ((kind = rg_api_listing_next(listing)) > RG_LISTING_END) {
        if (kind == RG_LISTING_PREFIX && page->wants_prefixes) {
            rg_text_append_str(&page->prefixes, page->prefixes.size > 0 ? "," : "");
            rg_text_append_json(&page->prefixes, listing->group.data, listing->group.size);
        } else if (kind == RG_LISTING_OBJECT && page->wants_items) {
            struct rg_h1_slice name = {listing->entry.name, listing->entry.name_size};
            rg_text_append_str(&page->items, page->items.size > 0 ? "," : "");
            append_item(&page->items, style, listing->bucket, name, &listing->entry.info);
        }
    }
    return kind;
}

static void append_page(struct rg_text *text, const struct rg_api_listing *listing,
                        const struct page *page, struct rg_h1_slice fields)
{
    const char *separator = "{";
    text->failed = text->failed || page->items.failed || page->prefixes.failed;
    if (rg_fields_select(fields, NULL, "kind")) {
        rg_text_append_str(text, "{\"kind\":\"storage#objects\"");
        separator = ",";
    }
    if (listing->more && rg_fields_select(fields, NULL, "nextPageToken")) {
        rg_text_printf(text, "%s\"nextPageToken\":\"", separator);
        rg_api_listing_append_token(listing, text);
        rg_text_append_str(text, "\"");
        separator = ",";
    }
    if (page->prefixes.size > 0) {
        rg_text_printf(text, "%s\"prefixes\":[", separator);
        rg_text_append(text, page->prefixes.data, page->prefixes.size);
        rg_text_append_str(text, "]");
        separator = ",";
    }
    if (page->items.size > 0) {
        rg_text_printf(text, "%s\"items\":[", separator);
        rg_text_append(text, page->items.data, page->items.size);
        rg_text_append_str(text, "]");
        separator = ",";
    }
    rg_text_append_str(text, separator[0] == '{' ? "{}" : "}");
}

static void list_objects(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_h1_slice fields = request->params[RG_PARAM_FIELDS];
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    struct rg_api_listing_query query;
    struct rg_api_listing listing;
    if (bucket == NULL || !listing_query(call, request, &query)) {
        return;
    }
    if (rg_api_listing_start(&listing, bucket, &query) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "Invalid page token.");
        return;
    }
    if (rg_rules_empties_page(call)) {
        listing.query.page_max = 0;
    }
    struct rg_resource_style style;
    style_init(call, request, "items", &style);
    struct page page = {
        .wants_items = rg_fields_select(fields, NULL, "items"),
        .wants_prefixes = rg_fields_select(fields, NULL, "prefixes"),
    };
    int rc = list_page(&listing, &style, &page);
    if (rc < 0) {
        rg_reply_store_error(call, rc, request->bucket, (struct rg_h1_slice){"", 0});
    } else {
        append_page(&rg_call_of(call)->text, &listing, &page, fields);
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
    rg_text_fini(&page.items);
    rg_text_fini(&page.prefixes);
}

/* False with the call answered. */
static bool open_soft_deleted(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    int64_t generation;
    if (bucket == NULL) {
        return false;
    }
    if (rg_api_request_int(request, RG_PARAM_GENERATION, 0, &generation) < 0 || generation <= 0) {
        rg_reply_error(call, RG_API_MISSING,
                       "The generation of the soft-deleted object is needed.");
        return false;
    }
    int rc = rg_store_object_name_valid(request->object)
                 ? rg_bucket_open_soft_deleted(bucket, request->object, generation,
                                               &rg_call_of(call)->object)
                 : -ENOENT;
    if (rc < 0) {
        rg_reply_store_error(call, rc, request->bucket, request->object);
    }
    return rc == 0;
}

static void get_metadata(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_call *state = rg_call_of(call);
    if (!rg_fields_valid(request->params[RG_PARAM_FIELDS])) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "Invalid field selection.");
        return;
    }
    if (is_true(request->params[RG_PARAM_SOFT_DELETED]) ? !open_soft_deleted(call, request)
                                                        : !rg_media_open(call, request)) {
        return;
    }
    struct rg_resource_style style;
    style_init(call, request, NULL, &style);
    rg_resource_append_object(&state->text, &style, request->bucket, request->object,
                              &state->object.info);
    rg_store_object_close(&state->object);
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void start_object(struct rg_server_call *call, const struct rg_api_request *request)
{
    if (rg_api_request_is(request, "GET") || rg_api_request_is(request, "HEAD")) {
        if (request->media) {
            rg_media_get(call, request);
        } else {
            get_metadata(call, request);
        }
    } else if (rg_api_request_is(request, "DELETE")) {
        rg_media_remove(call, request);
    } else if (rg_api_request_is(request, "PATCH") || rg_api_request_is(request, "PUT")) {
        rg_description_update(call, request);
    } else if (request->action == RG_ACTION_COMPOSE) {
        rg_compose_start(call, request);
    } else if (request->action != RG_ACTION_NONE) {
        rg_rewrite_start(call, request);
    } else {
        rg_reply_error(call, RG_API_METHOD, "An object knows no such method.");
    }
}

static void start_bucket(struct rg_server_call *call, const struct rg_api_request *request)
{
    bool get = rg_api_request_is(request, "GET") || rg_api_request_is(request, "HEAD");
    if (get && request->route == RG_ROUTE_JSON_BUCKET) {
        get_bucket(call, request);
    } else if (request->route == RG_ROUTE_JSON_BUCKET && rg_api_request_is(request, "DELETE")) {
        rg_reply_remove_bucket(call, request);
    } else if (request->route == RG_ROUTE_JSON_BUCKET &&
               (rg_api_request_is(request, "PATCH") || rg_api_request_is(request, "PUT"))) {
        rg_body_collect(call, request, RG_BODY_SIZE_MAX, update_bucket);
    } else if (rg_folder_api_is(request)) {
        rg_folder_api_start(call, request);
    } else if (get && rg_text_equals(request->part, "storageLayout")) {
        get_storage_layout(call, request);
    } else if (get && rg_text_equals(request->part, "iam/testPermissions")) {
        test_permissions(call, request);
    } else {
        rg_reply_error(call, RG_API_NOT_IMPLEMENTED,
                       "%.*s of %s is not implemented by this emulator.",
                       (int)request->head->method.size, request->head->method.data,
                       request->route == RG_ROUTE_JSON_BUCKET ? "a bucket" : "a part of a bucket");
    }
}

static void reply_method(struct rg_server_call *call)
{
    rg_reply_error(call, RG_API_METHOD, "The path knows no such method.");
}

static void start_upload(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_h1_slice type = request->params[RG_PARAM_UPLOAD_TYPE];
    if (rg_resumable_is_session(request)) {
        rg_resumable_continue(call, request);
    } else if (rg_text_equals(type, "resumable")) {
        rg_resumable_start(call, request);
    } else if (rg_text_equals(type, "media") || rg_text_equals(type, "multipart")) {
        rg_upload_receive(call, request);
    } else {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "uploadType has to be media, multipart or resumable.");
    }
}

void rg_json_api_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    bool get = rg_api_request_is(request, "GET") || rg_api_request_is(request, "HEAD");
    bool post = rg_api_request_is(request, "POST");
    switch (request->route) {
    case RG_ROUTE_JSON_BUCKETS:
        if (get) {
            list_buckets(call, request);
        } else if (post) {
            rg_body_collect(call, request, RG_BODY_SIZE_MAX, create_bucket);
        } else {
            reply_method(call);
        }
        break;
    case RG_ROUTE_JSON_BUCKET:
    case RG_ROUTE_JSON_BUCKET_PART:
        start_bucket(call, request);
        break;
    case RG_ROUTE_JSON_OBJECTS:
        if (get) {
            list_objects(call, request);
        } else {
            reply_method(call);
        }
        break;
    case RG_ROUTE_JSON_OBJECT:
        start_object(call, request);
        break;
    case RG_ROUTE_JSON_UPLOAD:
        if (post || rg_api_request_is(request, "PUT") || rg_api_request_is(request, "DELETE")) {
            start_upload(call, request);
        } else {
            reply_method(call);
        }
        break;
    default:
        if (post) {
            rg_batch_start(call, request);
        } else {
            reply_method(call);
        }
        break;
    }
}
