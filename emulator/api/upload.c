/* One upload from its head to its answer; see upload.h. */
#include "emulator/api/upload.h"

#include "emulator/api/access.h"
#include "emulator/api/encryption.h"
#include "emulator/faults/faults.h"
#include "emulator/faults/rules.h"
#include "emulator/store/writer.h"

#include <errno.h>
#include <stdlib.h>

void rg_upload_destroy(struct rg_upload *upload)
{
    if (upload != NULL) {
        rg_store_writer_abort(upload->writer);
        rg_multipart_fini(&upload->multipart);
        rg_description_fini(&upload->description);
        rg_attributes_unref(upload->attributes);
        free(upload);
    }
}

bool rg_upload_set_content_type(struct rg_server_call *call, struct rg_upload *upload,
                                struct rg_h1_slice value)
{
    return rg_description_set(call, "content type", value, upload->description.info.content_type,
                              RG_STORE_CONTENT_TYPE_SIZE_MAX);
}

static bool set_content_encoding(struct rg_server_call *call, struct rg_upload *upload,
                                 struct rg_h1_slice value)
{
    return value.size == 0 || rg_description_set(call, "content encoding", value,
                                                 upload->description.info.content_encoding,
                                                 RG_STORE_CONTENT_ENCODING_SIZE_MAX);
}

/* A hash that is said twice in one place has to be the same both times. */
static bool refuse_contradiction(struct rg_server_call *call, const char *what)
{
    rg_reply_error(call, RG_API_BAD_DIGEST, "Two values of the object's %s are given.", what);
    return false;
}

static bool expect_crc32c(struct rg_server_call *call, struct rg_upload_hashes *hashes,
                          struct rg_h1_slice base64)
{
    uint8_t bytes[4];
    if (rg_text_parse_base64(base64, bytes, sizeof(bytes)) != sizeof(bytes)) {
        rg_reply_error(call, RG_API_BAD_DIGEST, "The CRC32C is not base64 of 4 bytes: %.*s",
                       (int)base64.size, base64.data);
        return false;
    }
    uint32_t crc32c =
        (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    if (hashes->has_crc32c && hashes->crc32c != crc32c) {
        return refuse_contradiction(call, "CRC32C");
    }
    hashes->has_crc32c = true;
    hashes->crc32c = crc32c;
    return true;
}

static bool expect_md5(struct rg_server_call *call, struct rg_upload_hashes *hashes,
                       struct rg_h1_slice base64)
{
    uint8_t md5[RG_MD5_SIZE];
    if (rg_text_parse_base64(base64, md5, sizeof(md5)) != sizeof(md5)) {
        rg_reply_error(call, RG_API_BAD_DIGEST, "The MD5 is not base64 of 16 bytes: %.*s",
                       (int)base64.size, base64.data);
        return false;
    }
    if (hashes->has_md5 && memcmp(hashes->md5, md5, sizeof(md5)) != 0) {
        return refuse_contradiction(call, "MD5");
    }
    hashes->has_md5 = true;
    memcpy(hashes->md5, md5, sizeof(md5));
    return true;
}

/* Takes one "crc32c=…" or "md5=…". */
static bool expect_hash(struct rg_server_call *call, struct rg_upload_hashes *hashes,
                        struct rg_h1_slice hash)
{
    static const struct {
        const char *name;
        bool (*expect)(struct rg_server_call *call, struct rg_upload_hashes *hashes,
                       struct rg_h1_slice base64);
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
                call, hashes, (struct rg_h1_slice){hash.data + name.size, hash.size - name.size});
        }
    }
    return true;
}

/* x-goog-hash, in one line or several, and Content-MD5. */
static bool expect_head(struct rg_server_call *call, struct rg_upload_hashes *hashes,
                        const struct rg_h1_head *head)
{
    const struct rg_h1_slice *value = NULL;
    while ((value = rg_h1_find_next(head, "x-goog-hash", value)) != NULL) {
        struct rg_h1_slice rest = *value;
        while (rest.size > 0) {
            const char *comma = memchr(rest.data, ',', rest.size);
            uint32_t size = comma != NULL ? (uint32_t)(comma - rest.data) : rest.size;
            if (!expect_hash(call, hashes, (struct rg_h1_slice){rest.data, size})) {
                return false;
            }
            rest.data += RG_MIN(size + 1, rest.size);
            rest.size -= RG_MIN(size + 1, rest.size);
        }
    }
    const struct rg_h1_slice *md5 = rg_h1_find(head, "content-md5");
    return md5 == NULL || expect_md5(call, hashes, *md5);
}

