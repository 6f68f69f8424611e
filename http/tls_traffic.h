/* The traffic of an established TLS connection: application data in both directions, and what the
 * peers say to each other besides (RFC 8446 section 4.6): tickets, key updates, alerts.
 *
 *     rg_tls_seal         plaintext to `out`
 *     rg_tls_open         until 0 for every received span
 *     rg_tls_flush        when there is room again, where rg_tls_holds
 *     rg_tls_close_notify
 *
 * Invariant of the buffer for messages: it is borrowed exactly while a handshake message is cut by
 * the end of a record. An answer to the peer that finds no room in `out` stays in BoringSSL and
 * goes out before the next record. */
#ifndef RG_HTTP_TLS_TRAFFIC_H
#define RG_HTTP_TLS_TRAFFIC_H

#include "http/tls.h"

#include <sys/types.h>

/* A handshake message after the handshake; the largest is a ticket. BoringSSL's limit, too. */
#define RG_TLS_MESSAGE_MAX RG_TLS_PLAIN_MAX
/* In a row and without application data between them, as in BoringSSL. */
#define RG_TLS_EMPTY_RECORDS_MAX 32
#define RG_TLS_KEY_UPDATES_MAX 32
#define RG_TLS_WARNINGS_MAX 4
/* A peer that has been sent this much since its last key update is not counted as one that sends
 * nothing else: an upload may take hours, and its answer comes at the end. */
#define RG_TLS_KEY_UPDATE_BYTES RG_KIB(64)
/* Records are not cut smaller than this to fit into what is left of `out`; so the least useful
 * capacity of an output buffer is this and 64 more. */
#define RG_TLS_SEAL_MIN 1024

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
    return tls->sending == RG_TLS_SENDING_HELD;
}

/* Appends what is held. 0; -ENOBUFS: drain `out` and call again; or -EPROTO. */
int rg_tls_flush(struct rg_tls *tls, struct rg_tls_out *out);

/* 0, or -ENOBUFS: drain `out` and call again. A connection that failed sends nothing more. */
int rg_tls_close_notify(struct rg_tls *tls, struct rg_tls_out *out);

#endif
