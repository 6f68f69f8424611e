/* One upload from its head to its answer; see upload.h. */
#include "emulator/upload.h"

#include "emulator/md5.h"
#include "emulator/multipart.h"
#include "emulator/resource.h"

#include <errno.h>
#include <stdlib.h>
#include <yyjson.h>

struct rg_api_upload {
    struct rg_store_writer *writer; /* NULL until the name is known, which metadata may tell. */
    struct rg_store_conditions conditions;
    struct rg_store_object_info attributes;
    struct rg_resource_style style;
    struct rg_h1_slice bucket, name; /* In the arrays below. */
    uint64_t size_hint;
    bool has_crc32c, has_md5; /* The client says what they have to be. */
    uint32_t crc32c;
    uint8_t md5[RG_MD5_SIZE];
    struct rg_md5 md5_state; /* Runs only for a client that wants it checked. */
    bool is_multipart;
    struct rg_multipart multipart;
    char bucket_text[RG_STORE_BUCKET_NAME_SIZE_MAX];
    char name_text[RG_STORE_NAME_SIZE_MAX];
};

void rg_api_upload_destroy(struct rg_api_upload *upload)
{
    if (upload != NULL) {
        rg_store_writer_abort(upload->writer);
        rg_multipart_fini(&upload->multipart);
        free(upload);
    }
}

/* Answers the call and returns false when the value cannot be sent back in a header field. */
static bool set_attribute(struct rg_server_call *call, const char *what, struct rg_h1_slice value,
                          char *out, size_t size_max)
{
    if (!rg_store_attribute_valid(value, size_max)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The %s is not a header value of 1 to %zu bytes.",
                       what, size_max);
        return false;
    }
    memcpy(out, value.data, value.size);
    out[value.size] = '\0';
    return true;
}

static bool set_content_type(struct rg_server_call *call, struct rg_h1_slice value)
{
    return set_attribute(call, "content type", value,
                         rg_call_of(call)->upload->attributes.content_type,
                         RG_STORE_CONTENT_TYPE_SIZE_MAX);
}

static bool set_content_encoding(struct rg_server_call *call, struct rg_h1_slice value)
{
    return value.size == 0 || set_attribute(call, "content encoding", value,
                                            rg_call_of(call)->upload->attributes.content_encoding,
                                            RG_STORE_CONTENT_ENCODING_SIZE_MAX);
}

static bool expect_crc32c(struct rg_server_call *call, struct rg_h1_slice base64)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    uint8_t bytes[4];
    if (rg_text_parse_base64(base64, bytes, sizeof(bytes)) != sizeof(bytes)) {
        rg_reply_error(call, RG_API_BAD_DIGEST, "The CRC32C is not base64 of 4 bytes: %.*s",
                       (int)base64.size, base64.data);
        return false;
    }
    upload->has_crc32c = true;
    upload->crc32c =
        (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    return true;
}

static bool expect_md5(struct rg_server_call *call, struct rg_h1_slice base64)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    if (rg_text_parse_base64(base64, upload->md5, sizeof(upload->md5)) != sizeof(upload->md5)) {
        rg_reply_error(call, RG_API_BAD_DIGEST, "The MD5 is not base64 of 16 bytes: %.*s",
                       (int)base64.size, base64.data);
        return false;
    }
    upload->has_md5 = true;
    rg_md5_init(&upload->md5_state);
    return true;
}

/* One "crc32c=…" or "md5=…". */
static bool expect_hash(struct rg_server_call *call, struct rg_h1_slice hash)
{
    static const struct {
        const char *name;
        bool (*expect)(struct rg_server_call *call, struct rg_h1_slice base64);
    } kinds[] = {{"crc32c=", expect_crc32c}, {"md5=", expect_md5}};
    while (hash.size > 0 && hash.data[0] == ' ') {
        hash.data++;
        hash.size--;
    }
    while (hash.size > 0 && hash.data[hash.size - 1] == ' ') {
        hash.size--;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(kinds); i++) {
        struct rg_h1_slice name = rg_text_slice(kinds[i].name);
        if (rg_text_starts_with(hash, name)) {
            return kinds[i].expect(
                call, (struct rg_h1_slice){hash.data + name.size, hash.size - name.size});
        }
    }
    return true;
}

/* x-goog-hash, in one line or several, and Content-MD5. */
static bool expect_hashes(struct rg_server_call *call, const struct rg_h1_head *head)
{
    const struct rg_h1_slice *value = NULL;
    while ((value = rg_h1_find_next(head, "x-goog-hash", value)) != NULL) {
        struct rg_h1_slice rest = *value;
        while (rest.size > 0) {
            const char *comma = memchr(rest.data, ',', rest.size);
            uint32_t size = comma != NULL ? (uint32_t)(comma - rest.data) : rest.size;
            if (!expect_hash(call, (struct rg_h1_slice){rest.data, size})) {
                return false;
            }
            rest.data += RG_MIN(size + 1, rest.size);
            rest.size -= RG_MIN(size + 1, rest.size);
        }
    }
    const struct rg_h1_slice *md5 = rg_h1_find(head, "content-md5");
    return md5 == NULL || expect_md5(call, *md5);
}

