/* Sessions, and requests with their chunks; see resumable.h. */
#include "emulator/api/resumable.h"

#include "emulator/api/upload.h"
#include "emulator/faults/rules.h"
#include "emulator/request/body.h"
#include "emulator/request/sessions.h"
#include "emulator/store/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Every chunk but the last is a multiple of this. */
#define CHUNK_UNIT RG_KIB(256)
#define SIZE_UNKNOWN UINT64_MAX

enum stage { SESSION_OPEN, SESSION_COMMITTED, SESSION_FAILED };

/* The lock of `base` protects everything else. */
struct resumable {
    struct rg_session base;
    struct rg_upload *upload;
    uint64_t declared;                /* X-Upload-Content-Length; SIZE_UNKNOWN without. */
    _Atomic uint8_t stage;            /* enum stage; read without the lock, too. */
    struct rg_store_object_info info; /* The object's facts, once it is committed. */
};

/* What the head of a request to a session says. */
struct content_range {
    bool has_bytes;       /* Otherwise it is "bytes *" and a total. */
    uint64_t first, last; /* `last` is SIZE_UNKNOWN for all that comes. */
    uint64_t total;       /* SIZE_UNKNOWN: not known yet. */
};

/* One request that brings bytes. */
struct chunk {
    struct resumable *session;
    struct content_range range;
    uint64_t position; /* The offset in the object of the body's next byte. */
    uint64_t kept_end; /* What is behind it is not kept; UINT64_MAX: no fault. */
    bool no_308;
};

static void session_destroy(struct rg_session *base)
{
    struct resumable *session = RG_CONTAINER_OF(base, struct resumable, base);
    rg_upload_destroy(session->upload);
    free(session);
}

static const struct rg_session_type resumable_type = {session_destroy};

bool rg_resumable_is_session(const struct rg_api_request *request)
{
    return rg_api_request_has(request, RG_PARAM_UPLOAD_ID);
}

/* The session's address is the one where it was started, with an id. */
static void reply_location(struct rg_server_call *call, const struct resumable *session)
{
    const struct rg_upload *upload = session->upload;
    bool json = rg_call_of(call)->json;
    struct rg_text url = {0};
    rg_text_printf(&url, "%s%s/%.*s", upload->style.origin, json ? "/upload/storage/v1/b" : "",
                   (int)upload->bucket.size, upload->bucket.data);
    if (json) {
        rg_text_append_str(&url, "/o?uploadType=resumable&name=");
        rg_text_append_percent(&url, upload->name.data, upload->name.size);
    } else {
        rg_text_append_str(&url, "/");
        rg_text_append_percent(&url, upload->name.data, upload->name.size);
        rg_text_append_str(&url, "?");
    }
    rg_text_printf(&url, "%supload_id=%s", json ? "&" : "", session->base.id);
    if (url.failed) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    } else {
        struct rg_h1_encoder *head = rg_reply_start(call, json ? 200 : 201);
        rg_h1_encode_header_slice(head, "Location",
                                  (struct rg_h1_slice){url.data, (uint32_t)url.size});
        rg_h1_encode_header(head, "X-GUploader-UploadID", session->base.id);
        rg_reply_finish(call, 0);
    }
    rg_text_fini(&url);
}

/* Preconditions are checked now, so that nobody sends gigabytes in vain, and again at the end. */
static bool check_conditions(struct rg_server_call *call, const struct rg_upload *upload)
{
    struct rg_bucket *bucket = rg_store_find_bucket(rg_service_of(call)->store, upload->bucket);
    int rc = bucket != NULL ? rg_bucket_check_conditions(bucket, upload->name, &upload->conditions)
                            : rg_store_conditions_check(&upload->conditions, NULL);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
    }
    return rc == 0;
}

static bool take_declared(struct rg_server_call *call, const struct rg_api_request *request,
                          struct resumable *session)
{
    const struct rg_h1_slice *declared = rg_h1_find(request->head, "x-upload-content-length");
    int64_t size;
    session->declared = SIZE_UNKNOWN;
    if (declared == NULL) {
        return true;
    }
    if (rg_text_parse_int64(*declared, &size) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "X-Upload-Content-Length is not a number.");
        return false;
    }
    if ((uint64_t)size > RG_STORE_OBJECT_SIZE_MAX) {
        rg_reply_error(call, RG_API_TOO_LARGE, "An object is at most 5 TiB.");
        return false;
    }
    session->declared = (uint64_t)size;
    return true;
}

