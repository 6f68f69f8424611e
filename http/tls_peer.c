/* A server's name and sessions: see tls_peer.h. */
#include "http/tls_peer.h"

#include "http/tls_context_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <string.h>

static bool invariants(const struct rg_tls_peer *peer)
{
    bool holds = peer->session_count <= RG_TLS_SESSIONS_MAX;
    for (uint32_t i = 0; i < RG_TLS_SESSIONS_MAX; i++) {
        holds = holds && (peer->sessions[i] != NULL) == (i < peer->session_count);
    }
    return holds;
}

int rg_tls_peer_init(struct rg_tls_peer *peer, struct rg_tls_context *context, const char *host)
{
    RG_ASSERT(context->roots != NULL);
    uint8_t address[sizeof(struct in6_addr)];
    size_t size = strlen(host);
    /* The dot that ends a fully qualified name is not part of it in certificates. */
    if (size > 1 && host[size - 1] == '.') {
        size--;
    }
    if (size == 0 || size >= RG_TLS_HOST_SIZE) {
        return -EINVAL;
    }
    *peer = (struct rg_tls_peer){.context = context};
    memcpy(peer->host, host, size);
    peer->host_is_address = inet_pton(AF_INET, peer->host, address) == 1 ||
                            inet_pton(AF_INET6, peer->host, address) == 1;
    return 0;
}

void rg_tls_peer_fini(struct rg_tls_peer *peer)
{
    RG_ASSERT(peer->session_count <= RG_TLS_SESSIONS_MAX);
    for (uint32_t i = 0; i < peer->session_count; i++) {
        SSL_SESSION_free(peer->sessions[i]);
    }
    *peer = (struct rg_tls_peer){0};
}

void rg_tls_peer_keep(struct rg_tls_peer *peer, SSL_SESSION *session)
{
    RG_ASSERT(session != NULL);
    RG_ASSERT(peer->session_count <= RG_TLS_SESSIONS_MAX);
    if (peer->session_count == RG_TLS_SESSIONS_MAX) {
        SSL_SESSION_free(peer->sessions[0]);
        peer->session_count--;
        memmove(peer->sessions, peer->sessions + 1, peer->session_count * sizeof(SSL_SESSION *));
    }
    peer->sessions[peer->session_count++] = session;
    RG_VERIFY(invariants(peer));
}

SSL_SESSION *rg_tls_peer_take(struct rg_tls_peer *peer)
{
    RG_ASSERT(peer->session_count <= RG_TLS_SESSIONS_MAX);
    if (peer->session_count == 0) {
        return NULL;
    }
    SSL_SESSION *session = peer->sessions[peer->session_count - 1];
    if (SSL_SESSION_should_be_single_use(session)) {
        peer->sessions[--peer->session_count] = NULL;
    } else {
        SSL_SESSION_up_ref(session);
    }
    RG_VERIFY(invariants(peer));
    return session;
}
