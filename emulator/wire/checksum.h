/* CRC-32C (Castagnoli) as Cloud Storage means it, by ISA-L. Its function takes the size as an
 * int, and leaves the inversions before and after to its caller. */
#ifndef RG_EMULATOR_WIRE_CHECKSUM_H
#define RG_EMULATOR_WIRE_CHECKSUM_H

#include "runtime/base.h"

#include <isa-l/crc.h>

#define RG_CHECKSUM_PIECE_MAX ((size_t)1 << 30)

/* The remainder of the register `raw` after the bytes: no inversions, so that pieces can be
 * combined. */
static inline uint32_t rg_checksum_extend_raw(uint32_t raw, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    while (size > 0) {
        size_t piece = RG_MIN(size, RG_CHECKSUM_PIECE_MAX);
        raw = crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)piece, raw);
        bytes += piece;
        size -= piece;
    }
    return raw;
}

/* Extends the CRC of some bytes by more; 0 is the CRC of none. */
static inline uint32_t rg_checksum_extend(uint32_t crc, const void *data, size_t size)
{
    return ~rg_checksum_extend_raw(~crc, data, size);
}

#define RG_CHECKSUM_POLYNOMIAL 0x82f63b78u /* Reflected: bit 31 is x^0. */
#define RG_CHECKSUM_ONE 0x80000000u

/* The product of two polynomials modulo that of CRC-32C. */
static inline uint32_t rg_checksum_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = RG_CHECKSUM_ONE; bit != 0; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b & 1 ? b >> 1 ^ RG_CHECKSUM_POLYNOMIAL : b >> 1;
    }
    return product;
}

/* Combines the CRCs of two runs of bytes into that of the first followed by the second, which
 * has `second_size` bytes. The first is moved up by as many zero bytes, which multiplies it by
 * x^(8 second_size). */
static inline uint32_t rg_checksum_combine(uint32_t first, uint32_t second, uint64_t second_size)
{
    uint32_t square = RG_CHECKSUM_ONE >> 8; /* x^8 */
    for (; second_size > 0; second_size >>= 1) {
        if (second_size & 1) {
            first = rg_checksum_multiply(first, square);
        }
        square = rg_checksum_multiply(square, square);
    }
    return first ^ second;
}

#endif
