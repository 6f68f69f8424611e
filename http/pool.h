/* The connections of one client on one loop to one endpoint, and the exchanges that wait for one.
 *
 * One exchange at a time uses a connection; the last one used is the first to be used again,
 * because its memory is hot and the others may then grow old and close. New connections are opened
 * while exchanges wait, up to a limit and as quickly as http/growth.h says, spread over all
 * addresses that the name resolves to. An
 * address that refuses, fails in the handshake, does not answer within RG_CONN_SLOW_NS, or
 * whose connection is lost before its first answer is passed over for a while and another is tried
 * (http/candidates.h). Only when all have failed and no connection is left are the waiting
 * exchanges given the failure: the last one, and one that is final only where no address failed
 * otherwise.
 *
 * Life: create -> exchanges are submitted, and done -> close: CLOSING, until the last connection is
 * closed and no look-up runs -> freed. Everything runs on the loop's thread. */
#ifndef RG_HTTP_POOL_H
#define RG_HTTP_POOL_H

#include "http/conn.h"
#include "http/growth.h"
#include "http/pool_addresses.h"

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
    const uint32_t *processes; /* of this host that use the server; borrowed; NULL: only this one */
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

/* Private to pool.c and its tests. */

enum rg_pool_state {
    RG_POOL_OPEN = 0,
    RG_POOL_CLOSING, /* from rg_pool_close on */
};

struct rg_pool {
    struct rg_conn_shared shared; /* with its connections */
    enum rg_pool_state state;
    struct rg_pool_options options;
    char *host, *connect_host;
    struct rg_tls_peer peer, proxy_peer;
    struct rg_tunnel_route route;    /* route.proxy NULL: no proxy */
    struct rg_conn *conns;           /* connections_max of them */
    struct rg_list free, idle, busy; /* connecting and closing ones are in none */
    uint32_t open_count, connecting_count, slow_count, closing_count;
    uint32_t connections_max; /* lowered when file descriptors run out */
    struct rg_list queue;
    uint32_t queue_count;
    uint32_t prewarm_target;
    struct rg_pool_addresses addresses;
    struct rg_growth growth;
    struct rg_alarm alarm; /* when an address is no longer passed over, or the service is slow */
    bool has_connected;    /* the first one has been logged */
    struct rg_task pump_task;
    void (*closed)(void *context);
    void *closed_context;
};

#endif
