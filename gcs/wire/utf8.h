/* UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef RG_GCS_WIRE_UTF8_H
#define RG_GCS_WIRE_UTF8_H

#include "runtime/base.h"

#include <errno.h>

#define RG_UTF8_SIZE_MAX 4 /* bytes of one character */

/* Decodes the character at the start of `text`, of which `size` bytes, at least one, are there.
 * Returns how many bytes it has, or -EILSEQ. */
int rg_utf8_decode(const char *text, size_t size, uint32_t *out_code);

bool rg_utf8_valid(const char *text, size_t size);

/* Writes up to RG_UTF8_SIZE_MAX bytes and returns how many. `code` is a valid character. */
int rg_utf8_encode(uint32_t code, char *out);

/* False for surrogates and beyond the end of Unicode. */
static inline bool rg_utf8_code_valid(uint32_t code)
{
    return code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

#endif
