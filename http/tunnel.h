/* The way of a transport through a proxy: the request for a tunnel and its answer, and for a proxy
 * that is itself spoken to by TLS a second layer of TLS around what goes through the tunnel.
 *
 * The life of a tunnel: create, when the transport begins to connect -> rg_tunnel_step with what
 * arrives, until it is open -> where it is `secure`, rg_tunnel_unwrap and rg_tunnel_wrap around
 * all that is received and sent -> destroy, when the transport is closed. Only connections that
 * take a proxy have one. */
#ifndef RG_HTTP_TUNNEL_H
#define RG_HTTP_TUNNEL_H

#include "http/proxy.h"
#include "http/tls.h"

#include <ringest/error.h>
#include <sys/types.h>

#define RG_TUNNEL_TEXT_SIZE (RG_PROXY_NAME_SIZE_MAX + 224)
/* An alert, and the answer to a key update. */
#define RG_TUNNEL_REPLY_SIZE 128

/* Which proxy leads where; borrowed by the tunnels. */
struct rg_tunnel_route {
    const struct rg_proxy *proxy;
    struct rg_tls_peer *peer; /* of a proxy with TLS; otherwise NULL */
    char target[RG_PROXY_TARGET_SIZE_MAX];
};

enum rg_tunnel_state {
    RG_TUNNEL_SHAKING, /* TLS with the proxy */
    RG_TUNNEL_ASKED,
    RG_TUNNEL_OPEN,
};

struct rg_tunnel {
    const struct rg_tunnel_route *route;
    uint8_t state;
    bool secure;
    bool asked;
    struct rg_tls tls;
    uint8_t *answer; /* RG_PROXY_ANSWER_SIZE_MAX bytes until the tunnel is open */
    size_t answer_size, answer_scanned;
    uint8_t
        reply[RG_TUNNEL_REPLY_SIZE]; /* what TLS has to say to the proxy before the next bytes */
    size_t reply_size;
    /* Why the tunnel failed. */
    enum rg_status status;
    bool final; /* every further attempt would fail alike */
    char text[RG_TUNNEL_TEXT_SIZE];
};

/* Borrows both. 0 or -ENOMEM. */
int rg_tunnel_create(struct rg_tunnel **out_tunnel, const struct rg_tunnel_route *route,
                     struct rg_tls_loop *tls);
/* NULL is fine. */
void rg_tunnel_destroy(struct rg_tunnel *tunnel);

/* Goes on with what has arrived, which is none at first, and appends what is to be sent. 0: the
 * tunnel is open; -EAGAIN: feed more; -ENOBUFS: `out` is full, drain it and call again;
 * -ECONNABORTED: it failed, and status, text and final say why.
 * Bytes of the input that follow the answer are a failure: whoever speaks there waits for us. */
int rg_tunnel_step(struct rg_tunnel *tunnel, struct rg_tls_in *in, struct rg_tls_out *out);

/* The proxy ended the connection before the tunnel was open: notes that. */
void rg_tunnel_ended(struct rg_tunnel *tunnel);

/* Of an open and secure tunnel: replaces the span by what was in it, at plain[0..room), which has
 * RG_TLS_PLAIN_MAX bytes more than the span. 0; -ENODATA: the proxy has ended the connection;
 * -ECONNABORTED. */
int rg_tunnel_unwrap(struct rg_tunnel *tunnel, struct rg_tls_in *in, uint8_t *plain, size_t room);
/* Wraps bytes, as many as `out` takes, which is one at least where it holds a record. Returns how
 * many, or -ECONNABORTED. */
ssize_t rg_tunnel_wrap(struct rg_tunnel *tunnel, const uint8_t *data, size_t size,
                       struct rg_tls_out *out);

#endif
