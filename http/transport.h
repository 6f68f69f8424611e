/* A byte stream over a socket, plain or TLS, for the client's and the server's connections alike.
 *
 *          connect                 proxy              TLS              on_ready
 *   IDLE -----------> CONNECTING -------> TUNNELLING -----> HANDSHAKING --------> OPEN
 *     ^                    |                  |                  |                  |
 *     |                    +------------------+------------------+-----> ENDING <---+
 *     |                                                                    | on_ended
 *     | on_closed                                                          v
 *     |                                      rg_transport_close          ENDED
 *     +------- CLOSING, RESETTING <------- GOODBYE <----- (of any)
 *
 * What is not needed is left out: TUNNELLING without a proxy, HANDSHAKING without TLS; an accepted
 * descriptor starts in HANDSHAKING or OPEN. A transport that fails, or whose peer ends, is ENDING
 * until on_ended is called, once and instead of any further on_ready, on_data or on_sent; the owner
 * then closes it. It can be closed in every state. GOODBYE sends the last word of TLS, where there
 * is one: close_notify, or the alert that says why a handshake failed. CLOSING waits until nothing
 * is in flight any more, RESETTING does so too and ends with RST. After on_closed the memory may be
 * used again. Callbacks come from the loop, never from within a call of the owner's.
 *
 * Receiving is pulled: within on_data the owner calls rg_transport_read until it says -EAGAIN, with
 * a destination of its own choice each time, so that a record is decrypted to where it shall stay.
 * A receive is in flight whenever the owner is not in on_data, so that the end of an idle
 * connection is noticed; rg_transport_pause and _resume hold it back, which is the back-pressure.
 * http/transport_input.h draws the states of what has been received.
 *
 * Sending is buffered: rg_transport_write takes bytes, sealed where there is TLS, and
 * rg_transport_flush sends them. http/transport_output.h draws the states of what is to be sent. */
#ifndef RG_HTTP_TRANSPORT_H
#define RG_HTTP_TRANSPORT_H

#include "http/tls.h"
#include "http/transport_input.h"
#include "http/transport_loop.h"
#include "http/transport_output.h"
#include "http/tunnel.h"
#include "runtime/socket.h"

#include <ringest/error.h>
#include <sys/types.h>

enum rg_transport_state {
    RG_TRANSPORT_IDLE = 0,
    RG_TRANSPORT_CONNECTING,
    RG_TRANSPORT_TUNNELLING,
    RG_TRANSPORT_HANDSHAKING,
    RG_TRANSPORT_OPEN,
    RG_TRANSPORT_ENDING,
    RG_TRANSPORT_ENDED,
    RG_TRANSPORT_GOODBYE,
    RG_TRANSPORT_CLOSING,
    RG_TRANSPORT_RESETTING,
    RG_TRANSPORT_STATE_COUNT,
};

struct rg_transport;

struct rg_transport_owner {
    void (*on_ready)(struct rg_transport *transport);
    /* There are bytes to read, or (status of rg_transport_read) the peer has ended. */
    void (*on_data)(struct rg_transport *transport);
    /* Bytes that rg_transport_receive_into asked for are there: `size` of them, at its destination.
     */
    void (*on_direct)(struct rg_transport *transport, size_t size);
    /* Everything written was sent. */
    void (*on_sent)(struct rg_transport *transport);
    /* The peer ended, or the connection failed: transport->failure says how. */
    void (*on_ended)(struct rg_transport *transport);
    void (*on_closed)(struct rg_transport *transport);
};

struct rg_transport_failure {
    enum rg_status status; /* OK: an orderly end by the peer */
    int os_error;          /* positive, or 0 */
    const char *text; /* what TLS says; lives as long as the transport is not closed; or NULL */
    bool final;       /* every further attempt would fail alike, whatever the status says */
};

struct rg_transport {
    struct rg_transport_loop *shared;
    const struct rg_transport_owner *owner;
    struct rg_socket socket;
    struct rg_op reading;
    struct rg_task task; /* tells the owner what must not be told from within its own call */
    struct rg_tls tls;
    struct rg_tunnel *tunnel;          /* owned; NULL: no proxy */
    struct rg_transport_input input;   /* received and not yet read */
    struct rg_transport_output output; /* to be sent, and on its way */
    uint8_t *direct;                   /* rg_transport_receive_into; NULL: not asked for */
    size_t direct_size;
    size_t receive_max; /* of one receive; the owner may lower it for plain text */
    struct rg_transport_failure failure;
    uint64_t reached_ns; /* when bytes began to flow between us and the peer itself */
    uint8_t state;       /* enum rg_transport_state; changed by one function */
    bool secure;         /* TLS with the peer; does not change while it is open */
};

