/* Text that answers are made of: a buffer that grows and the few encodings that GCS uses (JSON,
 * XML, percent, base64, dates). Errors are sticky: a builder that once ran out of memory stays
 * `failed` and takes nothing more, so that only the end needs a check. The format functions at the
 * bottom write into the caller's array and allocate nothing. */
#ifndef RG_EMULATOR_WIRE_TEXT_H
#define RG_EMULATOR_WIRE_TEXT_H

#include "http/h1_decoder.h"
#include "runtime/base.h"

#include <string.h>

/* Zeroed is empty. */
struct rg_text {
    char *data;
    size_t size, capacity;
    bool failed;
};

void rg_text_fini(struct rg_text *text);
void rg_text_append(struct rg_text *text, const void *data, size_t size);
void rg_text_append_str(struct rg_text *text, const char *string);
void rg_text_printf(struct rg_text *text, const char *format, ...) RG_PRINTF(2, 3);
/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void rg_text_append_json(struct rg_text *text, const char *data, size_t size);
/* Character data of XML. Control characters, which XML 1.0 cannot hold, become U+FFFD. */
void rg_text_append_xml(struct rg_text *text, const char *data, size_t size);
/* Everything but letters, digits and "-._~" as %XX; "/" stays. */
void rg_text_append_percent(struct rg_text *text, const char *data, size_t size);

static inline struct rg_h1_slice rg_text_slice(const char *string)
{
    return (struct rg_h1_slice){string, (uint32_t)strlen(string)};
}

static inline bool rg_text_equals(struct rg_h1_slice slice, const char *string)
{
    return slice.size == strlen(string) && memcmp(slice.data, string, slice.size) == 0;
}

/* Order by bytes, which for UTF-8 is the order of code points: <0, 0 or >0. */
int rg_text_compare(struct rg_h1_slice a, struct rg_h1_slice b);
bool rg_text_starts_with(struct rg_h1_slice slice, struct rg_h1_slice prefix);
bool rg_text_is_utf8(struct rg_h1_slice slice);
/* Digits only, at most INT64_MAX: 0, or -EINVAL. */
int rg_text_parse_int64(struct rg_h1_slice slice, int64_t *out_value);

#define RG_TEXT_BASE64_SIZE(size) (((size) + 2) / 3 * 4)
/* Writes RG_TEXT_BASE64_SIZE(size) characters, without a NUL. */
void rg_text_format_base64(char *out, const uint8_t *data, size_t size);
/* Takes both alphabets, padding or none. Returns the size, or -EINVAL, or -EMSGSIZE when the result
 * does not fit out_max bytes. */
int rg_text_parse_base64(struct rg_h1_slice slice, uint8_t *out, size_t out_max);

#define RG_TEXT_HTTP_DATE_SIZE 29
/* "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 section 5.6.7) and a NUL. */
void rg_text_format_http_date(char out[RG_TEXT_HTTP_DATE_SIZE + 1], int64_t seconds);
#define RG_TEXT_RFC3339_SIZE 24
/* "1994-11-06T08:49:37.000Z" and a NUL. */
void rg_text_format_rfc3339(char out[RG_TEXT_RFC3339_SIZE + 1], int64_t microseconds);
/* Decimal digits of `value`, without a NUL; returns how many (at most 20). */
size_t rg_text_format_u64(char *out, uint64_t value);

/* Append <name>value</name> with the value escaped; the second one a time, as in RFC 3339. */
void rg_text_append_element(struct rg_text *text, const char *name, struct rg_h1_slice value);
void rg_text_append_time(struct rg_text *text, const char *name, int64_t microseconds);

#endif
