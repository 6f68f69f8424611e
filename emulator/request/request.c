/* Targets, parameters, conditions and ranges; see request.h. */
#include "emulator/request/request.h"

#include "emulator/wire/text.h"
#include "http/url.h"

#include <errno.h>

static const char *const param_names[] = {
#define XX(name, text) text,
    RG_PARAMS(XX)
#undef XX
};
_Static_assert(RG_ARRAY_LEN(param_names) == RG_PARAM_COUNT, "a text for each parameter");

static const struct rg_h1_slice *header(const struct rg_api_request *request, const char *name)
{
    return rg_h1_find(request->head, name);
}

bool rg_api_request_is(const struct rg_api_request *request, const char *method)
{
    return rg_text_equals(request->method, method);
}

bool rg_api_request_is_json(const struct rg_api_request *request)
{
    return request->route >= RG_ROUTE_JSON_BATCH && request->route <= RG_ROUTE_JSON_UPLOAD;
}

static int decode_name(struct rg_api_request *request, struct rg_h1_slice encoded,
                       struct rg_h1_slice *out)
{
    char *at = request->names + request->names_size;
    int size = rg_url_percent_decode(encoded, RG_URL_PATH, at,
                                     sizeof(request->names) - request->names_size);
    if (size < 0) {
        return -EINVAL;
    }
    request->names_size += (uint32_t)size;
    *out = (struct rg_h1_slice){at, (uint32_t)size};
    return 0;
}

static int parse_params(struct rg_api_request *request, struct rg_h1_slice query)
{
    memset(request->params, 0, sizeof(request->params));
    size_t used = 0;
    struct rg_h1_slice name, value;
    while (rg_url_query_next(&query, &name, &value)) {
        for (size_t i = 0; i < RG_PARAM_COUNT; i++) {
            if (!rg_text_equals(name, param_names[i])) {
                continue;
            }
            int size = rg_url_percent_decode(value, RG_URL_QUERY, request->values + used,
                                             sizeof(request->values) - used);
            if (size < 0) {
                return -EINVAL;
            }
            request->params[i] = (struct rg_h1_slice){request->values + used, (uint32_t)size};
            used += (uint32_t)size;
            break;
        }
    }
    return 0;
}

/* Takes the text before the next "/" off the front, and the slash. */
static struct rg_h1_slice take_segment(struct rg_h1_slice *path)
{
    const char *slash = memchr(path->data, '/', path->size);
    uint32_t size = slash != NULL ? (uint32_t)(slash - path->data) : path->size;
    struct rg_h1_slice segment = {path->data, size};
    uint32_t taken = size + (slash != NULL);
    path->data += taken;
    path->size -= taken;
    return segment;
}

/* Takes `prefix` off the front where a segment of the path ends behind it. */
static bool take_prefix(struct rg_h1_slice *path, const char *prefix)
{
    struct rg_h1_slice wanted = rg_text_slice(prefix);
    if (!rg_text_starts_with(*path, wanted) ||
        (path->size > wanted.size && path->data[wanted.size] != '/')) {
        return false;
    }
    uint32_t taken = RG_MIN(wanted.size + 1, path->size);
    path->data += taken;
    path->size -= taken;
    return true;
}

static bool split_at(struct rg_h1_slice path, const char *mark, struct rg_h1_slice *out_before,
                     struct rg_h1_slice *out_behind)
{
    const char *found = memmem(path.data, path.size, mark, strlen(mark));
    if (found == NULL) {
        return false;
    }
    uint32_t before = (uint32_t)(found - path.data);
    uint32_t taken = before + (uint32_t)strlen(mark);
    *out_before = (struct rg_h1_slice){path.data, before};
    *out_behind = (struct rg_h1_slice){path.data + taken, path.size - taken};
    return true;
}

/* Reads the action behind an object's name in the path of a POST, as in
 * SRC/rewriteTo/b/BUCKET/o/OBJECT. Leaves the name in *path. */
static int parse_action(struct rg_api_request *request, struct rg_h1_slice *path)
{
    static const struct {
        const char *mark;
        enum rg_action action;
    } copies[] = {{"/rewriteTo/b/", RG_ACTION_REWRITE}, {"/copyTo/b/", RG_ACTION_COPY}};
    struct rg_h1_slice name, rest, bucket, object;
    static const struct {
        const char *end;
        enum rg_action action;
    } ends[] = {{"/compose", RG_ACTION_COMPOSE}, {"/restore", RG_ACTION_RESTORE}};
    for (size_t i = 0; i < RG_ARRAY_LEN(copies); i++) {
        if (split_at(*path, copies[i].mark, &name, &rest) &&
            split_at(rest, "/o/", &bucket, &object)) {
            request->action = copies[i].action;
            *path = name;
            int rc = decode_name(request, bucket, &request->target_bucket);
            return rc == 0 ? decode_name(request, object, &request->target_object) : rc;
        }
    }
    if (split_at(*path, "/moveTo/o/", &name, &object)) {
        request->action = RG_ACTION_MOVE;
        request->target_bucket = request->bucket;
        *path = name;
        return decode_name(request, object, &request->target_object);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(ends); i++) {
        uint32_t size = (uint32_t)strlen(ends[i].end);
        if (path->size > size && memcmp(path->data + path->size - size, ends[i].end, size) == 0) {
            request->action = ends[i].action;
            path->size -= size;
            break;
        }
    }
    return 0;
}

