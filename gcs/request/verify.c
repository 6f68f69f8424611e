/* See verify.h. */
#include "gcs/request/verify.h"

#include <string.h>

/* A question is about something, and it follows an attempt that may have done it: one without an
 * answer, or one with a nonce; or about what a read did not find. */
static bool invariants(const struct rg_verify *verify)
{
    bool may_be_done = verify->maybe_done || verify->nonce[0] != '\0';
    bool may_ask = verify->kind == RG_VERIFY_READ || may_be_done;
    return !verify->asking || (verify->kind != RG_VERIFY_NONE && may_ask);
}

void rg_verify_expect_written(struct rg_verify *verify, uint64_t size, uint32_t crc32c)
{
    *verify = (struct rg_verify){.kind = RG_VERIFY_WRITTEN, .size = size, .crc32c = crc32c};
}

void rg_verify_expect_nonce(struct rg_verify *verify, const char *nonce)
{
    RG_ASSERT(strlen(nonce) == RG_NONCE_SIZE);
    if (verify->kind != RG_VERIFY_CHANGED) {
        rg_verify_expect_written(verify, RG_VERIFY_ANY_SIZE, 0);
    }
    strcpy(verify->nonce, nonce);
}

void rg_verify_expect_removed(struct rg_verify *verify)
{
    *verify = (struct rg_verify){.kind = RG_VERIFY_REMOVED};
}

void rg_verify_expect_changed(struct rg_verify *verify)
{
    *verify = (struct rg_verify){.kind = RG_VERIFY_CHANGED};
}

void rg_verify_expect_read(struct rg_verify *verify, int64_t generation)
{
    *verify = (struct rg_verify){.kind = RG_VERIFY_READ, .generation = generation};
}

void rg_verify_note_attempt(struct rg_verify *verify, bool sent, enum rg_status status)
{
    RG_VERIFY(invariants(verify));
    /* Who was asked to come back later was not served, and a question does nothing. */
    if (sent && !verify->asking && status != RG_STATUS_THROTTLED) {
        verify->maybe_done = true;
    }
}

enum rg_verify_verdict rg_verify_refused(struct rg_verify *verify, uint16_t http_status,
                                         bool may_ask)
{
    RG_VERIFY(invariants(verify));
    if (verify->maybe_done && verify->kind == RG_VERIFY_REMOVED && http_status == 404) {
        return RG_VERIFY_DONE;
    }
    bool suspect = verify->maybe_done || verify->nonce[0] != '\0';
    bool is_asked = verify->kind == RG_VERIFY_READ
                        ? http_status == 404
                        : verify->kind != RG_VERIFY_NONE && suspect && http_status == 412;
    if (!is_asked || verify->asking || !may_ask) {
        return RG_VERIFY_REFUSED;
    }
    verify->asking = true;
    RG_VERIFY(invariants(verify));
    return RG_VERIFY_ASK;
}

bool rg_verify_matches(const struct rg_verify *verify, const char *nonce, uint64_t size,
                       bool has_crc32c, uint32_t crc32c)
{
    RG_ASSERT(verify->asking);
    if (verify->nonce[0] != '\0') {
        return strcmp(nonce, verify->nonce) == 0;
    }
    bool same_size = verify->size == RG_VERIFY_ANY_SIZE || size == verify->size;
    return same_size && has_crc32c && crc32c == verify->crc32c;
}
