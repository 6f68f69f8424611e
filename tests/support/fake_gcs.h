/* A Cloud Storage of a few hundred lines for uploads that go wrong: it keeps objects, sessions and
 * multipart uploads in memory, and does to the n-th request of a kind what a table says. Plain
 * HTTP, a thread for each connection, nothing shared with the code under test but the parser of
 * heads. */
#ifndef RG_TESTS_SUPPORT_FAKE_GCS_H
#define RG_TESTS_SUPPORT_FAKE_GCS_H

#include "runtime/base.h"

enum rg_fake_kind {
    RG_FAKE_SINGLE, /* uploadType=multipart */
    RG_FAKE_SESSION,
    RG_FAKE_CHUNK,
    RG_FAKE_ASK, /* bytes * / * without a body */
    RG_FAKE_SESSION_CANCEL,
    RG_FAKE_BEGIN, /* of a multipart upload */
    RG_FAKE_PART,
    RG_FAKE_COMPLETE,
    RG_FAKE_ABORT,
    RG_FAKE_COMPOSE,
    RG_FAKE_DELETE,
    RG_FAKE_STAT,
    RG_FAKE_OTHER,
    RG_FAKE_KIND_COUNT
};

enum rg_fake_action {
    RG_FAKE_GOOD = 0,
    RG_FAKE_RESET_HEAD, /* RST when the head was read */
    RG_FAKE_RESET,      /* RST when all was read, and nothing done */
    RG_FAKE_LOST,       /* done, but not answered: RST */
    RG_FAKE_503,        /* read, and nothing done */
    RG_FAKE_403,        /* the same, like the next ones */
    RG_FAKE_400,
    RG_FAKE_404,
    RG_FAKE_405,
    RG_FAKE_501,
    RG_FAKE_404_XML,      /* with an <Error> of the XML API */
    RG_FAKE_HALF,         /* of a chunk, half is persisted: 308 */
    RG_FAKE_NONE,         /* of a chunk, nothing is: 308 without Range, if nothing was before */
    RG_FAKE_HALF_503,     /* half is persisted, then 503 */
    RG_FAKE_GONE,         /* the session or upload is forgotten: 404 */
    RG_FAKE_DONE_GONE,    /* done, then the same */
    RG_FAKE_ERROR_IN_200, /* of a completion: nothing done, <Error> */
    RG_FAKE_CORRUPT,      /* what is stored has another byte; the answer's hashes are of that */
    RG_FAKE_HANG,         /* read, and never answered */
    RG_FAKE_DONE_HANG,    /* done, and never answered */
};

struct rg_fake_fault {
    enum rg_fake_kind kind;
    uint32_t nth; /* from 1; 0: each */
    enum rg_fake_action action;
};

struct rg_fake_gcs;

/* `faults` ends with one of kind RG_FAKE_KIND_COUNT, and is borrowed; NULL: none. */
struct rg_fake_gcs *rg_fake_gcs_start(const struct rg_fake_fault *faults);
void rg_fake_gcs_stop(struct rg_fake_gcs *fake);
/* "http://127.0.0.1:PORT" */
const char *rg_fake_gcs_endpoint(const struct rg_fake_gcs *fake);

/* Requests of a kind that have been read. */
uint32_t rg_fake_gcs_count(struct rg_fake_gcs *fake, enum rg_fake_kind kind);
/* What is left: objects, unfinished sessions and multipart uploads. */
uint32_t rg_fake_gcs_objects(struct rg_fake_gcs *fake);
uint32_t rg_fake_gcs_uploads(struct rg_fake_gcs *fake);
/* The content of an object; NULL: there is none. Valid until the next request. */
const uint8_t *rg_fake_gcs_content(struct rg_fake_gcs *fake, const char *name, uint64_t *out_size);
/* Puts an object there. */
void rg_fake_gcs_put(struct rg_fake_gcs *fake, const char *name, const void *data, size_t size);
/* The head of the last request of a kind, "" if there was none; valid until the next one. */
const char *rg_fake_gcs_head(struct rg_fake_gcs *fake, enum rg_fake_kind kind);
/* The most parts that were being received at the same time. */
uint32_t rg_fake_gcs_parallel(struct rg_fake_gcs *fake);

#endif
