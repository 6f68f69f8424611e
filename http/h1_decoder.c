/* The HTTP/1.1 decoder: see h1_decoder.h.
 *
 * A head is parsed in one pass from left to right, and each fault is reported at the first byte
 * that proves it. So a prefix of a message yields either -EAGAIN or exactly the error that the
 * whole message yields, however it was split; the tests rely on it. Parsing functions return the
 * position behind what they parsed, or NULL. NULL with `head->error` set: the message is refused;
 * without it: more bytes are needed.
 *
 * Invariant of a head that was accepted: all its slices lie within its bytes, and at most one field
 * states how its body ends. */
#include "http/h1_decoder.h"

#include "http/h1_text.h"

#include <assert.h>
#include <string.h>

/* "HTTP/1.1 200 " */
#define STATUS_LINE_SIZE_MIN 13
#define VERSION_SIZE 8

static const struct {
    int number;
    const char *text;
} errors[] = {
#define XX(name, number, text) [RG_H1_ERROR_##name] = {number, text},
    RG_H1_ERRORS(XX)
#undef XX
};
static_assert(RG_ARRAY_LEN(errors) == RG_H1_ERROR_COUNT, "every error has a number and a text");
static_assert(RG_H1_HEAD_SIZE_MAX >= RG_H1_TARGET_SIZE_MAX + RG_H1_METHOD_SIZE_MAX,
              "the longest request line leaves room for fields");

int rg_h1_error_number(enum rg_h1_error error)
{
    RG_ASSERT(error < RG_H1_ERROR_COUNT);
    return errors[error].number;
}

const char *rg_h1_error_text(enum rg_h1_error error)
{
    RG_ASSERT((unsigned)error < RG_H1_ERROR_COUNT);
    return errors[error].text;
}

/* Character classes. Heads are read in blocks of sixteen bytes, in the compiler's own vectors,
 * so that one source serves every architecture: a comparison makes bytes of all ones where it
 * holds. */
typedef uint8_t block __attribute__((vector_size(16)));
#define BLOCK_SIZE ((ptrdiff_t)sizeof(block))
#define BLOCK_ALL 0xffffu

static inline block block_load(const char *at)
{
    block bytes;
    memcpy(&bytes, at, sizeof(bytes));
    return bytes;
}

/* Bit i is set where byte i is all ones. Without an instruction for it, a multiplication gathers
 * the eight low bits of a word, byte 0 into bit 0. */
static inline uint32_t block_hits(block bytes)
{
#ifdef __SSE2__
    typedef char signed_block __attribute__((vector_size(16)));
    return (uint32_t)__builtin_ia32_pmovmskb128((signed_block)bytes);
#else
    uint32_t hits = 0;
    for (size_t half = 0; half < 2; half++) {
        uint64_t word;
        memcpy(&word, (const char *)&bytes + half * sizeof(word), sizeof(word));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        word &= UINT64_C(0x0101010101010101);
        hits |= (uint32_t)((word * UINT64_C(0x0102040810204080)) >> 56) << (8 * half);
    }
    return hits;
#endif
}

static inline block bytes_within(block bytes, uint8_t low, uint8_t high)
{
    return (block)(bytes - low <= (uint8_t)(high - low));
}

/* Letters and '-', which is what nearly all names consist of. */
static inline block bytes_common_in_names(block bytes)
{
    return bytes_within(bytes | 0x20, 'a', 'z') | (block)(bytes == '-');
}

static inline block bytes_control(block bytes)
{
    return (block)(bytes < 0x20) | (block)(bytes == 0x7f);
}

static inline block bytes_outside_targets(block bytes)
{
    return ~bytes_within(bytes, 0x21, 0x7e) | (block)(bytes == '#');
}

/* Token characters: RFC 9110 section 5.6.2. */
static const bool is_token[256] = {
    ['!'] = true,         ['#' ... '\''] = true, ['*'] = true,         ['+'] = true,
    ['-'] = true,         ['.'] = true,          ['0' ... '9'] = true, ['A' ... 'Z'] = true,
    ['^' ... 'z'] = true, ['|'] = true,          ['~'] = true,
};

