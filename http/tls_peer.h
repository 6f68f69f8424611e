/* A server as one event loop sees it: the name that its certificate is checked against, and the TLS
 * sessions that it can resume. The sessions belong to the name, so that none is ever offered to
 * another host. Single-threaded; outlives its connections.
 *
 * The life of a session: kept, when a ticket arrives on a connection -> taken by the next
 * connection to this server, once where it is one of TLS 1.3 -> freed with the peer, or when a
 * newer one needs its place. */
#ifndef RG_HTTP_TLS_PEER_H
#define RG_HTTP_TLS_PEER_H

#include "runtime/base.h"

struct rg_tls_context;
struct ssl_session_st;

/* Sessions kept for one peer by one loop: enough for a burst of reconnects, 2 KiB each. */
#define RG_TLS_SESSIONS_MAX 32
/* A name in DNS has at most 253 characters. */
#define RG_TLS_HOST_SIZE 254

/* Invariant: sessions[0..session_count) are owned, all others are NULL. */
struct rg_tls_peer {
    struct rg_tls_context *context;
    struct ssl_session_st *sessions[RG_TLS_SESSIONS_MAX]; /* oldest first */
    uint32_t session_count;
    bool host_is_address;
    char host[RG_TLS_HOST_SIZE];
};

/* `host` is a DNS name or an address literal without brackets; certificates are checked against it.
 * 0, or -EINVAL if it is empty or too long. Borrows the context, which is a client's. */
int rg_tls_peer_init(struct rg_tls_peer *peer, struct rg_tls_context *context, const char *host);
void rg_tls_peer_fini(struct rg_tls_peer *peer);

/* Takes the session. The oldest makes room. */
void rg_tls_peer_keep(struct rg_tls_peer *peer, struct ssl_session_st *session);
/* Returns owned, or NULL. A ticket of TLS 1.3 is used once: a second use would let an observer link
 * the connections (RFC 8446 appendix C.4). */
struct ssl_session_st *rg_tls_peer_take(struct rg_tls_peer *peer);

#endif