/* Reads what follows /storage/v1/b: [/BUCKET[/o[/OBJECT] | /PART]]. Slashes in an object's name
 * should be escaped. Where they are not, the rest of the path is the name. */
static int parse_json_path(struct rg_api_request *request, struct rg_h1_slice path)
{
    request->route = RG_ROUTE_JSON_BUCKETS;
    if (path.size == 0) {
        return 0;
    }
    int rc = decode_name(request, take_segment(&path), &request->bucket);
    request->route = RG_ROUTE_JSON_BUCKET;
    if (rc < 0 || path.size == 0) {
        return rc;
    }
    bool is_named = path.size > 1; /* "o/" names an object without a name, which does not exist. */
    if (!take_prefix(&path, "o")) {
        request->route = RG_ROUTE_JSON_BUCKET_PART;
        request->part = path;
        return 0;
    }
    if (is_named && path.size == 0) {
        request->route = RG_ROUTE_NONE;
        return 0;
    }
    request->route = path.size > 0 ? RG_ROUTE_JSON_OBJECT : RG_ROUTE_JSON_OBJECTS;
    /* In an object's name that ends so the slash is escaped. */
    static const char acl[] = "/acl";
    uint32_t acl_size = (uint32_t)strlen(acl);
    if (path.size > acl_size && memcmp(path.data + path.size - acl_size, acl, acl_size) == 0) {
        request->action = RG_ACTION_ACL;
        path.size -= acl_size;
    }
    if (path.size > 0 && request->action == RG_ACTION_NONE && rg_api_request_is(request, "POST")) {
        rc = parse_action(request, &path);
    }
    return path.size > 0 && rc == 0 ? decode_name(request, path, &request->object) : rc;
}

static int parse_xml_path(struct rg_api_request *request, struct rg_h1_slice path)
{
    path.data++;
    path.size--;
    if (path.size == 0) {
        request->route = RG_ROUTE_XML_SERVICE;
        return 0;
    }
    int rc = decode_name(request, take_segment(&path), &request->bucket);
    request->route = path.size > 0 ? RG_ROUTE_XML_OBJECT : RG_ROUTE_XML_BUCKET;
    return rc == 0 && path.size > 0 ? decode_name(request, path, &request->object) : rc;
}

static int parse_path(struct rg_api_request *request, struct rg_h1_slice path)
{
    if (path.size == 0 || path.data[0] != '/') {
        return 0;
    }
    if (take_prefix(&path, "/batch/storage/v1")) {
        request->route = RG_ROUTE_JSON_BATCH;
        return 0;
    }
    if (take_prefix(&path, "/storage/v1/b")) {
        return parse_json_path(request, path);
    }
    if (take_prefix(&path, "/download/storage/v1/b")) {
        request->media = true;
        return parse_json_path(request, path);
    }
    if (take_prefix(&path, "/upload/storage/v1/b")) {
        int rc = parse_json_path(request, path);
        request->route =
            request->route == RG_ROUTE_JSON_OBJECTS ? RG_ROUTE_JSON_UPLOAD : RG_ROUTE_NONE;
        return rc;
    }
    return parse_xml_path(request, path);
}

int rg_api_request_parse(struct rg_api_request *request, const struct rg_h1_head *head)
{
    struct rg_h1_slice path, query;
    const struct rg_h1_slice *method = rg_h1_find(head, "x-http-method-override");
    request->head = head;
    request->method = method != NULL && method->size > 0 ? *method : head->method;
    request->action = RG_ACTION_NONE;
    request->target_bucket = request->target_object = (struct rg_h1_slice){"", 0};
    request->route = RG_ROUTE_NONE;
    request->media = false;
    request->bucket = request->object = request->part = (struct rg_h1_slice){"", 0};
    request->names_size = 0;
    rg_url_target_split(head->target, &path, &query);
    int rc = parse_params(request, query);
    int path_rc = parse_path(request, path);
    request->media = request->media || rg_text_equals(request->params[RG_PARAM_ALT], "media");
    return rc < 0 ? rc : path_rc;
}

int rg_api_request_int(const struct rg_api_request *request, enum rg_param param, int64_t fallback,
                       int64_t *out_value)
{
    if (!rg_api_request_has(request, param)) {
        *out_value = fallback;
        return 0;
    }
    return rg_text_parse_int64(request->params[param], out_value);
}

bool rg_api_request_true(const struct rg_api_request *request, enum rg_param param)
{
    struct rg_h1_slice value = request->params[param];
    return rg_text_equals(value, "true") || rg_text_equals(value, "True") ||
           rg_text_equals(value, "1");
}

/* Where each API says a condition. */
struct condition_source {
    enum rg_param param;
    const char *header; /* NULL: only JSON has it. */
    size_t offset;      /* In rg_store_conditions. */
};

