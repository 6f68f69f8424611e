/* Building, escaping, comparing and parsing of small texts; see text.h. */
#include "emulator/wire/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_CAPACITY_MIN 1024
#define US_PER_S INT64_C(1000000)
#define SECONDS_PER_DAY INT64_C(86400)

void rg_text_fini(struct rg_text *text)
{
    free(text->data);
    *text = (struct rg_text){0};
}

/* Makes room for `size` more bytes, and for the NUL that vsnprintf writes. */
static bool text_reserve(struct rg_text *text, size_t size)
{
    size_t needed;
    if (text->failed || rg_add_overflow(text->size, size, &needed) ||
        rg_add_overflow(needed, (size_t)1, &needed)) {
        text->failed = true;
        return false;
    }
    if (needed <= text->capacity) {
        return true;
    }
    size_t capacity = RG_MAX(RG_MAX(needed, text->capacity * 2), (size_t)TEXT_CAPACITY_MIN);
    char *data = realloc(text->data, capacity);
    if (data == NULL) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void rg_text_append(struct rg_text *text, const void *data, size_t size)
{
    if (size > 0 && text_reserve(text, size)) {
        memcpy(text->data + text->size, data, size);
        text->size += size;
    }
}

void rg_text_append_str(struct rg_text *text, const char *string)
{
    rg_text_append(text, string, strlen(string));
}

void rg_text_printf(struct rg_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    RG_ASSERT(size >= 0);
    if (!text_reserve(text, (size_t)size)) {
        return;
    }
    va_start(args, format);
    vsnprintf(text->data + text->size, (size_t)size + 1, format, args);
    va_end(args);
    text->size += (size_t)size;
}

/* The size of the well-formed UTF-8 sequence that starts at `data` (RFC 3629 section 4), 0 when
 * there is none: overlong forms, surrogates and what is above U+10FFFF are refused. */
static size_t utf8_sequence(const uint8_t *data, size_t size)
{
    uint8_t lead = data[0];
    if (lead < 0x80) {
        return 1;
    }
    size_t count = lead >= 0xc2 && lead <= 0xdf   ? 2
                   : (lead & 0xf0) == 0xe0        ? 3
                   : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                  : 0;
    if (count == 0 || count > size) {
        return 0;
    }
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (data[1] < low || data[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < count; i++) {
        if ((data[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return count;
}

bool rg_text_is_utf8(struct rg_h1_slice slice)
{
    const uint8_t *data = (const uint8_t *)slice.data;
    for (size_t at = 0; at < slice.size;) {
        size_t count = utf8_sequence(data + at, slice.size - at);
        if (count == 0) {
            return false;
        }
        at += count;
    }
    return true;
}

/* What replaces a character in an escaped text; NULL: it stays. `scratch` has room for 8 bytes. */
typedef const char *escape_function(uint8_t c, char *scratch);

static const char *escape_json(uint8_t c, char *scratch)
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        if (c >= 0x20 && c != 0x7f) {
            return NULL;
        }
        snprintf(scratch, 8, "\\u%04x", c);
        return scratch;
    }
}

static const char *escape_xml(uint8_t c, char *scratch)
{
    (void)scratch;
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\t':
        return "&#9;";
    case '\n':
        return "&#10;";
    case '\r':
        return "&#13;";
    default:
        return c < 0x20 ? "\xef\xbf\xbd" : NULL;
    }
}

/* Characters that no encoding escapes, which most texts consist of. */
static bool is_plain(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= '-' && c <= ':') || (c >= 'A' && c <= 'Z');
}

/* Runs of characters that stand for themselves are appended in one piece. */
static void text_append_escaped(struct rg_text *text, const char *data, size_t size,
                                escape_function *escape)
{
    const uint8_t *bytes = (const uint8_t *)data;
    char scratch[8];
    size_t run = 0;
    for (size_t at = 0; at < size;) {
        if (is_plain(bytes[at])) {
            at++;
            continue;
        }
        size_t count = utf8_sequence(bytes + at, size - at);
        const char *replacement = count == 0   ? "\xef\xbf\xbd"
                                  : count == 1 ? escape(bytes[at], scratch)
                                               : NULL;
        if (replacement != NULL) {
            rg_text_append(text, data + run, at - run);
            rg_text_append_str(text, replacement);
            run = at + 1;
        }
        at += count == 0 ? 1 : count;
    }
    rg_text_append(text, data + run, size - run);
}

void rg_text_append_json(struct rg_text *text, const char *data, size_t size)
{
    rg_text_append(text, "\"", 1);
    text_append_escaped(text, data, size, escape_json);
    rg_text_append(text, "\"", 1);
}

void rg_text_append_xml(struct rg_text *text, const char *data, size_t size)
{
    text_append_escaped(text, data, size, escape_xml);
}

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void rg_text_append_percent(struct rg_text *text, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (is_unreserved(data[i]) || data[i] == '/') {
            rg_text_append(text, data + i, 1);
        } else {
            rg_text_printf(text, "%%%02X", (uint8_t)data[i]);
        }
    }
}

int rg_text_compare(struct rg_h1_slice a, struct rg_h1_slice b)
{
    size_t common = RG_MIN(a.size, b.size);
    int order = common > 0 ? memcmp(a.data, b.data, common) : 0;
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

bool rg_text_starts_with(struct rg_h1_slice slice, struct rg_h1_slice prefix)
{
    return slice.size >= prefix.size &&
           (prefix.size == 0 || memcmp(slice.data, prefix.data, prefix.size) == 0);
}

int rg_text_parse_int64(struct rg_h1_slice slice, int64_t *out_value)
{
    int64_t value = 0;
    for (uint32_t i = 0; i < slice.size; i++) {
        uint8_t digit = (uint8_t)(slice.data[i] - '0');
        if (digit > 9 || rg_mul_overflow(value, 10, &value) ||
            rg_add_overflow(value, digit, &value)) {
            return -EINVAL;
        }
    }
    if (slice.size == 0) {
        return -EINVAL;
    }
    *out_value = value;
    return 0;
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void rg_text_format_base64(char *out, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i += 3) {
        uint32_t group = (uint32_t)data[i] << 16;
        group |= i + 1 < size ? (uint32_t)data[i + 1] << 8 : 0;
        group |= i + 2 < size ? (uint32_t)data[i + 2] : 0;
        *out++ = base64_digits[group >> 18];
        *out++ = base64_digits[group >> 12 & 63];
        *out++ = i + 1 < size ? base64_digits[group >> 6 & 63] : '=';
        *out++ = i + 2 < size ? base64_digits[group & 63] : '=';
    }
}

static int base64_value(char c)
{
    if (c == '-' || c == '_') {
        return c == '-' ? 62 : 63;
    }
    const char *digit = c != '\0' ? strchr(base64_digits, c) : NULL;
    return digit != NULL ? (int)(digit - base64_digits) : -EINVAL;
}

int rg_text_parse_base64(struct rg_h1_slice slice, uint8_t *out, size_t out_max)
{
    size_t size = slice.size;
    while (size > 0 && slice.size - size < 2 && slice.data[size - 1] == '=') {
        size--;
    }
    if (size % 4 == 1 || (size != slice.size && slice.size % 4 != 0)) {
        return -EINVAL;
    }
    if (size / 4 * 3 + size % 4 * 3 / 4 > out_max) {
        return -EMSGSIZE;
    }
    size_t count = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < size; i++) {
        int value = base64_value(slice.data[i]);
        if (value < 0) {
            return -EINVAL;
        }
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 0) {
            out[count++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
        }
    }
    return (int)count;
}

struct civil_date {
    int64_t year;
    uint32_t month, day; /* From 1. */
};

/* The Gregorian date of a day since 1970-01-01, by counting from a 1 March, so that the leap day is
 * the last of its year, in eras of 400 years, which all have 146,097 days. */
static struct civil_date civil_from_days(int64_t days)
{
    days += 719468; /* From 0000-03-01 to 1970-01-01. */
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    uint32_t day_of_era = (uint32_t)(days - era * 146097);
    uint32_t year =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    uint32_t day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    uint32_t month = (5 * day_of_year + 2) / 153; /* From March. */
    struct civil_date date = {
        .year = (int64_t)year + era * 400,
        .month = month < 10 ? month + 3 : month - 9,
        .day = day_of_year - (153 * month + 2) / 5 + 1,
    };
    date.year += date.month <= 2;
    return date;
}

static char *put_digits(char *out, uint32_t value, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        out[i] = (char)('0' + value % 10);
        value /= 10;
    }
    return out + count;
}

