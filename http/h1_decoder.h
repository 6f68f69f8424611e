/* The receiving half of HTTP/1.1 (RFC 9112) as a protocol core: bytes in, decisions out. No fd,
 * no clock, no allocation.
 *
 * A message is a head, which `rg_h1_parse_response` or `rg_h1_parse_request` reads in one piece,
 * and a body, whose framing the head states. Heads are parsed where they lie: the slices of
 * `rg_h1_head` borrow the caller's bytes and are valid as long as those are. Chunked
 * bodies are read by http/h1_chunked.h.
 *
 * Strict on purpose, because two readers who disagree about where a message ends are how
 * requests are smuggled: what the grammar does not allow is refused, and nothing is repaired.
 * That includes what RFC 9112 would let a recipient tolerate (bare LF, folded lines, an empty
 * line before a request, identical repeated Content-Length fields). There is no lenient mode. */
#ifndef RG_HTTP_H1_DECODER_H
#define RG_HTTP_H1_DECODER_H

#include "runtime/base.h"

#include <errno.h>

/* Limits, all inclusive. Sizes are in bytes. */
#define RG_H1_HEAD_SIZE_MAX 65536 /* Start line, fields and the blank line. */
#define RG_H1_HEADERS_MAX 128
#define RG_H1_METHOD_SIZE_MAX 32
#define RG_H1_TARGET_SIZE_MAX 16384
#define RG_H1_CONTENT_LENGTH_MAX INT64_MAX /* So that any offset fits off_t. */

/* XX(name, errno, text): what is wrong with a message and how the parser returns it. */
#define RG_H1_ERRORS(XX)                                                                           \
    XX(NONE, 0, "nothing is wrong")                                                                \
    XX(HEAD_SIZE, EMSGSIZE, "the head is larger than 64 KiB")                                      \
    XX(HEADER_COUNT, EMSGSIZE, "more than 128 header fields")                                      \
    XX(METHOD_SIZE, EMSGSIZE, "the method is longer than 32 bytes")                                \
    XX(TARGET_SIZE, EMSGSIZE, "the request target is longer than 16 KiB")                          \
    XX(STATUS_LINE, EBADMSG, "the status line is malformed, or this is not HTTP")                  \
    XX(STATUS_CODE, EBADMSG, "the status code is not between 100 and 599")                         \
    XX(REASON, EBADMSG, "a control character in the reason phrase")                                \
    XX(REQUEST_LINE, EBADMSG, "the request line is malformed, or this is not HTTP")                \
    XX(METHOD, EBADMSG, "the method is not a token")                                               \
    XX(TARGET, EBADMSG, "the request target is malformed")                                         \
    XX(VERSION, EBADMSG, "the version is neither HTTP/1.0 nor HTTP/1.1")                           \
    XX(BARE_LF, EBADMSG, "a line ends in LF without CR")                                           \
    XX(BARE_CR, EBADMSG, "a CR that no LF follows")                                                \
    XX(FOLDED_LINE, EBADMSG, "a header line begins with white space")                              \
    XX(NO_COLON, EBADMSG, "a header line without a colon")                                         \
    XX(SPACE_BEFORE_COLON, EBADMSG, "white space in or after a field name")                        \
    XX(NAME, EBADMSG, "a field name is not a token")                                               \
    XX(VALUE, EBADMSG, "a control character in a field value")                                     \
    XX(CONTENT_LENGTH, EBADMSG, "Content-Length is not a decimal number below 2^63")               \
    XX(CONTENT_LENGTH_TWICE, EBADMSG, "two Content-Length fields")                                 \
    XX(TRANSFER_ENCODING, EBADMSG, "Transfer-Encoding is not exactly chunked")                     \
    XX(TRANSFER_ENCODING_TWICE, EBADMSG, "two Transfer-Encoding fields")                           \
    XX(TRANSFER_ENCODING_IN_1_0, EBADMSG, "Transfer-Encoding in an HTTP/1.0 message")              \
    XX(LENGTH_AND_ENCODING, EBADMSG, "both Content-Length and Transfer-Encoding")                  \
    XX(HOST_MISSING, EBADMSG, "an HTTP/1.1 request without a Host field")                          \
    XX(HOST_TWICE, EBADMSG, "two Host fields")                                                     \
    XX(HOST, EBADMSG, "the Host field is not a host name and port")                                \
    XX(CHUNK_SIZE, EBADMSG, "a chunk size is not a hexadecimal number below 2^63")                 \
    XX(CHUNK_EXTENSION, EBADMSG, "a malformed chunk extension")                                    \
    XX(CHUNK_END, EBADMSG, "chunk data is not followed by CRLF")                                   \
    XX(CHUNK_LINE_SIZE, EMSGSIZE, "a chunk size line is longer than 512 bytes")                    \
    XX(CHUNK_EXTENSIONS_SIZE, EMSGSIZE, "more than 64 KiB of chunk extensions")                    \
    XX(TRAILERS_SIZE, EMSGSIZE, "more than 16 KiB of trailers")