static inline const char *skip_token(const char *at, const char *end)
{
    while (end - at >= BLOCK_SIZE) {
        uint32_t hits = block_hits(bytes_common_in_names(block_load(at))) ^ BLOCK_ALL;
        if (hits == 0) {
            at += BLOCK_SIZE;
            continue;
        }
        at += __builtin_ctz(hits);
        if (!is_token[(uint8_t)*at]) {
            return at;
        }
        at++;
    }
    while (at < end && is_token[(uint8_t)*at]) {
        at++;
    }
    return at;
}

static inline const char *skip_value(const char *at, const char *end)
{
    while (end - at >= BLOCK_SIZE) {
        uint32_t hits = block_hits(bytes_control(block_load(at)));
        if (hits == 0) {
            at += BLOCK_SIZE;
            continue;
        }
        at += __builtin_ctz(hits);
        if (*at != '\t') {
            return at;
        }
        at++;
    }
    while (at < end && rg_h1_is_value(*at)) {
        at++;
    }
    return at;
}

/* Visible ASCII without '#', which ends a target in a URL but never appears in a message.
 * Characters that should have been percent-encoded pass: they are data, and cannot end the
 * target. */
static inline bool is_target(char c)
{
    uint8_t byte = (uint8_t)c;
    return byte > 0x20 && byte < 0x7f && byte != '#';
}

static inline const char *skip_target(const char *at, const char *end)
{
    while (end - at >= BLOCK_SIZE) {
        uint32_t hits = block_hits(bytes_outside_targets(block_load(at)));
        if (hits != 0) {
            return at + __builtin_ctz(hits);
        }
        at += BLOCK_SIZE;
    }
    while (at < end && is_target(*at)) {
        at++;
    }
    return at;
}

size_t rg_h1_token_span(const char *data, size_t size)
{
    RG_ASSERT(data != NULL || size == 0);
    return (size_t)(skip_token(data, data + size) - data);
}

size_t rg_h1_value_span(const char *data, size_t size)
{
    RG_ASSERT(data != NULL || size == 0);
    return (size_t)(skip_value(data, data + size) - data);
}

size_t rg_h1_target_span(const char *data, size_t size)
{
    RG_ASSERT(data != NULL || size == 0);
    return (size_t)(skip_target(data, data + size) - data);
}

static bool slice_is(struct rg_h1_slice slice, const char *lower_case, size_t size)
{
    RG_ASSERT(lower_case[0] < 'A' || lower_case[0] > 'Z');
    if (slice.size != size) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        if (rg_h1_to_lower(slice.data[i]) != lower_case[i]) {
            return false;
        }
    }
    return true;
}

/* With a literal: its size is known when this is compiled. */
#define SLICE_IS(slice, literal) slice_is((slice), (literal), sizeof(literal) - 1)

/* One call of a parse function: where the bytes end, and what the fields have said so far. */
struct parse {
    struct rg_h1_head *head;
    const char *end;
    bool is_request;
    bool has_host, chunked, close, keep_alive;
};

__attribute__((cold, noinline)) static const char *refuse(struct parse *parse,
                                                          enum rg_h1_error error)
{
    RG_ASSERT(error != RG_H1_ERROR_NONE);
    RG_ASSERT(parse->head->error == RG_H1_ERROR_NONE);
    parse->head->error = error;
    return NULL;
}

/* At the byte that ended a run of allowed characters: the line end is consumed, anything else is a
 * fault, `otherwise` when it has nothing to do with line ends. */
static inline const char *parse_line_end(struct parse *parse, const char *at,
                                         enum rg_h1_error otherwise)
{
    RG_ASSERT(at <= parse->end);
    if (RG_LIKELY(parse->end - at >= 2 && memcmp(at, "\r\n", 2) == 0)) {
        return at + 2;
    }
    if (at == parse->end || (*at == '\r' && at + 1 == parse->end)) {
        return NULL;
    }
    if (*at == '\r') {
        return refuse(parse, RG_H1_ERROR_BARE_CR);
    }
    return refuse(parse, *at == '\n' ? RG_H1_ERROR_BARE_LF : otherwise);
}

