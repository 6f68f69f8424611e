/* Heads, errors and whole answers; see reply.h. */
#include "emulator/request/reply.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ERROR_MESSAGE_SIZE_MAX 1500 /* Room for an object's name and a sentence. */
#define UPLOAD_ID_SIZE 32

static const struct {
    unsigned status;
    const char *reason, *code;
} api_errors[] = {
#define XX(name, status, reason, code) {status, reason, code},
    RG_API_ERRORS(XX)
#undef XX
};
_Static_assert(RG_ARRAY_LEN(api_errors) == RG_API_ERROR_COUNT, "every error has its facts");

static const char *status_reason(unsigned status)
{
    switch (status) {
    case 200:
        return "OK";
    case 201:
        return "Created";
    case 204:
        return "No Content";
    case 206:
        return "Partial Content";
    case 304:
        return "Not Modified";
    case 308:
        return "Resume Incomplete";
    case 400:
        return "Bad Request";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 409:
        return "Conflict";
    case 412:
        return "Precondition Failed";
    case 413:
        return "Content Too Large";
    case 416:
        return "Range Not Satisfiable";
    case 429:
        return "Too Many Requests";
    case 499:
        return "Client Closed Request";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 507:
        return "Insufficient Storage";
    default:
        return "Internal Server Error";
    }
}

/* The date is formatted once a second by each loop. */
static const char *current_date(struct rg_service_loop *loop)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (loop->date_seconds != (int64_t)now.tv_sec) {
        loop->date_seconds = (int64_t)now.tv_sec;
        rg_text_format_http_date(loop->date, loop->date_seconds);
    }
    return loop->date;
}

/* An id by which this answer can be found in a log. */
static void format_upload_id(struct rg_server_call *call, char out[UPLOAD_ID_SIZE + 1])
{
    static const char digits[] = "0123456789abcdef";
    struct rg_service_loop *loop = &rg_service_of(call)->loops[call->loop_index];
    uint64_t parts[2] = {call->now_ns, ++loop->request_count << 16 | (call->loop_index & 0xffff)};
    for (size_t i = 0; i < UPLOAD_ID_SIZE; i++) {
        out[i] = digits[parts[i / 16] >> 4 * (15 - i % 16) & 15];
    }
    out[UPLOAD_ID_SIZE] = '\0';
}

static struct rg_h1_encoder *head_of(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    return state->nested_head != NULL ? state->nested_head : rg_server_head(call);
}

struct rg_h1_encoder *rg_reply_start(struct rg_server_call *call, unsigned status)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_h1_encoder *head = head_of(call);
    char upload_id[UPLOAD_ID_SIZE + 1];
    RG_ASSERT(!state->replied);
    format_upload_id(call, upload_id);
    rg_h1_encoder_init(head, head->data, head->capacity);
    rg_h1_encode_status(head, status, status_reason(status));
    rg_h1_encode_header(head, "Date", current_date(&rg_service_of(call)->loops[call->loop_index]));
    rg_h1_encode_header(head, "Server", "UploadServer");
    rg_h1_encode_header(head, "x-guploader-uploadid", upload_id);
    if (state->json) {
        rg_h1_encode_header(head, "Vary", "Origin, X-Origin");
    }
    return head;
}

static void finish(struct rg_server_call *call, uint64_t body_size)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_h1_encoder *head = head_of(call);
    state->response = (struct rg_server_response){
        .body_size = body_size,
        .close = !state->keep_alive,
        .cut_after = UINT64_MAX,
        .stall_after = UINT64_MAX,
    };
    if (!state->keep_alive) {
        rg_h1_encode_header(head, "Connection", "close");
    }
    /* Every value was checked when it was stored, and all of them are short. */
    int rc = rg_h1_encode_end(head);
    RG_ASSERT(rc > 0);
    state->replied = true;
}

void rg_reply_finish(struct rg_server_call *call, uint64_t content_size)
{
    rg_h1_encode_header_u64(head_of(call), "Content-Length", content_size);
    finish(call, rg_call_of(call)->head_request ? 0 : content_size);
}

void rg_reply_finish_framed(struct rg_server_call *call, uint64_t body_size)
{
    finish(call, rg_call_of(call)->head_request ? 0 : body_size);
}

void rg_reply_finish_empty(struct rg_server_call *call)
{
    finish(call, 0);
}

