/* See fake_gcs_store.h. */
#include "tests/support/fake_gcs_store.h"

#include "gcs/wire/checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_UNIT RG_KIB(256)

void rg_fake_blob_append(struct rg_fake_blob *blob, const void *data, uint64_t size)
{
    if (size > 0) {
        blob->data = realloc(blob->data, blob->size + size);
        memcpy(blob->data + blob->size, data, size);
        blob->size += size;
    }
}

void rg_fake_blob_free(struct rg_fake_blob *blob)
{
    free(blob->data);
    *blob = (struct rg_fake_blob){0};
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

static void decode(const char *text, size_t size, char *out)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '%' && i + 2 < size + 0) {
            *out++ = (char)(hex(text[i + 1]) << 4 | hex(text[i + 2]));
            i += 2;
        } else {
            *out++ = text[i];
        }
    }
    *out = '\0';
}

/* A pair of the query, decoded. False: it is not there. */
static bool query_get(const struct rg_fake_request *request, const char *name, char *out)
{
    size_t name_size = strlen(name);
    for (const char *at = request->query; *at != '\0';) {
        size_t size = strcspn(at, "&");
        bool named = strncmp(at, name, name_size) == 0;
        if (named && size > name_size && at[name_size] == '=') {
            decode(at + name_size + 1, size - name_size - 1, out);
            return true;
        }
        if (named && size == name_size) {
            *out = '\0';
            return true;
        }
        at += size + (at[size] == '&');
    }
    return false;
}

static const char *header(const struct rg_fake_request *request, const char *name, char *out,
                          size_t size)
{
    const struct rg_h1_slice *value = rg_h1_find(&request->head, name);
    snprintf(out, size, "%.*s", value != NULL ? (int)value->size : 0,
             value != NULL ? value->data : "");
    return out;
}

struct rg_fake_object *rg_fake_object_find(struct rg_fake_store *store, const char *name)
{
    for (uint32_t i = 0; i < RG_FAKE_OBJECTS_MAX; i++) {
        if (store->objects[i].generation != 0 && strcmp(store->objects[i].name, name) == 0) {
            return &store->objects[i];
        }
    }
    return NULL;
}

struct rg_fake_object *rg_fake_object_store(struct rg_fake_store *store, const char *name,
                                            struct rg_fake_blob content)
{
    struct rg_fake_object *object = rg_fake_object_find(store, name);
    for (uint32_t i = 0; object == NULL && i < RG_FAKE_OBJECTS_MAX; i++) {
        object = store->objects[i].generation == 0 ? &store->objects[i] : NULL;
    }
    RG_ASSERT(object != NULL);
    rg_fake_blob_free(&object->content);
    snprintf(object->name, sizeof(object->name), "%s", name);
    object->content = content;
    object->generation = ++store->generation;
    return object;
}

void rg_fake_reply(struct rg_fake_answer *answer, unsigned status)
{
    answer->status = status;
}

static void reply_object(struct rg_fake_answer *answer, const struct rg_fake_object *object)
{
    char crc[RG_CRC32C_TEXT_SIZE + 1] = "";
    rg_crc32c_format(rg_crc32c(0, object->content.data, object->content.size), crc);
    rg_fake_reply(answer, 200);
    snprintf(answer->body, sizeof(answer->body),
             "{\"name\":\"x\",\"size\":\"%" PRIu64 "\",\"generation\":\"%" PRId64
             "\",\"crc32c\":\"%s\"}",
             object->content.size, object->generation, crc);
}

/* True: the condition holds. */
static bool condition(struct rg_fake_store *store, const char *name, int64_t if_generation_match)
{
    const struct rg_fake_object *object = rg_fake_object_find(store, name);
    return if_generation_match < 0 ||
           if_generation_match == (object != NULL ? object->generation : 0);
}

static int64_t condition_of(const struct rg_fake_request *request)
{
    char text[8192];
    return query_get(request, "ifGenerationMatch", text) ? atoll(text) : -1;
}