static bool take_description(struct rg_server_call *call, const struct rg_api_request *request,
                             struct rg_upload *upload, struct rg_h1_slice body)
{
    const struct rg_h1_slice *type = rg_h1_find(request->head, "x-upload-content-type");
    if (!rg_api_request_is_json(request)) {
        return rg_upload_set_name(call, upload, request->object) &&
               rg_upload_take_fields(call, upload, request);
    }
    return (!rg_api_request_has(request, RG_PARAM_NAME) ||
            rg_upload_set_name(call, upload, request->params[RG_PARAM_NAME])) &&
           (type == NULL || type->size == 0 || rg_upload_set_content_type(call, upload, *type)) &&
           rg_upload_take_text(call, upload, body);
}

static void finish_start(struct rg_server_call *call, const struct rg_api_request *request,
                         struct rg_h1_slice body)
{
    struct resumable *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    rg_session_init(&session->base, &resumable_type);
    session->upload = rg_upload_create(call, request, request->bucket);
    if (session->upload != NULL && take_declared(call, request, session) &&
        take_description(call, request, session->upload, body) &&
        check_conditions(call, session->upload)) {
        /* No memory is reserved for the announced size: it may never come. */
        session->upload->size_hint = 0;
        if (!rg_upload_open_writer(call, session->upload)) {
            goto out;
        }
        if (rg_sessions_add(rg_service_of(call)->sessions, &session->base) < 0) {
            rg_reply_error(call, RG_API_INTERNAL, "No random numbers.");
        } else {
            reply_location(call, session);
        }
    }
out:
    rg_session_unref(&session->base);
}

void rg_resumable_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    rg_body_collect(call, request, RG_BODY_SIZE_MAX, finish_start);
}

/* The size that a client may rely on. */
static uint64_t persisted(const struct resumable *session)
{
    uint64_t size = rg_store_writer_size(session->upload->writer);
    return size - size % CHUNK_UNIT;
}

static void reply_incomplete(struct rg_server_call *call, const struct resumable *session,
                             bool no_308)
{
    char range[48];
    uint64_t size = persisted(session);
    struct rg_h1_encoder *head = rg_reply_start(call, no_308 ? 200 : 308);
    if (no_308) {
        rg_h1_encode_header(head, "X-HTTP-Status-Code-Override", "308");
    }
    if (size > 0) {
        snprintf(range, sizeof(range), "bytes=0-%" PRIu64, size - 1);
        rg_h1_encode_header(head, "Range", range);
    }
    rg_h1_encode_header(head, "X-GUploader-UploadID", session->base.id);
    rg_reply_finish(call, 0);
}

/* True while bytes may come; otherwise the call is answered. */
static bool check_open(struct rg_server_call *call, const struct resumable *session)
{
    if (session->stage == SESSION_COMMITTED) {
        rg_upload_reply(call, session->upload, &session->info);
        return false;
    }
    if (session->stage == SESSION_FAILED) {
        rg_reply_error(call, RG_API_NO_UPLOAD, "The upload of this session failed or was ended.");
        return false;
    }
    return true;
}

/* Ends a session that will not become an object. */
static void fail(struct rg_server_call *call, struct resumable *session)
{
    session->stage = SESSION_FAILED;
    rg_store_writer_abort(session->upload->writer);
    session->upload->writer = NULL;
    rg_sessions_remove(rg_service_of(call)->sessions, &session->base);
}

static void commit(struct rg_server_call *call, struct resumable *session)
{
    if (rg_upload_commit(call, session->upload, &session->info)) {
        session->stage = SESSION_COMMITTED;
        rg_upload_reply(call, session->upload, &session->info);
    } else {
        fail(call, session);
    }
}

static void chunk_receive(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct chunk *chunk = rg_call_of(call)->received;
    struct resumable *session = chunk->session;
    pthread_mutex_lock(&session->base.lock);
    if (check_open(call, session)) {
        uint64_t have = rg_store_writer_size(session->upload->writer);
        uint64_t first = chunk->position, end = RG_MIN(first + size, chunk->kept_end);
        chunk->position += size;
        RG_ASSERT(first <= have || have >= end);
        if (have < end &&
            !rg_upload_write(call, session->upload, data + (have - first), (size_t)(end - have))) {
            /* It is not known how much of the piece was stored. */
            fail(call, session);
        }
    }
    pthread_mutex_unlock(&session->base.lock);
}