static const char *parse_version(struct parse *parse, const char *at, enum rg_h1_error not_http)
{
    RG_ASSERT(at <= parse->end);
    static const char version[] = "HTTP/1.";
    size_t size = (size_t)(parse->end - at);
    for (size_t i = 0; i < RG_MIN(size, sizeof(version) - 1); i++) {
        if (at[i] != version[i]) {
            return refuse(parse, i < 5 ? not_http : RG_H1_ERROR_VERSION);
        }
    }
    if (size < VERSION_SIZE) {
        return NULL;
    }
    if (at[7] != '0' && at[7] != '1') {
        return refuse(parse, RG_H1_ERROR_VERSION);
    }
    parse->head->minor_version = (uint8_t)(at[7] - '0');
    return at + VERSION_SIZE;
}

/* status-line = HTTP-version SP status-code SP [ reason-phrase ], RFC 9112 section 4: the second
 * space is there even when the phrase is not. */
static const char *parse_status_line(struct parse *parse, const char *at)
{
    RG_ASSERT(!parse->is_request);
    const char *start = at;
    at = parse_version(parse, at, RG_H1_ERROR_STATUS_LINE);
    if (at == NULL || parse->end - start < STATUS_LINE_SIZE_MIN) {
        return NULL;
    }
    if (at[0] != ' ' || !rg_h1_is_digit(at[1]) || !rg_h1_is_digit(at[2]) ||
        !rg_h1_is_digit(at[3]) || at[4] != ' ') {
        return refuse(parse, RG_H1_ERROR_STATUS_LINE);
    }
    if (at[1] < '1' || at[1] > '5') {
        return refuse(parse, RG_H1_ERROR_STATUS_CODE);
    }
    struct rg_h1_head *head = parse->head;
    head->status = (uint16_t)((at[1] - '0') * 100 + (at[2] - '0') * 10 + (at[3] - '0'));
    const char *reason = at + 5;
    at = skip_value(reason, parse->end);
    head->reason = (struct rg_h1_slice){reason, (uint32_t)(at - reason)};
    return parse_line_end(parse, at, RG_H1_ERROR_REASON);
}

static const char *parse_method(struct parse *parse, const char *at)
{
    RG_ASSERT(parse->is_request);
    const char *method = at;
    at = skip_token(at, parse->end);
    size_t size = (size_t)(at - method);
    if (size > RG_H1_METHOD_SIZE_MAX) {
        return refuse(parse, RG_H1_ERROR_METHOD_SIZE);
    }
    if (at == parse->end) {
        return NULL;
    }
    if (size == 0 || *at != ' ') {
        return refuse(parse, RG_H1_ERROR_METHOD);
    }
    parse->head->method = (struct rg_h1_slice){method, (uint32_t)size};
    return at + 1;
}

static bool slice_starts_with(struct rg_h1_slice slice, const char *lower_case, size_t size)
{
    return slice.size >= size &&
           slice_is((struct rg_h1_slice){slice.data, (uint32_t)size}, lower_case, size);
}

/* RFC 9112 section 3.2: origin-form, absolute-form, and "*" for OPTIONS. The authority-form belongs
 * to CONNECT, which nothing here serves. */
static bool target_has_form(struct rg_h1_slice method, struct rg_h1_slice target)
{
    RG_ASSERT(method.size > 0);
    if (target.size == 0) {
        return false;
    }
    if (target.data[0] == '/') {
        return true;
    }
    if (target.size == 1 && target.data[0] == '*') {
        return method.size == 7 && memcmp(method.data, "OPTIONS", 7) == 0;
    }
    return slice_starts_with(target, "http://", 7) || slice_starts_with(target, "https://", 8);
}

static const char *parse_target(struct parse *parse, const char *at)
{
    RG_ASSERT(parse->head->method.size > 0);
    const char *target = at;
    at = skip_target(at, parse->end);
    size_t size = (size_t)(at - target);
    if (size > RG_H1_TARGET_SIZE_MAX) {
        return refuse(parse, RG_H1_ERROR_TARGET_SIZE);
    }
    if (at == parse->end) {
        return NULL;
    }
    struct rg_h1_head *head = parse->head;
    head->target = (struct rg_h1_slice){target, (uint32_t)size};
    if (*at == '\r' || *at == '\n') {
        return refuse(parse, RG_H1_ERROR_REQUEST_LINE);
    }
    if (*at != ' ' || !target_has_form(head->method, head->target)) {
        return refuse(parse, RG_H1_ERROR_TARGET);
    }
    return at + 1;
}