static char *put_string(char *out, const char *string, size_t size)
{
    memcpy(out, string, size);
    return out + size;
}

static char *put_time(char *out, uint32_t second_of_day)
{
    out = put_digits(out, second_of_day / 3600, 2);
    *out++ = ':';
    out = put_digits(out, second_of_day / 60 % 60, 2);
    *out++ = ':';
    return put_digits(out, second_of_day % 60, 2);
}

static int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

void rg_text_format_http_date(char out[RG_TEXT_HTTP_DATE_SIZE + 1], int64_t seconds)
{
    static const char week_days[] = "ThuFriSatSunMonTueWed"; /* 1970-01-01 was a Thursday. */
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int64_t days = floor_divide(seconds, SECONDS_PER_DAY);
    struct civil_date date = civil_from_days(days);
    char *at = put_string(out, week_days + 3 * (days - 7 * floor_divide(days, 7)), 3);
    at = put_string(at, ", ", 2);
    at = put_digits(at, date.day, 2);
    *at++ = ' ';
    at = put_string(at, months + (size_t)3 * (date.month - 1), 3);
    *at++ = ' ';
    at = put_digits(at, (uint32_t)date.year, 4);
    *at++ = ' ';
    at = put_time(at, (uint32_t)(seconds - days * SECONDS_PER_DAY));
    at = put_string(at, " GMT", 5);
    RG_ASSERT(at == out + RG_TEXT_HTTP_DATE_SIZE + 1);
}

