/* A client's connection: one HTTP/1.1 exchange after the other over one transport. Private to
 * conn.c and pool.c.
 *
 *            open                 on_ready               assign
 *   CLOSED ------> CONNECTING -------------> IDLE <----------------> BUSY
 *      ^               |                      |     response read      |
 *      |               v                      v                        v
 *      +----------- CLOSING <------------------------------------------+
 *        on_closed            failure, timeout, idle too long, pool closed
 *
 * CLOSING lasts for RG_POOL_CLOSE_NS at most; then whatever the peer has not taken is dropped.
 *
 * While BUSY the request and the response advance on their own: a server may answer before it has
 * read all of the request.
 *
 * Progress is a byte that comes, or one of an upload that the server's system has acknowledged: a
 * send is done when our system has taken it, which is a quarter of a megabyte at a time, and most
 * of that may still lie there. The wait for an answer begins when nothing does any more. A proxy's
 * buffers are beyond our sight: what it has taken counts as taken. */
#ifndef RG_HTTP_CONN_H
#define RG_HTTP_CONN_H

#include "http/candidates.h"
#include "http/h1_chunked.h"
#include "http/pool.h"

enum rg_conn_state {
    RG_CONN_CLOSED = 0,
    RG_CONN_CONNECTING,
    RG_CONN_IDLE,
    RG_CONN_BUSY,
    RG_CONN_CLOSING,
    RG_CONN_STATE_COUNT,
};

enum rg_request_phase { RG_REQUEST_SENDING, RG_REQUEST_SENT };

enum rg_response_phase {
    RG_RESPONSE_HEAD,
    RG_RESPONSE_PLACE, /* the head is parsed, memory for the body is being waited for */
    RG_RESPONSE_BODY,
};

struct rg_conn {
    struct rg_pool *pool;
    struct rg_list node; /* in the pool's list of idle, busy or free connections */
    struct rg_transport transport;
    struct rg_alarm alarm;
    struct rg_task slab_task; /* deferred when memory has come back */
    struct rg_exchange *x;
    struct rg_candidate_use use; /* its address, while not CLOSED; connecting borrows from it */
    uint8_t state, request, response;
    bool slow;       /* passed RG_POOL_SLOW_CONNECT_NS while connecting */
    bool reused;     /* has carried an exchange before */
    bool keep_alive; /* the response lets the connection live */
    uint64_t opened_ns, progress_ns, head_ns;
    uint64_t upload_sent;
    uint64_t acknowledged; /* of what was sent, when it was looked at last */
    struct rg_transport_failure
        failure; /* of an exchange that is done when the transport is closed */
    /* The response. `early` is the slab that takes the head, and the first bytes of the body; where
     * no slab was free they are in `spare`. */
    struct rg_lease *early;
    uint8_t *spare; /* owned */
    size_t spare_capacity;
    size_t early_size, head_scanned, head_end;
    uint32_t interim_count; /* 1xx answers before the response */
    enum rg_body_action action;
    enum rg_h1_framing framing;
    uint64_t body_length;   /* with RG_H1_BODY_LENGTH */
    struct rg_lease *lease; /* of the body, with RG_BODY_LEASE */
    uint8_t *body;
    uint64_t body_size, body_room;
    struct rg_h1_chunked chunked;
};

void rg_conn_init(struct rg_conn *conn, struct rg_pool *pool);
/* Begins to connect to an address. 0 or a negative errno. */
int rg_conn_open(struct rg_conn *conn, const struct rg_transport_target *target);
/* Gives an idle connection an exchange. */
void rg_conn_assign(struct rg_conn *conn, struct rg_exchange *x);
/* Ends the connection; an exchange on it is done with this status. */
void rg_conn_fail(struct rg_conn *conn, enum rg_status status, int os_error, const char *text);

/* A failure as it is told to those who wait, with its text. Status OK: none. */
struct rg_pool_failure {
    struct rg_transport_failure failure;
    char text[RG_TUNNEL_TEXT_SIZE + 96];
};

/* What a connection and its pool share. */
struct rg_pool {
    struct rg_loop *loop;
    struct rg_pool_options options;
    char *host, *connect_host;
    struct rg_tls_peer peer, proxy_peer;
    struct rg_tunnel_route route;    /* route.proxy NULL: no proxy */
    struct rg_conn *conns;           /* connections_max of them */
    struct rg_list free, idle, busy; /* connecting and closing ones are in none */
    uint32_t open_count, connecting_count, slow_count, closing_count;
    uint32_t connections_max; /* lowered when file descriptors run out */
    uint64_t watch_ns;        /* the shortest of the time-outs of an open connection */
    struct rg_list queue;
    uint32_t queue_count;
    uint32_t prewarm_target;
    struct rg_candidates candidates; /* none until the first look-up has succeeded */
    /* How connections could not be made: the last failure that is final, and the last other one. */
    struct rg_pool_failure final_failure, passing_failure;
    struct rg_alarm alarm; /* when an address is no longer passed over */
    struct rg_resolve resolve;
    bool resolving;
    uint64_t resolved_ns, resolve_started_ns;
    struct rg_task pump_task;
    size_t predicted;       /* slab size that fitted the last body with its head */
    size_t grown;           /* the same of the last body whose length was not told; 0: none yet */
    struct rg_h1_head head; /* of the response that is being parsed */
    uint8_t *scratch;       /* RG_POOL_SCRATCH_SIZE bytes */
    bool closing;
    void (*closed)(void *context);
    void *closed_context;
};

#define RG_POOL_SCRATCH_SIZE RG_KIB(32)
static_assert(RG_POOL_SCRATCH_SIZE >= RG_TLS_PLAIN_MAX, "pieces are put together there");

/* Called by the connection. */
void rg_pool_conn_waiting(struct rg_conn *conn);     /* for memory */
void rg_pool_conn_ready(struct rg_conn *conn);       /* became idle, or is idle again */
void rg_pool_conn_slow(struct rg_conn *conn);        /* still connecting after a while */
bool rg_pool_conn_stuck(const struct rg_conn *conn); /* and in the way of a better one? */
void rg_pool_conn_ended(struct rg_conn *conn, const struct rg_transport_failure *failure,
                        bool was_connecting);   /* begins to close */
void rg_pool_conn_closed(struct rg_conn *conn); /* may be used again */

#endif
