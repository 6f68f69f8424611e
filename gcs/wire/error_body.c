/* See error_body.h. The body is searched rather than parsed: it may be cut, be quoted by a proxy,
 * or be no JSON at all in spite of its type, and something readable must come out each time. */
#include "gcs/wire/error_body.h"

#include "gcs/wire/utf8.h"
#include "http/h1_decoder.h"

#include <string.h>

enum encoding { PLAIN, JSON, XML };

#define REPLACEMENT '?'

/* The line that is written. */
struct line {
    char *out;
    size_t size, capacity; /* The NUL is beyond the capacity. */
    bool space_due;        /* White space was met, and comes before the next character. */
    bool full;
};

static struct line line_begin(char *out, size_t capacity)
{
    RG_ASSERT(capacity > 0);
    return (struct line){.out = out, .capacity = capacity - 1};
}

static size_t line_end(struct line *line)
{
    line->out[line->size] = '\0';
    return line->size;
}

/* White space and controls: C0, DEL, C1, which a terminal might obey, and U+2028 and U+2029, which
 * end lines. */
static bool is_space(uint32_t code)
{
    return code <= ' ' || (code >= 0x7f && code <= 0xa0) || code == 0x2028 || code == 0x2029;
}

static void line_put(struct line *line, uint32_t code)
{
    char text[RG_UTF8_SIZE_MAX];
    if (is_space(code)) {
        line->space_due = line->size > 0;
        return;
    }
    size_t size = (size_t)rg_utf8_encode(code, text);
    if (line->full || line->capacity - line->size < size + line->space_due) {
        line->full = true;
        return;
    }
    if (line->space_due) {
        line->out[line->size++] = ' ';
        line->space_due = false;
    }
    memcpy(line->out + line->size, text, size);
    line->size += size;
}

static void line_put_str(struct line *line, const char *text)
{
    for (; *text != '\0'; text++) {
        line_put(line, (uint8_t)*text);
    }
}

static size_t next_plain(struct rg_h1_slice text, uint32_t *out_code)
{
    int size = rg_utf8_decode(text.data, text.size, out_code);
    if (size < 0) {
        *out_code = REPLACEMENT;
        return 1;
    }
    return (size_t)size;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* The four digits behind a \u; -1 where they are not. */
static int32_t hex_unit(struct rg_h1_slice text, uint32_t at)
{
    int32_t unit = 0;
    if (text.size < at + 4) {
        return -1;
    }
    for (uint32_t i = at; i < at + 4; i++) {
        int value = hex_value(text.data[i]);
        if (value < 0) {
            return -1;
        }
        unit = unit << 4 | value;
    }
    return unit;
}

/* An escape of JSON (RFC 8259 section 7), a pair of surrogates included. */
static size_t next_json(struct rg_h1_slice text, uint32_t *out_code)
{
    if (text.data[0] != '\\' || text.size < 2) {
        return next_plain(text, out_code);
    }
    char escape = text.data[1];
    if (escape != 'u') {
        *out_code = strchr("bfnrt", escape) != NULL ? ' ' : (uint8_t)escape;
        return *out_code < 0x80 ? 2 : 1;
    }
    int32_t unit = hex_unit(text, 2);
    if (unit < 0) {
        *out_code = REPLACEMENT;
        return 2;
    }
    if (unit >= 0xd800 && unit <= 0xdbff && text.size >= 12 && text.data[6] == '\\' &&
        text.data[7] == 'u') {
        int32_t low = hex_unit(text, 8);
        if (low >= 0xdc00 && low <= 0xdfff) {
            *out_code = 0x10000 + (uint32_t)((unit - 0xd800) << 10 | (low - 0xdc00));
            return 12;
        }
    }
    *out_code = rg_utf8_code_valid((uint32_t)unit) ? (uint32_t)unit : REPLACEMENT;
    return 6;
}

/* One of XML's own five entities. Others stay as they are. */
static size_t next_xml(struct rg_h1_slice text, uint32_t *out_code)
{
    static const struct {
        const char *entity;
        char character;
    } entities[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(entities); i++) {
        size_t size = strlen(entities[i].entity);
        if (text.size >= size && memcmp(text.data, entities[i].entity, size) == 0) {
            *out_code = (uint32_t)entities[i].character;
            return size;
        }
    }
    return next_plain(text, out_code);
}

static void line_put_text(struct line *line, struct rg_h1_slice text, enum encoding encoding)
{
    while (text.size > 0 && !line->full) {
        uint32_t code;
        size_t used = encoding == JSON  ? next_json(text, &code)
                      : encoding == XML ? next_xml(text, &code)
                                        : next_plain(text, &code);
        RG_ASSERT(used > 0 && used <= text.size);
        line_put(line, code);
        text.data += used;
        text.size -= (uint32_t)used;
    }
}

/* What lies behind the first `mark` in `text`; empty where there is none. */
static struct rg_h1_slice behind(struct rg_h1_slice text, const char *mark)
{
    size_t size = strlen(mark);
    const char *found = text.size == 0 ? NULL : memmem(text.data, text.size, mark, size);
    if (found == NULL) {
        return (struct rg_h1_slice){0};
    }
    const char *rest = found + size;
    return (struct rg_h1_slice){rest, (uint32_t)(text.data + text.size - rest)};
}

/* Takes off the front what may stand between a member's name and the text of its value. False when
 * no text follows. */
static bool skip_to_text(struct rg_h1_slice *rest)
{
    bool colon = false;
    for (; rest->size > 0; rest->data++, rest->size--) {
        char c = rest->data[0];
        if (c == '"' && colon) {
            rest->data++;
            rest->size--;
            return true;
        }
        if (c == ':' && !colon) {
            colon = true;
        } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
            return false;
        }
    }
    return false;
}