void rg_text_format_rfc3339(char out[RG_TEXT_RFC3339_SIZE + 1], int64_t microseconds)
{
    int64_t seconds = floor_divide(microseconds, US_PER_S);
    int64_t days = floor_divide(seconds, SECONDS_PER_DAY);
    struct civil_date date = civil_from_days(days);
    char *at = put_digits(out, (uint32_t)date.year, 4);
    *at++ = '-';
    at = put_digits(at, date.month, 2);
    *at++ = '-';
    at = put_digits(at, date.day, 2);
    *at++ = 'T';
    at = put_time(at, (uint32_t)(seconds - days * SECONDS_PER_DAY));
    *at++ = '.';
    at = put_digits(at, (uint32_t)((microseconds - seconds * US_PER_S) / 1000), 3);
    at = put_string(at, "Z", 2);
    RG_ASSERT(at == out + RG_TEXT_RFC3339_SIZE + 1);
}

size_t rg_text_format_u64(char *out, uint64_t value)
{
    char reversed[20];
    size_t count = 0;
    do {
        reversed[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    for (size_t i = 0; i < count; i++) {
        out[i] = reversed[count - 1 - i];
    }
    return count;
}

void rg_text_append_element(struct rg_text *text, const char *name, struct rg_h1_slice value)
{
    rg_text_printf(text, "<%s>", name);
    rg_text_append_xml(text, value.data, value.size);
    rg_text_printf(text, "</%s>", name);
}

void rg_text_append_time(struct rg_text *text, const char *name, int64_t microseconds)
{
    char time[RG_TEXT_RFC3339_SIZE + 1];
    rg_text_format_rfc3339(time, microseconds);
    rg_text_append_element(text, name, rg_text_slice(time));
}