static const char *parse_request_line(struct parse *parse, const char *at)
{
    RG_ASSERT(parse->is_request);
    if ((at = parse_method(parse, at)) == NULL || (at = parse_target(parse, at)) == NULL) {
        return NULL;
    }
    at = parse_version(parse, at, RG_H1_ERROR_REQUEST_LINE);
    return at == NULL ? NULL : parse_line_end(parse, at, RG_H1_ERROR_REQUEST_LINE);
}

__attribute__((cold, noinline)) static const char *refuse_name(struct parse *parse, const char *at,
                                                               const char *name)
{
    RG_ASSERT(at < parse->end);
    if (rg_h1_is_space(*at)) {
        return refuse(parse, at == name ? RG_H1_ERROR_FOLDED_LINE : RG_H1_ERROR_SPACE_BEFORE_COLON);
    }
    if (*at == '\r' || *at == '\n') {
        at = parse_line_end(parse, at, RG_H1_ERROR_NO_COLON);
        return at == NULL ? NULL : refuse(parse, RG_H1_ERROR_NO_COLON);
    }
    return refuse(parse, RG_H1_ERROR_NAME);
}

/* The text without the white space around it. It has passed `skip_value`, so HTAB is its only
 * control character, and one comparison finds white space. */
static inline struct rg_h1_slice trim(const char *start, const char *end)
{
    while (start < end && (uint8_t)*start <= ' ') {
        start++;
    }
    while (start < end && (uint8_t)end[-1] <= ' ') {
        end--;
    }
    return (struct rg_h1_slice){start, (uint32_t)(end - start)};
}

static inline const char *parse_field(struct parse *parse, const char *at,
                                      struct rg_h1_header *header)
{
    RG_ASSERT(at < parse->end);
    const char *name = at;
    /* From the name, not from the colon: where the next line starts then does not wait for where
     * this name ends, which makes a head a tenth faster. Nothing before the colon is a control. */
    const char *line_end = skip_value(name, parse->end);
    at = skip_token(name, parse->end);
    if (at == parse->end) {
        return NULL;
    }
    if (RG_UNLIKELY(*at != ':' || at == name)) {
        return refuse_name(parse, at, name);
    }
    header->name = (struct rg_h1_slice){name, (uint32_t)(at - name)};
    RG_ASSERT(at < line_end);
    header->value = trim(at + 1, line_end);
    return parse_line_end(parse, line_end, RG_H1_ERROR_VALUE);
}

/* 1*DIGIT: no sign, no list, no white space (RFC 9110 section 8.6). */
static bool parse_decimal(struct rg_h1_slice text, uint64_t value_max, uint64_t *out_value)
{
    RG_ASSERT(text.data != NULL);
    uint64_t value = 0;
    for (uint32_t i = 0; i < text.size; i++) {
        if (!rg_h1_is_digit(text.data[i]) || rg_mul_overflow(value, UINT64_C(10), &value) ||
            rg_add_overflow(value, (uint64_t)(text.data[i] - '0'), &value) || value > value_max) {
            return false;
        }
    }
    if (text.size == 0) {
        return false;
    }
    *out_value = value;
    return true;
}

static enum rg_h1_error note_content_length(struct parse *parse, struct rg_h1_slice value)
{
    RG_ASSERT(value.data != NULL);
    struct rg_h1_head *head = parse->head;
    if (head->has_content_length) {
        return RG_H1_ERROR_CONTENT_LENGTH_TWICE;
    }
    if (parse->chunked) {
        return RG_H1_ERROR_LENGTH_AND_ENCODING;
    }
    if (!parse_decimal(value, RG_H1_CONTENT_LENGTH_MAX, &head->content_length)) {
        return RG_H1_ERROR_CONTENT_LENGTH;
    }
    head->has_content_length = true;
    return RG_H1_ERROR_NONE;
}

