/* Sessions with parts; see multipart.h. A part is received without a lock into a writer of its
 * own, and then put into the session, sorted by number. */
#include "emulator/api/xml/multipart.h"

#include "emulator/api/upload.h"
#include "emulator/faults/rules.h"
#include "emulator/request/body.h"
#include "emulator/request/sessions.h"
#include "emulator/store/model/clock.h"
#include "emulator/store/writer.h"
#include "emulator/wire/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Limit of the list of parts that ends an upload: about 200 bytes for each. */
#define COMPLETE_SIZE_MAX (4u << 20)
#define PARTS_PAGE_MAX 1000
#define UPLOADS_PAGE_MAX 1000
/* A quote, 8 digits of the CRC, 16 of the size, a quote. */
#define PART_ETAG_SIZE 26
#define XML_TYPE "application/xml; charset=UTF-8"
#define XML_HEAD "<?xml version='1.0' encoding='UTF-8'?>"
#define XML_NAMESPACE "http://s3.amazonaws.com/doc/2006-03-01/"

struct part {
    uint32_t number;
    int64_t modified_us;
    struct rg_store_object object; /* Open. */
};

/* The lock of `base` protects the parts and `ended`. */
struct multipart {
    struct rg_session base;
    struct rg_upload *upload; /* Without a writer until the end. */
    bool ended;
    int64_t started_us;
    size_t count, capacity;
    struct part *parts; /* By number. */
};

/* A part that is being received. */
struct incoming {
    struct multipart *session;
    uint32_t number;
    struct rg_upload *upload;
};

static void drop_parts(struct multipart *session)
{
    for (size_t i = 0; i < session->count; i++) {
        rg_store_object_close(&session->parts[i].object);
    }
    free(session->parts);
    session->parts = NULL;
    session->count = session->capacity = 0;
}

static void session_destroy(struct rg_session *base)
{
    struct multipart *session = RG_CONTAINER_OF(base, struct multipart, base);
    drop_parts(session);
    rg_upload_destroy(session->upload);
    free(session);
}

static const struct rg_session_type multipart_type = {session_destroy};

bool rg_xml_multipart_is(const struct rg_api_request *request)
{
    return rg_api_request_has(request, RG_PARAM_XML_UPLOADS) ||
           rg_api_request_has(request, RG_PARAM_XML_UPLOAD_ID);
}

static void append_place(struct rg_text *text, const struct multipart *session)
{
    rg_text_append_element(text, "Bucket", session->upload->bucket);
    rg_text_append_element(text, "Key", session->upload->name);
    rg_text_append_element(text, "UploadId", rg_text_slice(session->base.id));
}

static void initiate(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_text *text = &rg_call_of(call)->text;
    struct multipart *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    rg_session_init(&session->base, &multipart_type);
    session->started_us = rg_store_now_us();
    session->upload = rg_upload_create(call, request, request->bucket);
    if (session->upload != NULL && rg_upload_set_name(call, session->upload, request->object) &&
        rg_upload_take_fields(call, session->upload, request)) {
        /* The API has no preconditions here. */
        session->upload->conditions = (struct rg_store_conditions){0};
        session->upload->size_hint = 0;
        if (rg_sessions_add(rg_service_of(call)->sessions, &session->base) < 0) {
            rg_reply_error(call, RG_API_INTERNAL, "No random numbers.");
        } else {
            rg_text_append_str(text, XML_HEAD "<InitiateMultipartUploadResult xmlns='" XML_NAMESPACE
                                              "'>");
            append_place(text, session);
            rg_text_append_str(text, "</InitiateMultipartUploadResult>");
            rg_reply_text(call, 200, XML_TYPE);
        }
    }
    rg_session_unref(&session->base);
}

static void format_part_etag(char out[PART_ETAG_SIZE + 1], const struct rg_store_object_info *info)
{
    snprintf(out, PART_ETAG_SIZE + 1, "\"%08" PRIx32 "%016" PRIx64 "\"", info->crc32c, info->size);
}

