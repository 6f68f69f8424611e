/* What a request asks for: its place in the two APIs, decoded names, parameters and conditions. It
 * lives on the stack of the handler's `begin`, because it borrows the head; what has to outlast
 * that is copied by whoever needs it. */
#ifndef RG_EMULATOR_REQUEST_REQUEST_H
#define RG_EMULATOR_REQUEST_REQUEST_H

#include "emulator/store/store.h"
#include "http/h1_decoder.h"

/* In `/storage/v1/b/B/o/O` and its aliases under /download and /upload, and in `/B/O`. */
enum rg_route {
    RG_ROUTE_NONE,
    RG_ROUTE_JSON_BATCH,
    RG_ROUTE_JSON_BUCKETS,
    RG_ROUTE_JSON_BUCKET,
    RG_ROUTE_JSON_BUCKET_PART, /* `part` says which: storageLayout, iam/testPermissions, … */
    RG_ROUTE_JSON_OBJECTS,
    RG_ROUTE_JSON_OBJECT,
    RG_ROUTE_JSON_UPLOAD,
    RG_ROUTE_XML_SERVICE,
    RG_ROUTE_XML_BUCKET,
    RG_ROUTE_XML_OBJECT,
};

/* What a POST to an object asks to be done with it. */
enum rg_action {
    RG_ACTION_NONE,
    RG_ACTION_ACL, /* of any method */
    RG_ACTION_COMPOSE,
    RG_ACTION_COPY,
    RG_ACTION_MOVE,
    RG_ACTION_RESTORE,
    RG_ACTION_REWRITE,
};

/* XX(name, text): the query parameters that mean something to us. Others are ignored, as clients
 * add some of their own. */
#define RG_PARAMS(XX)                                                                              \
    XX(ALT, "alt")                                                                                 \
    XX(CONTENT_ENCODING, "contentEncoding")                                                        \
    XX(CONTINUATION_TOKEN, "continuation-token")                                                   \
    XX(DELETE, "delete")                                                                           \
    XX(DELETE_SOURCE_OBJECTS, "deleteSourceObjects")                                               \
    XX(DELIMITER, "delimiter")                                                                     \
    XX(DESTINATION_PREDEFINED_ACL, "destinationPredefinedAcl")                                     \
    XX(ENCODING_TYPE, "encoding-type")                                                             \
    XX(ENABLE_OBJECT_RETENTION, "enableObjectRetention")                                           \
    XX(END_OFFSET, "endOffset")                                                                    \
    XX(FIELDS, "fields")                                                                           \
    XX(FILTER, "filter")                                                                           \
    XX(GENERATION, "generation")                                                                   \
    XX(IF_GENERATION_MATCH, "ifGenerationMatch")                                                   \
    XX(IF_GENERATION_NOT_MATCH, "ifGenerationNotMatch")                                            \
    XX(IF_METAGENERATION_MATCH, "ifMetagenerationMatch")                                           \
    XX(IF_METAGENERATION_NOT_MATCH, "ifMetagenerationNotMatch")                                    \
    XX(IF_SOURCE_GENERATION_MATCH, "ifSourceGenerationMatch")                                      \
    XX(IF_SOURCE_GENERATION_NOT_MATCH, "ifSourceGenerationNotMatch")                               \
    XX(IF_SOURCE_METAGENERATION_MATCH, "ifSourceMetagenerationMatch")                              \
    XX(IF_SOURCE_METAGENERATION_NOT_MATCH, "ifSourceMetagenerationNotMatch")                       \
    XX(INCLUDE_TRAILING_DELIMITER, "includeTrailingDelimiter")                                     \
    XX(INCLUDE_FOLDERS_AS_PREFIXES, "includeFoldersAsPrefixes")                                    \
    XX(KEY_MARKER, "key-marker")                                                                   \
    XX(LIST_TYPE, "list-type")                                                                     \
    XX(MARKER, "marker")                                                                           \
    XX(MATCH_GLOB, "matchGlob")                                                                    \
    XX(MAX_BYTES_REWRITTEN, "maxBytesRewrittenPerCall")                                            \
    XX(MAX_KEYS, "max-keys")                                                                       \
    XX(MAX_PARTS, "max-parts")                                                                     \
    XX(MAX_RESULTS, "maxResults")                                                                  \
    XX(MAX_UPLOADS, "max-uploads")                                                                 \
    XX(NAME, "name")                                                                               \
    XX(PAGE_SIZE, "pageSize")                                                                      \
    XX(PAGE_TOKEN, "pageToken")                                                                    \
    XX(PART_NUMBER, "partNumber")                                                                  \
    XX(PART_NUMBER_MARKER, "part-number-marker")                                                   \
    XX(PREDEFINED_ACL, "predefinedAcl")                                                            \
    XX(PREFIX, "prefix")                                                                           \
    XX(PROJECTION, "projection")                                                                   \
    XX(RECURSIVE, "recursive")                                                                     \
    XX(REWRITE_TOKEN, "rewriteToken")                                                              \
    XX(SOFT_DELETED, "softDeleted")                                                                \
    XX(SOURCE_GENERATION, "sourceGeneration")                                                      \
    XX(START_AFTER, "start-after")                                                                 \
    XX(START_OFFSET, "startOffset")                                                                \
    XX(UPLOAD_ID, "upload_id")                                                                     \
    XX(UPLOAD_ID_MARKER, "upload-id-marker")                                                       \
    XX(UPLOAD_TYPE, "uploadType")                                                                  \
    XX(USER_PROJECT, "userProject")                                                                \
    XX(VERSIONS, "versions")                                                                       \
    XX(XML_UPLOADS, "uploads")                                                                     \
    XX(XML_UPLOAD_ID, "uploadId")