static void corrupt(const struct rg_fake_request *request, struct rg_fake_blob *content)
{
    if (request->action == RG_FAKE_CORRUPT && content->size > 0) {
        content->data[content->size / 2] ^= 1;
    }
}

/* True unless a checksum was declared and is another. */
static bool hash_holds(const char *declared, const struct rg_fake_blob *content)
{
    uint32_t crc;
    if (*declared == '\0') {
        return true;
    }
    return rg_crc32c_parse(declared, strlen(declared), &crc) == 0 &&
           crc == rg_crc32c(0, content->data, content->size);
}

static void do_single(struct rg_fake_store *store, struct rg_fake_request *request,
                      struct rg_fake_answer *answer)
{
    char name[8192], declared[64] = "";
    query_get(request, "name", name);
    if (!condition(store, name, condition_of(request))) {
        rg_fake_reply(answer, 412);
        return;
    }
    const char *body = (const char *)request->body.data;
    size_t size = request->body.size;
    const char *boundary_end = memmem(body, size, "\r\n", 2);
    size_t boundary_size = (size_t)(boundary_end - body);
    const char *json = memmem(body, size, "\r\n\r\n", 4);
    const char *json_end = memmem(json + 4, size - (size_t)(json + 4 - body), "\r\n", 2);
    const char *data = memmem(json_end, size - (size_t)(json_end - body), "\r\n\r\n", 4);
    data += 4;
    /* The end: CRLF, the boundary with its dashes, two dashes, CRLF. */
    size_t data_size = size - (size_t)(data - body) - boundary_size - 6;
    const char *crc = memmem(json, (size_t)(json_end - json), "\"crc32c\":\"", 10);
    if (crc != NULL) {
        snprintf(declared, sizeof(declared), "%.8s", crc + 10);
    }
    struct rg_fake_blob content = {0};
    rg_fake_blob_append(&content, data, data_size);
    if (crc == NULL || !hash_holds(declared, &content) ||
        memcmp(data + data_size + 2, body, boundary_size) != 0) {
        rg_fake_blob_free(&content);
        rg_fake_reply(answer, 400);
        return;
    }
    corrupt(request, &content);
    reply_object(answer, rg_fake_object_store(store, name, content));
}

static struct rg_fake_upload *upload_new(struct rg_fake_store *store, const char *name,
                                         bool is_session)
{
    RG_ASSERT(store->upload_count < RG_FAKE_UPLOADS_MAX);
    struct rg_fake_upload *upload = &store->uploads[store->upload_count++];
    *upload =
        (struct rg_fake_upload){.open = true, .is_session = is_session, .if_generation_match = -1};
    snprintf(upload->name, sizeof(upload->name), "%s", name);
    return upload;
}

void rg_fake_upload_forget(struct rg_fake_upload *upload)
{
    upload->open = false;
    rg_fake_blob_free(&upload->content);
    for (uint32_t i = 0; i < RG_FAKE_PARTS_MAX; i++) {
        rg_fake_blob_free(&upload->parts[i]);
    }
}

static struct rg_fake_upload *upload_of(struct rg_fake_store *store,
                                        const struct rg_fake_request *request)
{
    char text[8192];
    if (!query_get(request, "upload_id", text) && !query_get(request, "uploadId", text)) {
        return NULL;
    }
    unsigned long index = strtoul(text + 2, NULL, 10);
    return index < store->upload_count && store->uploads[index].open ? &store->uploads[index]
                                                                     : NULL;
}

static void do_session(struct rg_fake_store *store, const struct rg_fake_request *request,
                       struct rg_fake_answer *answer)
{
    char name[8192];
    query_get(request, "name", name);
    int64_t match = condition_of(request);
    if (!condition(store, name, match)) {
        rg_fake_reply(answer, 412);
        return;
    }
    struct rg_fake_upload *upload = upload_new(store, name, true);
    upload->if_generation_match = match;
    rg_fake_reply(answer, 200);
    snprintf(answer->fields, sizeof(answer->fields),
             "Location: http://elsewhere.example%s?uploadType=resumable&upload_id=u+%zd\r\n",
             request->path, upload - store->uploads);
}

