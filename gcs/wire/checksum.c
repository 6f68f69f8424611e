/* See checksum.h. */
#include "gcs/wire/checksum.h"

#include <string.h>

static const char base64_digits[64 + 1] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* The base64 digits that carry a checksum, and the bits of the last one that do not. */
#define CRC_DIGITS 6
#define CRC_DIGITS_SPARE_BITS (CRC_DIGITS * 6 - 32)
static_assert(CRC_DIGITS + 2 == RG_CRC32C_TEXT_SIZE, "two characters of padding");

void rg_crc32c_format(uint32_t crc, char out_text[RG_CRC32C_TEXT_SIZE])
{
    uint64_t bits = (uint64_t)crc << CRC_DIGITS_SPARE_BITS;
    for (int i = CRC_DIGITS - 1; i >= 0; i--) {
        out_text[i] = base64_digits[bits & 63];
        bits >>= 6;
    }
    memcpy(out_text + CRC_DIGITS, "==", 2);
}

struct rg_crc32c_text rg_crc32c_text(uint32_t crc)
{
    struct rg_crc32c_text out = {.text = ""};
    rg_crc32c_format(crc, out.text);
    return out;
}

static int digit_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int rg_crc32c_parse(const char *text, size_t size, uint32_t *out_crc)
{
    if (size != RG_CRC32C_TEXT_SIZE || memcmp(text + CRC_DIGITS, "==", 2) != 0) {
        return -EINVAL;
    }
    uint64_t bits = 0;
    for (int i = 0; i < CRC_DIGITS; i++) {
        int value = digit_value(text[i]);
        if (value < 0) {
            return -EINVAL;
        }
        bits = bits << 6 | (uint64_t)value;
    }
    if ((bits & ((1 << CRC_DIGITS_SPARE_BITS) - 1)) != 0) {
        return -EINVAL;
    }
    *out_crc = (uint32_t)(bits >> CRC_DIGITS_SPARE_BITS);
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* One hash, with blanks around it. */
static int add_hash(struct rg_object_hashes *hashes, const char *hash, size_t size)
{
    static const char prefix[] = "crc32c=";
    const size_t prefix_size = sizeof(prefix) - 1;
    while (size > 0 && is_blank(hash[0])) {
        hash++;
        size--;
    }
    while (size > 0 && is_blank(hash[size - 1])) {
        size--;
    }
    if (size < prefix_size || memcmp(hash, prefix, prefix_size) != 0) {
        return 0;
    }
    uint32_t crc;
    if (rg_crc32c_parse(hash + prefix_size, size - prefix_size, &crc) < 0 ||
        (hashes->has_crc32c && hashes->crc32c != crc)) {
        return -EBADMSG;
    }
    *hashes = (struct rg_object_hashes){.has_crc32c = true, .crc32c = crc};
    return 0;
}

int rg_object_hashes_parse(struct rg_object_hashes *hashes, const char *value, size_t size)
{
    struct rg_object_hashes sum = *hashes;
    const char *end = value + size;
    while (value < end) {
        const char *comma = memchr(value, ',', (size_t)(end - value));
        const char *hash_end = comma == NULL ? end : comma;
        int error = add_hash(&sum, value, (size_t)(hash_end - value));
        if (error < 0) {
            return error;
        }
        value = comma == NULL ? end : comma + 1;
    }
    *hashes = sum;
    return 0;
}