bool rg_upload_expect_hashes(struct rg_server_call *call, struct rg_upload *upload,
                             const struct rg_h1_head *head)
{
    struct rg_upload_hashes *hashes = &upload->hashes[RG_UPLOAD_AT_END];
    *hashes = (struct rg_upload_hashes){0};
    return expect_head(call, hashes, head);
}

bool rg_upload_set_name(struct rg_server_call *call, struct rg_upload *upload,
                        struct rg_h1_slice name)
{
    if (!rg_store_object_name_valid(name)) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "An object's name is 1 to 1024 bytes of UTF-8 without line breaks.");
        return false;
    }
    memcpy(upload->name_text, name.data, name.size);
    upload->name = (struct rg_h1_slice){upload->name_text, name.size};
    return true;
}

bool rg_upload_open_writer(struct rg_server_call *call, struct rg_upload *upload)
{
    if (upload->description.bucket.autoclass) {
        (void)rg_attributes_set(&upload->description.list, rg_text_slice(RG_ATTRIBUTES_CLASS),
                                (struct rg_h1_slice){NULL, 0});
    }
    if (!rg_description_finish(call, &upload->description, &upload->attributes)) {
        return false;
    }
    upload->description.info.attributes = upload->attributes;
    int rc = rg_store_writer_create(&upload->writer, rg_service_of(call)->store, upload->bucket,
                                    upload->name, upload->size_hint);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
    }
    return rc == 0;
}

static bool take_conditions(struct rg_server_call *call, struct rg_upload *upload,
                            const struct rg_api_request *request)
{
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
    return true;
}

/* Takes what the head of every kind of upload may say. */
static bool take_head(struct rg_server_call *call, struct rg_upload *upload,
                      const struct rg_api_request *request, struct rg_h1_slice bucket)
{
    if (!take_conditions(call, upload, request)) {
        return false;
    }
    if (!rg_store_bucket_name_valid(bucket)) {
        rg_reply_error(call, RG_API_BUCKET_NAME, "Invalid bucket name: '%.*s'", (int)bucket.size,
                       bucket.data);
        return false;
    }
    memcpy(upload->bucket_text, bucket.data, bucket.size);
    upload->bucket = (struct rg_h1_slice){upload->bucket_text, bucket.size};
    rg_resource_style_of_request(&upload->style, call, request, NULL);
    struct rg_bucket *found = rg_store_find_bucket(rg_service_of(call)->store, bucket);
    if (found == NULL && rg_store_is_strict(rg_service_of(call)->store)) {
        rg_reply_no_bucket(call);
        return false;
    }
    if (found != NULL && !rg_reply_check_payer(call, request, found)) {
        return false;
    }
    rg_description_set_bucket(&upload->description, found);
    rg_description_set_holds(&upload->description);
    rg_description_set_class(&upload->description);
    upload->style.retention_us = upload->description.bucket.retention_us;
    upload->size_hint = request->head->content_length;
    if (upload->size_hint > RG_STORE_OBJECT_SIZE_MAX) {
        rg_reply_error(call, RG_API_TOO_LARGE, "An object is at most 5 TiB.");
        return false;
    }
    return rg_encryption_take(call, request->head, &upload->description.list) &&
           expect_head(call, &upload->hashes[RG_UPLOAD_AT_START], request->head);
}

struct rg_upload *rg_upload_create(struct rg_server_call *call,
                                   const struct rg_api_request *request, struct rg_h1_slice bucket)
{
    struct rg_upload *upload = calloc(1, sizeof(*upload));
    if (upload == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return NULL;
    }
    strcpy(upload->description.info.content_type, RG_DESCRIPTION_CONTENT_TYPE);
    rg_md5_init(&upload->md5_state);
    if (!take_head(call, upload, request, bucket) ||
        !rg_access_take_predefined(call, &upload->description.bucket, &upload->description.list,
                                   request)) {
        rg_upload_destroy(upload);
        return NULL;
    }
    return upload;
}

bool rg_upload_take_fields(struct rg_server_call *call, struct rg_upload *upload,
                           const struct rg_api_request *request)
{
    const struct rg_h1_slice *type = rg_h1_find(request->head, "content-type");
    const struct rg_h1_slice *encoding = rg_h1_find(request->head, "content-encoding");
    if (rg_api_request_has(request, RG_PARAM_CONTENT_ENCODING)) {
        encoding = &request->params[RG_PARAM_CONTENT_ENCODING];
    }
    return (type == NULL || type->size == 0 || rg_upload_set_content_type(call, upload, *type)) &&
           (rg_api_request_is_json(request) ||
            rg_description_take_head(call, &upload->description, request->head)) &&
           (encoding == NULL || set_content_encoding(call, upload, *encoding));
}

