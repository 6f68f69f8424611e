/* Certificate verification, and what a user is told when it fails. */
#ifndef RG_HTTP_TLS_VERIFY_H
#define RG_HTTP_TLS_VERIFY_H

#include <openssl/ssl.h>

/* BoringSSL's certificate callback: verifies chain, dates, purpose and host name, and explains a
 * refusal in the connection's failure. Every client context has it, and no connection can do
 * without. */
enum ssl_verify_result_t rg_tls_verify_peer(SSL *ssl, uint8_t *out_alert);

#endif
