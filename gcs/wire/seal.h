/* Authenticated encryption: XChaCha20-Poly1305, whose nonces are long enough to be drawn at random
 * (draft-irtf-cfrg-xchacha-03). Pure functions. */
#ifndef RG_GCS_WIRE_SEAL_H
#define RG_GCS_WIRE_SEAL_H

#include "runtime/base.h"

#define RG_SEAL_KEY_SIZE 32
#define RG_SEAL_NONCE_SIZE 24
/* What sealing adds to the size. */
#define RG_SEAL_OVERHEAD 16

struct rg_seal_input {
    const void *data;
    size_t size;
    const void *label; /* authenticated as well, and not part of the output */
    size_t label_size;
};

/* `out` takes input->size + RG_SEAL_OVERHEAD bytes. A nonce must not be used twice with a key. */
void rg_seal(const uint8_t key[RG_SEAL_KEY_SIZE], const uint8_t nonce[RG_SEAL_NONCE_SIZE],
             const struct rg_seal_input *input, uint8_t *out);
/* `out` takes input->size - RG_SEAL_OVERHEAD bytes. False, and nothing in `out`: this is not what
 * was sealed with that key, nonce and label. */
bool rg_unseal(const uint8_t key[RG_SEAL_KEY_SIZE], const uint8_t nonce[RG_SEAL_NONCE_SIZE],
               const struct rg_seal_input *input, uint8_t *out);

#endif
