/* See fake_gcs.h. */
#include "tests/support/fake_gcs.h"

#include "gcs/wire/checksum.h"
#include "http/h1_decoder.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define OBJECTS_MAX 512
#define UPLOADS_MAX 64
#define PARTS_MAX 128
#define HEAD_SIZE_MAX RG_KIB(32)
#define NAME_SIZE_MAX 1100
#define CHUNK_UNIT RG_KIB(256)

struct blob {
    uint8_t *data;
    uint64_t size;
};

struct object {
    char name[NAME_SIZE_MAX];
    struct blob content;
    int64_t generation; /* 0: there is none */
};

struct upload {
    bool open, is_session;
    char name[NAME_SIZE_MAX];
    int64_t if_generation_match; /* -1: none */
    struct blob content;         /* of a session: what is persisted */
    struct blob parts[PARTS_MAX];
};

struct connection {
    struct rg_fake_gcs *fake;
    pthread_t thread;
    int fd;
};

struct rg_fake_gcs {
    const struct rg_fake_fault *faults;
    int listener;
    char endpoint[64];
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    struct connection connections[CONNECTIONS_MAX];
    uint32_t connection_count;
    bool stopping;
    uint32_t counts[RG_FAKE_KIND_COUNT];
    char heads[RG_FAKE_KIND_COUNT][HEAD_SIZE_MAX];
    struct object objects[OBJECTS_MAX];
    struct upload uploads[UPLOADS_MAX];
    uint32_t upload_count;
    int64_t generation;
    uint32_t parallel, parallel_max;
};

struct request {
    struct rg_h1_head head;
    char text[HEAD_SIZE_MAX];
    char method[16], path[NAME_SIZE_MAX * 3], query[8192];
    struct blob body;
    enum rg_fake_kind kind;
    enum rg_fake_action action;
};

struct answer {
    unsigned status;
    char fields[4096];
    char body[8192];
};

static void blob_append(struct blob *blob, const void *data, uint64_t size)
{
    if (size > 0) {
        blob->data = realloc(blob->data, blob->size + size);
        memcpy(blob->data + blob->size, data, size);
        blob->size += size;
    }
}

static void blob_free(struct blob *blob)
{
    free(blob->data);
    *blob = (struct blob){0};
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
static bool query_get(const struct request *request, const char *name, char *out)
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

static const char *header(const struct request *request, const char *name, char *out, size_t size)
{
    const struct rg_h1_slice *value = rg_h1_find(&request->head, name);
    snprintf(out, size, "%.*s", value != NULL ? (int)value->size : 0,
             value != NULL ? value->data : "");
    return out;
}

static struct object *object_find(struct rg_fake_gcs *fake, const char *name)
{
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        if (fake->objects[i].generation != 0 && strcmp(fake->objects[i].name, name) == 0) {
            return &fake->objects[i];
        }
    }
    return NULL;
}

/* Takes the content. */
static struct object *object_store(struct rg_fake_gcs *fake, const char *name, struct blob content)
{
    struct object *object = object_find(fake, name);
    for (uint32_t i = 0; object == NULL && i < OBJECTS_MAX; i++) {
        object = fake->objects[i].generation == 0 ? &fake->objects[i] : NULL;
    }
    RG_ASSERT(object != NULL);
    blob_free(&object->content);
    snprintf(object->name, sizeof(object->name), "%s", name);
    object->content = content;
    object->generation = ++fake->generation;
    return object;
}

static void reply(struct answer *answer, unsigned status)
{
    answer->status = status;
}

static void reply_object(struct answer *answer, const struct object *object)
{
    char crc[RG_CRC32C_TEXT_SIZE + 1] = "";
    rg_crc32c_format(rg_crc32c(0, object->content.data, object->content.size), crc);
    reply(answer, 200);
    snprintf(answer->body, sizeof(answer->body),
             "{\"name\":\"x\",\"size\":\"%" PRIu64 "\",\"generation\":\"%" PRId64
             "\",\"crc32c\":\"%s\"}",
             object->content.size, object->generation, crc);
}

/* True: the condition holds. */
static bool condition(struct rg_fake_gcs *fake, const char *name, int64_t if_generation_match)
{
    const struct object *object = object_find(fake, name);
    return if_generation_match < 0 ||
           if_generation_match == (object != NULL ? object->generation : 0);
}

static int64_t condition_of(const struct request *request)
{
    char text[8192];
    return query_get(request, "ifGenerationMatch", text) ? atoll(text) : -1;
}

