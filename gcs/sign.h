/* Signatures that credentials need: RS256 (RFC 7518 section 3.3) for JSON web tokens, SHA-256 and
 * HMAC for AWS's signature version 4. Pure functions; errors of BoringSSL end here. */
#ifndef RG_GCS_SIGN_H
#define RG_GCS_SIGN_H

#include "runtime/base.h"

#define RG_SHA256_SIZE 32
/* An RSA key of 8192 bits. */
#define RG_RSA_SIGNATURE_SIZE_MAX 1024

void rg_sha256(const void *data, size_t size, uint8_t out[RG_SHA256_SIZE]);
void rg_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                    uint8_t out[RG_SHA256_SIZE]);

/* 0 when the text is an RSA private key in PEM (PKCS #8 or PKCS #1), otherwise -EINVAL. */
int rg_rsa_key_check(const char *pem);
/* RSASSA-PKCS1-v1_5 with SHA-256. Returns the size of the signature; -EINVAL for a bad key. */
int rg_rsa_sha256_sign(const char *pem, const void *data, size_t size,
                       uint8_t out[RG_RSA_SIGNATURE_SIZE_MAX]);

/* RFC 4648 section 5, without padding. `out` takes RG_BASE64URL_SIZE(size) bytes, its NUL
 * included. Returns the size without the NUL. */
#define RG_BASE64URL_SIZE(size) (((size) + 2) / 3 * 4 + 1)
size_t rg_base64url_encode(const void *data, size_t size, char *out);
/* RFC 4648 section 4, with padding; sizes as above. */
size_t rg_base64_encode(const void *data, size_t size, char *out);
/* Lower-case digits and a NUL: 2 * size + 1 bytes. */
void rg_hex_encode(const void *data, size_t size, char *out);

#endif