/* The place of the part of a number, or where it would be. */
static size_t part_index(const struct multipart *session, uint32_t number)
{
    size_t low = 0, high = session->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (session->parts[middle].number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int reserve_part(struct multipart *session)
{
    if (session->count == session->capacity) {
        size_t capacity = RG_MAX(session->capacity * 2, (size_t)16);
        struct part *parts = reallocarray(session->parts, capacity, sizeof(*parts));
        if (parts == NULL) {
            return -ENOMEM;
        }
        session->parts = parts;
        session->capacity = capacity;
    }
    return 0;
}

/* Takes the object on success. */
static int put_part_locked(struct multipart *session, uint32_t number,
                           const struct rg_store_object *object)
{
    size_t at = part_index(session, number);
    if (at < session->count && session->parts[at].number == number) {
        rg_store_object_close(&session->parts[at].object);
    } else {
        int rc = reserve_part(session);
        if (rc < 0) {
            return rc;
        }
        memmove(&session->parts[at + 1], &session->parts[at],
                (session->count - at) * sizeof(*session->parts));
        session->count++;
    }
    session->parts[at] = (struct part){number, rg_store_now_us(), *object};
    return 0;
}

static void reply_ended(struct rg_server_call *call)
{
    rg_reply_error(call, RG_API_NO_UPLOAD,
                   "The upload does not exist: it was never started, or it has ended.");
}

static void incoming_receive(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct incoming *incoming = rg_call_of(call)->received;
    (void)rg_upload_write(call, incoming->upload, data, size);
}

static void reply_part(struct rg_server_call *call, const struct rg_store_object_info *info)
{
    char etag[PART_ETAG_SIZE + 1];
    char hash[7 + RG_REPLY_CRC32C_SIZE] = "crc32c=";
    format_part_etag(etag, info);
    rg_reply_format_crc32c(hash + 7, info->crc32c);
    struct rg_h1_encoder *head = rg_reply_start(call, 200);
    rg_h1_encode_header(head, "ETag", etag);
    rg_h1_encode_header_slice(head, "x-goog-hash", (struct rg_h1_slice){hash, sizeof(hash)});
    rg_reply_finish(call, 0);
}

static void incoming_finish(struct rg_server_call *call)
{
    struct incoming *incoming = rg_call_of(call)->received;
    struct multipart *session = incoming->session;
    struct rg_upload *upload = incoming->upload;
    struct rg_store_object object = {0};
    if (!rg_upload_check_hashes(call, upload)) {
        return;
    }
    struct rg_store_writer *writer = upload->writer;
    upload->writer = NULL;
    int rc = rg_store_writer_seal(writer, &object);
    if (rc == 0) {
        pthread_mutex_lock(&session->base.lock);
        rc = session->ended ? -ESRCH : put_part_locked(session, incoming->number, &object);
        pthread_mutex_unlock(&session->base.lock);
    }
    if (rc == 0) {
        reply_part(call, &object.info);
        return;
    }
    if (rc == -ESRCH) {
        reply_ended(call);
    } else {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
    }
    rg_store_object_close(&object);
}

static void incoming_destroy(void *received)
{
    struct incoming *incoming = received;
    rg_upload_destroy(incoming->upload);
    rg_session_unref(&incoming->session->base);
    free(incoming);
}

static const struct rg_receiver incoming_receiver = {incoming_receive, incoming_finish,
                                                     incoming_destroy};

static void start_part(struct rg_server_call *call, const struct rg_api_request *request,
                       struct multipart *session)
{
    int64_t number;
    if (rg_api_request_int(request, RG_PARAM_PART_NUMBER, 0, &number) < 0 || number < 1 ||
        number > RG_XML_MULTIPART_PART_MAX) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "partNumber has to be from 1 to 10000.");
        return;
    }
    struct incoming *incoming = calloc(1, sizeof(*incoming));
    if (incoming == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    atomic_fetch_add(&session->base.refs, 1);
    incoming->session = session;
    incoming->number = (uint32_t)number;
    incoming->upload = rg_upload_create(call, request, request->bucket);
    if (incoming->upload != NULL) {
        /* The whole object has no MD5, so that of a part is only computed to check it. */
        incoming->upload->no_md5 = !incoming->upload->hashes[RG_UPLOAD_AT_START].has_md5;
    }
    if (incoming->upload != NULL && rg_upload_set_name(call, incoming->upload, request->object) &&
        rg_upload_open_writer(call, incoming->upload)) {
        rg_call_of(call)->receiver = &incoming_receiver;
        rg_call_of(call)->received = incoming;
    } else {
        incoming_destroy(incoming);
    }
}

/* The list of parts that ends an upload, while it is read. */
struct complete {
    struct multipart *session;
    size_t count;  /* The count of parts that are named, which are moved to the front of `order`. */
    size_t *order; /* Indices of parts. */
    int64_t number; /* From the <Part> that is being read; 0: no number yet. */
    int64_t last;   /* The number before. */
    char etag[PART_ETAG_SIZE + 1];
};

static int on_part_start(void *context, const char *name)
{
    struct complete *complete = context;
    if (strcmp(name, "Part") == 0) {
        complete->number = 0;
        complete->etag[0] = '\0';
    }
    return 0;
}

/* -ENODATA: there is no such part; -EDOM: not in ascending order. */
static int end_part(struct complete *complete)
{
    struct multipart *session = complete->session;
    char etag[PART_ETAG_SIZE + 1];
    if (complete->number < 1 || complete->number > RG_XML_MULTIPART_PART_MAX) {
        return -ENODATA;
    }
    if (complete->number <= complete->last) {
        return -EDOM;
    }
    complete->last = complete->number;
    size_t at = part_index(session, (uint32_t)complete->number);
    if (at == session->count || session->parts[at].number != complete->number) {
        return -ENODATA;
    }
    format_part_etag(etag, &session->parts[at].object.info);
    /* With or without the quotes. */
    if (strcmp(complete->etag, etag) != 0 &&
        (strlen(complete->etag) != PART_ETAG_SIZE - 2 ||
         memcmp(complete->etag, etag + 1, PART_ETAG_SIZE - 2) != 0)) {
        return -ENODATA;
    }
    complete->order[complete->count++] = at;
    return 0;
}

static int on_part_end(void *context, const char *name, struct rg_h1_slice text)
{
    struct complete *complete = context;
    if (strcmp(name, "PartNumber") == 0) {
        return rg_text_parse_int64(text, &complete->number) < 0 ? -EBADMSG : 0;
    }
    if (strcmp(name, "ETag") == 0) {
        uint32_t size = RG_MIN(text.size, (uint32_t)PART_ETAG_SIZE);
        memcpy(complete->etag, text.data, size);
        complete->etag[text.size <= PART_ETAG_SIZE ? size : 0] = '\0';
    }
    return strcmp(name, "Part") == 0 ? end_part(complete) : 0;
}

/* False with the call answered. */
static bool read_list(struct rg_server_call *call, struct complete *complete,
                      struct rg_h1_slice body)
{
    const struct rg_xml_sink sink = {complete, on_part_start, on_part_end};
    int rc = rg_xml_read(body, &sink);
    if (rc == -EDOM) {
        rg_reply_error(call, RG_API_PART_ORDER, "The parts are not in ascending order.");
    } else if (rc == -ENODATA) {
        rg_reply_error(call, RG_API_PART,
                       "Part %" PRId64 " could not be found, or its ETag is another one.",
                       complete->number);
    } else if (rc < 0 || complete->count == 0) {
        rg_reply_error(call, RG_API_XML,
                       "The XML you provided was not well-formed or names no part.");
    } else {
        return true;
    }
    return false;
}

static bool join_parts(struct rg_server_call *call, const struct complete *complete)
{
    struct multipart *session = complete->session;
    for (size_t i = 0; i < complete->count; i++) {
        struct part *part = &session->parts[complete->order[i]];
        if (i + 1 < complete->count && part->object.info.size < RG_XML_MULTIPART_PART_SIZE_MIN) {
            rg_reply_error(call, RG_API_TOO_SMALL,
                           "Part %" PRIu32 " is smaller than 5 MiB and not the last one.",
                           part->number);
            return false;
        }
    }
    if (!rg_upload_open_writer(call, session->upload)) {
        return false;
    }
    for (size_t i = 0; i < complete->count; i++) {
        if (!rg_upload_append_object(call, session->upload,
                                     &session->parts[complete->order[i]].object)) {
            return false;
        }
    }
    return true;
}

static void reply_complete(struct rg_server_call *call, const struct multipart *session,
                           const struct rg_store_object_info *info)
{
    struct rg_text *text = &rg_call_of(call)->text;
    char etag[RG_REPLY_ETAG_SIZE_MAX + 3];
    rg_reply_format_etag(etag, info);
    rg_text_append_str(text, XML_HEAD "<CompleteMultipartUploadResult xmlns='" XML_NAMESPACE "'>");
    rg_text_printf(text, "<Location>%s/", session->upload->style.origin);
    rg_text_append_percent(text, session->upload->bucket.data, session->upload->bucket.size);
    rg_text_append_str(text, "/");
    rg_text_append_percent(text, session->upload->name.data, session->upload->name.size);
    rg_text_append_str(text, "</Location>");
    rg_text_append_element(text, "Bucket", session->upload->bucket);
    rg_text_append_element(text, "Key", session->upload->name);
    rg_text_append_element(text, "ETag", rg_text_slice(etag));
    rg_text_append_str(text, "</CompleteMultipartUploadResult>");
    if (text->failed) {
        rg_reply_text(call, 200, XML_TYPE);
        return;
    }
    struct rg_h1_encoder *head = rg_reply_start(call, 200);
    rg_h1_encode_header(head, "Content-Type", XML_TYPE);
    rg_reply_object_fields(head, info, false);
    rg_reply_finish(call, text->size);
}

static void complete_locked(struct rg_server_call *call, struct multipart *session,
                            struct rg_h1_slice body)
{
    struct rg_store_object_info info;
    struct complete complete = {.session = session,
                                .order = malloc((session->count + 1) * sizeof(size_t))};
    if (complete.order == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    if (read_list(call, &complete, body) && join_parts(call, &complete) &&
        rg_upload_commit(call, session->upload, &info)) {
        session->ended = true;
        drop_parts(session);
        reply_complete(call, session, &info);
    } else {
        /* It can be tried again. */
        rg_store_writer_abort(session->upload->writer);
        session->upload->writer = NULL;
        rg_attributes_unref(session->upload->attributes);
        session->upload->attributes = NULL;
    }
    free(complete.order);
}

/* The session of a request, with a reference; NULL with the call answered. */
static struct multipart *find_session(struct rg_server_call *call,
                                      const struct rg_api_request *request)
{
    struct rg_session *base = rg_sessions_find(rg_service_of(call)->sessions, &multipart_type,
                                               request->params[RG_PARAM_XML_UPLOAD_ID]);
    if (base != NULL) {
        struct multipart *session = RG_CONTAINER_OF(base, struct multipart, base);
        if (rg_text_compare(session->upload->bucket, request->bucket) == 0 &&
            rg_text_compare(session->upload->name, request->object) == 0) {
            return session;
        }
        rg_session_unref(base);
    }
    reply_ended(call);
    return NULL;
}

static void finish_complete(struct rg_server_call *call, const struct rg_api_request *request,
                            struct rg_h1_slice body)
{
    struct multipart *session = find_session(call, request);
    if (session == NULL) {
        return;
    }
    pthread_mutex_lock(&session->base.lock);
    if (session->ended) {
        reply_ended(call);
    } else {
        complete_locked(call, session, body);
    }
    bool ended = session->ended;
    pthread_mutex_unlock(&session->base.lock);
    if (ended) {
        rg_sessions_remove(rg_service_of(call)->sessions, &session->base);
    }
    rg_session_unref(&session->base);
}

static void end_session(struct rg_server_call *call, struct multipart *session)
{
    pthread_mutex_lock(&session->base.lock);
    session->ended = true;
    drop_parts(session);
    pthread_mutex_unlock(&session->base.lock);
    rg_sessions_remove(rg_service_of(call)->sessions, &session->base);
}

static void abort_session(struct rg_server_call *call, struct multipart *session)
{
    end_session(call, session);
    rg_reply_start(call, 204);
    rg_reply_finish_empty(call);
}

static void append_part(struct rg_text *text, const struct part *part)
{
    char etag[PART_ETAG_SIZE + 1];
    format_part_etag(etag, &part->object.info);
    rg_text_printf(text, "<Part><PartNumber>%" PRIu32 "</PartNumber>", part->number);
    rg_text_append_time(text, "LastModified", part->modified_us);
    rg_text_append_element(text, "ETag", rg_text_slice(etag));
    rg_text_printf(text, "<Size>%" PRIu64 "</Size></Part>", part->object.info.size);
}

static void list_parts(struct rg_server_call *call, const struct rg_api_request *request,
                       struct multipart *session)
{
    struct rg_text *text = &rg_call_of(call)->text;
    int64_t page_max, marker;
    if (rg_api_request_int(request, RG_PARAM_MAX_PARTS, PARTS_PAGE_MAX, &page_max) < 0 ||
        rg_api_request_int(request, RG_PARAM_PART_NUMBER_MARKER, 0, &marker) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "max-parts or part-number-marker is no number.");
        return;
    }
    page_max = RG_MIN(page_max, (int64_t)PARTS_PAGE_MAX);
    marker = RG_MIN(marker, (int64_t)RG_XML_MULTIPART_PART_MAX);
    rg_text_append_str(text, XML_HEAD "<ListPartsResult xmlns='" XML_NAMESPACE "'>");
    append_place(text, session);
    rg_text_printf(text,
                   "<StorageClass>STANDARD</StorageClass><PartNumberMarker>%" PRId64
                   "</PartNumberMarker><MaxParts>%" PRId64 "</MaxParts>",
                   marker, page_max);
    pthread_mutex_lock(&session->base.lock);
    size_t at = part_index(session, (uint32_t)marker + 1);
    size_t end = RG_MIN(session->count, at + (size_t)page_max);
    for (; at < end; at++) {
        append_part(text, &session->parts[at]);
        marker = session->parts[at].number;
    }
    bool truncated = end < session->count;
    pthread_mutex_unlock(&session->base.lock);
    rg_text_printf(text,
                   "<NextPartNumberMarker>%" PRId64 "</NextPartNumberMarker>"
                   "<IsTruncated>%s</IsTruncated></ListPartsResult>",
                   marker, truncated ? "true" : "false");
    rg_reply_text(call, 200, XML_TYPE);
}

void rg_xml_multipart_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    if (rg_api_request_has(request, RG_PARAM_XML_UPLOADS)) {
        if (rg_api_request_is(request, "POST")) {
            initiate(call, request);
        } else {
            rg_reply_error(call, RG_API_METHOD, "Uploads of an object know no such method.");
        }
        return;
    }
    struct multipart *session = find_session(call, request);
    if (session == NULL) {
        return;
    }
    if (rg_rules_effect(call) == RG_EFFECT_FORGOTTEN) {
        end_session(call, session);
        reply_ended(call);
    } else if (rg_api_request_is(request, "PUT")) {
        start_part(call, request, session);
    } else if (rg_api_request_is(request, "POST")) {
        rg_body_collect(call, request, COMPLETE_SIZE_MAX, finish_complete);
    } else if (rg_api_request_is(request, "DELETE")) {
        abort_session(call, session);
    } else if (rg_api_request_is(request, "GET")) {
        list_parts(call, request, session);
    } else {
        rg_reply_error(call, RG_API_METHOD, "An upload knows no such method.");
    }
    rg_session_unref(&session->base);
}

