/* What BoringSSL gives in C++ only. */
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

/* Seals one record of application data straight to `out`, which has SSL_max_seal_overhead bytes
 * more than `size`, in the place of an SSL_write: that would seal it into a buffer of its own, made
 * and freed for each record, and copy it from there. Nothing may be pending in the connection. 0
 * and the size of the record, -EPROTO, or -ENOTSUP where this BoringSSL has no such function. */
int rg_tls_seal_direct(struct ssl_st *ssl, const uint8_t *data, size_t size, uint8_t *out,
                       size_t room, size_t *out_size);

#ifdef __cplusplus
}
#endif

#endif
