/* Seals TLS 1.3 records by hand, so that tests can send what no real peer would. */
#ifndef RG_TESTS_SUPPORT_TLS_SEALER_H
#define RG_TESTS_SUPPORT_TLS_SEALER_H

#include "http/tls_record.h"

struct rg_test_sealer {
    const struct evp_aead_st *aead;
    const struct env_md_st *digest;
    uint8_t secret[RG_TLS_SECRET_MAX];
    size_t secret_size;
    uint8_t key[32];
    uint8_t iv[RG_TLS_NONCE_SIZE];
    uint64_t sequence;
};

void rg_test_sealer_init(struct rg_test_sealer *sealer, const struct rg_tls_record_keys *keys);

/* The next generation of the key, with sequence number 0. */
void rg_test_sealer_update(struct rg_test_sealer *sealer);

/* What a record holds. `content` 0 makes a record of zeros only. */
struct rg_test_record {
    uint8_t content;
    const void *data;
    size_t size;
    size_t padding;
};

/* Appends a sealed record at `out`, which has room, and returns its size. */
size_t rg_test_seal(struct rg_test_sealer *sealer, const struct rg_test_record *record,
                    uint8_t *out);

#endif