/* The uploads that a list is about, each with a reference. */
struct uploads {
    const struct rg_api_request *request;
    struct multipart **sessions;
    size_t count, capacity;
    bool failed;
};

/* By name, and by id where the names are the same. */
static int compare_uploads(const void *a, const void *b)
{
    const struct multipart *left = *(struct multipart *const *)a;
    const struct multipart *right = *(struct multipart *const *)b;
    int order = rg_text_compare(left->upload->name, right->upload->name);
    return order != 0 ? order : strcmp(left->base.id, right->base.id);
}

/* Whether an upload comes behind the markers. The one for ids counts only with the one for
 * names. */
static bool is_behind(const struct multipart *session, const struct rg_api_request *request)
{
    struct rg_h1_slice key = request->params[RG_PARAM_KEY_MARKER];
    struct rg_h1_slice id = request->params[RG_PARAM_UPLOAD_ID_MARKER];
    if (key.data == NULL) {
        return true;
    }
    int order = rg_text_compare(session->upload->name, key);
    return order > 0 || (order == 0 && id.data != NULL &&
                         rg_text_compare(rg_text_slice(session->base.id), id) > 0);
}

static void collect_upload(void *context, struct rg_session *base)
{
    struct uploads *uploads = context;
    struct multipart *session = RG_CONTAINER_OF(base, struct multipart, base);
    const struct rg_api_request *request = uploads->request;
    if (rg_text_compare(session->upload->bucket, request->bucket) != 0 ||
        !rg_text_starts_with(session->upload->name, request->params[RG_PARAM_PREFIX]) ||
        !is_behind(session, request)) {
        return;
    }
    if (uploads->count == uploads->capacity) {
        size_t capacity = RG_MAX(uploads->capacity * 2, (size_t)16);
        struct multipart **grown =
            reallocarray(uploads->sessions, capacity, sizeof(*uploads->sessions));
        if (grown == NULL) {
            uploads->failed = true;
            return;
        }
        uploads->sessions = grown;
        uploads->capacity = capacity;
    }
    atomic_fetch_add(&base->refs, 1);
    uploads->sessions[uploads->count++] = session;
}

