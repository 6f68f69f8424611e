/* What each route below a bucket's folders and operations answers; see folders.h. */
#include "emulator/api/json/folders.h"

#include "emulator/api/json/bucket_resource.h"
#include "emulator/faults/rules.h"
#include "emulator/request/body.h"
#include "emulator/request/sessions.h"
#include "emulator/store/bucket_folders.h"
#include "http/url.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <yyjson.h>

#define PAGE_MAX 1000
#define RENAME_MARK "/renameTo/folders/"
#define TYPES "type.googleapis.com/google.storage.control.v2."

/* A folder's name, from a path or from JSON. */
struct name {
    char data[RG_STORE_FOLDER_SIZE_MAX];
    uint32_t size;
};

/* A rename that has ended. It is found by its id among the sessions, and never changes. */
struct operation {
    struct rg_session base;
    char bucket[RG_STORE_BUCKET_NAME_SIZE_MAX + 1];
    struct rg_resource_style style;
    struct name from, to;
    struct rg_folder_info info;
};

static struct rg_h1_slice slice_of(const struct name *name)
{
    return (struct rg_h1_slice){name->data, name->size};
}

static void operation_destroy(struct rg_session *base)
{
    free(RG_CONTAINER_OF(base, struct operation, base));
}

static const struct rg_session_type operation_type = {operation_destroy};

/* What follows the segment `collection` in a path; `data` is NULL when the path has another one. */
static struct rg_h1_slice part_behind(const struct rg_api_request *request, const char *collection)
{
    struct rg_h1_slice wanted = rg_text_slice(collection), part = request->part;
    if (request->route != RG_ROUTE_JSON_BUCKET_PART || !rg_text_starts_with(part, wanted) ||
        (part.size > wanted.size && part.data[wanted.size] != '/')) {
        return (struct rg_h1_slice){NULL, 0};
    }
    uint32_t taken = RG_MIN(wanted.size + 1, part.size);
    return (struct rg_h1_slice){part.data + taken, part.size - taken};
}

bool rg_folder_api_is(const struct rg_api_request *request)
{
    return part_behind(request, "folders").data != NULL ||
           part_behind(request, "operations").data != NULL;
}

/* Takes a name; the "/" at its end may be missing. False with the call answered. */
static bool take_name(struct rg_server_call *call, struct rg_h1_slice text, struct name *out)
{
    bool bare = text.size == 0 || text.data[text.size - 1] != '/';
    if (text.size > 0 && text.size + bare <= sizeof(out->data)) {
        memcpy(out->data, text.data, text.size);
        memcpy(out->data + text.size, "/", bare);
        out->size = text.size + bare;
        if (rg_store_folder_name_valid(slice_of(out))) {
            return true;
        }
    }
    rg_reply_error(call, RG_API_BAD_REQUEST,
                   "A folder's name is 1 to %d bytes of UTF-8 without line breaks, with a \"/\" at "
                   "its end.",
                   RG_STORE_FOLDER_SIZE_MAX);
    return false;
}

/* The same for one that is percent-encoded. */
static bool decode_name(struct rg_server_call *call, struct rg_h1_slice encoded, struct name *out)
{
    char decoded[RG_H1_TARGET_SIZE_MAX];
    int size = rg_url_percent_decode(encoded, RG_URL_PATH, decoded, sizeof(decoded));
    return take_name(call, (struct rg_h1_slice){decoded, (uint32_t)RG_MAX(size, 0)}, out);
}

static void style_init(struct rg_server_call *call, const struct rg_api_request *request,
                       struct rg_resource_style *out)
{
    rg_resource_style_init(out, rg_service_of(call)->tls, rg_h1_find(request->head, "host"),
                           (struct rg_h1_slice){NULL, 0}, NULL);
}

static void reply_folder(struct rg_server_call *call, const struct rg_api_request *request,
                         struct rg_h1_slice name, const struct rg_folder_info *info)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct rg_resource_style style;
    style_init(call, request, &style);
    rg_text_append_str(text, "{");
    rg_resource_append_folder(text, &style, request->bucket, name, info);
    rg_text_append_str(text, "}");
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

