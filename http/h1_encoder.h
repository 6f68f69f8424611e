/* The sending half of HTTP/1.1 heads as a protocol core: no fd, no clock, no allocation. An
 * encoder lives from `rg_h1_encoder_init` to `rg_h1_encode_end` and writes one head into the
 * caller's memory: a start line, then fields, then the blank line.
 *
 * Errors are sticky: after the first one nothing more is written, and `rg_h1_encode_end` returns
 * it, so that only its result must be looked at. What the decoder would refuse is never written:
 * a CR, LF, NUL or any other control in an argument is -EINVAL, and so header injection is
 * impossible. */
#ifndef RG_HTTP_H1_ENCODER_H
#define RG_HTTP_H1_ENCODER_H

#include "http/h1_decoder.h"

struct rg_h1_encoder {
    char *data;  /* Borrowed. */
    size_t size; /* Written so far; stays at or below `capacity`. */
    size_t capacity;
    int error; /* 0, -ENOSPC or -EINVAL. */
};

/* Borrows `data` until the head has been sent or dropped. */
void rg_h1_encoder_init(struct rg_h1_encoder *encoder, char *data, size_t capacity);

/* The start line: one of the two, first, once. The version is always HTTP/1.1. The target is in
 * origin-form or another form that a request may have, percent-encoded already. */
void rg_h1_encode_request(struct rg_h1_encoder *encoder, const char *method, const char *target);
void rg_h1_encode_status(struct rg_h1_encoder *encoder, unsigned status, const char *reason);

/* A field line. A value with white space around it is -EINVAL, because it would arrive without. */
void rg_h1_encode_header(struct rg_h1_encoder *encoder, const char *name, const char *value);
void rg_h1_encode_header_slice(struct rg_h1_encoder *encoder, const char *name,
                               struct rg_h1_slice value);
void rg_h1_encode_header_u64(struct rg_h1_encoder *encoder, const char *name, uint64_t value);

/* The blank line. Returns the size of the head, or the first error. */
int rg_h1_encode_end(struct rg_h1_encoder *encoder);

#endif
