/* The answers that all parts of the emulator give: heads with the fields that every answer has,
 * errors in both dialects, texts.
 *
 * A call is answered as soon as its head is encoded: `replied` is set, and the state says what the
 * server has to send. */
#ifndef RG_EMULATOR_REQUEST_REPLY_H
#define RG_EMULATOR_REQUEST_REPLY_H

#include "emulator/request/call.h"
#include "emulator/request/request.h"
#include "emulator/wire/text.h"

/* XX(name, status, JSON reason, XML code) */
#define RG_API_ERRORS(XX)                                                                          \
    XX(BAD_DIGEST, 400, "invalid", "BadDigest")                                                    \
    XX(BAD_REQUEST, 400, "invalid", "InvalidArgument")                                             \
    XX(BUCKET_NAME, 400, "invalid", "InvalidBucketName")                                           \
    XX(PART, 400, "invalid", "InvalidPart")                                                        \
    XX(PART_ORDER, 400, "invalid", "InvalidPartOrder")                                             \
    XX(TOO_SMALL, 400, "invalid", "EntityTooSmall")                                                \
    XX(XML, 400, "invalid", "MalformedXML")                                                        \
    XX(MISSING, 400, "required", "MissingArgument")                                                \
    XX(USER_PROJECT, 400, "required", "UserProjectMissing")                                        \
    XX(HELD, 403, "objectUnderActiveHold", "ObjectUnderActiveHold")                                \
    XX(RETAINED, 403, "retentionPolicyNotMet", "RetentionPolicyNotMet")                            \
    XX(NO_BUCKET, 404, "notFound", "NoSuchBucket")                                                 \
    XX(NO_OBJECT, 404, "notFound", "NoSuchKey")                                                    \
    XX(NO_UPLOAD, 404, "notFound", "NoSuchUpload")                                                 \
    XX(NO_PATH, 404, "notFound", "NotFound")                                                       \
    XX(METHOD, 405, "methodNotAllowed", "MethodNotAllowed")                                        \
    XX(CONFLICT, 409, "conflict", "BucketAlreadyOwnedByYou")                                       \
    XX(EXISTS, 409, "conflict", "FolderAlreadyExists")                                             \
    XX(NOT_EMPTY, 409, "conflict", "BucketNotEmpty")                                               \
    XX(CONDITION, 412, "conditionNotMet", "PreconditionFailed")                                    \
    XX(TOO_LARGE, 413, "uploadTooLarge", "EntityTooLarge")                                         \
    XX(RANGE, 416, "requestedRangeNotSatisfiable", "InvalidRange")                                 \
    XX(RATE, 429, "rateLimitExceeded", "SlowDown")                                                 \
    XX(CANCELLED, 499, "cancelled", "RequestCancelled")                                            \
    XX(INTERNAL, 500, "backendError", "InternalError")                                             \
    XX(NOT_IMPLEMENTED, 501, "notImplemented", "NotImplemented")                                   \
    XX(UNAVAILABLE, 503, "backendError", "ServiceUnavailable")                                     \
    XX(NO_ROOM, 507, "insufficientStorage", "InsufficientStorage")

enum rg_api_error {
#define XX(name, status, reason, code) RG_API_##name,
    RG_API_ERRORS(XX)
#undef XX
        RG_API_ERROR_COUNT
};

#define RG_REPLY_JSON_TYPE "application/json; charset=UTF-8"

/* Starts an answer: the status line and the fields that all answers have. */
struct rg_h1_encoder *rg_reply_start(struct rg_server_call *call, unsigned status);
/* Ends an answer with a Content-Length. The answer to a HEAD request has no body, whatever the
 * size. */
void rg_reply_finish(struct rg_server_call *call, uint64_t content_size);
/* The same without a Content-Length, for a body that has its own framing. */
void rg_reply_finish_framed(struct rg_server_call *call, uint64_t body_size);
/* The same without a body and a Content-Length: 204 and 304. */
void rg_reply_finish_empty(struct rg_server_call *call);
/* A whole answer whose body is the call's text. */
void rg_reply_text(struct rg_server_call *call, unsigned status, const char *content_type);
/* The status of an answer that was started. */
unsigned rg_reply_status(struct rg_server_call *call);
/* A whole answer that says what is wrong, in the dialect of the call's API. It replaces an
 * answer that was started, and closes the call's object; for RG_API_RANGE it says the object's
 * size. */
void rg_reply_error(struct rg_server_call *call, enum rg_api_error error, const char *format, ...)
    RG_PRINTF(3, 4);
/* Whether the request says who pays, if the bucket demands that. False with the call answered. */
bool rg_reply_check_payer(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_bucket *bucket);
/* Says that there is no such bucket, in the words of the service. */
void rg_reply_no_bucket(struct rg_server_call *call);
/* The request's bucket, or NULL with the call answered. */
struct rg_bucket *rg_reply_find_bucket(struct rg_server_call *call,
                                       const struct rg_api_request *request);
/* Removes the request's bucket, and answers. */
void rg_reply_remove_bucket(struct rg_server_call *call, const struct rg_api_request *request);
/* Answers with what a negative result of the store means, said of an object of a bucket. */
void rg_reply_store_error(struct rg_server_call *call, int rc, struct rg_h1_slice bucket,
                          struct rg_h1_slice object);

/* Entity tags as the service makes them: a protocol buffer of generation and metageneration, in
 * base64. */
#define RG_REPLY_ETAG_SIZE_MAX 32
/* Writes quotes and NUL, too. */
void rg_reply_format_etag(char out[RG_REPLY_ETAG_SIZE_MAX + 3],
                          const struct rg_store_object_info *info);
#define RG_REPLY_CRC32C_SIZE 8
void rg_reply_format_crc32c(char out[RG_REPLY_CRC32C_SIZE], uint32_t crc32c);

/* x-goog-generation, x-goog-hash and the rest that describes an object, ETag included. */
void rg_reply_object_fields(struct rg_h1_encoder *head, const struct rg_store_object_info *info,
                            bool json);

#endif