/* The bucket, if it has folders; NULL with the call answered. */
static struct rg_bucket *find_bucket(struct rg_server_call *call,
                                     const struct rg_api_request *request)
{
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket != NULL && !rg_bucket_is_hierarchical(bucket)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The bucket does not have a hierarchical namespace: %.*s",
                       (int)request->bucket.size, request->bucket.data);
        return NULL;
    }
    return bucket;
}

static void reply_failure(struct rg_server_call *call, int rc, struct rg_h1_slice name)
{
    struct rg_h1_slice bucket = {"folder", 6};
    switch (rc) {
    case -ENOENT:
        rg_reply_error(call, RG_API_NO_OBJECT, "The specified folder does not exist: %.*s",
                       (int)name.size, name.data);
        break;
    case -EEXIST:
        rg_reply_error(call, RG_API_EXISTS, "The folder exists already: %.*s", (int)name.size,
                       name.data);
        break;
    case -ENOTDIR:
        rg_reply_error(call, RG_API_CONDITION, "The folder above this one does not exist: %.*s",
                       (int)name.size, name.data);
        break;
    case -ENOTEMPTY:
        rg_reply_error(call, RG_API_NOT_EMPTY, "The folder you tried to delete is not empty.");
        break;
    case -EINVAL:
        rg_reply_error(call, RG_API_BAD_REQUEST, "A folder cannot be moved into itself: %.*s",
                       (int)name.size, name.data);
        break;
    case -ENOSPC:
        rg_reply_error(call, RG_API_NO_ROOM, "The bucket has no room for another folder.");
        break;
    default:
        rg_reply_store_error(call, rc, bucket, name);
        break;
    }
}

/* Reads the conditions on the metageneration. A rename may use the names for those of a source.
 * False with the call answered. */
static bool take_conditions(struct rg_server_call *call, const struct rg_api_request *request,
                            bool of_source, struct rg_store_conditions *out)
{
    const char *bad_name;
    int rc = of_source ? rg_api_request_source_conditions(request, out, &bad_name)
                       : rg_api_request_conditions(request, out, &bad_name);
    if (rc < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "%s is not a number.", bad_name);
        return false;
    }
    out->generation.set = out->generation_match.set = out->generation_not_match.set = false;
    return true;
}

static bool is_true(struct rg_h1_slice value)
{
    return rg_text_equals(value, "true") || rg_text_equals(value, "True") ||
           rg_text_equals(value, "1");
}

static void create_folder(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice body)
{
    yyjson_doc *document = yyjson_read(body.data, body.size, 0);
    yyjson_val *value = yyjson_obj_get(yyjson_doc_get_root(document), "name");
    struct rg_h1_slice text = {yyjson_is_str(value) ? yyjson_get_str(value) : "",
                               yyjson_is_str(value) ? (uint32_t)yyjson_get_len(value) : 0};
    struct rg_bucket *bucket = find_bucket(call, request);
    struct rg_folder_info info;
    struct name name;
    if (bucket != NULL && take_name(call, text, &name)) {
        int rc = rg_bucket_create_folder(bucket, slice_of(&name),
                                         is_true(request->params[RG_PARAM_RECURSIVE]), &info);
        if (rc < 0) {
            reply_failure(call, rc, slice_of(&name));
        } else {
            reply_folder(call, request, slice_of(&name), &info);
        }
    }
    yyjson_doc_free(document);
}

/* A list in the making. */
struct list {
    struct rg_h1_slice prefix, end;
    bool delimited; /* With a delimiter: only the prefix itself, and what lies directly below it. */
    int64_t page_max, count;
    char next[RG_STORE_NAME_SIZE_MAX + 1]; /* Where to go on. */
    uint32_t next_size;
    bool more;
};

static void go_on_at(struct list *list, struct rg_h1_slice key)
{
    list->next_size = RG_MIN(key.size, (uint32_t)RG_STORE_NAME_SIZE_MAX);
    if (list->next_size > 0) {
        memcpy(list->next, key.data, list->next_size);
    }
}

/* Goes on behind a folder, and behind all that is in it where that is not wanted. */
static void go_on_behind(struct list *list, struct rg_h1_slice name)
{
    go_on_at(list, name);
    if (list->delimited && name.size > list->prefix.size) {
        list->next[list->next_size - 1] = '/' + 1;
    } else {
        list->next[list->next_size++] = '\0';
    }
}

