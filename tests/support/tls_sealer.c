/* Seals TLS 1.3 records by hand: see tls_sealer.h. */
#include "tests/support/tls_sealer.h"

#include <openssl/aead.h>
#include <openssl/digest.h>
#include <openssl/hkdf.h>
#include <stdlib.h>
#include <string.h>

/* HKDF-Expand-Label, written apart from the one under test. */
static void expand(const struct rg_test_sealer *sealer, const char *label, uint8_t *out,
                   size_t size)
{
    uint8_t info[64] = {0,  (uint8_t)size, (uint8_t)(6 + strlen(label)), 't', 'l', 's', '1', '3',
                        ' '};
    memcpy(info + 9, label, strlen(label));
    RG_ASSERT(HKDF_expand(out, size, sealer->digest, sealer->secret, sealer->secret_size, info,
                          10 + strlen(label)) == 1);
}

static void keys_derive(struct rg_test_sealer *sealer)
{
    expand(sealer, "key", sealer->key, EVP_AEAD_key_length(sealer->aead));
    expand(sealer, "iv", sealer->iv, sizeof(sealer->iv));
}

void rg_test_sealer_init(struct rg_test_sealer *sealer, const struct rg_tls_record_keys *keys)
{
    *sealer = (struct rg_test_sealer){
        .aead = keys->suite == 0x1301   ? EVP_aead_aes_128_gcm()
                : keys->suite == 0x1302 ? EVP_aead_aes_256_gcm()
                                        : EVP_aead_chacha20_poly1305(),
        .digest = keys->suite == 0x1302 ? EVP_sha384() : EVP_sha256(),
        .secret_size = keys->secret_size,
        .sequence = keys->sequence,
    };
    memcpy(sealer->secret, keys->secret, keys->secret_size);
    keys_derive(sealer);
}

void rg_test_sealer_update(struct rg_test_sealer *sealer)
{
    uint8_t next[RG_TLS_SECRET_MAX];
    expand(sealer, "traffic upd", next, sealer->secret_size);
    memcpy(sealer->secret, next, sealer->secret_size);
    sealer->sequence = 0;
    keys_derive(sealer);
}

size_t rg_test_seal(struct rg_test_sealer *sealer, const struct rg_test_record *record,
                    uint8_t *out)
{
    size_t inner = record->size + 1 + record->padding, length = inner + RG_TLS_TAG_SIZE, sealed = 0;
    RG_ASSERT(length <= UINT16_MAX);
    const uint8_t header[] = {RG_TLS_CONTENT_DATA, 3, 3, (uint8_t)(length >> 8), (uint8_t)length};
    uint8_t *plain = calloc(1, inner), nonce[RG_TLS_NONCE_SIZE];
    RG_ASSERT(plain != NULL);
    if (record->size > 0) {
        memcpy(plain, record->data, record->size);
    }
    plain[record->size] = record->content;
    memcpy(nonce, sealer->iv, sizeof(nonce));
    for (int i = 0; i < 8; i++) {
        nonce[4 + i] ^= (uint8_t)(sealer->sequence >> (56 - 8 * i));
    }
    EVP_AEAD_CTX *aead =
        EVP_AEAD_CTX_new(sealer->aead, sealer->key, EVP_AEAD_key_length(sealer->aead), 0);
    memcpy(out, header, sizeof(header));
    RG_ASSERT(EVP_AEAD_CTX_seal(aead, out + sizeof(header), &sealed, length, nonce, sizeof(nonce),
                                plain, inner, header, sizeof(header)) == 1);
    RG_ASSERT(sealed == length);
    EVP_AEAD_CTX_free(aead);
    free(plain);
    sealer->sequence++;
    return sizeof(header) + sealed;
}