bool rg_upload_write(struct rg_server_call *call, struct rg_upload *upload, const uint8_t *data,
                     size_t size)
{
    if (size > 0 && rg_faults_corrupt(call, RG_FAULT_CORRUPT_UPLOAD, data)) {
        return rg_upload_write(call, upload, &rg_call_of(call)->fault.corrupted, 1) &&
               rg_upload_write(call, upload, data + 1, size - 1);
    }
    int rc = rg_store_writer_append(upload->writer, data, size);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
        return false;
    }
    if (!upload->no_md5) {
        rg_md5_update(&upload->md5_state, data, size);
    }
    return true;
}

bool rg_upload_append_object(struct rg_server_call *call, struct rg_upload *upload,
                             struct rg_store_object *object)
{
    int rc = rg_store_writer_append_object(upload->writer, object);
    upload->no_md5 = true;
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
    }
    return rc == 0;
}

static struct rg_h1_slice json_string(yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (!yyjson_is_str(value)) {
        return (struct rg_h1_slice){NULL, 0};
    }
    return (struct rg_h1_slice){yyjson_get_str(value), (uint32_t)yyjson_get_len(value)};
}

static bool take_members(struct rg_server_call *call, struct rg_upload *upload, yyjson_val *root)
{
    struct rg_h1_slice name = json_string(root, "name");
    struct rg_h1_slice crc32c = json_string(root, "crc32c");
    struct rg_h1_slice md5 = json_string(root, "md5Hash");
    struct rg_upload_hashes *hashes = &upload->hashes[RG_UPLOAD_AT_START];
    return (name.data == NULL || rg_upload_set_name(call, upload, name)) &&
           rg_description_take_json(call, &upload->description, root, true) &&
           (crc32c.size == 0 || expect_crc32c(call, hashes, crc32c)) &&
           (md5.size == 0 || expect_md5(call, hashes, md5));
}

/* The description of an object in JSON; NULL describes nothing. */
static bool take_json(struct rg_server_call *call, struct rg_upload *upload, yyjson_val *root)
{
    if (root != NULL && !yyjson_is_obj(root)) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The metadata is not a JSON object.");
        return false;
    }
    if (root != NULL && !take_members(call, upload, root)) {
        return false;
    }
    if (upload->name.size == 0) {
        rg_reply_error(call, RG_API_MISSING, "The metadata has no name.");
        return false;
    }
    return true;
}

bool rg_upload_take_text(struct rg_server_call *call, struct rg_upload *upload,
                         struct rg_h1_slice json)
{
    yyjson_doc *document = yyjson_read(json.data, json.size, 0);
    bool taken = false;
    if (json.size > 0 && document == NULL) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "The metadata is not a JSON object.");
    } else {
        taken = take_json(call, upload, yyjson_doc_get_root(document));
    }
    yyjson_doc_free(document);
    return taken;
}

static bool check_crc32c(struct rg_server_call *call, const struct rg_upload *upload,
                         const struct rg_upload_hashes *hashes)
{
    uint32_t crc32c = rg_store_writer_crc32c(upload->writer);
    if (!hashes->has_crc32c || hashes->crc32c == crc32c) {
        return true;
    }
    char given[RG_REPLY_CRC32C_SIZE], computed[RG_REPLY_CRC32C_SIZE];
    rg_reply_format_crc32c(given, hashes->crc32c);
    rg_reply_format_crc32c(computed, crc32c);
    rg_reply_error(call, RG_API_BAD_DIGEST,
                   "Provided CRC32C \"%.8s\" doesn't match calculated CRC32C \"%.8s\".", given,
                   computed);
    return false;
}

/* There is no MD5 of what was put together from objects. */
static bool check_md5(struct rg_server_call *call, const struct rg_upload *upload,
                      const struct rg_upload_hashes *hashes)
{
    uint8_t md5[RG_MD5_SIZE];
    if (!hashes->has_md5 || upload->no_md5) {
        return true;
    }
    rg_md5_final(&upload->md5_state, md5);
    if (memcmp(md5, hashes->md5, sizeof(md5)) == 0) {
        return true;
    }
    rg_reply_error(call, RG_API_BAD_DIGEST, "Provided MD5 hash doesn't match calculated MD5 hash.");
    return false;
}

bool rg_upload_check_hashes(struct rg_server_call *call, struct rg_upload *upload)
{
    if (rg_rules_effect(call) == RG_EFFECT_CORRUPT) {
        return true;
    }
    for (size_t i = 0; i < RG_UPLOAD_STAGE_COUNT; i++) {
        if (!check_crc32c(call, upload, &upload->hashes[i]) ||
            !check_md5(call, upload, &upload->hashes[i])) {
            return false;
        }
    }
    return true;
}

