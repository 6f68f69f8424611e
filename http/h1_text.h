/* Classes of characters that heads and chunked bodies share (RFC 9110 section 5.6). */
#ifndef RG_HTTP_H1_TEXT_H
#define RG_HTTP_H1_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Everything but controls; HTAB is the one control that is allowed (RFC 9110 section 5.5). */
static inline bool rg_h1_is_value(char c)
{
    uint8_t byte = (uint8_t)c;
    return (byte >= 0x20 && byte != 0x7f) || byte == '\t';
}

static inline bool rg_h1_is_space(char c)
{
    return c == ' ' || c == '\t';
}

static inline bool rg_h1_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline char rg_h1_to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

#endif
