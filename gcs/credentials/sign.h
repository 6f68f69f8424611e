/* RS256 (RFC 7518 section 3.3), with which credentials sign JSON web tokens. Pure functions; errors
 * of BoringSSL end here. */
#ifndef RG_GCS_CREDENTIALS_SIGN_H
#define RG_GCS_CREDENTIALS_SIGN_H

#include "runtime/base.h"

/* An RSA key of 8192 bits. */
#define RG_RSA_SIGNATURE_SIZE_MAX 1024

/* 0 when the text is an RSA private key in PEM (PKCS #8 or PKCS #1), otherwise -EINVAL. */
int rg_rsa_key_check(const char *pem);
/* RSASSA-PKCS1-v1_5 with SHA-256. Returns the size of the signature; -EINVAL for a bad key. */
int rg_rsa_sha256_sign(const char *pem, const void *data, size_t size,
                       uint8_t out[RG_RSA_SIGNATURE_SIZE_MAX]);

#endif