void rg_reply_text(struct rg_server_call *call, unsigned status, const char *content_type)
{
    struct rg_call *state = rg_call_of(call);
    if (state->text.failed) {
        rg_text_fini(&state->text);
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    struct rg_h1_encoder *head = rg_reply_start(call, status);
    rg_h1_encode_header(head, "Content-Type", content_type);
    rg_h1_encode_header(head, "Cache-Control", "private, max-age=0, must-revalidate, no-transform");
    rg_reply_finish(call, state->text.size);
}

unsigned rg_reply_status(struct rg_server_call *call)
{
    static const char version[] = "HTTP/1.1 ";
    const struct rg_h1_encoder *head = head_of(call);
    RG_ASSERT(head->size > sizeof(version) + 3);
    return (unsigned)strtoul(head->data + sizeof(version) - 1, NULL, 10);
}

static void append_json_error(struct rg_text *text, enum rg_api_error error, const char *message)
{
    size_t size = strlen(message);
    rg_text_printf(text, "{\"error\":{\"code\":%u,\"message\":", api_errors[error].status);
    rg_text_append_json(text, message, size);
    rg_text_append_str(text, ",\"errors\":[{\"message\":");
    rg_text_append_json(text, message, size);
    rg_text_printf(text, ",\"domain\":\"global\",\"reason\":\"%s\"", api_errors[error].reason);
    if (error == RG_API_CONDITION) {
        rg_text_append_str(text, ",\"locationType\":\"header\",\"location\":\"If-Match\"");
    }
    rg_text_append_str(text, "}]}}");
}

static void append_xml_error(struct rg_text *text, enum rg_api_error error, const char *message)
{
    rg_text_printf(text, "<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code><Message>",
                   api_errors[error].code);
    rg_text_append_xml(text, message, strlen(message));
    rg_text_append_str(text, "</Message></Error>");
}

void rg_reply_error(struct rg_server_call *call, enum rg_api_error error, const char *format, ...)
{
    struct rg_call *state = rg_call_of(call);
    char message[ERROR_MESSAGE_SIZE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    rg_store_object_close(&state->object);
    rg_text_fini(&state->text);
    if (state->json) {
        append_json_error(&state->text, error, message);
    } else {
        append_xml_error(&state->text, error, message);
    }
    if (state->text.failed) {
        rg_text_fini(&state->text);
    }
    /* The rest of a body that will not be stored is not received: the connection is closed. */
    state->keep_alive = state->keep_alive && error != RG_API_TOO_LARGE;
    struct rg_h1_encoder *head = rg_reply_start(call, api_errors[error].status);
    rg_h1_encode_header(head, "Content-Type",
                        state->json ? RG_REPLY_JSON_TYPE : "application/xml; charset=UTF-8");
    rg_h1_encode_header(head, "Cache-Control", "private, max-age=0");
    if (error == RG_API_RATE) {
        rg_h1_encode_header(head, "Retry-After", "1");
    }
    if (error == RG_API_RANGE) {
        char range[32];
        snprintf(range, sizeof(range), "bytes */%" PRIu64, state->object.info.size);
        rg_h1_encode_header(head, "Content-Range", range);
    }
    rg_reply_finish(call, state->text.size);
}

void rg_reply_no_bucket(struct rg_server_call *call)
{
    rg_reply_error(call, RG_API_NO_BUCKET, "The specified bucket does not exist.");
}

struct rg_bucket *rg_reply_find_bucket(struct rg_server_call *call,
                                       const struct rg_api_request *request)
{
    struct rg_bucket *bucket = rg_store_find_bucket(rg_service_of(call)->store, request->bucket);
    if (bucket == NULL) {
        rg_reply_no_bucket(call);
    }
    return bucket != NULL && rg_reply_check_payer(call, request, bucket) ? bucket : NULL;
}

bool rg_reply_check_payer(struct rg_server_call *call, const struct rg_api_request *request,
                          struct rg_bucket *bucket)
{
    const struct rg_h1_slice *header = rg_h1_find(request->head, "x-goog-user-project");
    if (!rg_bucket_requester_pays(bucket) || request->params[RG_PARAM_USER_PROJECT].size > 0 ||
        (header != NULL && header->size > 0)) {
        return true;
    }
    rg_reply_error(call, RG_API_USER_PROJECT,
                   "Bucket is a requester pays bucket but no user project provided.");
    return false;
}

void rg_reply_store_error(struct rg_server_call *call, int rc, struct rg_h1_slice bucket,
                          struct rg_h1_slice object)
{
    switch (rc) {
    case -ENOENT:
        rg_reply_error(call, RG_API_NO_OBJECT, "No such object: %.*s/%.*s", (int)bucket.size,
                       bucket.data, (int)object.size, object.data);
        break;
    case -ESTALE:
    case -EALREADY:
        rg_reply_error(call, RG_API_CONDITION,
                       "At least one of the pre-conditions you specified did not hold.");
        break;
    case -EBUSY:
        rg_reply_error(call, RG_API_HELD,
                       "Object '%.*s/%.*s' is under a hold and cannot be deleted, overwritten or "
                       "archived until it is removed.",
                       (int)bucket.size, bucket.data, (int)object.size, object.data);
        break;
    case -EPERM:
        rg_reply_error(
            call, RG_API_RETAINED,
            "Object '%.*s/%.*s' is subject to the bucket's retention policy and cannot be "
            "deleted or overwritten yet.",
            (int)bucket.size, bucket.data, (int)object.size, object.data);
        break;
    case -ENAMETOOLONG:
        rg_reply_error(
            call, RG_API_BAD_REQUEST,
            "In a bucket with a hierarchical namespace the name of a folder, and that of "
            "an object in it, have at most %d bytes: %.*s",
            RG_STORE_FOLDER_SIZE_MAX, (int)object.size, object.data);
        break;
    case -ENOSPC:
        rg_reply_error(call, RG_API_TOO_LARGE,
                       "No room for %.*s/%.*s: what the emulator may keep is used up (objects in "
                       "memory are limited; --root keeps them on disk).",
                       (int)bucket.size, bucket.data, (int)object.size, object.data);
        break;
    default:
        rg_reply_error(call, RG_API_INTERNAL, "%.*s/%.*s: %s", (int)bucket.size, bucket.data,
                       (int)object.size, object.data, strerror(-rc));
        break;
    }
}

void rg_reply_remove_bucket(struct rg_server_call *call, const struct rg_api_request *request)
{
    if (rg_reply_find_bucket(call, request) == NULL) {
        return;
    }
    int rc = rg_store_remove_bucket(rg_service_of(call)->store, request->bucket);
    if (rc == -ENOTEMPTY || rc == -EEXIST) {
        rg_reply_error(call, RG_API_NOT_EMPTY, "The bucket you tried to delete is not empty.");
    } else if (rc < 0) {
        rg_reply_store_error(call, rc, request->bucket, (struct rg_h1_slice){"", 0});
    } else {
        rg_reply_start(call, 204);
        rg_reply_finish_empty(call);
    }
}

static size_t put_varint(uint8_t *out, uint64_t value)
{
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) {
        out[size++] = (uint8_t)(value | 0x80);
    }
    out[size++] = (uint8_t)value;
    return size;
}

void rg_reply_format_etag(char out[RG_REPLY_ETAG_SIZE_MAX + 3],
                          const struct rg_store_object_info *info)
{
    uint8_t message[22]; /* Two tags, two varints of up to 10 bytes. */
    size_t size = 0;
    message[size++] = 1 << 3; /* Field 1, varint. */
    size += put_varint(message + size, (uint64_t)info->generation);
    message[size++] = 2 << 3;
    size += put_varint(message + size, (uint64_t)info->metageneration);
    size_t text_size = RG_TEXT_BASE64_SIZE(size);
    RG_ASSERT(text_size <= RG_REPLY_ETAG_SIZE_MAX);
    out[0] = '"';
    rg_text_format_base64(out + 1, message, size);
    out[text_size + 1] = '"';
    out[text_size + 2] = '\0';
}

void rg_reply_format_crc32c(char out[RG_REPLY_CRC32C_SIZE], uint32_t crc32c)
{
    uint8_t bytes[4] = {(uint8_t)(crc32c >> 24), (uint8_t)(crc32c >> 16), (uint8_t)(crc32c >> 8),
                        (uint8_t)crc32c};
    _Static_assert(RG_TEXT_BASE64_SIZE(sizeof(bytes)) == RG_REPLY_CRC32C_SIZE, "a CRC in base64");
    rg_text_format_base64(out, bytes, sizeof(bytes));
}

void rg_reply_object_fields(struct rg_h1_encoder *head, const struct rg_store_object_info *info,
                            bool json)
{
    char etag[RG_REPLY_ETAG_SIZE_MAX + 3];
    char hash[7 + RG_REPLY_CRC32C_SIZE + 5 + RG_STORE_MD5_SIZE] = "crc32c=";
    uint32_t hash_size = 7 + RG_REPLY_CRC32C_SIZE;
    rg_reply_format_etag(etag, info);
    rg_reply_format_crc32c(hash + 7, info->crc32c);
    if (info->md5[0] != '\0') {
        memcpy(hash + hash_size, ",md5=", 5);
        memcpy(hash + hash_size + 5, info->md5, RG_STORE_MD5_SIZE);
        hash_size += 5 + RG_STORE_MD5_SIZE;
    }
    /* The JSON API sends it without the quotes. */
    size_t quote = json ? 1 : 0;
    rg_h1_encode_header_slice(
        head, "ETag", (struct rg_h1_slice){etag + quote, (uint32_t)(strlen(etag) - 2 * quote)});
    rg_h1_encode_header_u64(head, "x-goog-generation", (uint64_t)info->generation);
    rg_h1_encode_header_u64(head, "x-goog-metageneration", (uint64_t)info->metageneration);
    rg_h1_encode_header_slice(head, "x-goog-hash", (struct rg_h1_slice){hash, hash_size});
    rg_h1_encode_header_u64(head, "x-goog-stored-content-length", info->size);
    rg_h1_encode_header(head, "x-goog-stored-content-encoding",
                        info->content_encoding[0] != '\0' ? info->content_encoding : "identity");
    if (rg_attributes_get(info->attributes, RG_ATTRIBUTES_CLASS).data == NULL) {
        rg_h1_encode_header(head, "x-goog-storage-class", RG_STORE_CLASS_DEFAULT);
    }
    rg_attributes_encode(info->attributes, head);
}