static void reply_incomplete(struct rg_fake_answer *answer, const struct rg_fake_upload *upload)
{
    rg_fake_reply(answer, 308);
    if (upload->content.size > 0) {
        snprintf(answer->fields, sizeof(answer->fields), "Range: bytes=0-%" PRIu64 "\r\n",
                 upload->content.size - 1);
    }
}

static void session_finish(struct rg_fake_store *store, struct rg_fake_request *request,
                           struct rg_fake_upload *upload, struct rg_fake_answer *answer)
{
    char hash[128];
    header(request, "x-goog-hash", hash, sizeof(hash));
    const char *declared = strstr(hash, "crc32c=");
    if (!hash_holds(declared != NULL ? declared + 7 : "", &upload->content)) {
        rg_fake_reply(answer, 400);
        return;
    }
    if (!condition(store, upload->name, upload->if_generation_match)) {
        rg_fake_reply(answer, 412);
        return;
    }
    corrupt(request, &upload->content);
    struct rg_fake_object *object = rg_fake_object_store(store, upload->name, upload->content);
    upload->content = (struct rg_fake_blob){0};
    upload->if_generation_match = -object->generation - 2;
    reply_object(answer, object);
}

static void do_chunk(struct rg_fake_store *store, struct rg_fake_request *request,
                     struct rg_fake_answer *answer)
{
    struct rg_fake_upload *upload = upload_of(store, request);
    uint64_t first = 0, last = 0, total = UINT64_MAX, size = request->body.size;
    char range[128], total_text[64] = "";
    if (upload == NULL || request->action == RG_FAKE_GONE) {
        if (upload != NULL) {
            rg_fake_upload_forget(upload);
        }
        rg_fake_reply(answer, 404);
        return;
    }
    if (upload->if_generation_match < -1) {
        /* Complete already. */
        reply_object(answer, rg_fake_object_find(store, upload->name));
        return;
    }
    header(request, "content-range", range, sizeof(range));
    bool has_bytes =
        sscanf(range, "bytes %" SCNu64 "-%" SCNu64 "/%63s", &first, &last, total_text) == 3;
    if (!has_bytes) {
        sscanf(range, "bytes */%63s", total_text);
    }
    if (strcmp(total_text, "*") != 0) {
        total = strtoull(total_text, NULL, 10);
    }
    uint64_t persisted = upload->content.size;
    bool final = total == first + size && (has_bytes || total == persisted);
    if (has_bytes &&
        (first > persisted || last + 1 - first != size || (!final && size % CHUNK_UNIT != 0))) {
        rg_fake_reply(answer, 400);
        return;
    }
    uint64_t take = size;
    if (request->action == RG_FAKE_HALF || request->action == RG_FAKE_HALF_503) {
        take = size / 2 / CHUNK_UNIT * CHUNK_UNIT;
        final = false;
    } else if (request->action == RG_FAKE_NONE) {
        take = 0;
        final = false;
    }
    if (has_bytes && first + take > persisted) {
        rg_fake_blob_append(&upload->content, request->body.data + (persisted - first),
                            first + take - persisted);
    }
    if (final || (!has_bytes && total == persisted)) {
        session_finish(store, request, upload, answer);
        if (request->action == RG_FAKE_DONE_GONE) {
            rg_fake_upload_forget(upload);
            rg_fake_reply(answer, 410);
        }
        return;
    }
    reply_incomplete(answer, upload);
    if (request->action == RG_FAKE_HALF_503) {
        rg_fake_reply(answer, 503);
        answer->fields[0] = '\0';
    }
}

static void do_cancel(struct rg_fake_store *store, const struct rg_fake_request *request,
                      struct rg_fake_answer *answer, unsigned status)
{
    struct rg_fake_upload *upload = upload_of(store, request);
    if (upload == NULL) {
        rg_fake_reply(answer, 404);
        return;
    }
    rg_fake_upload_forget(upload);
    rg_fake_reply(answer, status);
}