enum rg_param {
#define XX(name, text) RG_PARAM_##name,
    RG_PARAMS(XX)
#undef XX
        RG_PARAM_COUNT
};

struct rg_api_request {
    const struct rg_h1_head *head; /* Borrowed. */
    struct rg_h1_slice method; /* The head's method, or the one that X-HTTP-Method-Override says. */
    enum rg_route route;
    enum rg_action action;
    struct rg_h1_slice target_bucket,
        target_object;                         /* The destination of a copy; decoded, in `names`. */
    bool media;                                /* alt=media, or below /download. */
    struct rg_h1_slice bucket, object;         /* Decoded; in `names`. */
    struct rg_h1_slice part;                   /* As sent. */
    struct rg_h1_slice params[RG_PARAM_COUNT]; /* Decoded; `data` is NULL when it is not there. */
    char names[RG_H1_TARGET_SIZE_MAX];
    uint32_t names_size;
    char values[RG_H1_TARGET_SIZE_MAX];
};

/* Reads the target. 0, or -EINVAL when its escapes are malformed. */
int rg_api_request_parse(struct rg_api_request *request, const struct rg_h1_head *head);

static inline bool rg_api_request_has(const struct rg_api_request *request, enum rg_param param)
{
    return request->params[param].data != NULL;
}

/* An integer parameter; `fallback` when it is not there, -EINVAL when it is not a number. */
int rg_api_request_int(const struct rg_api_request *request, enum rg_param param, int64_t fallback,
                       int64_t *out_value);

/* "true" in any of the ways that clients write it. */
bool rg_api_request_true(const struct rg_api_request *request, enum rg_param param);

/* Whether the answer is to have the access control of objects. */
static inline bool rg_api_request_wants_acl(const struct rg_api_request *request)
{
    struct rg_h1_slice projection = request->params[RG_PARAM_PROJECTION];
    return projection.size == 4 && memcmp(projection.data, "full", 4) == 0;
}

bool rg_api_request_is(const struct rg_api_request *request, const char *method);
bool rg_api_request_is_json(const struct rg_api_request *request);

/* The conditions, from parameters and in the XML API from headers. -EINVAL when one is not a
 * number, with its name. */
int rg_api_request_conditions(const struct rg_api_request *request, struct rg_store_conditions *out,
                              const char **out_bad_name);

/* The same for the source of a copy: sourceGeneration, ifSource… and x-goog-copy-source-if-…. */
int rg_api_request_source_conditions(const struct rg_api_request *request,
                                     struct rg_store_conditions *out, const char **out_bad_name);

/* Reads the source that x-goog-copy-source names, decoded into the request's target. False when
 * it is malformed. */
bool rg_api_request_copy_source(struct rg_api_request *request, struct rg_h1_slice *out_bucket,
                                struct rg_h1_slice *out_object);

/* The byte range that is wanted of an object of that size. 0: all of it, because no range is
 * named or it means nothing; 1: *out_size bytes from *out_first; -ERANGE: the range has no byte
 * of the object. */
int rg_api_request_range(const struct rg_api_request *request, uint64_t size, uint64_t *out_first,
                         uint64_t *out_size);

#endif
