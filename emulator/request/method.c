/* Requests and their names; see method.h. */
#include "emulator/request/method.h"

#include "emulator/wire/text.h"
#include "http/url.h"

static const char *const names[] = {
#define XX(name, text) text,
    RG_METHODS(XX)
#undef XX
};
_Static_assert(RG_ARRAY_LEN(names) == RG_METHOD_COUNT, "a name for each method");

/* What follows an object's name in a path, as "compose" in /o/NAME/compose. */
static enum rg_method classify_action(const struct rg_api_request *request)
{
    static const struct {
        const char *text;
        enum rg_method method;
    } actions[] = {
        {"/compose", RG_METHOD_OBJECTS_COMPOSE},
        {"/copyTo/b/", RG_METHOD_OBJECTS_COPY},
        {"/rewriteTo/b/", RG_METHOD_OBJECTS_REWRITE},
        {"/moveTo/o/", RG_METHOD_OBJECTS_MOVE},
    };
    struct rg_h1_slice path, query;
    rg_url_target_split(request->head->target, &path, &query);
    const char *name = memmem(path.data, path.size, "/o/", 3);
    const char *end = path.data + path.size;
    const char *rest = name != NULL ? memchr(name + 3, '/', (size_t)(end - name) - 3) : NULL;
    if (rest == NULL) {
        return RG_METHOD_NONE;
    }
    struct rg_h1_slice tail = {rest, (uint32_t)(end - rest)};
    for (size_t i = 0; i < RG_ARRAY_LEN(actions); i++) {
        if (rg_text_starts_with(tail, rg_text_slice(actions[i].text))) {
            return actions[i].method;
        }
    }
    return RG_METHOD_NONE;
}

static enum rg_method classify_bucket_part(const struct rg_api_request *request)
{
    static const struct {
        const char *part, *verb;
        enum rg_method method;
    } parts[] = {
        {"iam", "GET", RG_METHOD_BUCKETS_GET_IAM},
        {"iam", "PUT", RG_METHOD_BUCKETS_SET_IAM},
        {"iam/testPermissions", "GET", RG_METHOD_BUCKETS_TEST_IAM},
        {"lockRetentionPolicy", "POST", RG_METHOD_BUCKETS_LOCK},
        {"storageLayout", "GET", RG_METHOD_BUCKETS_GET_LAYOUT},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(parts); i++) {
        if (rg_text_equals(request->part, parts[i].part) &&
            rg_api_request_is(request, parts[i].verb)) {
            return parts[i].method;
        }
    }
    return RG_METHOD_NONE;
}

enum rg_method rg_method_of(const struct rg_api_request *request)
{
    static const struct {
        enum rg_route route;
        const char *verb;
        enum rg_method method;
    } rows[] = {
        {RG_ROUTE_JSON_BUCKETS, "GET", RG_METHOD_BUCKETS_LIST},
        {RG_ROUTE_JSON_BUCKETS, "POST", RG_METHOD_BUCKETS_INSERT},
        {RG_ROUTE_JSON_BUCKET, "GET", RG_METHOD_BUCKETS_GET},
        {RG_ROUTE_JSON_BUCKET, "DELETE", RG_METHOD_BUCKETS_DELETE},
        {RG_ROUTE_JSON_BUCKET, "PATCH", RG_METHOD_BUCKETS_PATCH},
        {RG_ROUTE_JSON_BUCKET, "PUT", RG_METHOD_BUCKETS_UPDATE},
        {RG_ROUTE_JSON_OBJECTS, "GET", RG_METHOD_OBJECTS_LIST},
        {RG_ROUTE_JSON_OBJECT, "GET", RG_METHOD_OBJECTS_GET},
        {RG_ROUTE_JSON_OBJECT, "DELETE", RG_METHOD_OBJECTS_DELETE},
        {RG_ROUTE_JSON_OBJECT, "PATCH", RG_METHOD_OBJECTS_PATCH},
        {RG_ROUTE_JSON_OBJECT, "PUT", RG_METHOD_OBJECTS_UPDATE},
        {RG_ROUTE_JSON_UPLOAD, "POST", RG_METHOD_OBJECTS_INSERT},
        {RG_ROUTE_JSON_UPLOAD, "PUT", RG_METHOD_OBJECTS_INSERT},
        {RG_ROUTE_JSON_UPLOAD, "DELETE", RG_METHOD_OBJECTS_DELETE},
        {RG_ROUTE_XML_SERVICE, "GET", RG_METHOD_BUCKETS_LIST},
        {RG_ROUTE_XML_BUCKET, "GET", RG_METHOD_OBJECTS_LIST},
        {RG_ROUTE_XML_BUCKET, "PUT", RG_METHOD_BUCKETS_INSERT},
        {RG_ROUTE_XML_BUCKET, "DELETE", RG_METHOD_BUCKETS_DELETE},
        {RG_ROUTE_XML_OBJECT, "GET", RG_METHOD_OBJECTS_GET},
        {RG_ROUTE_XML_OBJECT, "PUT", RG_METHOD_OBJECTS_INSERT},
        {RG_ROUTE_XML_OBJECT, "POST", RG_METHOD_OBJECTS_INSERT},
        {RG_ROUTE_XML_OBJECT, "DELETE", RG_METHOD_OBJECTS_DELETE},
    };
    if (request->route == RG_ROUTE_JSON_BUCKET_PART) {
        return classify_bucket_part(request);
    }
    if (rg_api_request_is_json(request) && rg_api_request_is(request, "POST")) {
        enum rg_method action = classify_action(request);
        if (action != RG_METHOD_NONE) {
            return action;
        }
    }
    struct rg_h1_slice verb = request->head->method;
    verb = rg_text_equals(verb, "HEAD") ? rg_text_slice("GET") : verb;
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        if (rows[i].route == request->route && rg_text_equals(verb, rows[i].verb)) {
            return rows[i].method;
        }
    }
    return RG_METHOD_NONE;
}

const char *rg_method_name(enum rg_method method)
{
    RG_ASSERT(method < RG_METHOD_COUNT);
    return names[method];
}

enum rg_method rg_method_find(const char *name)
{
    unsigned method = RG_METHOD_COUNT - 1;
    while (method != RG_METHOD_NONE && strcmp(name, names[method]) != 0) {
        method--;
    }
    return (enum rg_method)method;
}