/* What a list with a delimiter shows of a name: the part up to the first "/" behind the prefix. */
static struct rg_h1_slice visible_part(const struct list *list, struct rg_h1_slice name)
{
    const char *slash = memchr(name.data + list->prefix.size, '/', name.size - list->prefix.size);
    bool deep = list->delimited && slash != NULL;
    return (struct rg_h1_slice){name.data, deep ? (uint32_t)(slash - name.data) + 1 : name.size};
}

static void append_folders(struct list *list, struct rg_bucket *bucket, struct rg_text *text,
                           const struct rg_resource_style *style)
{
    struct rg_folder_entry entry;
    while (rg_bucket_seek_folder(bucket, (struct rg_h1_slice){list->next, list->next_size},
                                 &entry) == 0) {
        struct rg_h1_slice name = {entry.name, entry.name_size};
        if (!rg_text_starts_with(name, list->prefix) ||
            (list->end.size > 0 && rg_text_compare(name, list->end) >= 0)) {
            return;
        }
        struct rg_h1_slice visible = visible_part(list, name);
        if (visible.size == name.size) {
            if (list->count == list->page_max) {
                go_on_at(list, name);
                list->more = true;
                return;
            }
            rg_text_append_str(text, list->count++ > 0 ? ",{" : "{");
            rg_resource_append_folder(text, style, rg_bucket_name(bucket), name, &entry.info);
            rg_text_append_str(text, "}");
        }
        go_on_behind(list, visible);
    }
}

/* False with the call answered. */
static bool list_query(struct rg_server_call *call, const struct rg_api_request *request,
                       struct list *out)
{
    struct rg_h1_slice start = request->params[RG_PARAM_START_OFFSET];
    struct rg_h1_slice token = request->params[RG_PARAM_PAGE_TOKEN];
    struct rg_h1_slice delimiter = request->params[RG_PARAM_DELIMITER];
    uint8_t key[RG_STORE_NAME_SIZE_MAX];
    *out = (struct list){.prefix = request->params[RG_PARAM_PREFIX],
                         .end = request->params[RG_PARAM_END_OFFSET],
                         .delimited = delimiter.size > 0};
    if (delimiter.size > 0 && !rg_text_equals(delimiter, "/")) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The delimiter has to be \"/\".");
        return false;
    }
    if (rg_api_request_int(request, RG_PARAM_PAGE_SIZE, PAGE_MAX, &out->page_max) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "pageSize is not a number.");
        return false;
    }
    out->page_max = out->page_max == 0 ? PAGE_MAX : RG_MIN(out->page_max, (int64_t)PAGE_MAX);
    if (token.size > 0) {
        int size = rg_text_parse_base64(token, key, sizeof(key));
        if (size <= 0) {
            rg_reply_error(call, RG_API_BAD_REQUEST, "Invalid page token.");
            return false;
        }
        go_on_at(out, (struct rg_h1_slice){(const char *)key, (uint32_t)size});
    } else {
        go_on_at(out, rg_text_compare(start, out->prefix) > 0 ? start : out->prefix);
    }
    return true;
}

