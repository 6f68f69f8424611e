/* Why TLS failed, in kinds that a user and the retry policy can tell apart. Pure: no connection, no
 * state. http/tls.h records the first failure of each connection with a text of its own. */
#ifndef RG_HTTP_TLS_FAILURE_H
#define RG_HTTP_TLS_FAILURE_H

#include "runtime/base.h"

#include <ringest/error.h>

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
        RG_TLS_FAILURE_COUNT
};

/* "EXPIRED". */
const char *rg_tls_failure_name(enum rg_tls_failure failure);
/* The text of the kind, as in the table above. */
const char *rg_tls_failure_summary(enum rg_tls_failure failure);
/* What a failure of the handshake means for a request. An alert other than those of version, cipher
 * and certificate says that something is wrong with the peer for now. */
enum rg_status rg_tls_failure_status(enum rg_tls_failure failure);

/* What a reason out of BoringSSL's error queue means to a user. A reason that is not listed is an
 * error of the protocol. */
enum rg_tls_failure rg_tls_failure_of_reason(int reason);
/* REFUSED for an alert that every other attempt would meet too: nothing in common, or a certificate
 * of ours that is missing or not wanted (RFC 8446 section 6.2). ALERT for every other one. */
enum rg_tls_failure rg_tls_failure_of_alert(int alert);

#endif
