/* BoringSSL's MD5 in our terms; see md5.h. */
#include "emulator/wire/md5.h"

void rg_md5_init(struct rg_md5 *md5)
{
    MD5_Init(&md5->state);
}

void rg_md5_update(struct rg_md5 *md5, const void *data, size_t size)
{
    MD5_Update(&md5->state, data, size);
}

void rg_md5_final(const struct rg_md5 *md5, uint8_t out[RG_MD5_SIZE])
{
    MD5_CTX state = md5->state;
    MD5_Final(out, &state);
}