static void do_begin(struct rg_fake_store *store, const struct rg_fake_request *request,
                     struct rg_fake_answer *answer)
{
    char name[RG_FAKE_NAME_SIZE_MAX * 3];
    const char *object = strchr(request->path + 1, '/') + 1;
    decode(object, strlen(object), name);
    const struct rg_fake_upload *upload = upload_new(store, name, false);
    rg_fake_reply(answer, 200);
    snprintf(answer->body, sizeof(answer->body),
             "<?xml version='1.0' encoding='UTF-8'?><InitiateMultipartUploadResult "
             "xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Bucket>bucket</Bucket>"
             "<UploadId>u+%zd</UploadId></InitiateMultipartUploadResult>",
             upload - store->uploads);
}

static void do_part(struct rg_fake_store *store, struct rg_fake_request *request,
                    struct rg_fake_answer *answer)
{
    struct rg_fake_upload *upload = upload_of(store, request);
    char number_text[8192], hash[128];
    if (upload == NULL) {
        rg_fake_reply(answer, 404);
        return;
    }
    query_get(request, "partNumber", number_text);
    unsigned long number = strtoul(number_text, NULL, 10);
    RG_ASSERT(number >= 1 && number <= RG_FAKE_PARTS_MAX);
    header(request, "x-goog-hash", hash, sizeof(hash));
    if (strncmp(hash, "crc32c=", 7) != 0 || !hash_holds(hash + 7, &request->body)) {
        rg_fake_reply(answer, 400);
        return;
    }
    struct rg_fake_blob *part = &upload->parts[number - 1];
    rg_fake_blob_free(part);
    *part = request->body;
    request->body = (struct rg_fake_blob){0};
    corrupt(request, part);
    char crc[RG_CRC32C_TEXT_SIZE + 1] = "";
    rg_crc32c_format(rg_crc32c(0, part->data, part->size), crc);
    rg_fake_reply(answer, 200);
    snprintf(answer->fields, sizeof(answer->fields),
             "ETag: \"<%lu>&\"\r\nx-goog-hash: crc32c=%s\r\n", number, crc);
}

static void do_complete(struct rg_fake_store *store, struct rg_fake_request *request,
                        struct rg_fake_answer *answer)
{
    struct rg_fake_upload *upload = upload_of(store, request);
    struct rg_fake_blob content = {0};
    if (upload == NULL) {
        rg_fake_reply(answer, 404);
        return;
    }
    if (request->action == RG_FAKE_ERROR_IN_200) {
        rg_fake_reply(answer, 200);
        snprintf(answer->body, sizeof(answer->body),
                 "<Error><Code>InternalError</Code><Message>try again</Message></Error>");
        return;
    }
    rg_fake_blob_append(&request->body, "", 1);
    const char *at = (const char *)request->body.data;
    for (uint32_t i = 0; i < RG_FAKE_PARTS_MAX; i++) {
        char want[128];
        snprintf(want, sizeof(want),
                 "<Part><PartNumber>%u</PartNumber><ETag>\"&lt;%u&gt;&amp;\"</ETag></Part>", i + 1,
                 i + 1);
        at = strstr(at, want);
        if (at == NULL) {
            break;
        }
        rg_fake_blob_append(&content, upload->parts[i].data, upload->parts[i].size);
    }
    rg_fake_object_store(store, upload->name, content);
    rg_fake_upload_forget(upload);
    rg_fake_reply(answer, 200);
    snprintf(answer->body, sizeof(answer->body),
             "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>");
}

/* The part of the path behind "/o/", without what an operation adds. */
static void name_of(const struct rg_fake_request *request, char *out)
{
    const char *object = strstr(request->path, "/o/");
    size_t size = strlen(object + 3);
    const char *compose = strstr(object, "/compose");
    decode(object + 3, compose != NULL ? (size_t)(compose - object - 3) : size, out);
}