/* The body is there as a whole. */
static void finish_chunk(struct rg_server_call *call, struct chunk *chunk)
{
    const struct content_range *range = &chunk->range;
    struct resumable *session = chunk->session;
    if (range->last != SIZE_UNKNOWN && chunk->position != range->last + 1) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The body has not as many bytes as Content-Range says.");
        return;
    }
    uint64_t total = range->last == SIZE_UNKNOWN ? chunk->position : range->total;
    uint64_t have = rg_store_writer_size(session->upload->writer);
    if (total == SIZE_UNKNOWN || chunk->position < total || chunk->kept_end != UINT64_MAX) {
        reply_incomplete(call, session, chunk->no_308);
    } else if (have != total || (session->declared != SIZE_UNKNOWN && session->declared != total)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The object has %" PRIu64 " bytes, which is not what was announced.", have);
    } else {
        commit(call, session);
    }
}

static void chunk_finish(struct rg_server_call *call)
{
    struct chunk *chunk = rg_call_of(call)->received;
    struct resumable *session = chunk->session;
    pthread_mutex_lock(&session->base.lock);
    if (check_open(call, session)) {
        finish_chunk(call, chunk);
    }
    pthread_mutex_unlock(&session->base.lock);
}

static void chunk_destroy(void *received)
{
    struct chunk *chunk = received;
    rg_session_unref(&chunk->session->base);
    free(chunk);
}

static const struct rg_receiver chunk_receiver = {chunk_receive, chunk_finish, chunk_destroy};

static struct rg_h1_slice behind(struct rg_h1_slice text, const char *at)
{
    return (struct rg_h1_slice){at, text.size - (uint32_t)(at - text.data)};
}

static bool parse_size(struct rg_h1_slice text, uint64_t *out)
{
    int64_t value;
    if (rg_text_equals(text, "*")) {
        *out = SIZE_UNKNOWN;
        return true;
    }
    if (rg_text_parse_int64(text, &value) < 0 || (uint64_t)value > RG_STORE_OBJECT_SIZE_MAX) {
        return false;
    }
    *out = (uint64_t)value;
    return true;
}

/* "bytes FIRST-LAST/TOTAL", where LAST and TOTAL may be "*", or "*" for FIRST-LAST. Without the
 * field the body is the whole object. */
static bool parse_range(const struct rg_h1_slice *field, struct content_range *out)
{
    *out = (struct content_range){.has_bytes = true, .last = SIZE_UNKNOWN, .total = SIZE_UNKNOWN};
    if (field == NULL) {
        return true;
    }
    const char *slash = memchr(field->data, '/', field->size);
    if (slash == NULL || !rg_text_starts_with(*field, rg_text_slice("bytes ")) ||
        !parse_size(behind(*field, slash + 1), &out->total)) {
        return false;
    }
    struct rg_h1_slice bytes = {field->data + 6, (uint32_t)(slash - field->data) - 6};
    const char *dash = memchr(bytes.data, '-', bytes.size);
    if (dash == NULL) {
        out->has_bytes = false;
        return rg_text_equals(bytes, "*");
    }
    struct rg_h1_slice first = {bytes.data, (uint32_t)(dash - bytes.data)};
    return parse_size(first, &out->first) && out->first != SIZE_UNKNOWN &&
           parse_size(behind(bytes, dash + 1), &out->last) && out->last >= out->first &&
           out->last <= RG_STORE_OBJECT_SIZE_MAX && out->last < out->total;
}

/* Refuses a chunk for what its head says, before its bytes come. */
static bool check_chunk(struct rg_server_call *call, const struct resumable *session,
                        const struct content_range *range, const struct rg_h1_head *head)
{
    uint64_t have = rg_store_writer_size(session->upload->writer);
    uint64_t size = range->last - range->first + 1;
    if (range->first > have) {
        rg_reply_error(call, RG_API_UNAVAILABLE,
                       "According to the Content-Range header, the upload offset is %" PRIu64
                       " byte(s), which exceeds already uploaded size of %" PRIu64 " byte(s).",
                       range->first, persisted(session));
    } else if (range->last != SIZE_UNKNOWN && head->has_content_length &&
               head->content_length != size) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "Content-Length is not the number of bytes in Content-Range.");
    } else if (range->last != SIZE_UNKNOWN && size % CHUNK_UNIT != 0 &&
               (range->total == SIZE_UNKNOWN || range->last + 1 < range->total)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The number of bytes of a chunk has to be a multiple of 262144, except for "
                       "the last one. The received request contained %" PRIu64 " bytes.",
                       size);
    } else if (session->declared != SIZE_UNKNOWN && range->total != SIZE_UNKNOWN &&
               range->total != session->declared) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The total in Content-Range is not X-Upload-Content-Length.");
    } else {
        return true;
    }
    return false;
}

