/* A chunked body while it is received (RFC 9112 section 7.1), as a protocol core: bytes in, pieces
 * of payload out, where they lie. No fd, no clock, no allocation. Strict like http/h1_decoder.h,
 * whose errors it shares. */
#ifndef RG_HTTP_H1_CHUNKED_H
#define RG_HTTP_H1_CHUNKED_H

#include "http/h1_decoder.h"

/* Limits, all inclusive. Sizes are in bytes. */
#define RG_H1_CHUNK_SIZE_MAX INT64_MAX
#define RG_H1_CHUNK_DIGITS_MAX 16
#define RG_H1_CHUNK_LINE_MAX 512              /* Size and extensions, without the CRLF. */
#define RG_H1_CHUNK_EXTENSIONS_SIZE_MAX 65536 /* for all chunks of one body together */
#define RG_H1_TRAILERS_SIZE_MAX 16384         /* All trailer lines, without the last CRLF. */

/* A chunked body while it is received (RFC 9112 section 7.1). Extensions and trailers are
 * checked and dropped. */
struct rg_h1_chunked {
    uint8_t state;
    bool finished; /* The last CRLF was consumed; what follows is another message. */
    enum rg_h1_error error;
    uint64_t chunk_left; /* While reading the size: the size so far. */
    uint32_t line_size;  /* the chunk size line so far */
    uint32_t extensions_size, trailers_size;
};

void rg_h1_chunked_init(struct rg_h1_chunked *chunked);

/* Consumes bytes of the body up to the end of at most one piece of payload, and returns how many:
 * at least one, unless `size` is 0 or the body is finished. The piece lies in `data` and is empty
 * when the bytes held none. Call again with the rest until it is used up or the body is finished.
 * -EBADMSG or -EMSGSIZE with `chunked->error`; the decoder must not be used any more then. */
int rg_h1_chunked_decode(struct rg_h1_chunked *chunked, const void *data, size_t size,
                         struct rg_h1_slice *out_piece);

#endif
