/* Digests and their text forms: see digest.h. */
#include "gcs/wire/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

void rg_sha256(const void *data, size_t size, uint8_t out[RG_SHA256_SIZE])
{
    SHA256(data, size, out);
}

void rg_hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                    uint8_t out[RG_SHA256_SIZE])
{
    unsigned out_size = 0;
    uint8_t *done = HMAC(EVP_sha256(), key, key_size, data, size, out, &out_size);
    RG_ASSERT(done != NULL);
    RG_ASSERT(out_size == RG_SHA256_SIZE);
}

size_t rg_base64_encode(const void *data, size_t size, char *out)
{
    return EVP_EncodeBlock((uint8_t *)out, data, size);
}

size_t rg_base64url_encode(const void *data, size_t size, char *out)
{
    size_t out_size = rg_base64_encode(data, size, out);
    while (out_size > 0 && out[out_size - 1] == '=') {
        out_size--;
    }
    out[out_size] = '\0';
    for (size_t i = 0; i < out_size; i++) {
        out[i] = out[i] == '+' ? '-' : out[i] == '/' ? '_' : out[i];
    }
    return out_size;
}

void rg_hex_encode(const void *data, size_t size, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * size] = '\0';
}
