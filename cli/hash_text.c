/* Checksums as text: see hash_text.h. */
#include "cli/hash_text.h"

#include "runtime/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MD5_SIZE 16
#define MD5_BASE64_SIZE 24
static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const char *hash_text_crc32c(uint32_t crc32c, bool hex, char buffer[static HASH_TEXT_SIZE])
{
    if (hex) {
        snprintf(buffer, HASH_TEXT_SIZE, "%08" PRIx32, crc32c);
        return buffer;
    }
    /* RFC 4648: 32 bits, the first byte first, are five groups of six and two bits that are left.
     */
    for (unsigned i = 0; i < 5; i++) {
        buffer[i] = letters[crc32c >> (26 - 6 * i) & 63];
    }
    buffer[5] = letters[(crc32c & 3) << 4];
    strcpy(buffer + 6, "==");
    return buffer;
}

const char *hash_text_digest(const uint8_t md5[static 16], bool hex,
                             char buffer[static HASH_TEXT_SIZE])
{
    char *out = buffer;
    for (unsigned i = 0; i < MD5_SIZE && hex; i++) {
        out += snprintf(out, 3, "%02x", md5[i]);
    }
    /* Five groups of three bytes, and one byte that is left. */
    for (unsigned i = 0; i < MD5_SIZE && !hex; i += 3) {
        bool is_last = i + 1 == MD5_SIZE;
        uint32_t bits = (uint32_t)md5[i] << 16 | (is_last ? 0 : md5[i + 1] << 8 | md5[i + 2]);
        *out++ = letters[bits >> 18];
        *out++ = letters[bits >> 12 & 63];
        *out++ = is_last ? '=' : letters[bits >> 6 & 63];
        *out++ = is_last ? '=' : letters[bits & 63];
    }
    *out = '\0';
    return buffer;
}

const char *hash_text_md5(const char *md5, bool hex, char buffer[static HASH_TEXT_SIZE])
{
    if (!hex || md5 == NULL || strlen(md5) != MD5_BASE64_SIZE ||
        strcmp(md5 + MD5_BASE64_SIZE - 2, "==") != 0) {
        return md5;
    }
    uint32_t bits = 0;
    unsigned held = 0;
    char *out = buffer;
    for (unsigned i = 0; i < MD5_BASE64_SIZE - 2; i++) {
        const char *letter = strchr(letters, md5[i]);
        if (letter == NULL) {
            return md5;
        }
        bits = bits << 6 | (uint32_t)(letter - letters);
        held += 6;
        if (held >= 8) {
            held -= 8;
            out += snprintf(out, 3, "%02x", bits >> held & 255);
        }
    }
    RG_ASSERT(out - buffer == 2 * MD5_SIZE);
    return buffer;
}
