/* What the TLS connections of one event loop share: the BIO by which BoringSSL reads and writes,
 * and the buffers of the record layer. Single-threaded.
 *
 * BoringSSL is given one BIO per loop, which leads to the spans of the call in progress. Between
 * calls a connection thus has no buffers. Life of a call: rg_tls_loop_lend with the spans ->
 * BoringSSL takes from `in` and appends to `out` -> rg_tls_loop_take_back. */
#ifndef RG_HTTP_TLS_LOOP_H
#define RG_HTTP_TLS_LOOP_H

#include "http/tls_record.h"

/* Where ciphertext to be sent is appended: at data[size], up to `capacity`. */
struct rg_tls_out {
    uint8_t *data;
    size_t size;
    size_t capacity;
};

struct rg_tls_loop {
    struct rg_tls_buffers buffers;
    struct bio_st *bio;
    struct bio_method_st *method;
    struct rg_tls_in *in; /* of the call in progress; NULL: it does not read */
    struct rg_tls_out *out;
};

/* 0 or -ENOMEM. `connection_max` connections can hold a cut record at the same time. */
int rg_tls_loop_init(struct rg_tls_loop *loop, uint32_t connection_max);
/* No call may be in progress and no connection left. */
void rg_tls_loop_fini(struct rg_tls_loop *loop);

/* Begins a call: BoringSSL finds these spans behind the BIO. `in` may be NULL. */
static inline void rg_tls_loop_lend(struct rg_tls_loop *loop, struct rg_tls_in *in,
                                    struct rg_tls_out *out)
{
    RG_ASSERT(loop->out == NULL);
    RG_ASSERT(out != NULL);
    loop->in = in;
    loop->out = out;
}

/* Ends it. */
static inline void rg_tls_loop_take_back(struct rg_tls_loop *loop)
{
    RG_ASSERT(loop->out != NULL);
    loop->in = NULL;
    loop->out = NULL;
}

#endif
