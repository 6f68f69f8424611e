/* SHA-256 (FIPS 180-4), HMAC with it (RFC 2104), and bytes written as text: base64, base64url and
 * hexadecimal. Pure functions. */
#ifndef RG_GCS_WIRE_DIGEST_H
#define RG_GCS_WIRE_DIGEST_H

#include "runtime/base.h"

#define RG_SHA256_SIZE 32

void rg_sha256(const void *data, size_t size, uint8_t out[RG_SHA256_SIZE]);
void rg_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                    uint8_t out[RG_SHA256_SIZE]);

/* RFC 4648 section 5, without padding. `out` takes RG_BASE64URL_SIZE(size) bytes, its NUL
 * included. Returns the size without the NUL. */
#define RG_BASE64URL_SIZE(size) (((size) + 2) / 3 * 4 + 1)
size_t rg_base64url_encode(const void *data, size_t size, char *out);
/* RFC 4648 section 4, with padding; sizes as above. */
size_t rg_base64_encode(const void *data, size_t size, char *out);
/* Lower-case digits and a NUL: 2 * size + 1 bytes. */
void rg_hex_encode(const void *data, size_t size, char *out);

#endif