/* The text, still escaped, of the first member of that name (with its quotes) that has a text,
 * however deep it lies. Empty where there is none. */
static struct rg_h1_slice find_member(struct rg_h1_slice body, const char *quoted_name)
{
    struct rg_h1_slice rest = behind(body, quoted_name);
    while (rest.size > 0 && !skip_to_text(&rest)) {
        rest = behind(rest, quoted_name);
    }
    for (uint32_t size = 0; size < rest.size; size++) {
        if (rest.data[size] == '\\') {
            size++;
        } else if (rest.data[size] == '"') {
            rest.size = size;
        }
    }
    return rest;
}

static struct rg_h1_slice find_json_message(struct rg_h1_slice body)
{
    static const char *const names[] = {"\"message\"", "\"error_description\"", "\"error\""};
    struct rg_h1_slice message = {0};
    for (size_t i = 0; i < RG_ARRAY_LEN(names) && message.size == 0; i++) {
        message = find_member(body, names[i]);
    }
    return message;
}

static struct rg_h1_slice find_element(struct rg_h1_slice body, const char *start, const char *end)
{
    struct rg_h1_slice text = behind(body, start);
    const char *found = text.size == 0 ? NULL : memmem(text.data, text.size, end, strlen(end));
    return (struct rg_h1_slice){text.data, found == NULL ? 0 : (uint32_t)(found - text.data)};
}

/* The message may be JSON itself, in a string: then its message is meant. */
static void put_json_message(struct line *line, struct rg_h1_slice message)
{
    char inner[RG_ERROR_MESSAGE_SIZE_MAX];
    struct line inner_line = line_begin(inner, sizeof(inner));
    line_put_text(&inner_line, message, JSON);
    struct rg_h1_slice text = {inner, (uint32_t)line_end(&inner_line)};
    struct rg_h1_slice nested = {0};
    if (text.size > 0 && text.data[0] == '{') {
        nested = find_json_message(text);
    }
    if (nested.size > 0) {
        line_put_text(line, nested, JSON);
    } else {
        line_put_text(line, text, PLAIN);
    }
}

static bool slice_is(struct rg_h1_slice slice, const char *text)
{
    return slice.size == strlen(text) && memcmp(slice.data, text, slice.size) == 0;
}

static void put_xml_message(struct line *line, struct rg_h1_slice body)
{
    struct rg_h1_slice code = find_element(body, "<Code>", "</Code>");
    struct rg_h1_slice message = find_element(body, "<Message>", "</Message>");
    struct rg_h1_slice details = find_element(body, "<Details>", "</Details>");
    if (details.size > 0 && message.size > 0 && slice_is(code, "AccessDenied")) {
        /* The message is "Access denied."; these say who lacks which permission. */
        message = details;
    }
    line_put_text(line, code, XML);
    if (code.size > 0 && message.size > 0) {
        line_put_str(line, ": ");
    }
    line_put_text(line, message, XML);
    if (line->size == 0) {
        line_put_text(line, find_element(body, "<title>", "</title>"), XML);
    }
}

size_t rg_error_message(const char *data, size_t size, char *out, size_t capacity)
{
    struct rg_h1_slice body = {data, (uint32_t)RG_MIN(size, (size_t)RG_ERROR_BODY_SCAN_MAX)};
    struct line line = line_begin(out, RG_MIN(capacity, (size_t)RG_ERROR_MESSAGE_SIZE_MAX));
    struct rg_h1_slice message = find_json_message(body);
    if (message.size > 0) {
        put_json_message(&line, message);
    } else {
        put_xml_message(&line, body);
    }
    if (line.size == 0) {
        line = line_begin(out, RG_MIN(capacity, (size_t)RG_ERROR_EXCERPT_SIZE_MAX + 1));
        line_put_text(&line, body, PLAIN);
    }
    return line_end(&line);
}
