/* Chunked bodies: see h1_chunked.h. A machine that takes one byte at a time through the framing and
 * whole pieces through the payload. */
#include "http/h1_chunked.h"

#include "http/h1_text.h"

/* One call may consume at most this much, so that the count fits the return type. */
#define CHUNKED_CALL_SIZE_MAX ((size_t)1 << 30)

/* The life of a chunked body. Every state but DATA consumes one byte at a time; `LF` states wait
 * for the second half of a line end.
 *
 *   SIZE -> [EXTENSION_SPACE] -> [EXTENSION] -> SIZE_LF --> DATA -> DATA_CR -> DATA_LF -> SIZE
 *                                                  | size 0
 *                                                  v
 *              .-------------------------------> TRAILER -> FINAL_LF -> FINISHED
 *              |                                   |
 *              `- TRAILER_LF <- TRAILER_VALUE <- TRAILER_NAME
 *
 */
enum chunked_state {
    CHUNKED_SIZE,
    CHUNKED_EXTENSION_SPACE,
    CHUNKED_EXTENSION,
    CHUNKED_SIZE_LF,
    CHUNKED_DATA,
    CHUNKED_DATA_CR,
    CHUNKED_DATA_LF,
    CHUNKED_TRAILER,
    CHUNKED_TRAILER_NAME,
    CHUNKED_TRAILER_VALUE,
    CHUNKED_TRAILER_LF,
    CHUNKED_FINAL_LF,
    CHUNKED_FINISHED,
};

void rg_h1_chunked_init(struct rg_h1_chunked *chunked)
{
    RG_ASSERT(chunked != NULL);
    *chunked = (struct rg_h1_chunked){.state = CHUNKED_SIZE};
}

/* The only writer of `state`. */
static enum rg_h1_error chunked_enter(struct rg_h1_chunked *chunked, enum chunked_state state)
{
    RG_ASSERT(!chunked->finished);
    chunked->state = (uint8_t)state;
    chunked->finished = state == CHUNKED_FINISHED;
    return RG_H1_ERROR_NONE;
}

static enum rg_h1_error chunked_expect(struct rg_h1_chunked *chunked, char c, char expected,
                                       enum chunked_state next)
{
    RG_ASSERT(expected == '\r' || expected == '\n');
    if (c != expected) {
        return expected == '\n' ? RG_H1_ERROR_BARE_CR : RG_H1_ERROR_CHUNK_END;
    }
    return chunked_enter(chunked, next);
}

static int hex_digit(char c)
{
    char lower = rg_h1_to_lower(c);
    if (rg_h1_is_digit(c)) {
        return c - '0';
    }
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static enum rg_h1_error chunked_count_extension(struct rg_h1_chunked *chunked)
{
    if (chunked->line_size == RG_H1_CHUNK_LINE_MAX) {
        return RG_H1_ERROR_CHUNK_LINE_SIZE;
    }
    if (chunked->extensions_size == RG_H1_CHUNK_EXTENSIONS_SIZE_MAX) {
        return RG_H1_ERROR_CHUNK_EXTENSIONS_SIZE;
    }
    chunked->line_size++;
    chunked->extensions_size++;
    RG_ASSERT(chunked->line_size <= RG_H1_CHUNK_LINE_MAX);
    RG_ASSERT(chunked->extensions_size <= RG_H1_CHUNK_EXTENSIONS_SIZE_MAX);
    return RG_H1_ERROR_NONE;
}

static enum rg_h1_error chunked_size(struct rg_h1_chunked *chunked, char c)
{
    RG_ASSERT(chunked->line_size <= RG_H1_CHUNK_DIGITS_MAX);
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (chunked->line_size == RG_H1_CHUNK_DIGITS_MAX ||
            chunked->chunk_left > (RG_H1_CHUNK_SIZE_MAX >> 4)) {
            return RG_H1_ERROR_CHUNK_SIZE;
        }
        chunked->line_size++;
        chunked->chunk_left = chunked->chunk_left << 4 | (uint64_t)digit;
        RG_ASSERT(chunked->chunk_left <= RG_H1_CHUNK_SIZE_MAX);
        return RG_H1_ERROR_NONE;
    }
    if (c == '\n') {
        return RG_H1_ERROR_BARE_LF;
    }
    if (chunked->line_size == 0) {
        return RG_H1_ERROR_CHUNK_SIZE;
    }
    if (c == '\r') {
        return chunked_enter(chunked, CHUNKED_SIZE_LF);
    }
    if (c != ';' && !rg_h1_is_space(c)) {
        return RG_H1_ERROR_CHUNK_SIZE;
    }
    chunked_enter(chunked, c == ';' ? CHUNKED_EXTENSION : CHUNKED_EXTENSION_SPACE);
    return chunked_count_extension(chunked);
}

/* Extensions are dropped, so their inner grammar is nobody's concern; that they end where the line
 * ends is. White space is allowed only before a semicolon (RFC 9112 section 7.1.1). */
static enum rg_h1_error chunked_extension(struct rg_h1_chunked *chunked, char c)
{
    RG_ASSERT(chunked->line_size > 0);
    if (chunked->state == CHUNKED_EXTENSION_SPACE) {
        if (c != ';' && !rg_h1_is_space(c)) {
            return RG_H1_ERROR_CHUNK_EXTENSION;
        }
        if (c == ';') {
            chunked_enter(chunked, CHUNKED_EXTENSION);
        }
    } else if (c == '\r') {
        return chunked_enter(chunked, CHUNKED_SIZE_LF);
    } else if (!rg_h1_is_value(c)) {
        return c == '\n' ? RG_H1_ERROR_BARE_LF : RG_H1_ERROR_CHUNK_EXTENSION;
    }
    return chunked_count_extension(chunked);
}

