/* What each JSON route answers to each method; see routes.h. */
#include "emulator/api/json/routes.h"

#include "emulator/api/access.h"
#include "emulator/api/contexts.h"
#include "emulator/api/description.h"
#include "emulator/api/fields.h"
#include "emulator/api/json/batch.h"
#include "emulator/api/json/buckets.h"
#include "emulator/api/json/compose.h"
#include "emulator/api/json/update.h"
#include "emulator/api/media.h"
#include "emulator/api/resource.h"
#include "emulator/api/resumable.h"
#include "emulator/api/rewrite.h"
#include "emulator/api/upload.h"
#include "emulator/faults/rules.h"
#include "emulator/store/glob.h"
#include "emulator/store/listing.h"
#include "http/url.h"

#include <errno.h>

/* False, with the call answered, when a parameter is malformed. */
static bool listing_query(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_api_listing_query *out)
{
    int64_t page_max;
    bool soft = rg_api_request_true(request, RG_PARAM_SOFT_DELETED);
    if (soft && rg_api_request_true(request, RG_PARAM_VERSIONS)) {
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
    if (rg_api_request_true(request, RG_PARAM_INCLUDE_FOLDERS_AS_PREFIXES) &&
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
        .versions = soft || rg_api_request_true(request, RG_PARAM_VERSIONS),
        .prefix = request->params[RG_PARAM_PREFIX],
        .delimiter = request->params[RG_PARAM_DELIMITER],
        .start = request->params[RG_PARAM_START_OFFSET],
        .end = request->params[RG_PARAM_END_OFFSET],
        .token = request->params[RG_PARAM_PAGE_TOKEN],
        .page_max = page_max == 0 || page_max > RG_LISTING_PAGE_MAX ? RG_LISTING_PAGE_MAX
                                                                    : (uint32_t)page_max,
        .folders = rg_api_request_true(request, RG_PARAM_INCLUDE_FOLDERS_AS_PREFIXES),
        .trailing_delimiter = rg_api_request_true(request, RG_PARAM_INCLUDE_TRAILING_DELIMITER),
    };
    return true;
}

/* The two arrays of a page. One that is not wanted stays empty. */
struct page {
    struct rg_text items, prefixes;
    bool wants_items, wants_prefixes;
    bool is_filtered; /* The filter applies to items, not to prefixes. */
    struct rg_context_filter filter;
};

/* The listing has no attributes, so the object is opened for them. It does not matter if it has
 * changed since. */
static void append_item(struct page *page, const struct rg_resource_style *style,
                        struct rg_bucket *bucket, struct rg_h1_slice name,
                        const struct rg_store_object_info *info)
{
    struct rg_store_object object = {.info = *info};
    int (*open)(struct rg_bucket * bucket, struct rg_h1_slice name, int64_t generation,
                struct rg_store_object * out_object) =
        info->hard_delete_us != 0 ? rg_bucket_open_soft_deleted : rg_bucket_open_version;
    bool opened = info->has_attributes && open(bucket, name, info->generation, &object) == 0;
    const struct rg_store_object_info *told = opened ? &object.info : info;
    if (!page->is_filtered || rg_context_filter_match(&page->filter, told->attributes)) {
        rg_text_append_str(&page->items, page->items.size > 0 ? "," : "");
        rg_resource_append_object(&page->items, style, rg_bucket_name(bucket), name, told);
    }
    if (opened) {
        rg_store_object_close(&object);
    }
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
            append_item(page, style, listing->bucket, name, &listing->entry.info);
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
    struct rg_h1_slice filter = request->params[RG_PARAM_FILTER];
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
    if (rg_rules_effect(call) == RG_EFFECT_EMPTY) {
        listing.query.page_max = 0;
    }
    struct rg_resource_style style;
    rg_resource_style_of_request(&style, call, request, "items");
    struct page page = {
        .wants_items = rg_fields_select(fields, NULL, "items"),
        .wants_prefixes = rg_fields_select(fields, NULL, "prefixes"),
        .is_filtered = filter.size > 0,
    };
    if (page.is_filtered && rg_context_filter_parse(&page.filter, filter) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "filter has to be contexts.\"KEY\"=\"VALUE\" or contexts.\"KEY\":*, with a "
                       "\"-\" before for what is not so.");
        return;
    }
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
    if (rg_api_request_true(request, RG_PARAM_SOFT_DELETED) ? !open_soft_deleted(call, request)
                                                            : !rg_media_open(call, request)) {
        return;
    }
    struct rg_resource_style style;
    rg_resource_style_of_request(&style, call, request, NULL);
    rg_resource_append_object(&state->text, &style, request->bucket, request->object,
                              &state->object.info);
    rg_store_object_close(&state->object);
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void start_object_acl(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket == NULL || !rg_access_check_read(call, bucket, rg_api_request_is(request, "GET")) ||
        !rg_media_open(call, request)) {
        return;
    }
    struct rg_h1_slice acl = rg_attributes_get(state->object.info.attributes, RG_ATTRIBUTES_ACL);
    rg_text_append_str(&state->text, "{\"kind\":\"storage#objectAccessControls\",\"items\":");
    if (acl.data != NULL) { /* Is JSON. */
        rg_text_append(&state->text, acl.data, acl.size);
    } else {
        rg_text_append_str(&state->text, "[{\"entity\":\"user-owner\",\"role\":\"OWNER\"}]");
    }
    rg_text_append_str(&state->text, "}");
    rg_store_object_close(&state->object);
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void start_object(struct rg_server_call *call, const struct rg_api_request *request)
{
    if (request->action == RG_ACTION_ACL) {
        start_object_acl(call, request);
    } else if (rg_api_request_is(request, "GET") || rg_api_request_is(request, "HEAD")) {
        if (request->media) {
            rg_media_get(call, request);
        } else {
            get_metadata(call, request);
        }
    } else if (rg_api_request_is(request, "DELETE")) {
        rg_media_remove(call, request);
    } else if (rg_api_request_is(request, "PATCH") || rg_api_request_is(request, "PUT")) {
        rg_update_start(call, request);
    } else if (request->action == RG_ACTION_COMPOSE) {
        rg_compose_start(call, request);
    } else if (request->action != RG_ACTION_NONE) {
        rg_rewrite_start(call, request);
    } else {
        rg_reply_error(call, RG_API_METHOD, "An object knows no such method.");
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
    case RG_ROUTE_JSON_BUCKET:
    case RG_ROUTE_JSON_BUCKET_PART:
        rg_bucket_api_start(call, request);
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
