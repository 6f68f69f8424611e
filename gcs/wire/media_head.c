/* See media_head.h. */
#include "gcs/wire/media_head.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static bool name_is(const struct rg_h1_slice *name, const char *lower_case)
{
    size_t size = strlen(lower_case);
    return name->size == size && strncasecmp(name->data, lower_case, size) == 0;
}

static bool parse_u64(const char *data, size_t size, uint64_t *out_value)
{
    uint64_t value = 0;
    if (size == 0) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        uint64_t digit = (uint64_t)(data[i] - '0');
        if (data[i] < '0' || data[i] > '9' || rg_mul_overflow(value, 10, &value) ||
            rg_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    *out_value = value;
    return true;
}

static void field_take(struct rg_media_head *media, const struct rg_h1_header *header)
{
    const struct rg_h1_slice *name = &header->name, *value = &header->value;
    uint64_t number;
    if (name->size == 0) {
        return;
    }
    /* Only to be quick: a head has a dozen fields. */
    bool extension = (name->data[0] | 0x20) == 'x';
    if (!extension) {
        if (name_is(name, "content-range")) {
            media->content_range = *value;
        } else if (name_is(name, "content-encoding")) {
            media->content_encoding = *value;
        }
    } else if (name_is(name, "x-goog-hash")) {
        media->bad_hash |= rg_object_hashes_parse(&media->hashes, value->data, value->size) < 0;
    } else if (name_is(name, "x-goog-generation")) {
        if (parse_u64(value->data, value->size, &number) && number <= INT64_MAX) {
            media->generation = (int64_t)number;
        }
    } else if (name_is(name, "x-goog-stored-content-length")) {
        media->has_stored_size = parse_u64(value->data, value->size, &media->stored_size);
    } else if (name_is(name, "x-goog-stored-content-encoding")) {
        media->stored_encoding = *value;
    } else if (name_is(name, "x-guploader-response-body-transformations")) {
        media->gunzipped = true;
    }
}

static void fields_take(struct rg_media_head *media, const struct rg_h1_head *head)
{
    *media = (struct rg_media_head){0};
    for (uint32_t i = 0; i < head->header_count; i++) {
        field_take(media, &head->headers[i]);
    }
    bool as_stored = media->has_stored_size && head->has_content_length &&
                     media->content_range.size == 0 && head->content_length == media->stored_size;
    media->gunzipped |= name_is(&media->stored_encoding, "gzip") &&
                        !name_is(&media->content_encoding, "gzip") && !as_stored;
    media->is_gzip =
        name_is(&media->stored_encoding, "gzip") || name_is(&media->content_encoding, "gzip");
}

/* "bytes first-last/total"; total may be "*". */
static bool content_range_parse(struct rg_media_head *media, uint64_t *out_last)
{
    struct rg_h1_slice text = media->content_range;
    static const char unit[] = "bytes ";
    const size_t unit_size = sizeof(unit) - 1;
    if (text.size <= unit_size || strncasecmp(text.data, unit, unit_size) != 0) {
        return false;
    }
    const char *first = text.data + unit_size, *end = text.data + text.size;
    const char *dash = memchr(first, '-', (size_t)(end - first));
    const char *slash = memchr(first, '/', (size_t)(end - first));
    if (dash == NULL || slash == NULL || slash < dash) {
        return false;
    }
    if (!parse_u64(first, (size_t)(dash - first), &media->first) ||
        !parse_u64(dash + 1, (size_t)(slash - dash - 1), out_last) || media->first > *out_last) {
        return false;
    }
    size_t total_size = (size_t)(end - slash - 1);
    if (total_size == 1 && slash[1] == '*') {
        return true;
    }
    media->has_total = parse_u64(slash + 1, total_size, &media->total);
    return media->has_total && *out_last < media->total;
}

/* Checks what the fields say against each other. NULL: nothing is wrong. */
static const char *problem_of(struct rg_media_head *media, const struct rg_h1_head *head)
{
    uint64_t last;
    if (head->status != 200 && head->status != 206) {
        return "neither 200 nor 206";
    }
    if (media->gunzipped) {
        return "the server decompressed the object, which it was asked not to: it is stored with "
               "Content-Encoding gzip";
    }
    if (media->bad_hash) {
        return "the x-goog-hash fields are malformed";
    }
    if (media->content_range.size == 0) {
        return head->status == 206 ? "a 206 without Content-Range" : NULL;
    }
    if (!content_range_parse(media, &last)) {
        return "the Content-Range is malformed";
    }
    if (head->framing == RG_H1_BODY_LENGTH && head->content_length != last - media->first + 1) {
        return "Content-Range and Content-Length disagree";
    }
    return NULL;
}

int rg_media_head_parse(const struct rg_h1_head *head, struct rg_media_head *out_media,
                        const char **out_problem)
{
    fields_take(out_media, head);
    const char *problem = problem_of(out_media, head);
    if (problem != NULL) {
        *out_problem = problem;
        return -EBADMSG;
    }
    if (out_media->content_range.size == 0 && head->has_content_length) {
        out_media->total = head->content_length;
        out_media->has_total = true;
    }
    if (out_media->has_stored_size) {
        out_media->total = out_media->stored_size;
        out_media->has_total = true;
    }
    return 0;
}