static void append_upload(struct rg_text *text, const struct multipart *session)
{
    rg_text_append_str(text, "<Upload>");
    rg_text_append_element(text, "Key", session->upload->name);
    rg_text_append_element(text, "UploadId", rg_text_slice(session->base.id));
    rg_text_append_str(text, "<StorageClass>STANDARD</StorageClass>");
    rg_text_append_time(text, "Initiated", session->started_us);
    rg_text_append_str(text, "</Upload>");
}

/* A name before this one, as the marker behind an empty page: the last letter is missing. */
static struct rg_h1_slice name_before(struct rg_h1_slice name)
{
    do {
        name.size--;
    } while (name.size > 0 && ((uint8_t)name.data[name.size] & 0xc0) == 0x80);
    return name;
}

static void append_uploads(struct rg_text *text, const struct uploads *uploads, size_t page_max,
                           bool empty)
{
    const struct rg_api_request *request = uploads->request;
    size_t count = RG_MIN(uploads->count, page_max);
    struct rg_h1_slice before = {NULL, 0};
    if (empty && count > 0) {
        before = name_before(uploads->sessions[0]->upload->name);
    }
    /* The list has to get on. */
    empty = before.size > 0 && rg_text_compare(before, request->params[RG_PARAM_KEY_MARKER]) > 0;
    bool truncated = (count < uploads->count && count > 0) || empty;
    rg_text_append_str(text, XML_HEAD "<ListMultipartUploadsResult xmlns='" XML_NAMESPACE "'>");
    rg_text_append_element(text, "Bucket", request->bucket);
    rg_text_append_element(text, "KeyMarker", request->params[RG_PARAM_KEY_MARKER]);
    rg_text_append_element(text, "UploadIdMarker", request->params[RG_PARAM_UPLOAD_ID_MARKER]);
    if (empty) {
        count = 0;
        rg_text_append_element(text, "NextKeyMarker", before);
        rg_text_append_element(text, "NextUploadIdMarker", (struct rg_h1_slice){"", 0});
    } else if (truncated) {
        const struct multipart *last = uploads->sessions[count - 1];
        rg_text_append_element(text, "NextKeyMarker", last->upload->name);
        rg_text_append_element(text, "NextUploadIdMarker", rg_text_slice(last->base.id));
    }
    rg_text_append_element(text, "Prefix", request->params[RG_PARAM_PREFIX]);
    rg_text_printf(text, "<MaxUploads>%zu</MaxUploads><IsTruncated>%s</IsTruncated>", page_max,
                   truncated ? "true" : "false");
    for (size_t i = 0; i < count; i++) {
        append_upload(text, uploads->sessions[i]);
    }
    rg_text_append_str(text, "</ListMultipartUploadsResult>");
}

