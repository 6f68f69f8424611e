/* See seal.h. */
#include "gcs/wire/seal.h"

#include <openssl/aead.h>
#include <openssl/err.h>

static void context_init(EVP_AEAD_CTX *context, const uint8_t *key)
{
    EVP_AEAD_CTX_zero(context);
    int done = EVP_AEAD_CTX_init(context, EVP_aead_xchacha20_poly1305(), key, RG_SEAL_KEY_SIZE,
                                 RG_SEAL_OVERHEAD, NULL);
    RG_ASSERT(done == 1);
}

void rg_seal(const uint8_t key[RG_SEAL_KEY_SIZE], const uint8_t nonce[RG_SEAL_NONCE_SIZE],
             const struct rg_seal_input *input, uint8_t *out)
{
    EVP_AEAD_CTX context;
    context_init(&context, key);
    size_t size = 0;
    int done = EVP_AEAD_CTX_seal(&context, out, &size, input->size + RG_SEAL_OVERHEAD, nonce,
                                 RG_SEAL_NONCE_SIZE, input->data, input->size, input->label,
                                 input->label_size);
    EVP_AEAD_CTX_cleanup(&context);
    RG_ASSERT(done == 1 && size == input->size + RG_SEAL_OVERHEAD);
}

bool rg_unseal(const uint8_t key[RG_SEAL_KEY_SIZE], const uint8_t nonce[RG_SEAL_NONCE_SIZE],
               const struct rg_seal_input *input, uint8_t *out)
{
    if (input->size < RG_SEAL_OVERHEAD) {
        return false;
    }
    EVP_AEAD_CTX context;
    context_init(&context, key);
    size_t size = 0;
    int done = EVP_AEAD_CTX_open(&context, out, &size, input->size - RG_SEAL_OVERHEAD, nonce,
                                 RG_SEAL_NONCE_SIZE, input->data, input->size, input->label,
                                 input->label_size);
    EVP_AEAD_CTX_cleanup(&context);
    /* A refusal leaves an error with this thread, which the next user of the library would find. */
    ERR_clear_error();
    return done == 1;
}
