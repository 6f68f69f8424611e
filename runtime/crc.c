/* CRC-32C over ISA-L, see <ringest/gcs.h>, and CRC-32. */
#include "runtime/base.h"

#include <isa-l/crc.h>
#include <ringest/gcs.h>

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