static void corrupt(const struct request *request, struct blob *content)
{
    if (request->action == RG_FAKE_CORRUPT && content->size > 0) {
        content->data[content->size / 2] ^= 1;
    }
}

/* True unless a checksum was declared and is another. */
static bool hash_holds(const char *declared, const struct blob *content)
{
    uint32_t crc;
    if (*declared == '\0') {
        return true;
    }
    return rg_crc32c_parse(declared, strlen(declared), &crc) == 0 &&
           crc == rg_crc32c(0, content->data, content->size);
}

static void do_single(struct rg_fake_gcs *fake, struct request *request, struct answer *answer)
{
    char name[8192], declared[64] = "";
    query_get(request, "name", name);
    if (!condition(fake, name, condition_of(request))) {
        reply(answer, 412);
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
    struct blob content = {0};
    blob_append(&content, data, data_size);
    if (crc == NULL || !hash_holds(declared, &content) ||
        memcmp(data + data_size + 2, body, boundary_size) != 0) {
        blob_free(&content);
        reply(answer, 400);
        return;
    }
    corrupt(request, &content);
    reply_object(answer, object_store(fake, name, content));
}

static struct upload *upload_new(struct rg_fake_gcs *fake, const char *name, bool is_session)
{
    RG_ASSERT(fake->upload_count < UPLOADS_MAX);
    struct upload *upload = &fake->uploads[fake->upload_count++];
    *upload = (struct upload){.open = true, .is_session = is_session, .if_generation_match = -1};
    snprintf(upload->name, sizeof(upload->name), "%s", name);
    return upload;
}

static void upload_forget(struct upload *upload)
{
    upload->open = false;
    blob_free(&upload->content);
    for (uint32_t i = 0; i < PARTS_MAX; i++) {
        blob_free(&upload->parts[i]);
    }
}

static struct upload *upload_of(struct rg_fake_gcs *fake, const struct request *request)
{
    char text[8192];
    if (!query_get(request, "upload_id", text) && !query_get(request, "uploadId", text)) {
        return NULL;
    }
    unsigned long index = strtoul(text + 2, NULL, 10);
    return index < fake->upload_count && fake->uploads[index].open ? &fake->uploads[index] : NULL;
}

static void do_session(struct rg_fake_gcs *fake, const struct request *request,
                       struct answer *answer)
{
    char name[8192];
    query_get(request, "name", name);
    int64_t match = condition_of(request);
    if (!condition(fake, name, match)) {
        reply(answer, 412);
        return;
    }
    struct upload *upload = upload_new(fake, name, true);
    upload->if_generation_match = match;
    reply(answer, 200);
    snprintf(answer->fields, sizeof(answer->fields),
             "Location: http://elsewhere.example%s?uploadType=resumable&upload_id=u+%zd\r\n",
             request->path, upload - fake->uploads);
}

static void reply_incomplete(struct answer *answer, const struct upload *upload)
{
    reply(answer, 308);
    if (upload->content.size > 0) {
        snprintf(answer->fields, sizeof(answer->fields), "Range: bytes=0-%" PRIu64 "\r\n",
                 upload->content.size - 1);
    }
}

static void session_finish(struct rg_fake_gcs *fake, struct request *request, struct upload *upload,
                           struct answer *answer)
{
    char hash[128];
    header(request, "x-goog-hash", hash, sizeof(hash));
    const char *declared = strstr(hash, "crc32c=");
    if (!hash_holds(declared != NULL ? declared + 7 : "", &upload->content)) {
        reply(answer, 400);
        return;
    }
    if (!condition(fake, upload->name, upload->if_generation_match)) {
        reply(answer, 412);
        return;
    }
    corrupt(request, &upload->content);
    struct object *object = object_store(fake, upload->name, upload->content);
    upload->content = (struct blob){0};
    upload->if_generation_match = -object->generation - 2;
    reply_object(answer, object);
}

static void do_chunk(struct rg_fake_gcs *fake, struct request *request, struct answer *answer)
{
    struct upload *upload = upload_of(fake, request);
    uint64_t first = 0, last = 0, total = UINT64_MAX, size = request->body.size;
    char range[128], total_text[64] = "";
    if (upload == NULL || request->action == RG_FAKE_GONE) {
        if (upload != NULL) {
            upload_forget(upload);
        }
        reply(answer, 404);
        return;
    }
    if (upload->if_generation_match < -1) {
        /* Complete already. */
        reply_object(answer, object_find(fake, upload->name));
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
        reply(answer, 400);
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
        blob_append(&upload->content, request->body.data + (persisted - first),
                    first + take - persisted);
    }
    if (final || (!has_bytes && total == persisted)) {
        session_finish(fake, request, upload, answer);
        if (request->action == RG_FAKE_DONE_GONE) {
            upload_forget(upload);
            reply(answer, 410);
        }
        return;
    }
    reply_incomplete(answer, upload);
    if (request->action == RG_FAKE_HALF_503) {
        reply(answer, 503);
        answer->fields[0] = '\0';
    }
}

static void do_cancel(struct rg_fake_gcs *fake, const struct request *request,
                      struct answer *answer, unsigned status)
{
    struct upload *upload = upload_of(fake, request);
    if (upload == NULL) {
        reply(answer, 404);
        return;
    }
    upload_forget(upload);
    reply(answer, status);
}

static void do_begin(struct rg_fake_gcs *fake, const struct request *request, struct answer *answer)
{
    char name[NAME_SIZE_MAX * 3];
    const char *object = strchr(request->path + 1, '/') + 1;
    decode(object, strlen(object), name);
    const struct upload *upload = upload_new(fake, name, false);
    reply(answer, 200);
    snprintf(answer->body, sizeof(answer->body),
             "<?xml version='1.0' encoding='UTF-8'?><InitiateMultipartUploadResult "
             "xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Bucket>bucket</Bucket>"
             "<UploadId>u+%zd</UploadId></InitiateMultipartUploadResult>",
             upload - fake->uploads);
}

static void do_part(struct rg_fake_gcs *fake, struct request *request, struct answer *answer)
{
    struct upload *upload = upload_of(fake, request);
    char number_text[8192], hash[128];
    if (upload == NULL) {
        reply(answer, 404);
        return;
    }
    query_get(request, "partNumber", number_text);
    unsigned long number = strtoul(number_text, NULL, 10);
    RG_ASSERT(number >= 1 && number <= PARTS_MAX);
    header(request, "x-goog-hash", hash, sizeof(hash));
    if (strncmp(hash, "crc32c=", 7) != 0 || !hash_holds(hash + 7, &request->body)) {
        reply(answer, 400);
        return;
    }
    struct blob *part = &upload->parts[number - 1];
    blob_free(part);
    *part = request->body;
    request->body = (struct blob){0};
    corrupt(request, part);
    char crc[RG_CRC32C_TEXT_SIZE + 1] = "";
    rg_crc32c_format(rg_crc32c(0, part->data, part->size), crc);
    reply(answer, 200);
    snprintf(answer->fields, sizeof(answer->fields),
             "ETag: \"<%lu>&\"\r\nx-goog-hash: crc32c=%s\r\n", number, crc);
}

static void do_complete(struct rg_fake_gcs *fake, struct request *request, struct answer *answer)
{
    struct upload *upload = upload_of(fake, request);
    struct blob content = {0};
    if (upload == NULL) {
        reply(answer, 404);
        return;
    }
    if (request->action == RG_FAKE_ERROR_IN_200) {
        reply(answer, 200);
        snprintf(answer->body, sizeof(answer->body),
                 "<Error><Code>InternalError</Code><Message>try again</Message></Error>");
        return;
    }
    blob_append(&request->body, "", 1);
    const char *at = (const char *)request->body.data;
    for (uint32_t i = 0; i < PARTS_MAX; i++) {
        char want[128];
        snprintf(want, sizeof(want),
                 "<Part><PartNumber>%u</PartNumber><ETag>\"&lt;%u&gt;&amp;\"</ETag></Part>", i + 1,
                 i + 1);
        at = strstr(at, want);
        if (at == NULL) {
            break;
        }
        blob_append(&content, upload->parts[i].data, upload->parts[i].size);
    }
    object_store(fake, upload->name, content);
    upload_forget(upload);
    reply(answer, 200);
    snprintf(answer->body, sizeof(answer->body),
             "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>");
}

/* The part of the path behind "/o/", without what an operation adds. */
static void name_of(const struct request *request, char *out)
{
    const char *object = strstr(request->path, "/o/");
    size_t size = strlen(object + 3);
    const char *compose = strstr(object, "/compose");
    decode(object + 3, compose != NULL ? (size_t)(compose - object - 3) : size, out);
}

static void do_compose(struct rg_fake_gcs *fake, struct request *request, struct answer *answer)
{
    char name[NAME_SIZE_MAX * 3];
    struct blob content = {0};
    name_of(request, name);
    if (!condition(fake, name, condition_of(request))) {
        reply(answer, 412);
        return;
    }
    blob_append(&request->body, "", 1);
    const char *at = (const char *)request->body.data;
    uint32_t count = 0;
    while ((at = strstr(at, "{\"name\":\"")) != NULL) {
        char source_name[NAME_SIZE_MAX];
        at += 9;
        snprintf(source_name, sizeof(source_name), "%.*s", (int)strcspn(at, "\""), at);
        const struct object *source = object_find(fake, source_name);
        if (source == NULL || ++count > 32) {
            blob_free(&content);
            reply(answer, source == NULL ? 404 : 400);
            return;
        }
        blob_append(&content, source->content.data, source->content.size);
    }
    corrupt(request, &content);
    reply_object(answer, object_store(fake, name, content));
}

static void do_object(struct rg_fake_gcs *fake, const struct request *request,
                      struct answer *answer)
{
    char name[NAME_SIZE_MAX * 3];
    name_of(request, name);
    struct object *object = object_find(fake, name);
    if (object == NULL) {
        reply(answer, 404);
    } else if (request->kind == RG_FAKE_STAT) {
        reply_object(answer, object);
    } else {
        object->generation = 0;
        blob_free(&object->content);
        reply(answer, 204);
    }
}

static void perform(struct rg_fake_gcs *fake, struct request *request, struct answer *answer)
{
    switch (request->kind) {
    case RG_FAKE_SINGLE:
        do_single(fake, request, answer);
        break;
    case RG_FAKE_SESSION:
        do_session(fake, request, answer);
        break;
    case RG_FAKE_CHUNK:
    case RG_FAKE_ASK:
        do_chunk(fake, request, answer);
        break;
    case RG_FAKE_SESSION_CANCEL:
        do_cancel(fake, request, answer, 499);
        break;
    case RG_FAKE_BEGIN:
        do_begin(fake, request, answer);
        break;
    case RG_FAKE_PART:
        do_part(fake, request, answer);
        break;
    case RG_FAKE_COMPLETE:
        do_complete(fake, request, answer);
        break;
    case RG_FAKE_ABORT:
        do_cancel(fake, request, answer, 204);
        break;
    case RG_FAKE_COMPOSE:
        do_compose(fake, request, answer);
        break;
    case RG_FAKE_DELETE:
    case RG_FAKE_STAT:
        do_object(fake, request, answer);
        break;
    default:
        reply(answer, 400);
        break;
    }
}

static enum rg_fake_kind kind_of(const struct request *request)
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

/* Reads a head, and what came of the body behind it. */
static bool head_read(const struct connection *connection, struct request *request,
                      struct blob *input)
{
    size_t scanned = 0;
    for (;;) {
        int rc = input->size == 0
                     ? -EAGAIN
                     : rg_h1_parse_request(&request->head, input->data, input->size, scanned);
        if (rc > 0) {
            size_t size = RG_MIN((size_t)rc, sizeof(request->text) - 1);
            memcpy(request->text, input->data, size);
            request->text[size] = '\0';
            /* Slices into what will stay. */
            (void)rg_h1_parse_request(&request->head, request->text, size, 0);
            blob_append(&request->body, input->data + rc, input->size - (size_t)rc);
            input->size = 0;
            return true;
        }
        if (rc != -EAGAIN) {
            return false;
        }
        char piece[16384];
        ssize_t got = recv(connection->fd, piece, sizeof(piece), 0);
        if (got <= 0) {
            return false;
        }
        blob_append(input, piece, (uint64_t)got);
    }
}

static bool body_read(const struct connection *connection, struct request *request)
{
    uint64_t total = request->head.content_length, have = request->body.size;
    request->body.data = realloc(request->body.data, total + 1);
    while (have < total) {
        ssize_t got = recv(connection->fd, request->body.data + have, total - have, 0);
        if (got <= 0) {
            return false;
        }
        have += (uint64_t)got;
    }
    request->body.size = have;
    return true;
}

static void split_target(struct request *request)
{
    const struct rg_h1_slice *target = &request->head.target;
    const char *query = memchr(target->data, '?', target->size);
    size_t path_size = query != NULL ? (size_t)(query - target->data) : target->size;
    snprintf(request->method, sizeof(request->method), "%.*s", (int)request->head.method.size,
             request->head.method.data);
    snprintf(request->path, sizeof(request->path), "%.*s", (int)path_size, target->data);
    snprintf(request->query, sizeof(request->query), "%.*s",
             query != NULL ? (int)(target->size - path_size - 1) : 0,
             query != NULL ? query + 1 : "");
}

static enum rg_fake_action action_of(struct rg_fake_gcs *fake, const struct request *request)
{
    uint32_t nth = ++fake->counts[request->kind];
    for (const struct rg_fake_fault *fault = fake->faults;
         fault != NULL && fault->kind != RG_FAKE_KIND_COUNT; fault++) {
        if (fault->kind == request->kind && (fault->nth == 0 || fault->nth == nth)) {
            return fault->action;
        }
    }
    return RG_FAKE_GOOD;
}

static void reset(const struct connection *connection)
{
    struct linger linger = {.l_onoff = 1};
    setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

static bool answer_send(const struct connection *connection, const struct answer *answer)
{
    char text[sizeof(*answer) + 256];
    bool bodiless = answer->status == 204;
    int size =
        snprintf(text, sizeof(text), "HTTP/1.1 %u Status\r\n%s", answer->status, answer->fields);
    if (!bodiless) {
        size += snprintf(text + size, sizeof(text) - (size_t)size, "Content-Length: %zu\r\n",
                         strlen(answer->body));
    }
    size +=
        snprintf(text + size, sizeof(text) - (size_t)size, "\r\n%s", bodiless ? "" : answer->body);
    return send(connection->fd, text, (size_t)size, MSG_NOSIGNAL) == size;
}

/* Waits for the other end. */
static void hang(const struct connection *connection)
{
    char byte;
    while (recv(connection->fd, &byte, 1, 0) > 0) {
    }
}

static void refuse(struct answer *answer, enum rg_fake_action action)
{
    static const unsigned statuses[] = {
        [RG_FAKE_503] = 503, [RG_FAKE_403] = 403, [RG_FAKE_400] = 400,     [RG_FAKE_404] = 404,
        [RG_FAKE_405] = 405, [RG_FAKE_501] = 501, [RG_FAKE_404_XML] = 404,
    };
    reply(answer, statuses[action]);
    if (action == RG_FAKE_404_XML) {
        snprintf(answer->body, sizeof(answer->body),
                 "<?xml version='1.0'?><Error><Code>NoSuchBucket</Code>"
                 "<Message>The specified bucket does not exist.</Message></Error>");
    }
}

/* False: the connection ends. */
static bool act(struct connection *connection, struct request *request)
{
    struct rg_fake_gcs *fake = connection->fake;
    struct answer answer = {0};
    bool read = request->action != RG_FAKE_RESET_HEAD && body_read(connection, request);
    bool refused = request->action >= RG_FAKE_503 && request->action <= RG_FAKE_404_XML;
    pthread_mutex_lock(&fake->lock);
    fake->parallel -= request->kind == RG_FAKE_PART;
    if (read && request->action != RG_FAKE_RESET && request->action != RG_FAKE_HANG && !refused) {
        perform(fake, request, &answer);
    }
    pthread_mutex_unlock(&fake->lock);
    if (refused) {
        refuse(&answer, request->action);
    }
    if (!read || request->action == RG_FAKE_RESET || request->action == RG_FAKE_LOST) {
        reset(connection);
        return false;
    }
    if (request->action == RG_FAKE_HANG || request->action == RG_FAKE_DONE_HANG) {
        hang(connection);
        return false;
    }
    return answer_send(connection, &answer);
}

static void *connection_thread(void *context)
{
    struct connection *connection = context;
    struct rg_fake_gcs *fake = connection->fake;
    struct request *request = calloc(1, sizeof(*request));
    struct blob input = {0};
    bool going = true;
    while (going && head_read(connection, request, &input)) {
        split_target(request);
        pthread_mutex_lock(&fake->lock);
        request->kind = kind_of(request);
        request->action = action_of(fake, request);
        strcpy(fake->heads[request->kind], request->text);
        fake->parallel += request->kind == RG_FAKE_PART;
        fake->parallel_max = RG_MAX(fake->parallel_max, fake->parallel);
        pthread_mutex_unlock(&fake->lock);
        going = act(connection, request);
        blob_free(&request->body);
    }
    blob_free(&request->body);
    blob_free(&input);
    free(request);
    pthread_mutex_lock(&fake->lock);
    close(connection->fd);
    connection->fd = -1;
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}

static void *accept_thread(void *context)
{
    struct rg_fake_gcs *fake = context;
    int fd;
    while ((fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        pthread_mutex_lock(&fake->lock);
        RG_ASSERT(fake->connection_count < CONNECTIONS_MAX);
        struct connection *connection = &fake->connections[fake->connection_count];
        *connection = (struct connection){.fake = fake, .fd = fd};
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        fake->connection_count++;
        RG_ASSERT(pthread_create(&connection->thread, NULL, connection_thread, connection) == 0);
        pthread_mutex_unlock(&fake->lock);
    }
    return NULL;
}

struct rg_fake_gcs *rg_fake_gcs_start(const struct rg_fake_fault *faults)
{
    struct rg_fake_gcs *fake = calloc(1, sizeof(*fake));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    fake->faults = faults;
    fake->generation = 1000;
    pthread_mutex_init(&fake->lock, NULL);
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_ASSERT(bind(fake->listener, (struct sockaddr *)&address, size) == 0);
    RG_ASSERT(listen(fake->listener, 128) == 0);
    RG_ASSERT(getsockname(fake->listener, (struct sockaddr *)&address, &size) == 0);
    snprintf(fake->endpoint, sizeof(fake->endpoint), "http://127.0.0.1:%u",
             ntohs(address.sin_port));
    RG_ASSERT(pthread_create(&fake->thread, NULL, accept_thread, fake) == 0);
    return fake;
}

void rg_fake_gcs_stop(struct rg_fake_gcs *fake)
{
    shutdown(fake->listener, SHUT_RDWR);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    pthread_mutex_lock(&fake->lock);
    for (uint32_t i = 0; i < fake->connection_count; i++) {
        if (fake->connections[i].fd >= 0) {
            shutdown(fake->connections[i].fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&fake->lock);
    for (uint32_t i = 0; i < fake->connection_count; i++) {
        pthread_join(fake->connections[i].thread, NULL);
    }
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        blob_free(&fake->objects[i].content);
    }
    for (uint32_t i = 0; i < fake->upload_count; i++) {
        upload_forget(&fake->uploads[i]);
    }
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

const char *rg_fake_gcs_endpoint(const struct rg_fake_gcs *fake)
{
    return fake->endpoint;
}

uint32_t rg_fake_gcs_count(struct rg_fake_gcs *fake, enum rg_fake_kind kind)
{
    pthread_mutex_lock(&fake->lock);
    uint32_t count = fake->counts[kind];
    pthread_mutex_unlock(&fake->lock);
    return count;
}

uint32_t rg_fake_gcs_objects(struct rg_fake_gcs *fake)
{
    uint32_t count = 0;
    pthread_mutex_lock(&fake->lock);
    for (uint32_t i = 0; i < OBJECTS_MAX; i++) {
        count += fake->objects[i].generation != 0;
    }
    pthread_mutex_unlock(&fake->lock);
    return count;
}

/* A session that has made its object stays open only to say so. */
uint32_t rg_fake_gcs_uploads(struct rg_fake_gcs *fake)
{
    uint32_t count = 0;
    pthread_mutex_lock(&fake->lock);
    for (uint32_t i = 0; i < fake->upload_count; i++) {
        count += fake->uploads[i].open && fake->uploads[i].if_generation_match >= -1;
    }
    pthread_mutex_unlock(&fake->lock);
    return count;
}

const uint8_t *rg_fake_gcs_content(struct rg_fake_gcs *fake, const char *name, uint64_t *out_size)
{
    pthread_mutex_lock(&fake->lock);
    const struct object *object = object_find(fake, name);
    const uint8_t *data = NULL;
    if (object != NULL) {
        *out_size = object->content.size;
        data = object->content.data != NULL ? object->content.data : (const uint8_t *)"";
    }
    pthread_mutex_unlock(&fake->lock);
    return data;
}

void rg_fake_gcs_put(struct rg_fake_gcs *fake, const char *name, const void *data, size_t size)
{
    struct blob content = {0};
    blob_append(&content, data, size);
    pthread_mutex_lock(&fake->lock);
    object_store(fake, name, content);
    pthread_mutex_unlock(&fake->lock);
}

const char *rg_fake_gcs_head(struct rg_fake_gcs *fake, enum rg_fake_kind kind)
{
    return fake->heads[kind];
}

uint32_t rg_fake_gcs_parallel(struct rg_fake_gcs *fake)
{
    return fake->parallel_max;
}
