/* TLS of one connection, without sockets: ciphertext comes in as spans and goes out into a buffer
 * that the owner lends. BoringSSL does handshake, certificates, sessions and everything that is
 * sent. What is received goes through our own record layer (http/tls_record.h) under TLS 1.3 with
 * an AEAD that it knows, and through BoringSSL's otherwise; the caller sees no difference.
 *
 * Life of a connection, embedded in its owner and not moved while it lives:
 *     rg_tls_init_client or rg_tls_init_server
 *     rg_tls_handshake    until 0
 *     rg_tls_seal         plaintext to `out`
 *     rg_tls_open         until 0 for every received span
 *     rg_tls_flush        when there is room again, where rg_tls_holds
 *     rg_tls_close_notify
 *     rg_tls_fini         at any time
 * Whatever a call returns, what it appended to `out` must be sent, in this order: a failure's alert
 * lies there, and what follows a key update is sealed with another key. An answer to the peer that
 * finds no room stays here and goes out before the next record. */
#ifndef RG_HTTP_TLS_H
#define RG_HTTP_TLS_H

#include "http/tls_context.h"
#include "http/tls_record.h"

#include <ringest/error.h>

#include <sys/types.h>

/* Sessions kept for one peer by one loop: enough for a burst of reconnects, 2 KiB each. */
#define RG_TLS_SESSIONS_MAX 32
/* Tickets taken from one connection. More are ignored. */
#define RG_TLS_TICKETS_MAX 8
/* A handshake message after the handshake; the largest is a ticket. BoringSSL's limit, too. */
#define RG_TLS_MESSAGE_MAX RG_TLS_PLAIN_MAX
/* In a row and without application data between them, as in BoringSSL. */
#define RG_TLS_EMPTY_RECORDS_MAX 32
#define RG_TLS_KEY_UPDATES_MAX 32
#define RG_TLS_WARNINGS_MAX 4
/* A peer that has been sent this much since its last key update is not counted as one that sends
 * nothing else: an upload may take hours, and its answer comes at the end. */
#define RG_TLS_KEY_UPDATE_BYTES RG_KIB(64)
/* A name in DNS has at most 253 characters. */
#define RG_TLS_HOST_SIZE 254
#define RG_TLS_TEXT_SIZE 192
/* Records are not cut smaller than this to fit into what is left of `out`; so the least useful
 * capacity of an output buffer is this and 64 more. */
#define RG_TLS_SEAL_MIN 1024

/* Where ciphertext to be sent is appended: at data[size], up to `capacity`. */
struct rg_tls_out {
    uint8_t *data;
    size_t size;
    size_t capacity;
};

#define RG_TLS_FAILURES(XX)                                                                        \
    XX(NONE, "no failure")                                                                         \
    XX(EXPIRED, "certificate expired")                                                             \
    XX(NOT_YET_VALID, "certificate not yet valid")                                                 \
    XX(UNKNOWN_ISSUER, "unknown certificate issuer")                                               \
    XX(SELF_SIGNED, "self-signed certificate")                                                     \
    XX(HOST_MISMATCH, "certificate is for another host")                                           \
    XX(BAD_CERTIFICATE, "certificate not acceptable")                                              \
    XX(VERSION, "peer speaks no TLS 1.2 or newer")                                                 \
    XX(NO_COMMON_CIPHER, "no cipher in common")                                                    \
    XX(REFUSED, "refused by the peer")                                                             \
    XX(ALERT, "given up by the peer")                                                              \
    XX(NOT_TLS, "peer does not speak TLS (a port for plain HTTP?)")                                \
    XX(RECORD_MAC, "record damaged or tampered with")                                              \
    XX(PROTOCOL, "TLS protocol error")                                                             \
    XX(MEMORY, "out of memory")

enum rg_tls_failure {
#define XX(name, text) RG_TLS_FAILURE_##name,
    RG_TLS_FAILURES(XX)
#undef XX
};

/* What the connections of one event loop share. Single-threaded. */
struct rg_tls_loop {
    struct rg_tls_buffers buffers;
    struct bio_st *bio; /* BoringSSL's way to the spans of the call in progress */
    struct bio_method_st *method;
    struct rg_tls_in *in;
    struct rg_tls_out *out;
};

/* 0 or -ENOMEM. `connection_max` connections can hold a cut record at the same time. */
int rg_tls_loop_init(struct rg_tls_loop *loop, uint32_t connection_max);
void rg_tls_loop_fini(struct rg_tls_loop *loop);

/* A server as one event loop sees it: how to verify it, and the sessions that it can resume. The
 * name belongs to the sessions, so that none is ever offered to another host. Single-threaded;
 * outlives its connections. */
