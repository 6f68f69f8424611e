/* A write or a removal whose answer was lost, and that is refused when it is tried again because it
 * had been done.
 *
 *   attempt -> answer lost, or 5xx: it may have been done
 *   attempt -> 404 of a removal                                              -> done
 *           -> 412 of a write   -> what is there? -> what was sent           -> done
 *           -> 412 of a removal -> what is there? -> nothing                 -> done
 *                                                 -> something else, unknown -> the 412 stands
 *
 * That it is done does not say by whom: somebody else may have had the same done, and then the
 * completion has found_done. A write that may not be deceived sends a nonce in the object's
 * metadata, and is done where that is what is there. Such a write asks even if no answer was lost,
 * because what lies between may send a request twice.
 *
 * Whoever prepares such a request says by one call what it is; request.c does the rest. The
 * question is a step of the request itself: it has its own attempts within the same deadline. */
#ifndef RG_GCS_REQUEST_VERIFY_H
#define RG_GCS_REQUEST_VERIFY_H

#include "gcs/wire/nonce.h"
#include "runtime/base.h"

struct rg_request;
struct rg_completion;

enum rg_verify_kind {
    RG_VERIFY_NONE = 0,
    RG_VERIFY_WRITTEN,
    RG_VERIFY_REMOVED,
    RG_VERIFY_CHANGED,
};

struct rg_verify {
    enum rg_verify_kind kind;
    bool maybe_done; /* by an attempt whose answer is not known */
    bool asking;     /* what is there */
    uint32_t crc32c;
    uint64_t size;
    char nonce[RG_NONCE_SIZE + 1]; /* "": none was sent */
};

#define RG_VERIFY_ANY_SIZE UINT64_MAX
/* After rg_request_prepare, of a request with a condition that answers with the resource of the
 * object it writes: that will have so many bytes, or RG_VERIFY_ANY_SIZE, of this CRC32C. The
 * resource that the question yields goes to the `finish` of the request's ops in the place of the
 * answer. */
void rg_verify_expect_written(struct rg_request *request, uint64_t size, uint32_t crc32c);
/* The same for a request that sends this nonce. */
void rg_verify_expect_nonce(struct rg_request *request, const char *nonce);
/* After rg_request_prepare, of a request that removes an object of a known generation: its
 * completion then has http_status 404. */
void rg_verify_expect_removed(struct rg_request *request);
/* After rg_request_prepare, of a request that changes what is stored about an object. The `finish`
 * of its ops then compares, while verify.asking, and fails with RG_STATUS_PRECONDITION. */
void rg_verify_expect_changed(struct rg_request *request);
/* Of what is done: whether it may have been somebody else who did it. */
static inline bool rg_verify_is_guess(const struct rg_verify *verify)
{
    return verify->asking && verify->nonce[0] == '\0';
}
/* An earlier request of the same operation may have done it. */
static inline void rg_verify_suspect(struct rg_verify *verify)
{
    verify->maybe_done = true;
}

/* For request.c alone. */
enum rg_verify_verdict {
    RG_VERIFY_REFUSED, /* it is what it looks like */
    RG_VERIFY_ASK,     /* the request is the question now: another attempt */
    RG_VERIFY_DONE,
};
extern const struct rg_request_ops rg_verify_ops;
/* An attempt that may be followed by another has failed. */
void rg_verify_note_attempt(struct rg_request *request);
/* An attempt was answered with this error status, which is noted as the request's failure. */
enum rg_verify_verdict rg_verify_refused(struct rg_request *request, uint16_t http_status);
/* The request is about to fail: an answer that could not be had is not what the caller asked for.
 */
void rg_verify_give_up(struct rg_request *request);

#endif