/* Takes what the last chunk's head says of the whole object. */
static bool take_last_hashes(struct rg_server_call *call, struct resumable *session,
                             const struct content_range *range, const struct rg_h1_head *head)
{
    bool last = range->last == SIZE_UNKNOWN || range->last + 1 == range->total;
    return !last || rg_upload_expect_hashes(call, session->upload, head);
}

/* A chunk that is kept in part ends where one that is not the last may end. */
static uint64_t kept_end(struct rg_server_call *call, const struct content_range *range)
{
    uint64_t end = rg_rules_kept_end(call, range->first);
    if (end == UINT64_MAX) {
        return end;
    }
    end = range->last != SIZE_UNKNOWN ? RG_MIN(end, range->last + 1) : end;
    return end - end % CHUNK_UNIT;
}

static void start_chunk(struct rg_server_call *call, struct resumable *session,
                        const struct content_range *range, const struct rg_h1_head *head)
{
    struct rg_call *state = rg_call_of(call);
    const struct rg_h1_slice *no_308 = rg_h1_find(head, "x-guploader-no-308");
    struct chunk *chunk = malloc(sizeof(*chunk));
    if (chunk == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    atomic_fetch_add(&session->base.refs, 1);
    *chunk = (struct chunk){
        .session = session,
        .range = *range,
        .position = range->first,
        .kept_end = kept_end(call, range),
        .no_308 = no_308 != NULL && rg_text_equals(*no_308, "yes"),
    };
    state->receiver = &chunk_receiver;
    state->received = chunk;
    state->fault.from = range->first;
}

static void start_put(struct rg_server_call *call, const struct rg_api_request *request,
                      struct resumable *session)
{
    const struct rg_h1_head *head = request->head;
    const struct rg_h1_slice *no_308 = rg_h1_find(head, "x-guploader-no-308");
    struct content_range range;
    if (!check_open(call, session)) {
        return;
    }
    if (!parse_range(rg_h1_find(head, "content-range"), &range)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "Content-Range is malformed.");
    } else if (range.has_bytes) {
        if (check_chunk(call, session, &range, head) &&
            take_last_hashes(call, session, &range, head)) {
            start_chunk(call, session, &range, head);
        }
    } else if (range.total == rg_store_writer_size(session->upload->writer)) {
        /* All bytes are there: this ends an upload whose size was not known. */
        if (take_last_hashes(call, session, &range, head)) {
            commit(call, session);
        }
    } else {
        reply_incomplete(call, session, no_308 != NULL && rg_text_equals(*no_308, "yes"));
    }
}

static void cancel(struct rg_server_call *call, struct resumable *session)
{
    fail(call, session);
    rg_reply_error(call, RG_API_CANCELLED, "The upload was cancelled.");
}

static void reply_unknown(struct rg_server_call *call)
{
    rg_reply_error(call, RG_API_NO_UPLOAD, "There is no upload session of this id.");
}

void rg_resumable_continue(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_session *base = rg_sessions_find(rg_service_of(call)->sessions, &resumable_type,
                                               request->params[RG_PARAM_UPLOAD_ID]);
    if (base == NULL) {
        reply_unknown(call);
        return;
    }
    struct resumable *session = RG_CONTAINER_OF(base, struct resumable, base);
    pthread_mutex_lock(&base->lock);
    if (rg_rules_effect(call) == RG_EFFECT_FORGOTTEN) {
        fail(call, session);
        reply_unknown(call);
    } else if (rg_api_request_is(request, "DELETE")) {
        cancel(call, session);
    } else if (rg_api_request_is(request, "PUT") || rg_api_request_is(request, "POST")) {
        start_put(call, request, session);
    } else {
        rg_reply_error(call, RG_API_METHOD, "An upload session knows no such method.");
    }
    pthread_mutex_unlock(&base->lock);
    rg_session_unref(base);
}

static void count_open(void *context, struct rg_session *base)
{
    const struct resumable *session = RG_CONTAINER_OF(base, struct resumable, base);
    *(uint32_t *)context += session->stage == SESSION_OPEN;
}

uint32_t rg_resumable_count(struct rg_sessions *sessions)
{
    uint32_t count = 0;
    rg_sessions_visit(sessions, &resumable_type, count_open, &count);
    return count;
}
