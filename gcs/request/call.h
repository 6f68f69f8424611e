/* One HTTP request of an operation: its owner writes the head, lends the body, and finds what was
 * answered here.
 *
 * A call lives as long as its operation and is used again and again: rg_gcs_call_prepare, what the
 * request needs, rg_gcs_call_start -> done, after which the answer stays until the next prepare. It
 * never waits for a slab: its answers, refusals too, go to memory of its own, because an operation
 * holds memory that others wait for. */
#ifndef RG_GCS_REQUEST_CALL_H
#define RG_GCS_REQUEST_CALL_H

#include "gcs/request/request.h"
#include "gcs/wire/target.h"

/* An answer: the metadata of an object, or a few lines of XML. */
#define RG_GCS_CALL_ANSWER_SIZE_MAX RG_KIB(256)
#define RG_GCS_CALL_ETAG_SIZE_MAX 128
/* "This upload is not complete": Cloud Storage, "Resumable uploads". */
#define RG_HTTP_RESUME_INCOMPLETE 308

struct rg_gcs_call;
struct rg_object_resource;

struct rg_gcs_call_ops {
    /* The request line and fields, Content-Length included: see rg_gcs_call_encode. */
    void (*encode)(struct rg_gcs_call *call, struct rg_h1_encoder *encoder);
    /* The answer is complete: checks it and takes from it what is needed. Anything but OK is a
     * failure of this attempt, and its cause may be noted. May be NULL. */
    enum rg_status (*check)(struct rg_gcs_call *call);
    /* An attempt was answered with an error status, and its body is in request.x; before what that
     * status means is noted. May be NULL. */
    void (*refused)(struct rg_gcs_call *call, uint16_t http_status);
    /* It only reads, or is of the XML API: it has no idempotency token. */
    bool has_no_write_token;
    /* The call has ended; its request->failure says why, unless OK. */
    void (*done)(struct rg_gcs_call *call, enum rg_status status);
};

struct rg_gcs_call_answer {
    uint16_t http_status;
    bool incomplete;    /* 308, or what stands for it */
    uint64_t persisted; /* bytes, from the Range of a 308 */
    int64_t generation; /* 0: not told */
    struct rg_object_hashes hashes;
    char etag[RG_GCS_CALL_ETAG_SIZE_MAX]; /* verbatim; "": none, or longer */
    char *location;                       /* path and query of the Location; NULL: none. Owned */
    const char *body;                     /* ends with a NUL */
    size_t body_size;
};

struct rg_gcs_call {
    struct rg_request request;
    const struct rg_gcs_call_ops *ops;
    bool out;
    uint8_t *space; /* owned; of answers */
    size_t space_size;
    struct rg_gcs_call_answer answer;
};

/* Prepares a zeroed call. `parent` is the operation. */
void rg_gcs_call_init(struct rg_gcs_call *call, struct rg_request *parent);
void rg_gcs_call_fini(struct rg_gcs_call *call);
/* Begins anew, for an object of the operation's bucket; the body is empty. 0, or -ENOMEM. */
int rg_gcs_call_prepare(struct rg_gcs_call *call, const struct rg_gcs_call_ops *ops,
                        const char *object);
/* False: the client is being closed, or there is no memory; the call's failure says which, and
 * `done` will not come. */
bool rg_gcs_call_start(struct rg_gcs_call *call);
void rg_gcs_call_cancel(struct rg_gcs_call *call, enum rg_status status);

/* The request line and, where the method has a body, its length. A target that is too long makes
 * the request fail as a bad one. */
void rg_gcs_call_encode(const struct rg_gcs_call *call, struct rg_h1_encoder *encoder,
                        const char *method, const struct rg_target *target);
/* "x-goog-hash: crc32c=..." */
void rg_gcs_call_encode_crc32c(struct rg_h1_encoder *encoder, uint32_t crc);

/* Reads the resource of an object out of the answer. OK, or BAD_RESPONSE with the cause noted. */
enum rg_status rg_gcs_call_read_object(struct rg_gcs_call *call,
                                       struct rg_object_resource *out_object);

#endif
