/* The HTTP/1.1 encoder: see h1_encoder.h. Each line is checked and measured first and then
 * written in one go, so a head that ends in an error still ends at a line end. */
#include "http/h1_encoder.h"

#include <string.h>

#define DECIMAL_SIZE_MAX 20 /* Digits of UINT64_MAX. */

void rg_h1_encoder_init(struct rg_h1_encoder *encoder, char *data, size_t capacity)
{
    RG_ASSERT(data != NULL || capacity == 0);
    RG_ASSERT(capacity <= INT32_MAX);
    *encoder = (struct rg_h1_encoder){.data = data, .capacity = capacity};
}

static void fail(struct rg_h1_encoder *encoder, int error)
{
    RG_ASSERT(error < 0);
    if (encoder->error == 0) {
        encoder->error = error;
    }
}

/* Room for a line of `size` bytes, NULL when there is none or something failed before. */
static char *reserve(struct rg_h1_encoder *encoder, size_t size)
{
    RG_ASSERT(encoder->size <= encoder->capacity);
    if (encoder->error != 0) {
        return NULL;
    }
    if (size > encoder->capacity - encoder->size) {
        fail(encoder, -ENOSPC);
        return NULL;
    }
    char *line = encoder->data + encoder->size;
    encoder->size += size;
    return line;
}

static char *put(char *at, const char *data, size_t size)
{
    memcpy(at, data, size);
    return at + size;
}

#define PUT_LITERAL(at, literal) put((at), (literal), sizeof(literal) - 1)
#define LITERAL_SIZE(literal) (sizeof(literal) - 1)

static bool is_token(const char *text, size_t size)
{
    return size > 0 && rg_h1_token_span(text, size) == size;
}

/* White space at either end is not part of a value (RFC 9110 section 5.5). */
static bool is_value(const char *text, size_t size)
{
    if (size == 0) {
        return true;
    }
    bool is_trimmed =
        text[0] != ' ' && text[0] != '\t' && text[size - 1] != ' ' && text[size - 1] != '\t';
    return is_trimmed && rg_h1_value_span(text, size) == size;
}

void rg_h1_encode_request(struct rg_h1_encoder *encoder, const char *method, const char *target)
{
    RG_ASSERT(encoder->size == 0);
    size_t method_size = strlen(method), target_size = strlen(target);
    if (!is_token(method, method_size) || method_size > RG_H1_METHOD_SIZE_MAX || target_size == 0 ||
        target_size > RG_H1_TARGET_SIZE_MAX ||
        rg_h1_target_span(target, target_size) != target_size) {
        fail(encoder, -EINVAL);
        return;
    }
    char *at = reserve(encoder, method_size + target_size + LITERAL_SIZE("  HTTP/1.1\r\n"));
    if (at == NULL) {
        return;
    }
    at = PUT_LITERAL(put(at, method, method_size), " ");
    at = PUT_LITERAL(put(at, target, target_size), " HTTP/1.1\r\n");
    RG_ASSERT(at == encoder->data + encoder->size);
}

void rg_h1_encode_status(struct rg_h1_encoder *encoder, unsigned status, const char *reason)
{
    RG_ASSERT(encoder->size == 0);
    size_t reason_size = strlen(reason);
    if (status < 100 || status > 599 || rg_h1_value_span(reason, reason_size) != reason_size) {
        fail(encoder, -EINVAL);
        return;
    }
    const char digits[3] = {(char)('0' + status / 100), (char)('0' + status / 10 % 10),
                            (char)('0' + status % 10)};
    char *at = reserve(encoder, LITERAL_SIZE("HTTP/1.1 200 \r\n") + reason_size);
    if (at == NULL) {
        return;
    }
    at = put(PUT_LITERAL(at, "HTTP/1.1 "), digits, sizeof(digits));
    at = put(PUT_LITERAL(at, " "), reason, reason_size);
    at = PUT_LITERAL(at, "\r\n");
    RG_ASSERT(at == encoder->data + encoder->size);
}

/* The value has been checked. */
static void encode_field(struct rg_h1_encoder *encoder, const char *name, const char *value,
                         size_t value_size)
{
    RG_ASSERT(encoder->size > 0 || encoder->error != 0);
    size_t name_size = strlen(name);
    if (!is_token(name, name_size)) {
        fail(encoder, -EINVAL);
        return;
    }
    char *at = reserve(encoder, name_size + value_size + LITERAL_SIZE(": \r\n"));
    if (at == NULL) {
        return;
    }
    at = PUT_LITERAL(put(at, name, name_size), ": ");
    at = PUT_LITERAL(put(at, value, value_size), "\r\n");
    RG_ASSERT(at == encoder->data + encoder->size);
}

void rg_h1_encode_header(struct rg_h1_encoder *encoder, const char *name, const char *value)
{
    size_t value_size = strlen(value);
    if (!is_value(value, value_size)) {
        fail(encoder, -EINVAL);
        return;
    }
    encode_field(encoder, name, value, value_size);
}

void rg_h1_encode_header_slice(struct rg_h1_encoder *encoder, const char *name,
                               struct rg_h1_slice value)
{
    RG_ASSERT(value.data != NULL || value.size == 0);
    if (!is_value(value.data, value.size)) {
        fail(encoder, -EINVAL);
        return;
    }
    encode_field(encoder, name, value.size == 0 ? "" : value.data, value.size);
}

void rg_h1_encode_header_u64(struct rg_h1_encoder *encoder, const char *name, uint64_t value)
{
    char digits[DECIMAL_SIZE_MAX];
    size_t start = sizeof(digits);
    do {
        RG_ASSERT(start > 0);
        digits[--start] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    encode_field(encoder, name, digits + start, sizeof(digits) - start);
}

int rg_h1_encode_end(struct rg_h1_encoder *encoder)
{
    RG_ASSERT(encoder->size > 0 || encoder->error != 0);
    char *at = reserve(encoder, LITERAL_SIZE("\r\n"));
    if (at == NULL) {
        return encoder->error;
    }
    PUT_LITERAL(at, "\r\n");
    return (int)encoder->size;
}