/* RFC 9112 section 6.1: HTTP/1.0 does not know the field, so whoever sent it there disagrees with
 * somebody about the end of the body. */
static enum rg_h1_error note_transfer_encoding(struct parse *parse, struct rg_h1_slice value)
{
    RG_ASSERT(parse->head->minor_version <= 1);
    if (parse->head->minor_version == 0) {
        return RG_H1_ERROR_TRANSFER_ENCODING_IN_1_0;
    }
    if (parse->chunked) {
        return RG_H1_ERROR_TRANSFER_ENCODING_TWICE;
    }
    if (parse->head->has_content_length) {
        return RG_H1_ERROR_LENGTH_AND_ENCODING;
    }
    if (!SLICE_IS(value, "chunked")) {
        return RG_H1_ERROR_TRANSFER_ENCODING;
    }
    parse->chunked = true;
    return RG_H1_ERROR_NONE;
}

/* A list of tokens, of which two matter and empty ones are allowed (RFC 9110 section 5.6.1). */
static enum rg_h1_error note_connection(struct parse *parse, struct rg_h1_slice value)
{
    const char *at = value.data, *end = value.data + value.size;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *token_end = comma == NULL ? end : comma;
        struct rg_h1_slice token = trim(at, token_end);
        parse->close |= SLICE_IS(token, "close");
        parse->keep_alive |= SLICE_IS(token, "keep-alive");
        at = comma == NULL ? end : comma + 1;
    }
    RG_ASSERT(at == end);
    return RG_H1_ERROR_NONE;
}

/* The characters of uri-host [ ":" port ] (RFC 3986 section 3.2.2). The field may be empty. */
static enum rg_h1_error note_host(struct parse *parse, struct rg_h1_slice value)
{
    RG_ASSERT(parse->is_request);
    if (parse->has_host) {
        return RG_H1_ERROR_HOST_TWICE;
    }
    for (uint32_t i = 0; i < value.size; i++) {
        char c = value.data[i];
        bool is_letter = rg_h1_to_lower(c) >= 'a' && rg_h1_to_lower(c) <= 'z';
        if (!is_letter && !rg_h1_is_digit(c) &&
            (c == '\0' || strchr("-._~!$&'()*+;=%:[]", c) == NULL)) {
            return RG_H1_ERROR_HOST;
        }
    }
    parse->has_host = true;
    return RG_H1_ERROR_NONE;
}

/* What a field says about the message itself. */
static enum rg_h1_error note_field(struct parse *parse, const struct rg_h1_header *header)
{
    RG_ASSERT(header->name.size > 0);
    if (SLICE_IS(header->name, "connection")) {
        return note_connection(parse, header->value);
    }
    if (SLICE_IS(header->name, "content-length")) {
        return note_content_length(parse, header->value);
    }
    if (SLICE_IS(header->name, "transfer-encoding")) {
        return note_transfer_encoding(parse, header->value);
    }
    if (parse->is_request && SLICE_IS(header->name, "host")) {
        return note_host(parse, header->value);
    }
    if (parse->is_request && SLICE_IS(header->name, "expect")) {
        parse->head->expect_continue |= SLICE_IS(header->value, "100-continue");
    }
    return RG_H1_ERROR_NONE;
}

/* The length of the name alone tells that most fields are not for `note_field`. */
static inline bool is_notable_size(uint32_t name_size)
{
    const uint32_t sizes = 1u << (sizeof("host") - 1) | 1u << (sizeof("expect") - 1) |
                           1u << (sizeof("connection") - 1) | 1u << (sizeof("content-length") - 1) |
                           1u << (sizeof("transfer-encoding") - 1);
    return name_size < 32 && (sizes >> name_size & 1) != 0;
}

