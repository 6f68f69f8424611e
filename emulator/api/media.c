/* Conditions, ranges and the head of a media read; see media.h. This is what benchmarks measure:
 * for objects in memory or by formula it allocates nothing. */
#include "emulator/api/media.h"

#include "emulator/api/description.h"
#include "emulator/api/encryption.h"
#include "emulator/api/gunzip.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Strips an entity tag of blanks, quotes, and the mark of a weak one. */
static struct rg_h1_slice bare_etag(struct rg_h1_slice tag)
{
    while (tag.size > 0 && is_blank(tag.data[0])) {
        tag = (struct rg_h1_slice){tag.data + 1, tag.size - 1};
    }
    while (tag.size > 0 && is_blank(tag.data[tag.size - 1])) {
        tag.size--;
    }
    if (rg_text_starts_with(tag, rg_text_slice("W/"))) {
        tag = (struct rg_h1_slice){tag.data + 2, tag.size - 2};
    }
    if (tag.size > 1 && tag.data[0] == '"' && tag.data[tag.size - 1] == '"') {
        tag = (struct rg_h1_slice){tag.data + 1, tag.size - 2};
    }
    return tag;
}

/* Whether a list of entity tags (RFC 9110 section 13.1.1) has the object's. The service takes
 * tags with and without quotes, as its two APIs send them. No tag has a comma in it. */
static bool etag_listed(struct rg_h1_slice list, const struct rg_store_object_info *info)
{
    char text[RG_REPLY_ETAG_SIZE_MAX + 3];
    rg_reply_format_etag(text, info);
    struct rg_h1_slice etag = bare_etag(rg_text_slice(text));
    for (bool more = true; more;) {
        const char *comma = memchr(list.data, ',', list.size);
        more = comma != NULL;
        uint32_t size = more ? (uint32_t)(comma - list.data) : list.size;
        struct rg_h1_slice tag = bare_etag((struct rg_h1_slice){list.data, size});
        if (rg_text_equals(tag, "*") || rg_text_compare(tag, etag) == 0) {
            return true;
        }
        list.data += size + more;
        list.size -= size + more;
    }
    return false;
}

/* If-Match and If-None-Match. */
static int check_etags(const struct rg_h1_head *head, const struct rg_store_object_info *info)
{
    const struct rg_h1_slice *match = rg_h1_find(head, "if-match");
    const struct rg_h1_slice *none_match = rg_h1_find(head, "if-none-match");
    if (match != NULL && !etag_listed(*match, info)) {
        return -ESTALE;
    }
    return none_match != NULL && etag_listed(*none_match, info) ? -EALREADY : 0;
}

static void reply_not_modified(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_h1_encoder *head = rg_reply_start(call, 304);
    rg_reply_object_fields(head, &state->object.info, state->json);
    rg_store_object_close(&state->object);
    rg_reply_finish_empty(call);
}

/* False, with the call answered, when one is malformed. */
static bool take_conditions(struct rg_server_call *call, const struct rg_api_request *request,
                            struct rg_store_conditions *out)
{
    const char *bad_name;
    if (rg_api_request_conditions(request, out, &bad_name) < 0) {
        rg_reply_error(call, RG_API_BAD_REQUEST, "%s is not a number.", bad_name);
        return false;
    }
    return true;
}

static bool open_object(struct rg_server_call *call, const struct rg_api_request *request,
                        bool reads)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_store_conditions conditions;
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket == NULL || !take_conditions(call, request, &conditions)) {
        return false;
    }
    int rc = -ENOENT;
    if (rg_store_object_name_valid(request->object)) {
        rc = rg_bucket_open_version(bucket, request->object,
                                    conditions.generation.set ? conditions.generation.value : 0,
                                    &state->object);
    }
    if (rc == 0) {
        rc = rg_store_conditions_check(&conditions, &state->object.info);
        rc = rc == 0 ? check_etags(request->head, &state->object.info) : rc;
        if (rc == -EALREADY && reads) {
            reply_not_modified(call);
            return false;
        }
    }
    if (rc < 0) {
        rg_reply_store_error(call, rc, request->bucket, request->object);
        return false;
    }
    return true;
}

bool rg_media_open(struct rg_server_call *call, const struct rg_api_request *request)
{
    return open_object(call, request, true);
}

bool rg_media_open_to_change(struct rg_server_call *call, const struct rg_api_request *request)
{
    return open_object(call, request, false);
}

static void encode_content_range(struct rg_h1_encoder *head, uint64_t first, uint64_t size,
                                 uint64_t total)
{
    char range[72] = "bytes ";
    size_t at = 6;
    at += rg_text_format_u64(range + at, first);
    range[at++] = '-';
    at += rg_text_format_u64(range + at, first + size - 1);
    range[at++] = '/';
    at += rg_text_format_u64(range + at, total);
    rg_h1_encode_header_slice(head, "Content-Range", (struct rg_h1_slice){range, (uint32_t)at});
}

