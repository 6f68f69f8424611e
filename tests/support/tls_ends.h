/* Two ends of a TLS connection in memory: ours, and BoringSSL's own as the peer that does what it
 * is told. Nothing is shared between them but the bytes that a test carries over. */
#ifndef RG_TESTS_SUPPORT_TLS_ENDS_H
#define RG_TESTS_SUPPORT_TLS_ENDS_H

#include "http/tls_context.h"
#include "http/tls_traffic.h"
#include "tests/support/certificates.h"

/* An authority in a file, and a leaf of it for localhost, a.example and 127.0.0.1. */
struct rg_test_pki {
    struct rg_test_certificate ca;
    struct rg_test_certificate leaf;
    char ca_path[RG_TEST_PATH_SIZE];
};

void rg_test_pki_init(struct rg_test_pki *pki);
void rg_test_pki_fini(struct rg_test_pki *pki);

/* Contexts of ours that trust the authority, or show the leaf. Failures end the program. */
struct rg_tls_context *rg_test_client_context(const struct rg_test_pki *pki,
                                              bool boringssl_records);
struct rg_tls_context *rg_test_server_context(const struct rg_test_certificate *leaf);

/* One of ours with its own loop and output. */
struct rg_test_end {
    struct rg_tls_loop loop;
    struct rg_tls tls;
    struct rg_tls_out out;
    uint8_t out_data[RG_KIB(64)];
};

void rg_test_end_init(struct rg_test_end *end);
/* Ends the connection and keeps the loop. */
void rg_test_end_reset(struct rg_test_end *end);
void rg_test_end_fini(struct rg_test_end *end);

/* Carries bytes between two of ours until both are done or one fails. The first failure or 0. What
 * is behind the client's handshake stays in server->out, e.g. nothing. */
int rg_test_shake_ours(struct rg_test_end *client, struct rg_test_end *server);

/* True where our record layer opens what this end receives. */
static inline bool rg_test_own_records(const struct rg_test_end *end)
{
    return end->tls.record.aead != NULL;
}

/* BoringSSL's own ends over memory. */
struct ssl_ctx_st *rg_test_raw_context(const struct rg_test_certificate *leaf);
struct ssl_st *rg_test_raw_server(struct ssl_ctx_st *context);
struct ssl_st *rg_test_raw_client(struct ssl_ctx_st *context);
/* Moves what the end has to send to the raw one. */
void rg_test_to_raw(struct rg_test_end *end, struct ssl_st *raw);
/* Moves what the raw end has sent to `out`; the size. */
size_t rg_test_from_raw(struct ssl_st *raw, uint8_t *out, size_t room);
/* Shakes hands with a raw end, `step` bytes at a time (0: all there are). 0 or the failure of ours.
 * Bytes that came behind our handshake are left in `rest` (its data must have room). */
int rg_test_shake_raw(struct rg_test_end *end, struct ssl_st *raw, size_t step,
                      struct rg_tls_out *rest);

#endif