struct rg_tls_peer {
    struct rg_tls_context *context;
    struct ssl_session_st *sessions[RG_TLS_SESSIONS_MAX]; /* oldest first */
    uint32_t session_count;
    bool host_is_address;
    char host[RG_TLS_HOST_SIZE];
};

/* `host` is a DNS name or an address literal without brackets; certificates are checked against it.
 * 0, or -EINVAL if it is empty or too long. Borrows the context. */
int rg_tls_peer_init(struct rg_tls_peer *peer, struct rg_tls_context *context, const char *host);
void rg_tls_peer_fini(struct rg_tls_peer *peer);

/* The zero state is valid for fini. */
struct rg_tls {
    struct ssl_st *ssl;
    struct rg_tls_loop *loop;
    struct rg_tls_peer *peer; /* NULL on a server */
    struct rg_tls_record record;
    uint8_t *message; /* a borrowed buffer with the beginning of a cut handshake message, or NULL */
    uint32_t message_size;
    uint8_t empty_count;
    uint8_t key_update_count;
    uint8_t warning_count;
    uint8_t ticket_count;
    bool established;
    bool boringssl_records;
    bool own_records;     /* the record layer has taken over */
    bool closed;          /* close_notify was received */
    bool close_sent;      /* close_notify was sent */
    bool key_update_sent; /* asked for, not yet answered */
    bool unflushed;       /* BoringSSL holds messages that go out before the next record */
    bool key_update_held; /* one of these is a key update of ours that found no room */
    uint64_t sealed_bytes, key_update_at; /* all so far, and at the peer's last key update */
    enum rg_tls_failure failure;
    char failure_text[RG_TLS_TEXT_SIZE];
};

/* 0 or -ENOMEM. Everything but `tls` is borrowed for the life of the connection. */
int rg_tls_init_client(struct rg_tls *tls, struct rg_tls_loop *loop, struct rg_tls_peer *peer);
int rg_tls_init_server(struct rg_tls *tls, struct rg_tls_loop *loop,
                       struct rg_tls_context *context);

/* Wipes the keys and returns what was borrowed from the loop. */
void rg_tls_fini(struct rg_tls *tls);

/* 0 done, input may be left for rg_tls_open; -EAGAIN feed more; -ENOBUFS `out` is full, drain it
 * and call again; -EPROTO failed, see rg_tls_failure_text. */
int rg_tls_handshake(struct rg_tls *tls, struct rg_tls_in *in, struct rg_tls_out *out);

/* Plaintext bytes taken, fewer than `size` when `out` cannot take another record; or -EPROTO. */
ssize_t rg_tls_seal(struct rg_tls *tls, const void *data, size_t size, struct rg_tls_out *out);

/* Opens records into dest[0..room), which may be overwritten beyond what is returned, and must not
 * overlap the input.
 *   > 0       bytes of plaintext. Call again: there may be more, in the input or inside
 *   0         the input is consumed
 *   -ENOSPC   the next record's payload is larger than `room` and stays where it is; a room of
 *             RG_TLS_PLAIN_MAX is always enough
 *   -ENODATA  close_notify: there will be no more
 *   -EPROTO   failed, see rg_tls_failure_text
 * An end or a failure behind data is reported by the next call. */
ssize_t rg_tls_open(struct rg_tls *tls, struct rg_tls_in *in, uint8_t *dest, size_t room,
                    struct rg_tls_out *out);

/* True while a key update of ours waits for room in `out`. */
static inline bool rg_tls_holds(const struct rg_tls *tls)
{
    return tls->key_update_held;
}

/* Appends what is held. 0; -ENOBUFS: drain `out` and call again; or -EPROTO. */
int rg_tls_flush(struct rg_tls *tls, struct rg_tls_out *out);

/* 0, or -ENOBUFS: drain `out` and call again. A connection that failed sends nothing more. */
int rg_tls_close_notify(struct rg_tls *tls, struct rg_tls_out *out);

/* "certificate expired on 2024-01-02"; valid as long as the connection. */
const char *rg_tls_failure_text(const struct rg_tls *tls);
/* What a failure of the handshake means for a request. An alert other than those of version, cipher
 * and certificate says that something is wrong with the peer for now. */
enum rg_status rg_tls_failure_status(enum rg_tls_failure failure);
/* "EXPIRED". */
const char *rg_tls_failure_name(enum rg_tls_failure failure);

/* Of an established connection. */
const char *rg_tls_version(const struct rg_tls *tls);
const char *rg_tls_cipher(const struct rg_tls *tls);
bool rg_tls_resumed(const struct rg_tls *tls);
/* True if the peer chose http/1.1 by ALPN, false if it chose nothing. */
bool rg_tls_alpn(const struct rg_tls *tls);

#endif
