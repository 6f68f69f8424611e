/* TLS with a proxy: the outer layer around all that is received and sent through a tunnel, while
 * another TLS may run inside it with the endpoint.
 *
 * Life: init -> handshake, by rg_tls_handshake on `tls` -> rg_tunnel_tls_unwrap for what arrives,
 * and for what is to be sent rg_tunnel_tls_wrap, then rg_tunnel_tls_sent when the kernel has taken
 * it -> fini.
 *
 * Invariant: `wire` is lent exactly while the bytes that were wrapped last are in flight. */
#ifndef RG_HTTP_TUNNEL_TLS_H
#define RG_HTTP_TUNNEL_TLS_H

#include "http/send_buffer.h"
#include "http/tls.h"

/* An alert, and the answer to a key update. */
#define RG_TUNNEL_REPLY_SIZE 128

struct rg_tunnel_tls {
    struct rg_tls tls;
    struct rg_send_buffer *wire; /* borrowed: ciphertext in flight; NULL: none */
    /* What TLS has to say to the proxy before the next bytes. It is sealed already. */
    uint8_t reply[RG_TUNNEL_REPLY_SIZE];
    size_t reply_size;
};

/* 0 or -ENOMEM. Borrows the loop and the peer, which is the proxy. */
int rg_tunnel_tls_init(struct rg_tunnel_tls *outer, struct rg_tls_loop *loop,
                       struct rg_tls_peer *peer);
/* Nothing may be in flight. The zero state is fine. */
void rg_tunnel_tls_fini(struct rg_tunnel_tls *outer);

/* Replaces the span by what was in it, at plain[0..room), which has RG_TLS_PLAIN_MAX bytes more
 * than the span. 0; -ENODATA: the proxy has ended the connection, and nothing came before that;
 * -EPROTO: TLS failed. */
int rg_tunnel_tls_unwrap(struct rg_tunnel_tls *outer, struct rg_tls_in *in, uint8_t *plain,
                         size_t room);
/* Wraps as much of `buffer` as one other buffer takes, which is one record at least:
 * buffer->sending says how much, and wire->data[0..wire->size) is to be sent. 0, -ENOMEM or
 * -EPROTO. */
int rg_tunnel_tls_wrap(struct rg_tunnel_tls *outer, struct rg_send_buffers *buffers,
                       struct rg_send_buffer *buffer);
/* `wire` is no longer in flight, or never was: returns it. Harmless when there is none. */
void rg_tunnel_tls_sent(struct rg_tunnel_tls *outer, struct rg_send_buffers *buffers);

#endif
