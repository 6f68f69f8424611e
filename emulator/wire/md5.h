/* MD5: Cloud Storage tells it of each upload, and clients may ask that an upload be checked
 * against one. It protects against nobody. The implementation is BoringSSL's, which is written
 * for the processor, because every upload pays for it.
 *
 * Life: rg_md5_init -> rg_md5_update, any number of times -> rg_md5_final, which more updates
 * may follow. */
#ifndef RG_EMULATOR_WIRE_MD5_H
#define RG_EMULATOR_WIRE_MD5_H

#include "runtime/base.h"

#include <openssl/md5.h>

#define RG_MD5_SIZE MD5_DIGEST_LENGTH

struct rg_md5 {
    MD5_CTX state;
};

void rg_md5_init(struct rg_md5 *md5);
void rg_md5_update(struct rg_md5 *md5, const void *data, size_t size);
/* The MD5 of all that came so far. */
void rg_md5_final(const struct rg_md5 *md5, uint8_t out[RG_MD5_SIZE]);

#endif
