/* One submitted operation, from its mail to its completion, over all its attempts.
 *
 *        reserve, prepare        the loop takes its mail      there is a token
 *   FREE ----------------> QUEUED -----> (CACHE) ---+ (TOKEN) -----------+
 *    ^                       |              |       |                    v
 *    |        an operation:  |          +---------> an attempt begins  (ADMISSION)
 *    |        it sends       v          |                                |  the limits of its
 *    |        nothing    CHILDREN       | the alarm                      v  bucket let it in
 *    |                       |       BACKOFF                            POOL
 *    |                       |          ^                                |  a connection takes
 *    |                       |          | a failure, worth another       v  its head
 *    |                       |          +------------------------------ OUT ----> (MEMORY)
 *    |                       |                                           |           |
 *    +-------------------- DONE <----------------------------------------+-----------+
 *        completion is published    success, or a failure that stands    memory for the answer
 *
 * The states in parentheses are only waited in where there is something to wait for. From POOL and
 * OUT the next attempt may also begin at once: after a 401, on a connection that turned out to be
 * closed, and to ask whether a write was done. In CACHE, TOKEN, ADMISSION, BACKOFF and MEMORY
 * nothing is on the network, and a cancel ends the request there and then; in POOL and OUT the pool
 * ends it. A get whose body the client's cache has goes from CACHE to DONE
 * (gcs/request/cached_read.h). A child of an operation is never FREE: from DONE it is started
 * again, or its memory goes.
 *
 * Who counts what. `attempts` are the HTTP requests that were given to a connection, hedges too.
 * Each request counts its own; an operation, which sends nothing, owns the sum of its children's,
 * to which operation.c adds those of a child when that ends. A completion tells them.
 * retry.failures belongs to a request alone, and is what the limit of attempts counts: also tries
 * that found no connection, and not those before the question whether a write was done. No
 * operation adds it up; a resumable upload counts the failures of its session by itself. The bytes
 * of a body are counted by the exchange within an attempt (x.body_size), and by the kind of request
 * over its attempts (get.received).
 *
 * What differs between reading, listing and writing is in struct rg_request_ops; everything about
 * attempts, deadlines, cancellation and completions is in request.c alone.
 *
 * An operation that takes several requests (an upload in parts, a copy in steps) is a request too,
 * whose ops have `start` and `cancel`: it makes no attempt itself. Its children are requests that
 * are embedded in its own state and run on its loop; each ends in a call of `done` instead of a
 * completion, and when all have, the operation ends itself by rg_request_finish or rg_request_fail.
 */
#ifndef RG_GCS_REQUEST_REQUEST_H
#define RG_GCS_REQUEST_REQUEST_H

#include "gcs/request/client_loop.h"
#include "gcs/request/request_type.h"
#include "gcs/request/traffic.h"

/* Prepares a reserved request: everything but its kind's own state. */
void rg_request_prepare(struct rg_request *request, const struct rg_request_ops *ops,
                        uint64_t user_data, uint64_t deadline_ns);
/* From within `finish`: the answer waits for memory. */
void rg_request_await_memory(struct rg_request *request);
/* The end of an attempt whose `finish` had to wait. */
void rg_request_answered(struct rg_request *request, enum rg_status status,
                         struct rg_completion *completion);
/* Copies the names, if they are valid: 0 or -EINVAL. */
int rg_request_set_names(struct rg_request *request, const char *bucket, const char *object);

/* Appends the fields that every request has, and the blank line. */
int rg_request_encode_end(struct rg_request *request, struct rg_h1_encoder *encoder);

/* Notes why an attempt failed, printf-like; the first cause of an attempt stays. */
void rg_request_note(struct rg_request *request, enum rg_status status, const char *format, ...)
    RG_PRINTF(3, 4);

/* Whether it waits for something else than the network: then a cancel ends it at once. */
static inline bool rg_request_is_waiting(const struct rg_request *request)
{
    const unsigned waits = 1u << RG_REQUEST_CACHE | 1u << RG_REQUEST_TOKEN |
                           1u << RG_REQUEST_ADMISSION | 1u << RG_REQUEST_BACKOFF |
                           1u << RG_REQUEST_MEMORY;
    return (waits >> request->state & 1) != 0;
}

/* Makes a request that has no completion queue, in memory of its owner's: `done` is its end. Next
 * comes rg_request_prepare and what the kind of request needs. */
void rg_request_init_inner(struct rg_request *request, struct rg_client_loop *client_loop,
                           void (*done)(struct rg_request *request,
                                        struct rg_completion *completion));
/* The same for a child of an operation. */
void rg_request_init_child(struct rg_request *child, struct rg_request *parent,
                           void (*done)(struct rg_request *child,
                                        struct rg_completion *completion));
/* Starts such a request, prepared, on the loop's thread. `done` never comes from within this call.
 * False: the client is being closed, and `done` will not come. */
bool rg_request_start(struct rg_request *request);
/* Ends an operation that has no child out: its completion, OK or (after rg_request_note) not. */
void rg_request_finish(struct rg_request *request, struct rg_completion *completion);
void rg_request_fail(struct rg_request *request);
/* Puts into a failed completion, for people, what failed and why. */
void rg_request_explain(struct rg_request *request, struct rg_completion *completion);
/* Takes over a child's failure as the operation's own. */
void rg_request_note_child(struct rg_request *request, const struct rg_request *child);

/* Prepares a get; its struct is as large as the library's, and is borrowed for this call: what
 * attempts need of it is in request->get. 0 or -EINVAL. */
int rg_get_prepare(struct rg_request *request, const struct rg_get *get);
/* The answer to a get was for a gap between bytes of the cache, which is asked again for the rest.
 */
bool rg_get_has_gap(const struct rg_request *request);
/* What the cache can do for a get is done: its body is there, or its first attempt begins. */
void rg_request_cache_ended(struct rg_request *request, bool is_answered);
/* The wait of a request for a token is over; failure NULL: there is one. */
void rg_request_token_came(struct rg_token_wait *wait, const char *failure);
/* For gcs/request/traffic.c: gives the pool a request that waited for its bucket's limits. */
void rg_request_admitted(struct rg_request *request);

/* Ends a request that is out: it completes, from within this call or soon. */
void rg_request_cancel(struct rg_request *request, enum rg_status status);

/* The step of a request that asks whether its write was done. */
extern const struct rg_request_ops rg_verify_ops;

#endif