void rg_xml_multipart_list(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct uploads uploads = {.request = request};
    int64_t page_max;
    if (rg_reply_find_bucket(call, request) == NULL) {
        return;
    }
    if (rg_api_request_int(request, RG_PARAM_MAX_UPLOADS, UPLOADS_PAGE_MAX, &page_max) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "max-uploads is not a number.");
        return;
    }
    rg_sessions_visit(rg_service_of(call)->sessions, &multipart_type, collect_upload, &uploads);
    if (uploads.failed) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    } else {
        if (uploads.count > 0) {
            qsort(uploads.sessions, uploads.count, sizeof(*uploads.sessions), compare_uploads);
        }
        append_uploads(&rg_call_of(call)->text, &uploads,
                       (size_t)RG_MIN(page_max, (int64_t)UPLOADS_PAGE_MAX),
                       rg_rules_effect(call) == RG_EFFECT_EMPTY);
        rg_reply_text(call, 200, XML_TYPE);
    }
    for (size_t i = 0; i < uploads.count; i++) {
        rg_session_unref(&uploads.sessions[i]->base);
    }
    free(uploads.sessions);
}

static void count_upload(void *context, struct rg_session *base)
{
    (void)base;
    ++*(uint32_t *)context;
}

uint32_t rg_xml_multipart_count(struct rg_sessions *sessions)
{
    uint32_t count = 0;
    rg_sessions_visit(sessions, &multipart_type, count_upload, &count);
    return count;
}