static int take_conditions(const struct rg_api_request *request,
                           const struct condition_source *sources, size_t count,
                           struct rg_store_conditions *out, const char **out_bad_name)
{
    bool json = rg_api_request_is_json(request);
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < count; i++) {
        const struct condition_source *source = &sources[i];
        const struct rg_h1_slice *value = &request->params[source->param];
        const char *name = param_names[source->param];
        if (!json && source->param != RG_PARAM_GENERATION) {
            value = source->header != NULL ? header(request, source->header) : NULL;
            name = source->header;
        }
        if (value == NULL || value->data == NULL) {
            continue;
        }
        struct rg_store_condition *condition = (void *)((char *)out + source->offset);
        if (rg_text_parse_int64(*value, &condition->value) < 0) {
            *out_bad_name = name;
            return -EINVAL;
        }
        condition->set = true;
    }
    return 0;
}

#define CONDITION(member) offsetof(struct rg_store_conditions, member)

int rg_api_request_conditions(const struct rg_api_request *request, struct rg_store_conditions *out,
                              const char **out_bad_name)
{
    static const struct condition_source sources[] = {
        {RG_PARAM_GENERATION, NULL, CONDITION(generation)},
        {RG_PARAM_IF_GENERATION_MATCH, "x-goog-if-generation-match", CONDITION(generation_match)},
        {RG_PARAM_IF_METAGENERATION_MATCH, "x-goog-if-metageneration-match",
         CONDITION(metageneration_match)},
        {RG_PARAM_IF_GENERATION_NOT_MATCH, NULL, CONDITION(generation_not_match)},
        {RG_PARAM_IF_METAGENERATION_NOT_MATCH, NULL, CONDITION(metageneration_not_match)},
    };
    return take_conditions(request, sources, RG_ARRAY_LEN(sources), out, out_bad_name);
}

int rg_api_request_source_conditions(const struct rg_api_request *request,
                                     struct rg_store_conditions *out, const char **out_bad_name)
{
    static const struct condition_source sources[] = {
        {RG_PARAM_SOURCE_GENERATION, "x-goog-copy-source-generation", CONDITION(generation)},
        {RG_PARAM_IF_SOURCE_GENERATION_MATCH, "x-goog-copy-source-if-generation-match",
         CONDITION(generation_match)},
        {RG_PARAM_IF_SOURCE_METAGENERATION_MATCH, "x-goog-copy-source-if-metageneration-match",
         CONDITION(metageneration_match)},
        {RG_PARAM_IF_SOURCE_GENERATION_NOT_MATCH, NULL, CONDITION(generation_not_match)},
        {RG_PARAM_IF_SOURCE_METAGENERATION_NOT_MATCH, NULL, CONDITION(metageneration_not_match)},
    };
    return take_conditions(request, sources, RG_ARRAY_LEN(sources), out, out_bad_name);
}

bool rg_api_request_copy_source(struct rg_api_request *request, struct rg_h1_slice *out_bucket,
                                struct rg_h1_slice *out_object)
{
    const struct rg_h1_slice *field = header(request, "x-goog-copy-source");
    if (field == NULL) {
        return false;
    }
    struct rg_h1_slice path = *field;
    if (path.size > 0 && path.data[0] == '/') {
        path.data++;
        path.size--;
    }
    struct rg_h1_slice bucket = take_segment(&path);
    return path.size > 0 && decode_name(request, bucket, out_bucket) == 0 &&
           decode_name(request, path, out_object) == 0;
}

/* Reads the digits at the front of *text. A number that does not fit counts as the largest.
 * False when there is no digit. */
static bool take_number(struct rg_h1_slice *text, uint64_t *out_value)
{
    uint64_t value = 0;
    uint32_t at = 0;
    for (; at < text->size && text->data[at] >= '0' && text->data[at] <= '9'; at++) {
        uint64_t digit = (uint64_t)(text->data[at] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            value = UINT64_MAX;
        } else {
            value = value * 10 + digit;
        }
    }
    text->data += at;
    text->size -= at;
    *out_value = value;
    return at > 0;
}

int rg_api_request_range(const struct rg_api_request *request, uint64_t size, uint64_t *out_first,
                         uint64_t *out_size)
{
    const struct rg_h1_slice *field = header(request, "range");
    struct rg_h1_slice unit = {"bytes=", 6};
    if (field == NULL || !rg_text_starts_with(*field, unit)) {
        return 0;
    }
    struct rg_h1_slice text = {field->data + unit.size, field->size - unit.size};
    uint64_t first, last;
    bool has_first = take_number(&text, &first);
    if (text.size == 0 || text.data[0] != '-') {
        return 0;
    }
    text.data++;
    text.size--;
    bool has_last = take_number(&text, &last);
    if (text.size > 0 || (!has_first && !has_last) || (has_first && has_last && last < first)) {
        return 0;
    }
    if (!has_first) { /* The last so many bytes. */
        first = last < size ? size - last : 0;
        first = last == 0 ? size : first;
        has_last = false;
    }
    if (first >= size) {
        return -ERANGE;
    }
    last = has_last ? RG_MIN(last, size - 1) : size - 1;
    *out_first = first;
    *out_size = last - first + 1;
    return 1;
}
