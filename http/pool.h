/* The connections of one client on one loop to one endpoint, and the exchanges that wait for one.
 *
 * One exchange at a time uses a connection; the last one used is the first to be used again,
 * because its memory is hot and the others may then grow old and close. New connections are opened
 * while exchanges wait, up to a limit, spread over all addresses that the name resolves to. An
 * address that refuses, fails in the handshake, does not answer within RG_POOL_SLOW_CONNECT_NS, or
 * whose connection is lost before its first answer is passed over for a while and another is tried
 * (http/candidates.h). Only when all have failed and no connection is left are the waiting
 * exchanges given the failure: the last one, and one that is final only where no address failed
 * otherwise.
 *
 * Everything runs on the loop's thread. */
#ifndef RG_HTTP_POOL_H
#define RG_HTTP_POOL_H

#include "http/exchange.h"
#include "http/resolver.h"
#include "http/transport.h"

/* A connection that is not there after this long makes another address be tried (RFC 8305 section 5
 * recommends 250 ms). */
#define RG_POOL_SLOW_CONNECT_NS (250 * RG_NS_PER_MS)
/* And one that has taken this long is given up for another address where there is no room for both.
 */
#define RG_POOL_STUCK_CONNECT_NS (2 * RG_NS_PER_S)
/* How often the addresses are looked up again while the pool is in use. */
#define RG_POOL_RESOLVE_INTERVAL_NS (60 * RG_NS_PER_S)
/* How long closing a connection waits for a peer that does not take the last word of TLS. */
#define RG_POOL_CLOSE_NS (1 * RG_NS_PER_S)
/* Handshakes at once: a storm of them would delay the connections that carry data. */
#define RG_POOL_CONNECTING_MAX 64

struct rg_pool_options {
    const char *host; /* copied */
    uint16_t port;
    const char *connect_host;             /* copied; NULL: host */
    uint16_t connect_port;                /* 0: port */
    struct rg_tls_context *tls;           /* borrowed; NULL: plain HTTP */
    const struct rg_proxy *proxy;         /* borrowed; NULL: none. Connections take a tunnel to
                                           * connect_host through it */
    struct rg_tls_context *proxy_tls;     /* borrowed; for a proxy with TLS */
    const struct rg_local *local;         /* borrowed; NULL: as the system chooses */
    struct rg_resolver *resolver;         /* borrowed */
    struct rg_transport_loop *transports; /* borrowed */
    uint32_t connections_max;
    uint64_t connect_timeout_ns, first_byte_timeout_ns, stall_timeout_ns, idle_timeout_ns;
};

struct rg_pool;

int rg_pool_create(struct rg_pool **out_pool, struct rg_loop *loop,
                   const struct rg_pool_options *options);
/* Fails what waits with RG_STATUS_CLOSED, closes every connection, and then calls done(context) and
 * frees the pool. */
void rg_pool_close(struct rg_pool *pool, void (*done)(void *context), void *context);

/* Queues an exchange; `done` of it never comes from within this call. */
void rg_pool_submit(struct rg_pool *pool, struct rg_exchange *x);
/* Ends an exchange early: its `done` comes, from within this call if it was waiting, with `status`
 * unless it had just finished. */
void rg_pool_cancel(struct rg_pool *pool, struct rg_exchange *x, enum rg_status status);
/* Opens connections up to this many, a few at a time, before there are exchanges for them. */
void rg_pool_prewarm(struct rg_pool *pool, uint32_t connections);
uint32_t rg_pool_connections(const struct rg_pool *pool);

#endif