/* All field lines and the blank line behind them. */
static const char *parse_fields(struct parse *parse, const char *at)
{
    RG_ASSERT(at != NULL);
    struct rg_h1_head *head = parse->head;
    uint32_t count = 0;
    while (at < parse->end && *at != '\r') {
        if (count == RG_H1_HEADERS_MAX) {
            return refuse(parse, RG_H1_ERROR_HEADER_COUNT);
        }
        struct rg_h1_header *header = &head->headers[count];
        at = parse_field(parse, at, header);
        if (at == NULL) {
            return NULL;
        }
        if (is_notable_size(header->name.size)) {
            enum rg_h1_error error = note_field(parse, header);
            if (error != RG_H1_ERROR_NONE) {
                return refuse(parse, error);
            }
        }
        count++;
    }
    RG_ASSERT(count <= RG_H1_HEADERS_MAX);
    head->header_count = count;
    return parse_line_end(parse, at, RG_H1_ERROR_NAME);
}

/* RFC 9112 section 9.3. */
static bool connection_persists(const struct parse *parse)
{
    RG_ASSERT(parse->head->minor_version <= 1);
    return !parse->close && (parse->head->minor_version == 1 || parse->keep_alive);
}

/* RFC 9112 section 6.3, less the cases that are refused: what the fields say about the body. */
static enum rg_h1_framing stated_framing(const struct parse *parse)
{
    RG_ASSERT(!(parse->chunked && parse->head->has_content_length));
    if (parse->chunked) {
        return RG_H1_BODY_CHUNKED;
    }
    return parse->head->has_content_length ? RG_H1_BODY_LENGTH : RG_H1_BODY_NONE;
}

static enum rg_h1_framing response_framing(const struct parse *parse, bool head_request)
{
    uint16_t status = parse->head->status;
    RG_ASSERT(status >= 100);
    if (head_request || status < 200 || status == 204 || status == 304) {
        return RG_H1_BODY_NONE;
    }
    enum rg_h1_framing framing = stated_framing(parse);
    return framing == RG_H1_BODY_NONE ? RG_H1_BODY_UNTIL_CLOSE : framing;
}

static void head_init(struct rg_h1_head *head)
{
    head->error = RG_H1_ERROR_NONE;
    head->framing = RG_H1_BODY_NONE;
    head->status = 0;
    head->expect_continue = false;
    head->has_content_length = false;
    head->content_length = 0;
    head->method = head->target = head->reason = (struct rg_h1_slice){NULL, 0};
}

/* True if parsing again cannot tell more than -EAGAIN did: no line was completed since. The start
 * of the first line is looked at in any case, so that a peer that does not speak HTTP is noticed at
 * once, and so is a head that has reached its limit. */
static bool is_known_incomplete(const void *data, size_t size, size_t scanned)
{
    RG_ASSERT(scanned <= size);
    return scanned >= STATUS_LINE_SIZE_MIN && size < RG_H1_HEAD_SIZE_MAX &&
           memchr((const char *)data + scanned, '\n', size - scanned) == NULL;
}

static bool slice_within(struct rg_h1_slice slice, const char *start, const char *end)
{
    return slice.data == NULL ? slice.size == 0
                              : slice.data >= start && slice.data + slice.size <= end;
}

/* The fields of a head that lies in [start, end): names are tokens and none is empty. */
static bool fields_invariants(const struct rg_h1_head *head, const char *start, const char *end)
{
    bool holds = head->header_count <= RG_H1_HEADERS_MAX;
    for (uint32_t i = 0; holds && i < head->header_count; i++) {
        const struct rg_h1_header *header = &head->headers[i];
        holds = header->name.size > 0 && slice_within(header->name, start, end) &&
                slice_within(header->value, start, end) &&
                rg_h1_token_span(header->name.data, header->name.size) == header->name.size &&
                rg_h1_value_span(header->value.data, header->value.size) == header->value.size;
    }
    return holds;
}

/* What holds for a head that was accepted: all slices lie in its bytes, and how its body ends is
 * stated by at most one field. */
