/* Request heads. Byte 0 chooses where the message is split, the rest is the message: both ways to
 * receive it must agree, and a head that was accepted must come out of the encoder and through the
 * decoder again unchanged. The target's parts and its query go through the URL functions. */
#include "http/h1_encoder.h"
#include "http/url.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void copy_text(char *out, size_t capacity, struct rg_h1_slice slice)
{
    RG_ASSERT(slice.size < capacity);
    memcpy(out, slice.data, slice.size);
    out[slice.size] = '\0';
}

static bool is_same(struct rg_h1_slice a, struct rg_h1_slice b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static void check_round_trip(const struct rg_h1_head *head)
{
    static char text[RG_H1_HEAD_SIZE_MAX + 1], method[RG_H1_METHOD_SIZE_MAX + 1];
    static char encoded[2 * RG_H1_HEAD_SIZE_MAX];
    static struct rg_h1_head again;
    struct rg_h1_encoder encoder;
    rg_h1_encoder_init(&encoder, encoded, sizeof(encoded));
    copy_text(method, sizeof(method), head->method);
    copy_text(text, sizeof(text), head->target);
    rg_h1_encode_request(&encoder, method, text);
    for (uint32_t i = 0; i < head->header_count; i++) {
        copy_text(text, sizeof(text), head->headers[i].name);
        rg_h1_encode_header_slice(&encoder, text, head->headers[i].value);
    }
    int size = rg_h1_encode_end(&encoder);
    RG_ASSERT(size > 0);
    /* The version becomes 1.1, where a Host is missing or an encoding is allowed. */
    int result = rg_h1_parse_request(&again, encoded, (size_t)size, 0);
    if (head->minor_version == 0 || size > RG_H1_HEAD_SIZE_MAX) {
        return;
    }
    RG_ASSERT(result == size);
    RG_ASSERT(is_same(again.target, head->target));
    RG_ASSERT(again.framing == head->framing);
    RG_ASSERT(again.content_length == head->content_length);
    RG_ASSERT(again.keep_alive == head->keep_alive);
    RG_ASSERT(again.header_count == head->header_count);
    for (uint32_t i = 0; i < head->header_count; i++) {
        RG_ASSERT(is_same(again.headers[i].name, head->headers[i].name));
        RG_ASSERT(is_same(again.headers[i].value, head->headers[i].value));
    }
}

static void check_target(struct rg_h1_slice target)
{
    static char decoded[RG_H1_TARGET_SIZE_MAX];
    struct rg_h1_slice path, query, name, value;
    rg_url_target_split(target, &path, &query);
    RG_ASSERT(path.size > 0);
    RG_ASSERT(rg_url_percent_decode(path, RG_URL_PATH, decoded, sizeof(decoded)) <= (int)path.size);
    size_t left = query.size;
    while (rg_url_query_next(&query, &name, &value)) {
        RG_ASSERT(query.size < left);
        left = query.size;
        rg_url_percent_decode(value, RG_URL_QUERY, decoded, sizeof(decoded));
    }
    struct rg_url url;
    if (rg_url_parse(target.data, target.size, &url) == 0) {
        RG_ASSERT(url.port > 0);
        RG_ASSERT(url.host.size > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rg_h1_head whole, split;
    if (size < 2) {
        return 0;
    }
    size_t message_size = size - 1, first = message_size * data[0] / 256;
    char *prefix = malloc(first + 1), *message = malloc(message_size);
    memcpy(prefix, data + 1, first);
    memcpy(message, data + 1, message_size);

    int result = rg_h1_parse_request(&whole, message, message_size, 0);
    int first_result = rg_h1_parse_request(&split, prefix, first, 0);
    RG_ASSERT(first_result == -EAGAIN || first_result == result);
    if (first_result == -EAGAIN) {
        int rest = rg_h1_parse_request(&split, message, message_size, first);
        RG_ASSERT(rest == result || (rest == -EAGAIN && result < 0));
        RG_ASSERT(rest == -EAGAIN || split.error == whole.error);
    }
    if (result > 0) {
        check_round_trip(&whole);
        check_target(whole.target);
    }
    free(prefix);
    free(message);
    return 0;
}