enum rg_h1_error {
#define XX(name, number, text) RG_H1_ERROR_##name,
    RG_H1_ERRORS(XX)
#undef XX
        RG_H1_ERROR_COUNT
};

/* The errno that goes with it, positive; 0 for NONE. */
int rg_h1_error_number(enum rg_h1_error error);
/* What is wrong, in words for the user. Never NULL. */
const char *rg_h1_error_text(enum rg_h1_error error);

/* Bytes that belong to somebody else; not NUL-terminated. */
struct rg_h1_slice {
    const char *data;
    uint32_t size;
};

/* The name as it was sent; the value without the white space around it. */
struct rg_h1_header {
    struct rg_h1_slice name, value;
};

/* How the body that follows the head ends (RFC 9112 section 6.3). */
enum rg_h1_framing {
    RG_H1_BODY_NONE,
    RG_H1_BODY_LENGTH,      /* After `content_length` bytes. */
    RG_H1_BODY_CHUNKED,     /* Where `rg_h1_chunked` says so. */
    RG_H1_BODY_UNTIL_CLOSE, /* With the connection; only in responses. */
};

/* Valid after a parse function returned a size, except `error`, which is also valid after it
 * failed with -EBADMSG or -EMSGSIZE. Of `headers` the first `header_count` are. Needs no
 * initialisation. */
struct rg_h1_head {
    enum rg_h1_error error;
    enum rg_h1_framing framing;
    uint16_t status; /* Responses only. */
    uint8_t minor_version;
    bool keep_alive;      /* Another message may follow on this connection. */
    bool expect_continue; /* Requests only: the client waits for 100 before it sends the body. */
    bool has_content_length;
    /* 0 without the field. With framing NONE (HEAD, 304) what the body would have had. */
    uint64_t content_length;
    struct rg_h1_slice method, target; /* Requests only. */
    struct rg_h1_slice reason;         /* Responses only. May be empty. */
    uint32_t header_count;
    struct rg_h1_header headers[RG_H1_HEADERS_MAX];
};

/* Parses the head of the message that starts at `data`, of which `size` bytes have arrived.
 * Returns the size of the head with its blank line, -EAGAIN while it is not complete, -EMSGSIZE
 * when it is over a limit and -EBADMSG when it is malformed, both with `head->error`.
 *
 * `scanned` is the `size` of the previous call for the same message, 0 on the first. New bytes
 * without a line end are not parsed again, so a head that arrives byte by byte costs one parse
 * per line; what is wrong with a line may thus be told only when the line is complete.
 *
 * A response to a HEAD request has no body whatever its fields say, so the caller must tell.
 * Interim responses (1xx) are returned like any other, without a body: the caller parses on
 * behind them and decides what a 101 means. */
int rg_h1_parse_response(struct rg_h1_head *head, bool head_request, const void *data, size_t size,
                         size_t scanned);
int rg_h1_parse_request(struct rg_h1_head *head, const void *data, size_t size, size_t scanned);

/* The value of the first field of that name, NULL when there is none. The name is given in lower
 * case and compared without regard to case. */
const struct rg_h1_slice *rg_h1_find(const struct rg_h1_head *head, const char *lower_case_name);

/* The same behind `after`, a value that was found in the same head; from the start when NULL. */
const struct rg_h1_slice *rg_h1_find_next(const struct rg_h1_head *head,
                                          const char *lower_case_name,
                                          const struct rg_h1_slice *after);

/* How many bytes at `data` are characters of a token, of a field value or reason phrase, of a
 * request target. What the decoder accepts is by this what the encoder writes. */
size_t rg_h1_token_span(const char *data, size_t size);
size_t rg_h1_value_span(const char *data, size_t size);
size_t rg_h1_target_span(const char *data, size_t size);

#endif
