/* MD5 (RFC 1321), because clients may ask that an upload be checked against one. It is no
 * protection against anybody; CRC-32C is what everything else here uses.
 *
 * Life: rg_md5_init -> rg_md5_update, any number of times -> rg_md5_final, once. */
#ifndef RG_EMULATOR_MD5_H
#define RG_EMULATOR_MD5_H

#include "runtime/base.h"

#define RG_MD5_SIZE 16
#define RG_MD5_BLOCK_SIZE 64

struct rg_md5 {
    uint32_t state[4];
    uint64_t size; /* Of all that came; what of it fills no block is in `block`. */
    uint8_t block[RG_MD5_BLOCK_SIZE];
};

void rg_md5_init(struct rg_md5 *md5);
void rg_md5_update(struct rg_md5 *md5, const void *data, size_t size);
void rg_md5_final(struct rg_md5 *md5, uint8_t out[RG_MD5_SIZE]);

#endif