static bool accepts_gzip(const struct rg_h1_head *head)
{
    const struct rg_h1_slice *accepted = rg_h1_find(head, "accept-encoding");
    return accepted != NULL && memmem(accepted->data, accepted->size, "gzip", 4) != NULL;
}

/* A composed object may have no content type. */
static void encode_content_type(struct rg_h1_encoder *head, const struct rg_store_object_info *info)
{
    rg_h1_encode_header(head, "Content-Type",
                        info->content_type[0] != '\0' ? info->content_type
                                                      : RG_DESCRIPTION_CONTENT_TYPE);
}

/* Whether the object is decompressed on the way: it is stored with gzip, the client does not
 * accept that, and the object does not forbid it (no-transform). */
static bool is_transcoded(const struct rg_api_request *request,
                          const struct rg_store_object_info *info)
{
    struct rg_h1_slice control = rg_attributes_get(info->attributes, "cacheControl");
    return strcmp(info->content_encoding, "gzip") == 0 && !accepts_gzip(request->head) &&
           request->head->minor_version > 0 &&
           (control.data == NULL || memmem(control.data, control.size, "no-transform", 12) == NULL);
}

static void encode_common(struct rg_server_call *call, struct rg_h1_encoder *head,
                          const struct rg_store_object_info *info)
{
    char modified[RG_TEXT_HTTP_DATE_SIZE + 1];
    rg_text_format_http_date(modified, info->updated_us / 1000000);
    rg_reply_object_fields(head, info, rg_call_of(call)->json);
    rg_h1_encode_header(head, "Last-Modified", modified);
    if (rg_attributes_get(info->attributes, "cacheControl").data == NULL) {
        rg_h1_encode_header(head, "Cache-Control", "private, max-age=0");
    }
}

/* Answers with the whole decompressed object, as one chunk because its size is not known before.
 * Ranges do not apply. False, with nothing done, when it is not gzip after all. */
static bool get_transcoded(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    const struct rg_store_object_info *info = &state->object.info;
    struct rg_text plain = {0};
    int rc = rg_gunzip(&state->object, &plain);
    if (rc == -EBADMSG) {
        rg_text_fini(&plain);
        return false;
    }
    if (plain.size > 0) {
        rg_text_printf(&state->text, "%zx\r\n", plain.size);
        rg_text_append(&state->text, plain.data, plain.size);
        rg_text_append_str(&state->text, "\r\n");
    }
    rg_text_append_str(&state->text, "0\r\n\r\n");
    bool failed = rc < 0 || state->text.failed;
    rg_text_fini(&plain);
    if (failed) {
        rg_reply_error(call, RG_API_INTERNAL, "The object is too large to be decompressed here.");
        return true;
    }
    struct rg_h1_encoder *head = rg_reply_start(call, 200);
    encode_content_type(head, info);
    encode_common(call, head, info);
    rg_h1_encode_header(head, "Warning", "214 UploadServer gunzipped");
    rg_h1_encode_header(head, "x-guploader-response-body-transformations", "gunzipped");
    rg_h1_encode_header(head, "Transfer-Encoding", "chunked");
    rg_store_object_close(&state->object); /* The body is the text. */
    rg_reply_finish_framed(call, state->text.size);
    return true;
}

void rg_media_get(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_call *state = rg_call_of(call);
    if (!rg_media_open(call, request)) {
        return;
    }
    const struct rg_store_object_info *info = &state->object.info;
    if (!rg_encryption_check(call, request->head, false, info)) {
        return;
    }
    if (is_transcoded(request, info) && get_transcoded(call)) {
        return;
    }
    uint64_t first = 0, size = info->size;
    int ranged = rg_api_request_range(request, info->size, &first, &size);
    if (ranged < 0) {
        rg_reply_error(call, RG_API_RANGE, "The requested range cannot be satisfied.");
        return;
    }
    struct rg_h1_encoder *head = rg_reply_start(call, ranged ? 206 : 200);
    encode_content_type(head, info);
    if (info->content_encoding[0] != '\0') {
        rg_h1_encode_header(head, "Content-Encoding", info->content_encoding);
    }
    if (ranged) {
        encode_content_range(head, first, size, info->size);
    }
    encode_common(call, head, info);
    rg_h1_encode_header(head, "Accept-Ranges", "bytes");
    rg_reply_finish(call, size);
    state->first = first;
}

void rg_media_remove(struct rg_server_call *call, const struct rg_api_request *request)
{
    struct rg_store_conditions conditions;
    struct rg_bucket *bucket = rg_reply_find_bucket(call, request);
    if (bucket == NULL || !take_conditions(call, request, &conditions)) {
        return;
    }
    int rc = -ENOENT;
    if (rg_store_object_name_valid(request->object)) {
        rc = rg_bucket_remove_object(bucket, request->object, &conditions);
    }
    if (rc < 0) {
        rg_reply_store_error(call, rc, request->bucket, request->object);
        return;
    }
    rg_reply_start(call, 204);
    rg_reply_finish_empty(call);
}
