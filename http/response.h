/* The answer to one request, as it arrives on a connection.
 *
 *            head parsed            there is memory           last byte, or the end of a body
 *   HEAD -----------------> PLACE -------------------> BODY ---------------------------------> done
 *                             ^  |                             without a length
 *                 memory back +--+ none: WAITS
 *
 * The head is read into a slab that is as large as the last body needed with its head, so that the
 * body already lies in its place behind it. Memory for a head is never waited for; memory for a
 * body is, and whoever waits for a slab holds none.
 *
 * A connection has one rg_response for all its answers: rg_response_begin -> rg_response_read,
 * again and again -> COMPLETE or FAILED -> rg_response_end, which gives the exchange what has
 * arrived. Nothing here ends the connection: a step says what is to be done. On the loop's thread.
 */
#ifndef RG_HTTP_RESPONSE_H
#define RG_HTTP_RESPONSE_H

#include "http/exchange.h"
#include "http/h1_chunked.h"
#include "http/transport.h"

/* Where heads are encoded and bytes without a place of their own go. */
#define RG_SCRATCH_SIZE RG_KIB(32)
static_assert(RG_SCRATCH_SIZE >= RG_TLS_PLAIN_MAX, "small pieces are put together there");

/* What the answers on all connections of a pool share. */
struct rg_response_shared {
    struct rg_loop *loop;
    size_t predicted;       /* size of a slab that fitted the last body with its head */
    size_t grown;           /* the same of the last body whose length was not told; 0: none yet */
    struct rg_h1_head head; /* of the answer that is being parsed */
    uint8_t *scratch;       /* RG_SCRATCH_SIZE bytes */
};

enum rg_response_phase {
    RG_RESPONSE_HEAD = 0,
    RG_RESPONSE_PLACE, /* the head is parsed, memory for the body is being waited for */
    RG_RESPONSE_BODY,
};

/* What reading has come to. */
enum rg_response_step {
    RG_RESPONSE_MORE = 0, /* read again */
    RG_RESPONSE_DRAINED,  /* nothing is there; the transport calls when something is */
    RG_RESPONSE_WAITS,    /* for memory: pause; slab_task runs when it is back */
    RG_RESPONSE_COMPLETE,
    RG_RESPONSE_FAILED, /* response->failure says how */
};

struct rg_response {
    struct rg_response_shared *shared;
    struct rg_transport *transport;
    struct rg_exchange *x;    /* NULL: no answer is awaited */
    struct rg_task slab_task; /* the owner's; deferred when memory has come back */
    enum rg_response_phase phase;
    bool keep_alive; /* the connection may live on */
    struct rg_transport_failure failure;
    uint64_t head_ns; /* when the head was parsed */
    /* `early` is the slab that takes the head, and the first bytes of the body; where no slab was
     * free they are in `spare`. */
    struct rg_lease *early;
    uint8_t *spare; /* owned */
    size_t spare_capacity;
    size_t early_size, head_scanned, head_end;
    uint32_t interim_count; /* 1xx answers before this one */
    enum rg_body_action action;
    enum rg_h1_framing framing;
    uint64_t body_length;   /* with RG_H1_BODY_LENGTH */
    struct rg_lease *lease; /* of the body, with RG_BODY_LEASE */
    uint8_t *body;
    uint64_t body_size, body_room;
    struct rg_h1_chunked chunked;
};

void rg_response_begin(struct rg_response *response, struct rg_exchange *x);
/* Reads once: a head, a place, or a piece of the body. */
enum rg_response_step rg_response_read(struct rg_response *response);
/* So many bytes were received straight into their place (rg_transport_receive_into). */
enum rg_response_step rg_response_received(struct rg_response *response, size_t size);
/* The peer's orderly end: true where it is the end of a body whose length was not told. */
bool rg_response_ended_by_close(const struct rg_response *response);
/* The answer is complete: what is learnt from it for the next ones. */
void rg_response_learn(struct rg_response *response);
/* Gives the exchange what has arrived and forgets it; returns it. */
struct rg_exchange *rg_response_end(struct rg_response *response);

/* True when bytes of an answer have come. */
static inline bool rg_response_begun(const struct rg_response *response)
{
    return response->early_size > 0 || response->interim_count > 0;
}
/* How much the first receive of an answer should take at most. */
size_t rg_response_first_size(const struct rg_response *response);

#endif
