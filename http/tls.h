/* TLS of one connection, without sockets: ciphertext comes in as spans and goes out into a buffer
 * that the owner lends. BoringSSL does handshake, certificates, sessions and everything that is
 * sent. What is received goes through our own record layer (http/tls_record.h) under TLS 1.3 with
 * an AEAD that it knows, and through BoringSSL's otherwise; the caller sees no difference.
 *
 * Here are the connection, its handshake and its end. http/tls_traffic.h has what comes between:
 * application data, tickets, key updates and alerts.
 *
 *   NONE --init--> HANDSHAKING --rg_tls_handshake says 0--> ESTABLISHED
 *                       | a failure                              | a failure
 *                       v                                        v
 *                    REFUSED                                  BROKEN          any --fini--> NONE
 *
 * The two directions end on their own (RFC 8446 section 6.1), so each has a state of its own. Who
 * opens what is received:
 *
 *   HANDSHAKE --> OWN <--> RENEWING      RENEWING: the peer was asked for a new key
 *       |            \        |          ENDED: close_notify was received
 *       +-> BORINGSSL +-------+--> ENDED
 *
 * and what has to go out before the next record of application data:
 *
 *   HANDSHAKE --> PENDING <--> READY --> ENDED     ENDED: close_notify was sent
 *                    |           ^
 *                    +--> HELD --+
 *
 * PENDING: BoringSSL holds messages, such as a server's tickets or the answer to a key update.
 * HELD: one of them is a key update of ours that found no room.
 *
 * A connection is embedded in its owner and not moved while it lives. Whatever a call returns, what
 * it appended to `out` must be sent, in this order: a failure's alert lies there, and what follows
 * a key update is sealed with another key. */
#ifndef RG_HTTP_TLS_H
#define RG_HTTP_TLS_H

#include "http/tls_failure.h"
#include "http/tls_loop.h"
#include "http/tls_peer.h"
#include "http/tls_record.h"

#define RG_TLS_TEXT_SIZE 192
/* Tickets taken from one connection. More are ignored. */
#define RG_TLS_TICKETS_MAX 8

enum rg_tls_state {
    RG_TLS_NONE = 0,
    RG_TLS_HANDSHAKING,
    RG_TLS_REFUSED, /* the handshake failed */
    RG_TLS_ESTABLISHED,
    RG_TLS_BROKEN, /* it was established, and failed later */
    RG_TLS_STATE_COUNT,
};

enum rg_tls_reading {
    RG_TLS_READING_HANDSHAKE = 0,
    RG_TLS_READING_BORINGSSL,
    RG_TLS_READING_OWN,
    RG_TLS_READING_RENEWING,
    RG_TLS_READING_ENDED,
    RG_TLS_READING_COUNT,
};

enum rg_tls_sending {
    RG_TLS_SENDING_HANDSHAKE = 0,
    RG_TLS_SENDING_READY,
    RG_TLS_SENDING_PENDING,
    RG_TLS_SENDING_HELD,
    RG_TLS_SENDING_ENDED,
    RG_TLS_SENDING_COUNT,
};

/* The zero state is valid for fini. Invariant: `failure` is set in REFUSED and BROKEN only; both
 * directions have left HANDSHAKE exactly when the connection is or was established; the record
 * layer has keys exactly when it opens what is received (or did, before ENDED). */
struct rg_tls {
    struct ssl_st *ssl;
    struct rg_tls_loop *loop;
    struct rg_tls_peer *peer; /* NULL on a server */
    struct rg_tls_record record;
    uint8_t *message; /* a borrowed buffer with the beginning of a cut handshake message, or NULL */
    uint32_t message_size;
    /* enum rg_tls_state, _reading and _sending; each has one function that changes it. */
    uint8_t state, reading, sending;
    bool boringssl_records; /* the context wants no record layer of ours */
    /* In a row, without application data between them; but tickets are counted in all. */
    uint8_t empty_count, key_update_count, warning_count, ticket_count;
    uint64_t sealed_bytes, key_update_at; /* all so far, and at the peer's last key update */
    enum rg_tls_failure failure;
    char failure_text[RG_TLS_TEXT_SIZE];
};

/* 0 or -ENOMEM. Everything but `tls` is borrowed for the life of the connection. */
int rg_tls_init_client(struct rg_tls *tls, struct rg_tls_loop *loop, struct rg_tls_peer *peer);
int rg_tls_init_server(struct rg_tls *tls, struct rg_tls_loop *loop,
                       struct rg_tls_context *context);

/* Wipes the keys and returns what was borrowed from the loop. In any state. */
void rg_tls_fini(struct rg_tls *tls);

/* 0 done, input may be left for rg_tls_open; -EAGAIN feed more; -ENOBUFS `out` is full, drain it
 * and call again; -EPROTO failed, see rg_tls_failure_text. */
int rg_tls_handshake(struct rg_tls *tls, struct rg_tls_in *in, struct rg_tls_out *out);

/* "established". */
const char *rg_tls_state_name(const struct rg_tls *tls);

/* True from the end of the handshake on, whatever came after it. */
static inline bool rg_tls_established(const struct rg_tls *tls)
{
    return tls->state >= RG_TLS_ESTABLISHED;
}

/* "certificate expired on 2024-01-02"; valid as long as the connection. */
const char *rg_tls_failure_text(const struct rg_tls *tls);

/* The connection is established. */
const char *rg_tls_version(const struct rg_tls *tls);
const char *rg_tls_cipher(const struct rg_tls *tls);
bool rg_tls_resumed(const struct rg_tls *tls);
/* True if the peer chose http/1.1 by ALPN, false if it chose nothing. */
bool rg_tls_alpn(const struct rg_tls *tls);

/* The rest is for the other http/tls_*.c files. */

/* Every call of BoringSSL's SSL functions lies between these two. They lend the spans to the loop's
 * BIO, and clear this thread's error queue before and after. */
void rg_tls_call_begin(struct rg_tls *tls, struct rg_tls_in *in, struct rg_tls_out *out);
void rg_tls_call_end(struct rg_tls *tls);

/* Each is the one place where its state is changed, and asserts that the change is allowed. */
void rg_tls_reading_enter(struct rg_tls *tls, enum rg_tls_reading reading);
void rg_tls_sending_enter(struct rg_tls *tls, enum rg_tls_sending sending);

/* Records the first failure of a connection; later ones are its consequences. Returns -EPROTO. */
int rg_tls_fail(struct rg_tls *tls, enum rg_tls_failure failure, const char *format, ...)
    RG_PRINTF(3, 4);
/* The same for an alert of the peer's, and for what lies in BoringSSL's error queue. */
int rg_tls_fail_by_alert(struct rg_tls *tls, int alert);
int rg_tls_fail_from_queue(struct rg_tls *tls);
/* What a BoringSSL call that returned `ret` <= 0 means: -EAGAIN, -ENOBUFS, -ENODATA (close_notify)
 * or -EPROTO. */
int rg_tls_interpret(struct rg_tls *tls, int ret);

/* BoringSSL's new-session callback: keeps the session for the peer's next connection. */
int rg_tls_session_new(struct ssl_st *ssl, struct ssl_session_st *session);

#endif
