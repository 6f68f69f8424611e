/* A server's connection: one request after the other over one transport. Private to server.c and
 * server_conn.c.
 *
 *          accept               handshaken                 answer sent, but bytes are on the way
 *   FREE ----------> HANDSHAKING ---------> OPEN ----------------------------> LINGERING
 *     ^   (plain: OPEN)   |                   |                                    |
 *     |                   v                   v                                    v
 *     +---------------- CLOSING <--------------------------------------------------+
 *       on_closed           ended, failed, timed out, cut, refused, server destroyed
 *
 * While OPEN the request and its response advance on their own, because an answer may come early:
 *
 *   request:   HEAD -> BODY -> DONE               and back to HEAD when the response is sent, too
 *                 \      \ answered early -> DROP -> DONE
 *                  \______\ malformed, or too much to drop -> ABANDONED
 *   response:  NONE -> READY (the handler has answered) -> SENDING -> SENT
 *                        \ on purpose: HELD, until the handler lets it go: READY
 *
 * Rules. Requests are read in on_data only. What arrives behind a complete request stays where it
 * is, and the transport pauses, until the response is sent: resuming leads back to on_data. A
 * buffer is held only while there are bytes in it, so an idle connection holds none. The handler's
 * call is released when its response is sent, or when the transport is closed: not before, because
 * the kernel may be sending out of memory that the call owns.
 *
 * Invariant: between two calls, a call of the handler is open only behind a head that was taken,
 * and no longer than its response is being sent; who abandons a request, or lingers, closes; and a
 * connection that is FREE holds no memory. */
#ifndef RG_HTTP_SERVER_CONN_H
#define RG_HTTP_SERVER_CONN_H

#include "http/h1_chunked.h"
#include "http/server_buffer.h"
#include "http/server_handler.h"
#include "http/transport.h"

/* A request's head, or a piece of its body; any record of TLS fits behind an incomplete head. */
#define RG_SERVER_INPUT_SIZE (RG_H1_HEAD_SIZE_MAX + RG_TLS_CIPHER_MAX)
/* Nothing has moved for so long: a request that is being read, a peer that does not take its
 * response, a handshake. The idle timeout replaces it where that is shorter. */
#define RG_SERVER_STALL_NS (30 * RG_NS_PER_S)
/* How long a peer may take to notice that nothing more comes; then it may see RST. */
#define RG_SERVER_LINGER_NS (5 * RG_NS_PER_S)
/* How long closing may wait for a last word of TLS to be taken. */
#define RG_SERVER_CLOSE_NS (2 * RG_NS_PER_S)
/* The most that is read of a body that nobody wants to keep its connection alive. */
#define RG_SERVER_DROP_MAX RG_MIB(1)

/* A rate is kept in slices of this length; a late loop makes up for as much as the burst. */
#define RG_SERVER_PACE_SLICE_NS (10 * RG_NS_PER_MS)
#define RG_SERVER_PACE_BURST_NS (50 * RG_NS_PER_MS)
/* Rates above are no limit to anybody, and would overflow in the arithmetic. */
#define RG_SERVER_PACE_MAX (UINT64_C(100) * 1000 * 1000 * 1000)

enum rg_server_conn_state {
    RG_SERVER_CONN_FREE = 0,
    RG_SERVER_CONN_HANDSHAKING,
    RG_SERVER_CONN_OPEN,
    RG_SERVER_CONN_LINGERING,
    RG_SERVER_CONN_CLOSING,
    RG_SERVER_CONN_STATE_COUNT,
};

enum rg_server_request {
    RG_SERVER_REQUEST_HEAD = 0, /* with no input: idle */
    RG_SERVER_REQUEST_BODY,
    RG_SERVER_REQUEST_DROP, /* a body that nobody wants is read to its end */
    RG_SERVER_REQUEST_DONE,
    RG_SERVER_REQUEST_ABANDONED, /* where it ends will not be known: whatever comes is dropped */
};

enum rg_server_answer {
    RG_SERVER_ANSWER_NONE = 0,
    RG_SERVER_ANSWER_READY,
    RG_SERVER_ANSWER_HELD,
    RG_SERVER_ANSWER_SENDING,
    RG_SERVER_ANSWER_SENT,
};

struct rg_server_conn {
    struct rg_server_shared *shared;
    struct rg_list node; /* in the server's list of free ones */
    struct rg_transport transport;
    struct rg_alarm alarm; /* limits; see conn_limit_ns */
    struct rg_alarm pace;  /* armed while the response is held back on purpose, of any kind */
    uint64_t acknowledged; /* of what was sent, when it was looked at last */
    uint64_t progress_ns;
    uint8_t state, request, answer; /* each is changed by one function */
    /* Facts beside these states, none of which says what comes next: a request that is refused has
     * an answer and no call; the request's head, its end and the handler each may demand the
     * close; and the promise of 100 lasts also where the body comes without it. */
    bool calling;      /* begin has returned 0, and release is to come */
    bool must_close;   /* after this response */
    bool continue_due; /* the client wants 100 before it sends the body, and was not given it */
    /* The request. */
    struct rg_server_buffer *input;
    uint32_t input_offset, input_size, head_scanned;
    enum rg_h1_framing framing;
    uint64_t body_left; /* with RG_H1_BODY_LENGTH */
    uint64_t dropped;
    struct rg_h1_chunked chunked;
    /* The response. Its head lies in `head` until it is written. */
    struct rg_server_buffer *head;
    struct rg_h1_encoder encoder;
    struct rg_server_response response;
    uint64_t offset; /* of the body: given to the transport */
    uint64_t due_ns; /* nothing more is sent before */
    struct rg_server_call call;
};

/* What the connections of one server share; the server's. */
struct rg_server_shared {
    struct rg_loop *loop;
    const struct rg_server_handler *handler;
    void *context;              /* the handler's */
    struct rg_tls_context *tls; /* NULL: plain HTTP */
    struct rg_transport_loop *transports;
    uint64_t idle_timeout_ns;
    uint64_t stall_ns; /* RG_SERVER_STALL_NS or the idle timeout */
    struct rg_server_buffers inputs, heads;
    struct rg_h1_head head; /* of the request that begins */
    struct rg_server_stats stats;
    /* The connection may be used again. */
    void (*closed)(struct rg_server_conn *conn);
};

/* Prepares a connection that was never used. */
void rg_server_conn_init(struct rg_server_conn *conn, struct rg_server_shared *shared);
/* Takes over an accepted descriptor. A negative errno: the descriptor is still the caller's. */
int rg_server_conn_open(struct rg_server_conn *conn, int fd);
/* Ends the connection for the server's sake; harmless for one that ends already. */
void rg_server_conn_cut(struct rg_server_conn *conn);

#endif