static void do_compose(struct rg_fake_store *store, struct rg_fake_request *request,
                       struct rg_fake_answer *answer)
{
    char name[RG_FAKE_NAME_SIZE_MAX * 3];
    struct rg_fake_blob content = {0};
    name_of(request, name);
    if (!condition(store, name, condition_of(request))) {
        rg_fake_reply(answer, 412);
        return;
    }
    rg_fake_blob_append(&request->body, "", 1);
    const char *at = (const char *)request->body.data;
    uint32_t count = 0;
    while ((at = strstr(at, "{\"name\":\"")) != NULL) {
        char source_name[RG_FAKE_NAME_SIZE_MAX];
        at += 9;
        snprintf(source_name, sizeof(source_name), "%.*s", (int)strcspn(at, "\""), at);
        const struct rg_fake_object *source = rg_fake_object_find(store, source_name);
        if (source == NULL || ++count > 32) {
            rg_fake_blob_free(&content);
            rg_fake_reply(answer, source == NULL ? 404 : 400);
            return;
        }
        rg_fake_blob_append(&content, source->content.data, source->content.size);
    }
    corrupt(request, &content);
    reply_object(answer, rg_fake_object_store(store, name, content));
}

static void do_object(struct rg_fake_store *store, const struct rg_fake_request *request,
                      struct rg_fake_answer *answer)
{
    char name[RG_FAKE_NAME_SIZE_MAX * 3];
    name_of(request, name);
    struct rg_fake_object *object = rg_fake_object_find(store, name);
    if (object == NULL) {
        rg_fake_reply(answer, 404);
    } else if (request->kind == RG_FAKE_STAT) {
        reply_object(answer, object);
    } else {
        object->generation = 0;
        rg_fake_blob_free(&object->content);
        rg_fake_reply(answer, 204);
    }
}

void rg_fake_perform(struct rg_fake_store *store, struct rg_fake_request *request,
                     struct rg_fake_answer *answer)
{
    switch (request->kind) {
    case RG_FAKE_SINGLE:
        do_single(store, request, answer);
        break;
    case RG_FAKE_SESSION:
        do_session(store, request, answer);
        break;
    case RG_FAKE_CHUNK:
    case RG_FAKE_ASK:
        do_chunk(store, request, answer);
        break;
    case RG_FAKE_SESSION_CANCEL:
        do_cancel(store, request, answer, 499);
        break;
    case RG_FAKE_BEGIN:
        do_begin(store, request, answer);
        break;
    case RG_FAKE_PART:
        do_part(store, request, answer);
        break;
    case RG_FAKE_COMPLETE:
        do_complete(store, request, answer);
        break;
    case RG_FAKE_ABORT:
        do_cancel(store, request, answer, 204);
        break;
    case RG_FAKE_COMPOSE:
        do_compose(store, request, answer);
        break;
    case RG_FAKE_DELETE:
    case RG_FAKE_STAT:
        do_object(store, request, answer);
        break;
    default:
        rg_fake_reply(answer, 400);
        break;
    }
}

enum rg_fake_kind rg_fake_kind_of(const struct rg_fake_request *request)
{
    char text[8192];
    const char *method = request->method;
    bool post = strcmp(method, "POST") == 0, put = strcmp(method, "PUT") == 0;
    bool delete = strcmp(method, "DELETE") == 0;
    if (query_get(request, "upload_id", text)) {
        header(request, "content-range", text, sizeof(text));
        return delete                           ? RG_FAKE_SESSION_CANCEL
               : strcmp(text, "bytes */*") == 0 ? RG_FAKE_ASK
                                                : RG_FAKE_CHUNK;
    }
    if (query_get(request, "uploadType", text)) {
        return strcmp(text, "resumable") == 0 ? RG_FAKE_SESSION : RG_FAKE_SINGLE;
    }
    if (query_get(request, "uploads", text)) {
        return RG_FAKE_BEGIN;
    }
    if (query_get(request, "uploadId", text)) {
        return put ? RG_FAKE_PART : post ? RG_FAKE_COMPLETE : RG_FAKE_ABORT;
    }
    if (post && strstr(request->path, "/compose") != NULL) {
        return RG_FAKE_COMPOSE;
    }
    return delete ? RG_FAKE_DELETE : strcmp(method, "GET") == 0 ? RG_FAKE_STAT : RG_FAKE_OTHER;
}