static enum rg_h1_error chunked_size_lf(struct rg_h1_chunked *chunked, char c)
{
    RG_ASSERT(chunked->line_size > 0);
    chunked->line_size = 0;
    return chunked_expect(chunked, c, '\n',
                          chunked->chunk_left == 0 ? CHUNKED_TRAILER : CHUNKED_DATA);
}

static enum rg_h1_error chunked_trailer_name(struct rg_h1_chunked *chunked, char c)
{
    bool is_first = chunked->state == CHUNKED_TRAILER;
    RG_ASSERT(is_first || chunked->state == CHUNKED_TRAILER_NAME);
    if (rg_h1_token_span(&c, 1) == 1) {
        return chunked_enter(chunked, CHUNKED_TRAILER_NAME);
    }
    if (c == ':' && !is_first) {
        return chunked_enter(chunked, CHUNKED_TRAILER_VALUE);
    }
    if (rg_h1_is_space(c)) {
        return is_first ? RG_H1_ERROR_FOLDED_LINE : RG_H1_ERROR_SPACE_BEFORE_COLON;
    }
    if (c == '\n') {
        return RG_H1_ERROR_BARE_LF;
    }
    return c == '\r' ? RG_H1_ERROR_NO_COLON : RG_H1_ERROR_NAME;
}

static enum rg_h1_error chunked_trailer_value(struct rg_h1_chunked *chunked, char c)
{
    RG_ASSERT(chunked->state == CHUNKED_TRAILER_VALUE);
    if (rg_h1_is_value(c)) {
        return RG_H1_ERROR_NONE;
    }
    if (c == '\r') {
        return chunked_enter(chunked, CHUNKED_TRAILER_LF);
    }
    return c == '\n' ? RG_H1_ERROR_BARE_LF : RG_H1_ERROR_VALUE;
}

static enum rg_h1_error chunked_trailer(struct rg_h1_chunked *chunked, char c)
{
    RG_ASSERT(chunked->chunk_left == 0);
    RG_ASSERT(chunked->trailers_size <= RG_H1_TRAILERS_SIZE_MAX);
    if (chunked->state == CHUNKED_TRAILER && c == '\r') {
        return chunked_enter(chunked, CHUNKED_FINAL_LF);
    }
    if (chunked->trailers_size == RG_H1_TRAILERS_SIZE_MAX) {
        return RG_H1_ERROR_TRAILERS_SIZE;
    }
    chunked->trailers_size++;
    if (chunked->state == CHUNKED_TRAILER_VALUE) {
        return chunked_trailer_value(chunked, c);
    }
    if (chunked->state == CHUNKED_TRAILER_LF) {
        return chunked_expect(chunked, c, '\n', CHUNKED_TRAILER);
    }
    return chunked_trailer_name(chunked, c);
}

/* One byte of framing. */
static enum rg_h1_error chunked_step(struct rg_h1_chunked *chunked, char c)
{
    RG_ASSERT(chunked->state != CHUNKED_DATA);
    switch ((enum chunked_state)chunked->state) {
    case CHUNKED_SIZE:
        return chunked_size(chunked, c);
    case CHUNKED_EXTENSION_SPACE:
    case CHUNKED_EXTENSION:
        return chunked_extension(chunked, c);
    case CHUNKED_SIZE_LF:
        return chunked_size_lf(chunked, c);
    case CHUNKED_DATA_CR:
        return chunked_expect(chunked, c, '\r', CHUNKED_DATA_LF);
    case CHUNKED_DATA_LF:
        return chunked_expect(chunked, c, '\n', CHUNKED_SIZE);
    case CHUNKED_TRAILER:
    case CHUNKED_TRAILER_NAME:
    case CHUNKED_TRAILER_VALUE:
    case CHUNKED_TRAILER_LF:
        return chunked_trailer(chunked, c);
    case CHUNKED_FINAL_LF:
        return chunked_expect(chunked, c, '\n', CHUNKED_FINISHED);
    case CHUNKED_DATA:
    case CHUNKED_FINISHED:
        break;
    }
    rg_assert_fail("a framing state", __FILE__, __LINE__, __func__);
}

int rg_h1_chunked_decode(struct rg_h1_chunked *chunked, const void *data, size_t size,
                         struct rg_h1_slice *out_piece)
{
    RG_ASSERT(data != NULL || size == 0);
    RG_ASSERT(chunked->error == RG_H1_ERROR_NONE);
    const char *bytes = data;
    struct rg_h1_slice piece = {bytes, 0};
    size_t at = 0;
    size = RG_MIN(size, CHUNKED_CALL_SIZE_MAX);
    while (at < size && !chunked->finished && piece.size == 0) {
        if (chunked->state == CHUNKED_DATA) {
            RG_ASSERT(chunked->chunk_left > 0);
            piece.data = bytes + at;
            piece.size = (uint32_t)RG_MIN(chunked->chunk_left, size - at);
            chunked->chunk_left -= piece.size;
            at += piece.size;
            if (chunked->chunk_left == 0) {
                chunked_enter(chunked, CHUNKED_DATA_CR);
            }
            continue;
        }
        chunked->error = chunked_step(chunked, bytes[at]);
        if (chunked->error != RG_H1_ERROR_NONE) {
            return -rg_h1_error_number(chunked->error);
        }
        at++;
    }
    RG_ASSERT(at <= size);
    RG_ASSERT(piece.size <= at);
    RG_ASSERT(at > 0 || size == 0 || chunked->finished);
    *out_piece = piece;
    return (int)at;
}
