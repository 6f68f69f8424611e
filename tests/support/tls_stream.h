/* A transport of ours that speaks TLS on a loop, and a peer of another make in the test's hands:
 * for tests of what happens between the record layer, the send buffer and the socket. Both sides
 * send bytes of rg_script_byte and check what they get. */
#ifndef RG_TESTS_SUPPORT_TLS_STREAM_H
#define RG_TESTS_SUPPORT_TLS_STREAM_H

#include "http/transport.h"
#include "tests/support/tls_ends.h"

#include <netinet/in.h>
#include <stdatomic.h>

struct rg_test_stream {
    /* Set before it is opened. */
    const struct rg_test_pki *pki;
    const struct rg_test_certificate *leaf; /* of a server of ours; NULL: the pki's */
    bool is_server;                         /* ours */
    bool boringssl_records;                 /* ours does not open records itself */
    uint16_t version;                       /* of the peer; 0: any */
    uint16_t tickets;                       /* that a server of ours sends; 0: as many as usual */
    int buffers;  /* SO_SNDBUF of ours and SO_RCVBUF of the peer; 0: the system's */
    uint8_t bits; /* set in each byte that is sent: what others print tells them apart */
    /* Another program is the peer, and there is none here: where to connect to, or (of a server)
     * the descriptor that was accepted; 0: neither. */
    uint16_t port;
    int accepted;
    _Atomic bool paused; /* on_data reads nothing until rg_test_stream_resume; at any time */
    /* Written on the loop. */
    _Atomic uint64_t received, sent, send_until;
    _Atomic bool ready, ended, closed, differs, full;
    struct rg_transport_failure failure; /* of the end */
    char text[RG_TLS_TEXT_SIZE];
    /* Private. */
    struct rg_loop *loop;
    struct rg_transport_loop *shared;
    struct rg_tls_context *context;
    struct rg_tls_peer peer_name;
    struct rg_transport transport;
    struct sockaddr_in address;
    /* The peer: BoringSSL over memory, and the socket that its bytes go through. Only for this. */
    int fd;
    struct ssl_ctx_st *raw_context;
    struct ssl_st *raw;
    uint64_t raw_received, raw_sent;
    uint8_t *wire; /* bytes that the socket has not taken yet */
    size_t wire_size, wire_room;
    size_t piece_max;  /* bytes of the wire at a time, at random up to this; 0: all */
    bool raw_deaf;     /* the peer reads nothing */
    bool raw_ended;    /* by close_notify */
    bool raw_finished; /* by FIN or RST */
    char raw_error[128];
};

/* Begins, without waiting for the handshake. */
void rg_test_stream_open(struct rg_test_stream *stream);
void rg_test_stream_close(struct rg_test_stream *stream);
/* Sends until so many bytes have gone all in all. */
void rg_test_stream_send(struct rg_test_stream *stream, uint64_t until);
/* Closes our side: on_closed follows. */
void rg_test_stream_end(struct rg_test_stream *stream);
void rg_test_stream_resume(struct rg_test_stream *stream);
/* Runs on the loop, and waits. */
void rg_test_stream_call(struct rg_test_stream *stream,
                         void (*function)(struct rg_test_stream *stream));

/* The peer's side. */
void rg_test_raw_write(struct rg_test_stream *stream, size_t size);
/* One turn: bytes to the socket, bytes from it. */
void rg_test_raw_turn(struct rg_test_stream *stream);
/* Turns until the condition holds; the case fails where it does not for a long time. */
#define RG_TEST_TURN_UNTIL(stream, condition)                                                      \
    do {                                                                                           \
        for (uint64_t rg_begun_ns = 0; rg_test_raw_turn(stream), !(condition);) {                  \
            if (!rg_test_go_on_waiting(&rg_begun_ns)) {                                            \
                rg_test_fail(__FILE__, __LINE__, "waited in vain for %s; the peer: %s; ours: %s",  \
                             #condition, (stream)->raw_error, (stream)->text);                     \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#endif
