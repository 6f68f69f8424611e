/* Texts that are unlike any other: names of temporary objects, boundaries, and what an exclusive
 * write puts into the metadata of its object, by which it knows its own work again. */
#ifndef RG_GCS_WIRE_NONCE_H
#define RG_GCS_WIRE_NONCE_H

#include "runtime/base.h"

#include <ringest/objects.h>

#define RG_NONCE_SIZE 32 /* hex digits of 128 random bits */

void rg_nonce_draw(char out_nonce[RG_NONCE_SIZE + 1]);
/* True if a nonce can be put beside these pairs: none has its key. */
bool rg_nonce_fits(const struct rg_metadata *metadata, size_t count);

#endif