static bool invariants(const struct parse *parse, const char *start, const char *end)
{
    const struct rg_h1_head *head = parse->head;
    bool framed = true;
    switch (head->framing) {
    case RG_H1_BODY_NONE:
        break;
    case RG_H1_BODY_LENGTH:
        framed = head->has_content_length && !parse->chunked;
        break;
    case RG_H1_BODY_CHUNKED:
        framed = parse->chunked && !head->has_content_length && head->minor_version == 1;
        break;
    case RG_H1_BODY_UNTIL_CLOSE:
        framed = !parse->is_request && !head->keep_alive;
        break;
    }
    bool kind = parse->is_request ? head->status == 0 && head->method.size > 0
                                  : head->status >= 100 && head->status <= 599;
    return framed && kind && head->minor_version <= 1 &&
           (head->has_content_length || head->content_length == 0) &&
           slice_within(head->method, start, end) && slice_within(head->target, start, end) &&
           slice_within(head->reason, start, end) && fields_invariants(head, start, end);
}

/* What the caller gets, from where parsing stopped. */
static int parse_result(struct parse *parse, const char *start, const char *at)
{
    RG_ASSERT(at == NULL || at <= parse->end);
    if (RG_LIKELY(at != NULL)) {
        RG_ASSERT(parse->head->error == RG_H1_ERROR_NONE);
        RG_VERIFY(invariants(parse, start, at));
        return (int)(at - start);
    }
    if (parse->head->error == RG_H1_ERROR_NONE) {
        if (parse->end - start < RG_H1_HEAD_SIZE_MAX) {
            return -EAGAIN;
        }
        refuse(parse, RG_H1_ERROR_HEAD_SIZE);
    }
    return -errors[parse->head->error].number;
}

int rg_h1_parse_response(struct rg_h1_head *head, bool head_request, const void *data, size_t size,
                         size_t scanned)
{
    RG_ASSERT(data != NULL || size == 0);
    head_init(head);
    if (size == 0 || is_known_incomplete(data, size, scanned)) {
        return -EAGAIN;
    }
    const char *start = data;
    struct parse parse = {.head = head, .end = start + RG_MIN(size, (size_t)RG_H1_HEAD_SIZE_MAX)};
    const char *at = parse_status_line(&parse, start);
    if (at != NULL) {
        at = parse_fields(&parse, at);
    }
    if (at != NULL) {
        head->framing = response_framing(&parse, head_request);
        head->keep_alive = connection_persists(&parse) && head->framing != RG_H1_BODY_UNTIL_CLOSE;
    }
    return parse_result(&parse, start, at);
}

int rg_h1_parse_request(struct rg_h1_head *head, const void *data, size_t size, size_t scanned)
{
    RG_ASSERT(data != NULL || size == 0);
    head_init(head);
    if (size == 0 || is_known_incomplete(data, size, scanned)) {
        return -EAGAIN;
    }
    const char *start = data;
    struct parse parse = {
        .head = head, .end = start + RG_MIN(size, (size_t)RG_H1_HEAD_SIZE_MAX), .is_request = true};
    const char *at = parse_request_line(&parse, start);
    if (at != NULL) {
        at = parse_fields(&parse, at);
    }
    if (at != NULL && head->minor_version == 1 && !parse.has_host) {
        at = refuse(&parse, RG_H1_ERROR_HOST_MISSING);
    }
    if (at != NULL) {
        head->framing = stated_framing(&parse);
        head->keep_alive = connection_persists(&parse);
        /* An HTTP/1.0 client does not know the interim response (RFC 9110 section 10.1.1). */
        head->expect_continue &= head->minor_version == 1;
    }
    return parse_result(&parse, start, at);
}

const struct rg_h1_slice *rg_h1_find(const struct rg_h1_head *head, const char *lower_case_name)
{
    return rg_h1_find_next(head, lower_case_name, NULL);
}

const struct rg_h1_slice *rg_h1_find_next(const struct rg_h1_head *head,
                                          const char *lower_case_name,
                                          const struct rg_h1_slice *after)
{
    size_t name_size = strlen(lower_case_name);
    RG_ASSERT(name_size > 0);
    uint32_t index = 0;
    if (after != NULL) {
        index = (uint32_t)(RG_CONTAINER_OF(after, struct rg_h1_header, value) - head->headers) + 1;
        RG_ASSERT(index <= head->header_count);
    }
    for (; index < head->header_count; index++) {
        if (slice_is(head->headers[index].name, lower_case_name, name_size)) {
            return &head->headers[index].value;
        }
    }
    return NULL;
}