/* Prepares a zeroed transport. `shared` and `owner` are borrowed. */
void rg_transport_init(struct rg_transport *transport, struct rg_transport_loop *shared,
                       const struct rg_transport_owner *owner);

struct rg_transport_target {
    const struct sockaddr *address; /* borrowed until on_ready or on_ended */
    socklen_t address_size;
    struct rg_tls_peer *peer; /* whom to verify; NULL: plain */
    /* The address is that of a proxy, which leads on by this route; NULL: it is the peer's own. A
     * proxy with TLS and a plain peer do not go together. Borrowed until on_closed. */
    const struct rg_tunnel_route *route;
    const struct rg_local *local; /* where to connect from; NULL: as the system chooses */
};

/* Begins to connect. 0, or a negative errno without any callback to come. */
int rg_transport_connect(struct rg_transport *transport, const struct rg_transport_target *target);
/* Takes over an accepted descriptor (on success). */
int rg_transport_accept(struct rg_transport *transport, int fd, struct rg_tls_context *tls);

/* Reads up to `room` bytes to dest. In on_data only.
 *   > 0      bytes
 *   -EAGAIN  there are no more for now
 *   -ENOSPC  the next record holds more than `room`; RG_TLS_PLAIN_MAX is always enough
 *   other    it has ended or failed, and on_ended follows */
ssize_t rg_transport_read(struct rg_transport *transport, uint8_t *dest, size_t room);
/* True if bytes are left to read without another receive. */
bool rg_transport_has_input(const struct rg_transport *transport);
/* In on_data or on_direct, plain transports only: the next receive goes straight to dest, which
 * must stay until on_direct, on_ended or on_closed. */
void rg_transport_receive_into(struct rg_transport *transport, uint8_t *dest, size_t size);
/* In on_data, once: keeps what was not read and receives nothing more until resume, which leads to
 * on_data. A second call before that is an error (it asserts). */
void rg_transport_pause(struct rg_transport *transport);
void rg_transport_resume(struct rg_transport *transport);
/* True from pause to resume. */
static inline bool rg_transport_paused(const struct rg_transport *transport)
{
    return transport->input.state == RG_TRANSPORT_PAUSED;
}

/* Takes bytes to be sent and returns how many. Fewer than `size`: the buffer is full, and the owner
 * writes the rest from on_sent. A negative errno: it has failed, and on_ended follows. `large` asks
 * for a large buffer, because a body is to be sent. */
ssize_t rg_transport_write(struct rg_transport *transport, const void *data, size_t size,
                           bool large);
/* Sends what was written. Harmless when there is nothing or a send is in flight. */
void rg_transport_flush(struct rg_transport *transport);
/* The same before rg_transport_send_from, which is to follow in on_sent: both go in one segment. */
void rg_transport_flush_more(struct rg_transport *transport);
/* Plain transports with nothing buffered: sends from the owner's memory, which must stay until
 * on_sent or on_closed. */
void rg_transport_send_from(struct rg_transport *transport, const void *data, size_t size);
bool rg_transport_sending(const struct rg_transport *transport);
/* Says how much of what was sent the peer has acknowledged: see rg_socket_output. */
void rg_transport_progress(const struct rg_transport *transport,
                           struct rg_socket_output *out_output);
/* True while the kernel may still read or write the memory that the owner lent by
 * rg_transport_send_from or _receive_into. After rg_transport_close that lasts until on_closed. */
bool rg_transport_borrows(const struct rg_transport *transport);

/* Ends the connection. on_closed always follows, also for a transport that was never opened. With
 * `reset` the peer sees RST. Without it, closing waits until the last word of TLS was sent, which a
 * peer that does not read can hold up: the owner limits that time and then calls again, with
 * `reset`. */
void rg_transport_close(struct rg_transport *transport, bool reset);

#endif