static void list_folders(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct rg_bucket *bucket = find_bucket(call, request);
    struct rg_resource_style style;
    struct list list;
    if (bucket == NULL || !list_query(call, request, &list)) {
        return;
    }
    if (rg_rules_effect(call) == RG_EFFECT_EMPTY) {
        list.page_max = 0;
    }
    style_init(call, request, &style);
    rg_text_append_str(text, "{\"kind\":\"storage#folders\",\"items\":[");
    append_folders(&list, bucket, text, &style);
    rg_text_append_str(text, "]");
    if (list.more) {
        char token[RG_TEXT_BASE64_SIZE(RG_STORE_NAME_SIZE_MAX + 1)];
        rg_text_format_base64(token, (const uint8_t *)list.next, list.next_size);
        rg_text_printf(text, ",\"nextPageToken\":\"%.*s\"",
                       (int)RG_TEXT_BASE64_SIZE((size_t)list.next_size), token);
    }
    rg_text_append_str(text, "}");
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void append_time(struct rg_text *text, const char *name, int64_t time_us)
{
    char time[RG_TEXT_RFC3339_SIZE + 1];
    rg_text_format_rfc3339(time, time_us);
    rg_text_printf(text, "\"%s\":\"%s\",", name, time);
}

/* Appends the description of a rename, which is the same whenever somebody asks. */
static void append_operation(struct rg_text *text, const struct operation *operation)
{
    const char *id = operation->base.id, *bucket = operation->bucket;
    const struct name *from = &operation->from, *to = &operation->to;
    const struct rg_folder_info *info = &operation->info;
    rg_text_printf(
        text,
        "{\"kind\":\"storage#operation\",\"name\":\"projects/_/buckets/%s/operations/%s\","
        "\"selfLink\":\"%s/storage/v1/b/%s/operations/%s\",\"done\":true,"
        "\"metadata\":{\"@type\":\"" TYPES "RenameFolderMetadata\",\"commonMetadata\":{",
        bucket, id, operation->style.origin, bucket, id);
    append_time(text, "createTime", info->updated_us);
    append_time(text, "updateTime", info->updated_us);
    append_time(text, "endTime", info->updated_us);
    rg_text_append_str(text, "\"type\":\"rename-folder\",\"requestedCancellation\":false,"
                             "\"progressPercent\":100},\"sourceFolderId\":");
    rg_text_append_json(text, from->data, from->size);
    rg_text_append_str(text, ",\"destinationFolderId\":");
    rg_text_append_json(text, to->data, to->size);
    rg_text_append_str(text, "},\"response\":{\"@type\":\"" TYPES "Folder\",");
    rg_resource_append_folder(text, &operation->style, rg_text_slice(bucket), slice_of(to), info);
    rg_text_append_str(text, "}}");
}

static void reply_renamed(struct rg_server_call *call, const struct rg_api_request *request,
                          const struct name *from, const struct name *to,
                          const struct rg_folder_info *info)
{
    struct operation *operation = calloc(1, sizeof(*operation));
    if (operation == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    rg_session_init(&operation->base, &operation_type);
    style_init(call, request, &operation->style);
    memcpy(operation->bucket, request->bucket.data, request->bucket.size);
    operation->from = *from;
    operation->to = *to;
    operation->info = *info;
    if (rg_sessions_add(rg_service_of(call)->sessions, &operation->base) < 0) {
        rg_reply_error(call, RG_API_INTERNAL, "No random numbers.");
    } else {
        append_operation(&rg_call_of(call)->text, operation);
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    }
    rg_session_unref(&operation->base);
}

/* The body says nothing. */
static void rename_folder(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice body)
{
    struct rg_h1_slice part = part_behind(request, "folders");
    struct rg_bucket *bucket = find_bucket(call, request);
    struct rg_store_conditions conditions, of_source;
    struct rg_folder_info info;
    struct name from, to;
    const char *mark = memmem(part.data, part.size, RENAME_MARK, strlen(RENAME_MARK));
    RG_ASSERT(mark != NULL);
    const char *target = mark + strlen(RENAME_MARK);
    (void)body;
    if (bucket == NULL ||
        !decode_name(call, (struct rg_h1_slice){part.data, (uint32_t)(mark - part.data)}, &from) ||
        !decode_name(call, (struct rg_h1_slice){target, part.size - (uint32_t)(target - part.data)},
                     &to) ||
        !take_conditions(call, request, false, &conditions) ||
        !take_conditions(call, request, true, &of_source)) {
        return;
    }
    if (of_source.metageneration_match.set) {
        conditions.metageneration_match = of_source.metageneration_match;
    }
    if (of_source.metageneration_not_match.set) {
        conditions.metageneration_not_match = of_source.metageneration_not_match;
    }
    int rc = rg_bucket_rename_folder(bucket, slice_of(&from), slice_of(&to), &conditions, &info);
    if (rc < 0) {
        reply_failure(call, rc, slice_of(rc == -ENOENT ? &from : &to));
    } else {
        reply_renamed(call, request, &from, &to, &info);
    }
}

static void get_folder(struct rg_server_call *call, const struct rg_api_request *request,
                       struct rg_h1_slice encoded)
{
    struct rg_bucket *bucket = find_bucket(call, request);
    struct rg_store_conditions conditions;
    struct rg_folder_info info;
    struct name name;
    if (bucket == NULL || !decode_name(call, encoded, &name) ||
        !take_conditions(call, request, false, &conditions)) {
        return;
    }
    int rc = rg_bucket_get_folder(bucket, slice_of(&name), &info);
    struct rg_store_object_info facts = {.metageneration = rc == 0 ? info.metageneration : 0};
    rc = rc == 0 ? rg_store_conditions_check(&conditions, &facts) : rc;
    if (rc == -EALREADY) {
        rg_reply_start(call, 304);
        rg_reply_finish_empty(call);
    } else if (rc < 0) {
        reply_failure(call, rc, slice_of(&name));
    } else {
        reply_folder(call, request, slice_of(&name), &info);
    }
}

static void remove_folder(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice encoded)
{
    struct rg_bucket *bucket = find_bucket(call, request);
    struct rg_store_conditions conditions;
    struct name name;
    if (bucket == NULL || !decode_name(call, encoded, &name) ||
        !take_conditions(call, request, false, &conditions)) {
        return;
    }
    int rc = rg_bucket_remove_folder(bucket, slice_of(&name), &conditions);
    if (rc < 0) {
        reply_failure(call, rc, slice_of(&name));
    } else {
        rg_reply_start(call, 204);
        rg_reply_finish_empty(call);
    }
}

/* Operations of one bucket, the newest first. */
struct operations {
    struct rg_text *text;
    struct rg_h1_slice bucket;
    uint32_t count;
};

static void append_one(void *context, struct rg_session *base)
{
    struct operations *operations = context;
    struct operation *operation = RG_CONTAINER_OF(base, struct operation, base);
    if (operations->count < PAGE_MAX && rg_text_equals(operations->bucket, operation->bucket)) {
        rg_text_append_str(operations->text, operations->count++ > 0 ? "," : "");
        append_operation(operations->text, operation);
    }
}

static void list_operations(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct operations operations = {.text = text, .bucket = request->bucket};
    rg_text_append_str(text, "{\"kind\":\"storage#operations\",\"operations\":[");
    rg_sessions_visit(rg_service_of(call)->sessions, &operation_type, append_one, &operations);
    rg_text_append_str(text, "]}");
    rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
}

static void get_operation(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_h1_slice id)
{
    struct rg_session *base = rg_sessions_find(rg_service_of(call)->sessions, &operation_type, id);
    struct operation *operation =
        base != NULL ? RG_CONTAINER_OF(base, struct operation, base) : NULL;
    if (operation != NULL && rg_text_equals(request->bucket, operation->bucket)) {
        append_operation(&rg_call_of(call)->text, operation);
        rg_reply_text(call, 200, RG_REPLY_JSON_TYPE);
    } else {
        rg_reply_error(call, RG_API_NO_PATH, "There is no operation of this id.");
    }
    if (base != NULL) {
        rg_session_unref(base);
    }
}

static void start_operations(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_h1_slice id = part_behind(request, "operations");
    if (!rg_api_request_is(request, "GET")) {
        rg_reply_error(call, RG_API_METHOD, "An operation knows no such method; all have ended.");
    } else if (find_bucket(call, request) == NULL) {
        return;
    } else if (id.size == 0) {
        list_operations(call, request);
    } else {
        get_operation(call, request, id);
    }
}

void rg_folder_api_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_h1_slice part = part_behind(request, "folders");
    bool get = rg_api_request_is(request, "GET"), post = rg_api_request_is(request, "POST");
    if (part.data == NULL) {
        start_operations(call, request);
    } else if (part.size == 0 && get) {
        list_folders(call, request);
    } else if (part.size == 0 && post) {
        rg_body_collect(call, request, RG_BODY_SIZE_MAX, create_folder);
    } else if (part.size > 0 && get) {
        get_folder(call, request, part);
    } else if (part.size > 0 && rg_api_request_is(request, "DELETE")) {
        remove_folder(call, request, part);
    } else if (post && memmem(part.data, part.size, RENAME_MARK, strlen(RENAME_MARK)) != NULL) {
        rg_body_collect(call, request, RG_BODY_SIZE_MAX, rename_folder);
    } else {
        rg_reply_error(call, RG_API_METHOD, "A folder knows no such method.");
    }
}
