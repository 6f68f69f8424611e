/* See nonce.h. */
#include "gcs/wire/nonce.h"

#include "runtime/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>
#include <sys/random.h>

void rg_nonce_draw(char out_nonce[RG_NONCE_SIZE + 1])
{
    uint64_t bits[2] = {0, 0};
    if (getrandom(bits, sizeof(bits), 0) != (ssize_t)sizeof(bits)) {
        /* Only kernels that lack the call; unlike any other of this machine will do. */
        bits[0] = rg_now_ns();
        bits[1] = (uint64_t)(uintptr_t)out_nonce;
    }
    snprintf(out_nonce, RG_NONCE_SIZE + 1, "%016" PRIx64 "%016" PRIx64, bits[0], bits[1]);
}

bool rg_nonce_fits(const struct rg_metadata *metadata, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        /* As header fields, which the XML API makes of them, keys have no case. */
        if (metadata[i].key != NULL && strcasecmp(metadata[i].key, RG_NONCE_KEY) == 0) {
            return false;
        }
    }
    return true;
}
