/* The one thing that BoringSSL says in C++ only. */
#ifndef RG_HTTP_TLS_SECRETS_H
#define RG_HTTP_TLS_SECRETS_H

#include <stddef.h>
#include <stdint.h>

struct ssl_st;

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the secret of what the peer sends under TLS 1.3 after the handshake. 0, or -EINVAL when
 * there is none or it is larger than `room`. The caller wipes it. */
int rg_tls_secret_read(const struct ssl_st *ssl, uint8_t *secret, size_t room, size_t *out_size);

#ifdef __cplusplus
}
#endif

#endif