bool rg_upload_commit(struct rg_server_call *call, struct rg_upload *upload,
                      struct rg_store_object_info *out_info)
{
    struct rg_store_writer *writer = upload->writer;
    if (!rg_upload_check_hashes(call, upload)) {
        return false;
    }
    if (!upload->no_md5) {
        uint8_t md5[RG_MD5_SIZE];
        rg_md5_final(&upload->md5_state, md5);
        _Static_assert(RG_TEXT_BASE64_SIZE(sizeof(md5)) == RG_STORE_MD5_SIZE, "an MD5 in base64");
        rg_text_format_base64(upload->description.info.md5, md5, sizeof(md5));
    }
    upload->writer = NULL;
    int rc =
        rg_store_writer_commit(writer, &upload->conditions, &upload->description.info, out_info);
    if (rc < 0) {
        rg_reply_store_error(call, rc, upload->bucket, upload->name);
    }
    return rc == 0;
}

void rg_upload_reply(struct rg_server_call *call, const struct rg_upload *upload,
                     const struct rg_store_object_info *info)
{
    struct rg_call *state = rg_call_of(call);
    if (!state->json) {
        struct rg_h1_encoder *head = rg_reply_start(call, 200);
        rg_reply_object_fields(head, info, false);
        rg_reply_finish(call, 0);
        return;
    }
    rg_resource_append_object(&state->text, &upload->style, upload->bucket, upload->name, info);
    rg_reply_text(call, 200, "application/json; charset=UTF-8");
}

static int receive_metadata(void *context, struct rg_h1_slice json, struct rg_h1_slice content_type)
{
    struct rg_server_call *call = context;
    struct rg_upload *upload = rg_call_of(call)->received;
    bool taken =
        (content_type.size == 0 || rg_upload_set_content_type(call, upload, content_type)) &&
        rg_upload_take_text(call, upload, json) && rg_upload_open_writer(call, upload);
    return taken ? 0 : -ECANCELED;
}

static int receive_data(void *context, const uint8_t *data, size_t size)
{
    struct rg_server_call *call = context;
    return rg_upload_write(call, rg_call_of(call)->received, data, size) ? 0 : -ECANCELED;
}

static void receive(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct rg_upload *upload = rg_call_of(call)->received;
    if (!upload->is_multipart) {
        (void)rg_upload_write(call, upload, data, size);
        return;
    }
    const struct rg_multipart_sink sink = {call, receive_metadata, receive_data};
    int rc = rg_multipart_feed(&upload->multipart, data, size, &sink);
    if (rc == -EMSGSIZE) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The multipart body does not come to its data within 64 KiB.");
    } else if (rc < 0 && rc != -ECANCELED) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
    }
}

static void finish(struct rg_server_call *call)
{
    struct rg_upload *upload = rg_call_of(call)->received;
    struct rg_store_object_info info;
    if (upload->is_multipart && upload->multipart.stage != RG_MULTIPART_END) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The multipart body ends without its closing boundary.");
    } else if (rg_upload_commit(call, upload, &info)) {
        rg_upload_reply(call, upload, &info);
    }
}

static void destroy(void *received)
{
    rg_upload_destroy(received);
}

static const struct rg_receiver upload_receiver = {receive, finish, destroy};

static bool start_plain(struct rg_server_call *call, struct rg_upload *upload,
                        const struct rg_api_request *request)
{
    return rg_upload_set_name(call, upload,
                              rg_api_request_is_json(request) ? request->params[RG_PARAM_NAME]
                                                              : request->object) &&
           rg_upload_take_fields(call, upload, request) && rg_upload_open_writer(call, upload);
}

static bool start_multipart(struct rg_server_call *call, struct rg_upload *upload,
                            const struct rg_api_request *request)
{
    const struct rg_h1_slice *type = rg_h1_find(request->head, "content-type");
    if (type == NULL || rg_multipart_init(&upload->multipart, *type) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "A multipart upload needs Content-Type: multipart/related with a boundary.");
        return false;
    }
    upload->is_multipart = true;
    /* The body's size is a little more than the object's, because the metadata is part of it. */
    return !rg_api_request_has(request, RG_PARAM_NAME) ||
           rg_upload_set_name(call, upload, request->params[RG_PARAM_NAME]);
}

void rg_upload_receive(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_h1_slice type = request->params[RG_PARAM_UPLOAD_TYPE];
    bool multipart = rg_api_request_is_json(request) && rg_text_equals(type, "multipart");
    struct rg_upload *upload = rg_upload_create(call, request, request->bucket);
    if (upload == NULL) {
        return;
    }
    if (multipart ? start_multipart(call, upload, request) : start_plain(call, upload, request)) {
        state->receiver = &upload_receiver;
        state->received = upload;
    } else {
        rg_upload_destroy(upload);
    }
}
