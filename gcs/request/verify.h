/* What is asked after a refusal, by reading what is there.
 *
 * First, of a write or a removal whose answer was lost, and that is refused when it is tried again
 * because it had been done.
 *
 *   attempt -> answer lost, or 5xx: it may have been done
 *   attempt -> 404 of a removal                                              -> done
 *           -> 412 of a write   -> what is there? -> what was sent           -> done
 *           -> 412 of a removal -> what is there? -> nothing                 -> done
 *                                                 -> something else, unknown -> the 412 stands
 *
 *   attempt -> 404 of a read of one generation -> what is there? -> 404, with what is there
 *
 * That it is done does not say by whom: somebody else may have had the same done, and then the
 * completion has found_done. A write that must not be deceived sends a nonce in the object's
 * metadata, and is done where that is what is there. Such a write asks even if no answer was lost,
 * because what lies between may send a request twice.
 *
 * This unit decides, and knows neither requests nor the network. Who prepares a request says by one
 * call what it is; request.c asks here after each attempt, and sends the question
 * (gcs/request/verify_step.c) as a step of the request itself, which has attempts of its own within
 * the same deadline. */
#ifndef RG_GCS_REQUEST_VERIFY_H
#define RG_GCS_REQUEST_VERIFY_H

#include "gcs/wire/nonce.h"
#include "runtime/base.h"

#include <ringest/error.h>

enum rg_verify_kind {
    RG_VERIFY_NONE = 0,
    RG_VERIFY_WRITTEN,
    RG_VERIFY_REMOVED,
    RG_VERIFY_CHANGED,
    RG_VERIFY_READ,
};

/* Zeroed: of a request that nothing is asked about. */
struct rg_verify {
    enum rg_verify_kind kind;
    bool maybe_done; /* by an attempt whose answer is not known */
    bool asking;     /* what is there */
    uint32_t crc32c;
    uint64_t size;
    int64_t generation;            /* that is read */
    char nonce[RG_NONCE_SIZE + 1]; /* "": none was sent */
};

#define RG_VERIFY_ANY_SIZE UINT64_MAX
/* The next four come after rg_request_prepare, of a request that may be sent twice.
 *
 * It has a condition and answers with the resource of the object that it writes: that will have so
 * many bytes, or RG_VERIFY_ANY_SIZE, of this CRC32C. The resource that the question yields goes to
 * the `finish` of the request's ops in the place of the answer. */
void rg_verify_expect_written(struct rg_verify *verify, uint64_t size, uint32_t crc32c);
/* The same for a request that sends this nonce. */
void rg_verify_expect_nonce(struct rg_verify *verify, const char *nonce);
/* It removes an object of a known generation: its completion then has http_status 404. */
void rg_verify_expect_removed(struct rg_verify *verify);
/* It changes what is stored about an object. The `finish` of its ops then compares, while
 * verify.asking, and fails with RG_STATUS_PRECONDITION. */
void rg_verify_expect_changed(struct rg_verify *verify);

/* It reads one generation. Refused by 404 it fails all the same, and tells what is there now. */
void rg_verify_expect_read(struct rg_verify *verify, int64_t generation);

/* What is done may have been done by somebody else. */
static inline bool rg_verify_is_guess(const struct rg_verify *verify)
{
    return verify->asking && verify->nonce[0] == '\0';
}
/* An earlier request of the same operation may have done it. */
static inline void rg_verify_suspect(struct rg_verify *verify)
{
    verify->maybe_done = true;
}

/* An attempt that may be followed by another has failed. `sent`: some of it may have reached the
 * server. */
void rg_verify_note_attempt(struct rg_verify *verify, bool sent, enum rg_status status);

enum rg_verify_verdict {
    RG_VERIFY_REFUSED, /* it is what it looks like */
    RG_VERIFY_ASK,     /* the next attempt asks what is there */
    RG_VERIFY_DONE,
};
/* An attempt was answered with this error status. may_ask: there can be another attempt. */
enum rg_verify_verdict rg_verify_refused(struct rg_verify *verify, uint16_t http_status,
                                         bool may_ask);
/* What is there is what was sent, by its nonce or else by its size and CRC32C. */
bool rg_verify_matches(const struct rg_verify *verify, const char *nonce, uint64_t size,
                       bool has_crc32c, uint32_t crc32c);

#endif
