/* CRC-32C (Castagnoli) as GCS means it, over ISA-L, whose function leaves the inversions before and
 * after to its caller and takes the size as an int. */
#ifndef RG_EMULATOR_CHECKSUM_H
#define RG_EMULATOR_CHECKSUM_H

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

/* The CRC of what `crc` is of, 0 at first, followed by the bytes. */
static inline uint32_t rg_checksum_extend(uint32_t crc, const void *data, size_t size)
{
    return ~rg_checksum_extend_raw(~crc, data, size);
}

#endif
