/* Response heads. Byte 0 chooses whether a HEAD is answered and where the message is split, the
 * rest is the message: both ways to receive it must agree, and every slice must lie in the head. */
#include "http/h1_decoder.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(struct rg_h1_slice slice, const char *start, int size)
{
    RG_ASSERT(slice.data >= start);
    RG_ASSERT(slice.data + slice.size <= start + size);
}

static void check_head(const struct rg_h1_head *head, const char *start, int size)
{
    RG_ASSERT(head->error == RG_H1_ERROR_NONE);
    RG_ASSERT(memcmp(start + size - 2, "\r\n", 2) == 0);
    RG_ASSERT(head->header_count <= RG_H1_HEADERS_MAX);
    RG_ASSERT(head->framing != RG_H1_BODY_LENGTH || head->has_content_length);
    RG_ASSERT(head->framing != RG_H1_BODY_UNTIL_CLOSE || !head->keep_alive);
    check_inside(head->reason, start, size);
    for (uint32_t i = 0; i < head->header_count; i++) {
        struct rg_h1_slice name = head->headers[i].name, value = head->headers[i].value;
        check_inside(name, start, size);
        check_inside(value, start, size);
        RG_ASSERT(name.size > 0);
        RG_ASSERT(rg_h1_token_span(name.data, name.size) == name.size);
        RG_ASSERT(rg_h1_value_span(value.data, value.size) == value.size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rg_h1_head whole, split;
    if (size < 2) {
        return 0;
    }
    bool head_request = (data[0] & 1) != 0;
    size_t message_size = size - 1, first = message_size * (data[0] >> 1) / 128;
    /* A block of its own, so that a sanitizer sees a byte read beyond the split. */
    char *prefix = malloc(first + 1), *message = malloc(message_size);
    memcpy(prefix, data + 1, first);
    memcpy(message, data + 1, message_size);

    int result = rg_h1_parse_response(&whole, head_request, message, message_size, 0);
    int first_result = rg_h1_parse_response(&split, head_request, prefix, first, 0);
    RG_ASSERT(first_result == -EAGAIN || first_result == result);
    if (first_result == -EAGAIN) {
        int rest = rg_h1_parse_response(&split, head_request, message, message_size, first);
        /* A fault in a line may be told as late as the end of that line. */
        RG_ASSERT(rest == result || (rest == -EAGAIN && result < 0));
        RG_ASSERT(rest == -EAGAIN || split.error == whole.error);
    }
    if (result > 0) {
        check_head(&whole, message, result);
    } else {
        RG_ASSERT((result == -EAGAIN) == (whole.error == RG_H1_ERROR_NONE));
    }
    free(prefix);
    free(message);
    return 0;
}
