/* CRC-32C over ISA-L, see checksum.h, and CRC-32. */
#include "gcs/wire/checksum.h"

#include <isa-l/crc.h>
#include <string.h>

/* ISA-L takes the size as an int. */
#define PIECE_SIZE_MAX ((size_t)1 << 30)

/* The polynomial, reflected: bit 31 is the coefficient of x^0, and x^32 is implied. */
#define POLYNOMIAL UINT32_C(0x82f63b78)

/* x^(2^k) modulo the polynomial. x has the order 2^31 - 1 there, so that the sequence of squares
 * repeats after 31. */
#define POWERS 31
static const uint32_t powers[POWERS] = {
    0x40000000, 0x20000000, 0x08000000, 0x00800000, 0x00008000, 0x82f63b78, 0x6ea2d55c, 0x18b8ea18,
    0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a, 0x35d73a62,
    0x28461564, 0xbf455269, 0xe2ea32dc, 0xfe7740e6, 0xf946610b, 0x3c204f8f, 0x538586e3, 0x59726915,
    0x734d5309, 0xbc1ac763, 0x7d0722cc, 0xd289cabe, 0xe94ca9bc, 0x05b74f3f, 0xa51e1f42,
};

static const char base64_digits[64 + 1] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* The base64 digits that carry a checksum, and the bits of the last one that do not. */
#define CRC_DIGITS 6
#define CRC_DIGITS_SPARE_BITS (CRC_DIGITS * 6 - 32)
static_assert(CRC_DIGITS + 2 == RG_CRC32C_TEXT_SIZE, "two characters of padding");

uint32_t rg_crc32c(uint32_t crc, const void *data, size_t size)
{
    /* ISA-L computes the bare remainder; both inversions are the caller's. */
    const uint8_t *at = data;
    uint32_t remainder = ~crc;
    while (size > 0) {
        size_t piece = RG_MIN(size, PIECE_SIZE_MAX);
        remainder = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)piece, remainder);
        at += piece;
        size -= piece;
    }
    return ~remainder;
}

uint32_t rg_crc32(uint32_t crc, const void *data, size_t size)
{
    return crc32_gzip_refl(crc, data, size);
}

/* The product of two polynomials, modulo ours. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a != 0; a <<= 1) {
        product ^= b & (0 - (a >> 31));
        b = (b >> 1) ^ (POLYNOMIAL & (0 - (b & 1)));
    }
    return product;
}

uint32_t rg_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b)
{
    /* The remainder of A moves on by the bits of B: a factor of x^8 for each byte. The inversions
     * cancel each other. */
    unsigned k = 3;
    for (; size_b != 0; size_b >>= 1) {
        if (size_b & 1) {
            crc_a = multiply(powers[k], crc_a);
        }
        k = k + 1 == POWERS ? 0 : k + 1;
    }
    return crc_a ^ crc_b;
}

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