static bool set_name(struct rg_server_call *call, struct rg_h1_slice name)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    if (!rg_store_object_name_valid(name)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "An object's name is 1 to 1024 bytes of UTF-8 without line breaks.");
        return false;
    }
    memcpy(upload->name_text, name.data, name.size);
    upload->name = (struct rg_h1_slice){upload->name_text, name.size};
    return true;
}

static void open_writer(struct rg_server_call *call)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    int rc = rg_store_writer_create(&upload->writer, rg_api_of(call)->options.store, upload->bucket,
                                    upload->name, upload->size_hint);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
    }
}

/* What every kind of upload tells in its head. */
static bool take_head(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    const struct rg_h1_slice *none_match = rg_h1_find(request->head, "if-none-match");
    const char *bad_name;
    if (rg_api_request_conditions(request, &upload->conditions, &bad_name) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "%s is not a number.", bad_name);
        return false;
    }
    upload->conditions.generation.set = false; /* A write makes its own. */
    if (none_match != NULL && rg_text_equals(*none_match, "*")) {
        upload->conditions.generation_match = (struct rg_store_condition){.set = true, .value = 0};
    }
    if (!rg_store_bucket_name_valid(request->bucket)) {
        rg_reply_error(call, RG_API_BUCKET_NAME, "Invalid bucket name: '%.*s'",
                       (int)request->bucket.size, request->bucket.data);
        return false;
    }
    memcpy(upload->bucket_text, request->bucket.data, request->bucket.size);
    upload->bucket = (struct rg_h1_slice){upload->bucket_text, request->bucket.size};
    rg_resource_style_init(&upload->style, rg_api_of(call)->options.tls,
                           rg_h1_find(request->head, "host"), request->params[RG_PARAM_FIELDS],
                           NULL);
    upload->size_hint = request->head->content_length;
    if (upload->size_hint > RG_STORE_OBJECT_SIZE_MAX) {
        rg_reply_error(call, RG_API_TOO_LARGE, "An object is at most 5 TiB.");
        return false;
    }
    return expect_hashes(call, request->head);
}

static void start_plain(struct rg_server_call *call, const struct rg_api_request *request)
{
    const struct rg_h1_head *head = request->head;
    const struct rg_h1_slice *type = rg_h1_find(head, "content-type");
    const struct rg_h1_slice *encoding = rg_h1_find(head, "content-encoding");
    struct rg_h1_slice none = {"", 0};
    struct rg_h1_slice name = request->object;
    if (rg_api_request_is_json(request)) {
        name = request->params[RG_PARAM_NAME];
    }
    if (rg_api_request_has(request, RG_PARAM_CONTENT_ENCODING)) {
        encoding = &request->params[RG_PARAM_CONTENT_ENCODING];
    }
    if (set_name(call, name) &&
        (type == NULL || type->size == 0 || set_content_type(call, *type)) &&
        set_content_encoding(call, encoding != NULL ? *encoding : none)) {
        open_writer(call);
    }
}

static void start_multipart(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    const struct rg_h1_slice *type = rg_h1_find(request->head, "content-type");
    struct rg_h1_slice name = request->params[RG_PARAM_NAME];
    if (type == NULL || rg_multipart_init(&upload->multipart, *type) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "A multipart upload needs Content-Type: multipart/related with a boundary.");
        return;
    }
    upload->is_multipart = true;
    /* The metadata takes some of the body, so that its size is a little too much. */
    if (name.data != NULL) {
        set_name(call, name);
    }
}

void rg_api_upload_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_h1_slice type = request->params[RG_PARAM_UPLOAD_TYPE];
    if (rg_api_request_is_json(request) && !rg_text_equals(type, "media") &&
        !rg_text_equals(type, "multipart")) {
        bool known =
            rg_text_equals(type, "resumable") || rg_api_request_has(request, RG_PARAM_UPLOAD_ID);
        rg_reply_error(call, known ? RG_API_NOT_IMPLEMENTED : RG_API_BAD_REQUEST,
                       known ? "Resumable uploads are not implemented by this emulator."
                             : "uploadType has to be media, multipart or resumable.");
        return;
    }
    struct rg_api_upload *upload = calloc(1, sizeof(*upload));
    if (upload == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    rg_call_of(call)->upload = upload;
    strcpy(upload->attributes.content_type, "application/octet-stream");
    if (!take_head(call, request)) {
        return;
    }
    if (rg_text_equals(type, "multipart") && rg_api_request_is_json(request)) {
        start_multipart(call, request);
    } else {
        start_plain(call, request);
    }
}

