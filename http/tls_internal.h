/* What the http/tls_*.c files share with one another and hide from everybody else. */
#ifndef RG_HTTP_TLS_INTERNAL_H
#define RG_HTTP_TLS_INTERNAL_H

#include "http/tls.h"

#include <limits.h>
#include <openssl/ssl.h>

struct rg_tls_context {
    SSL_CTX *ssl;
    X509_STORE *roots; /* NULL on a server */
    bool boringssl_records;
    char trust[PATH_MAX];
};

/* BoringSSL's certificate callback: verifies chain, dates, purpose and host name, and explains a
 * refusal in the connection's failure. Every client context has it, and no connection can do
 * without. */
enum ssl_verify_result_t rg_tls_verify_peer(SSL *ssl, uint8_t *out_alert);

/* BoringSSL's new-session callback: keeps the session for the peer's next connection. */
int rg_tls_session_new(SSL *ssl, SSL_SESSION *session);

/* Records the first failure of a connection; later ones are its consequences. Returns -EPROTO. */
int rg_tls_fail(struct rg_tls *tls, enum rg_tls_failure failure, const char *format, ...)
    RG_PRINTF(3, 4);

#endif
