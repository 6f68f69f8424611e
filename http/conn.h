/* A client's connection: one HTTP/1.1 exchange after the other over one transport.
 * What it reads is http/response.h; who opens it and gives it exchanges is its owner, the pool.
 *
 *            open                 on_ready               assign
 *   CLOSED ------> CONNECTING -------------> IDLE <----------------> BUSY
 *      ^            |      | a while       ^  |     response read      |
 *      |            |      v      on_ready |  |                        |
 *      |            |    SLOW -------------+  |                        |
 *      |            v      v                  v                        v
 *      +----------- CLOSING <------------------------------------------+
 *        on_closed            failure, timeout, idle too long, pool closed
 *
 * SLOW is still connecting: another address may be tried beside it. CLOSING lasts for
 * RG_CONN_CLOSE_NS at most; then whatever the peer has not taken is dropped.
 *
 * Invariant: a connection that is BUSY has an exchange, and one that connects or is CLOSED has
 * none.
 *
 * While BUSY the request and the response advance on their own: a server may answer before it has
 * read all of the request.
 *
 * Progress is a byte that comes, or one of an upload that the server's system has acknowledged: a
 * send is done when our system has taken it, which is a quarter of a megabyte at a time, and most
 * of that may still lie there. The wait for an answer begins when nothing does any more. A proxy's
 * buffers are beyond our sight: what it has taken counts as taken. While a request is held back on
 * purpose, by its exchange's pace, nothing is waited for. */
#ifndef RG_HTTP_CONN_H
#define RG_HTTP_CONN_H

#include "http/candidates.h"
#include "http/response.h"

/* A connection that is not there after this long makes another address be tried (RFC 8305 section 5
 * recommends 250 ms). */
#define RG_CONN_SLOW_NS (250 * RG_NS_PER_MS)
/* And one that has taken this long is given up for another address where there is no room for both.
 */
#define RG_CONN_STUCK_NS (2 * RG_NS_PER_S)
/* How long closing waits for a peer that does not take the last word of TLS. */
#define RG_CONN_CLOSE_NS (1 * RG_NS_PER_S)

enum rg_conn_state {
    RG_CONN_CLOSED = 0,
    RG_CONN_CONNECTING,
    RG_CONN_SLOW,
    RG_CONN_IDLE,
    RG_CONN_BUSY,
    RG_CONN_CLOSING,
    RG_CONN_STATE_COUNT,
};

enum rg_request_phase { RG_REQUEST_SENDING, RG_REQUEST_SENT };

struct rg_conn;

/* What a connection tells its owner, on the loop. */
struct rg_conn_owner {
    void (*waiting)(struct rg_conn *conn); /* for memory */
    /* Became idle, or is idle again: `before` is BUSY then. */
    void (*ready)(struct rg_conn *conn, enum rg_conn_state before);
    void (*slow)(struct rg_conn *conn);        /* still connecting after a while */
    bool (*stuck)(const struct rg_conn *conn); /* and in the way of a better one? */
    /* Begins to close. */
    void (*ended)(struct rg_conn *conn, const struct rg_transport_failure *failure,
                  enum rg_conn_state before);
    void (*closed)(struct rg_conn *conn); /* may be used again */
};

/* What the connections of one owner share; the owner's. */
struct rg_conn_shared {
    const struct rg_conn_owner *owner;
    struct rg_response_shared response;
    struct rg_transport_loop *transports;
    const char *via; /* what failures to connect name: the proxy; NULL: nothing */
    uint64_t connect_timeout_ns, first_byte_timeout_ns, stall_timeout_ns, idle_timeout_ns;
    uint64_t watch_ns; /* the shortest of the time-outs of an open connection */
};

struct rg_conn {
    struct rg_conn_shared *shared;
    struct rg_list node; /* in the owner's list of idle, busy or free connections */
    struct rg_transport transport;
    struct rg_alarm alarm;
    struct rg_response response; /* and the exchange that it answers, if any */
    struct rg_candidate_use use; /* its address, while not CLOSED; connecting borrows from it */
    uint8_t state, request;      /* `state` is changed by one function */
    bool held;                   /* what is left of the request waits for the exchange's pace */
    uint32_t served;             /* exchanges that it has carried to their end */
    uint32_t good_count;         /* the last so many of their answers did not ask for less */
    uint64_t opened_ns, progress_ns;
    uint64_t exchange_ns; /* how long the last exchange took */
    uint64_t upload_sent;
    uint64_t acknowledged; /* of what was sent, when it was looked at last */
    /* What an exchange is told that is done when the transport is closed. */
    struct rg_transport_failure failure;
};

static inline bool rg_conn_connects(enum rg_conn_state state)
{
    return state == RG_CONN_CONNECTING || state == RG_CONN_SLOW;
}

void rg_conn_init(struct rg_conn *conn, struct rg_conn_shared *shared);
/* Begins to connect to an address. 0 or a negative errno. */
int rg_conn_open(struct rg_conn *conn, const struct rg_transport_target *target);
/* Gives an idle connection an exchange. */
void rg_conn_assign(struct rg_conn *conn, struct rg_exchange *x);
/* Ends the connection; an exchange on it is done with this status. */
void rg_conn_fail(struct rg_conn *conn, enum rg_status status, int os_error, const char *text);

#endif