static int write_data(void *context, const uint8_t *data, size_t size)
{
    struct rg_server_call *call = context;
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    int rc = rg_store_writer_append(upload->writer, data, size);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
        return -ECANCELED;
    }
    if (upload->has_md5) {
        rg_md5_update(&upload->md5_state, data, size);
    }
    return 0;
}

static struct rg_h1_slice json_string(yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (!yyjson_is_str(value)) {
        return (struct rg_h1_slice){NULL, 0};
    }
    return (struct rg_h1_slice){yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
}

static bool take_metadata(struct rg_server_call *call, yyjson_val *root)
{
    struct rg_h1_slice name = json_string(root, "name");
    struct rg_h1_slice type = json_string(root, "contentType");
    struct rg_h1_slice crc32c = json_string(root, "crc32c");
    struct rg_h1_slice md5 = json_string(root, "md5Hash");
    if (name.data == NULL && rg_call_of(call)->upload->name.size == 0) {
        rg_reply_error(call, RG_API_MISSING, "The metadata has no name.");
        return false;
    }
    return (name.data == NULL || set_name(call, name)) &&
           (type.size == 0 || set_content_type(call, type)) &&
           set_content_encoding(call, json_string(root, "contentEncoding")) &&
           (crc32c.size == 0 || expect_crc32c(call, crc32c)) &&
           (md5.size == 0 || expect_md5(call, md5));
}

static int receive_metadata(void *context, struct rg_h1_slice json, struct rg_h1_slice content_type)
{
    struct rg_server_call *call = context;
    yyjson_doc *document = yyjson_read(json.data, json.size, 0);
    yyjson_val *root = yyjson_doc_get_root(document);
    if (!yyjson_is_obj(root)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The metadata is not a JSON object.");
    } else if ((content_type.size == 0 || set_content_type(call, content_type)) &&
               take_metadata(call, root)) {
        open_writer(call);
    }
    yyjson_doc_free(document);
    return rg_call_of(call)->replied ? -ECANCELED : 0;
}

void rg_api_upload_receive(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    if (!upload->is_multipart) {
        (void)write_data(call, data, size);
        return;
    }
    const struct rg_multipart_sink sink = {call, receive_metadata, write_data};
    int rc = rg_multipart_feed(&upload->multipart, data, size, &sink);
    if (rc == -EMSGSIZE) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The multipart body does not come to its data within 64 KiB.");
    } else if (rc < 0 && rc != -ECANCELED) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    }
}

/* Answers the call and returns false when the data is not what the client says. */
static bool check_hashes(struct rg_server_call *call)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    uint32_t crc32c = rg_store_writer_crc32c(upload->writer);
    uint8_t md5[RG_MD5_SIZE];
    if (upload->has_crc32c && upload->crc32c != crc32c) {
        char given[RG_REPLY_CRC32C_SIZE], computed[RG_REPLY_CRC32C_SIZE];
        rg_reply_format_crc32c(given, upload->crc32c);
        rg_reply_format_crc32c(computed, crc32c);
        rg_reply_error(call, RG_API_BAD_DIGEST,
                       "Provided CRC32C \"%.8s\" doesn't match calculated CRC32C \"%.8s\".", given,
                       computed);
        return false;
    }
    if (upload->has_md5) {
        rg_md5_final(&upload->md5_state, md5);
        if (memcmp(md5, upload->md5, sizeof(md5)) != 0) {
            rg_reply_error(call, RG_API_BAD_DIGEST,
                           "Provided MD5 hash doesn't match calculated MD5 hash.");
            return false;
        }
    }
    return true;
}

static void reply_created(struct rg_server_call *call, const struct rg_store_object_info *info)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_api_upload *upload = state->upload;
    if (!state->json) {
        struct rg_h1_encoder *head = rg_reply_start(call, 200);
        rg_reply_object_fields(head, info);
        rg_reply_finish(call, 0);
        return;
    }
    rg_resource_append_object(&state->text, &upload->style, upload->bucket, upload->name, info);
    rg_reply_text(call, 200, "application/json; charset=UTF-8");
}

void rg_api_upload_finish(struct rg_server_call *call)
{
    struct rg_api_upload *upload = rg_call_of(call)->upload;
    if (upload->is_multipart && upload->multipart.stage != RG_MULTIPART_END) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The multipart body ends without its closing boundary.");
        return;
    }
    if (!check_hashes(call)) {
        return;
    }
    struct rg_store_object_info info;
    struct rg_store_writer *writer = upload->writer;
    upload->writer = NULL;
    int rc = rg_store_writer_commit(writer, &upload->conditions, &upload->attributes, &info);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
        return;
    }
    reply_created(call, &info);
}
