/* How a transport gets through a proxy: the request for a tunnel and its answer, and before both
 * the handshake with a proxy that is itself spoken to by TLS. That TLS then lies around what goes
 * through the tunnel (http/tunnel_tls.h). Only connections that take a proxy have a tunnel.
 *
 *             handshake done           request sent          answer is 2xx
 *   SHAKING -----------------> ASKING --------------> ASKED ---------------> OPEN
 *      |                          |                     |                      |
 *      +--------------------------+---------------------+--> REFUSED           +--> BROKEN
 *
 * Life: create, when the transport begins to connect; with a plain proxy it starts in ASKING ->
 * rg_tunnel_step with what arrives, until it is open -> destroy, when the transport is closed.
 * REFUSED and BROKEN say that the tunnel, or the TLS around an open one, failed. */
#ifndef RG_HTTP_TUNNEL_H
#define RG_HTTP_TUNNEL_H

#include "http/proxy.h"
#include "http/tunnel_tls.h"

#include <ringest/error.h>

#define RG_TUNNEL_TEXT_SIZE (RG_PROXY_NAME_SIZE_MAX + 224)

/* Which proxy leads where; borrowed by the tunnels. */
struct rg_tunnel_route {
    const struct rg_proxy *proxy;
    struct rg_tls_peer *peer; /* of a proxy with TLS; otherwise NULL */
    char target[RG_PROXY_TARGET_SIZE_MAX];
};

enum rg_tunnel_state {
    RG_TUNNEL_SHAKING = 0,
    RG_TUNNEL_ASKING,
    RG_TUNNEL_ASKED,
    RG_TUNNEL_REFUSED,
    RG_TUNNEL_OPEN,
    RG_TUNNEL_BROKEN,
    RG_TUNNEL_STATE_COUNT,
};

struct rg_tunnel {
    const struct rg_tunnel_route *route;
    uint8_t state;
    bool secure; /* the proxy is spoken to by TLS: `outer` */
    struct rg_tunnel_tls outer;
    uint8_t *answer; /* RG_PROXY_ANSWER_SIZE_MAX bytes until the tunnel is open, then NULL */
    size_t answer_size, answer_scanned;
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

/* True for an open tunnel where all that is received and sent has TLS with the proxy around it;
 * also when that TLS has failed, so that nothing is ever sent without it. */
static inline bool rg_tunnel_wraps(const struct rg_tunnel *tunnel)
{
    return tunnel->secure && tunnel->state >= RG_TUNNEL_OPEN;
}
/* These are rg_tunnel_tls_unwrap and _wrap, for a tunnel that wraps; -ECONNABORTED in place of
 * -EPROTO. */
int rg_tunnel_unwrap(struct rg_tunnel *tunnel, struct rg_tls_in *in, uint8_t *plain, size_t room);
int rg_tunnel_wrap(struct rg_tunnel *tunnel, struct rg_send_buffers *buffers,
                   struct rg_send_buffer *buffer);

#endif
