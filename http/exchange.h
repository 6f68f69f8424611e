/* One request and its response, as the layer above sees them. An exchange is embedded in its owner
 * and given to a pool, which finds it a connection; `done` is called exactly once for each time it
 * was submitted, on the loop, after which it may be submitted again.
 *
 * The body of a response goes where the owner's `head` says:
 *
 *   LEASE    a slab, taken when the first bytes arrive and large enough for all of them. The head
 *            was decrypted to the start of that slab and the body lies behind it; nothing is moved
 *   INTO     memory of the owner's: x->into, x->into_size
 *   PASS     nowhere: the owner's `data` gets every byte once, in order, and it is gone after that
 *   DISCARD  nowhere
 *
 * When `done` is called, x->lease is the owner's (or NULL), also when the response broke off: then
 * x->body and x->body_size are what had arrived. */
#ifndef RG_HTTP_EXCHANGE_H
#define RG_HTTP_EXCHANGE_H

#include "http/h1_decoder.h"
#include "http/h1_encoder.h"
#include "http/send_pace.h"
#include "runtime/loop.h"

#include <ringest/error.h>

enum rg_body_action { RG_BODY_LEASE, RG_BODY_INTO, RG_BODY_PASS, RG_BODY_DISCARD };

struct rg_exchange;

struct rg_exchange_ops {
    /* Encodes the head of the request; its result is that of rg_h1_encode_end. */
    int (*encode)(struct rg_exchange *x, struct rg_h1_encoder *encoder);
    /* The final head of the response has arrived; slices are valid during the call. Sets
     * x->body_max, and x->into for INTO. */
    enum rg_body_action (*head)(struct rg_exchange *x, const struct rg_h1_head *head);
    /* A piece of the body has been put in its place and is hot in the cache. May be NULL. Neither
     * this nor `head` may end its own exchange. */
    void (*data)(struct rg_exchange *x, const uint8_t *data, size_t size);
    void (*done)(struct rg_exchange *x);
};

/* Memory that is one piece of a body; `end` is where it ends in all of them put together. */
struct rg_body_piece {
    const uint8_t *data;
    uint64_t end;
};

struct rg_exchange {
    const struct rg_exchange_ops *ops;
    struct rg_list node; /* in the pool's queue */
    struct rg_conn *conn;
    struct rg_pool *pool;
    /* The request. Its body is lead, upload and trail one behind the other, each of which may be
     * empty; all are borrowed until done. */
    bool head_request; /* HEAD: the response has no body */
    const uint8_t *lead, *upload, *trail;
    size_t lead_size, trail_size;
    uint64_t upload_size;
    /* Where not NULL, in place of `upload`: upload_size bytes of these pieces, from upload_skip on.
     * No piece is empty. Borrowed, too. */
    const struct rg_body_piece *pieces;
    uint32_t piece_count;
    uint64_t upload_skip;
    /* How fast the body may be sent; NULL: as fast as it goes. Borrowed, too. */
    struct rg_send_pace *pace;
    /* The owner keeps memory for which connections may be waiting until this exchange is done: it
     * goes first. */
    bool holds_memory;
    bool urgent;                 /* goes before what waits for a connection */
    const struct rg_conn *avoid; /* better on another address than this one's; NULL: any will do */
    /* Shorter limits than the pool's; 0: the pool's. */
    uint64_t head_timeout_ns, stall_timeout_ns;
    /* Where the body goes; see above. */
    uint64_t body_max; /* a larger body is RG_STATUS_TOO_LARGE */
    uint8_t *into;
    uint64_t into_size;
    /* The outcome, valid in `done`. */
    enum rg_status status; /* OK: the response is complete, whatever its HTTP status */
    int os_error;
    const char *text; /* of the failure; during `done` only; may be NULL */
    uint16_t http_status;
    uint32_t good_before; /* answers in a row on its connection that did not ask for less */
    bool stale;           /* failed on a reused connection before the first byte of a response */
    bool final;           /* another attempt would fail alike */
    bool request_sent;    /* some of the request may have reached the server */
    bool request_whole;   /* all of it may have: it may take effect, also when it is ended */
    bool was_held;        /* its pace made it wait: how long it took says nothing of the server */
    struct rg_lease *lease;
    uint8_t *body;
    uint64_t body_size;
    uint64_t started_ns; /* given to a connection; 0: never */
};

/* The body of the request: its size, what lies behind its first `sent` bytes as far as that is in
 * one piece, and a copy of up to size_max bytes of it, which may lie in several. */
static inline uint64_t rg_exchange_body_size(const struct rg_exchange *x)
{
    return x->lead_size + x->upload_size + x->trail_size;
}
const uint8_t *rg_exchange_body_at(const struct rg_exchange *x, uint64_t sent, uint64_t *out_left);
uint64_t rg_exchange_body_gather(const struct rg_exchange *x, uint64_t sent, uint8_t *dest,
                                 uint64_t size_max);

/* True where another attempt may succeed; the exchange has failed. */
static inline bool rg_exchange_may_mend(const struct rg_exchange *x)
{
    return rg_status_retryable(x->status) && !x->final;
}

/* Lets two exchanges trade their connections, and how far they have come on them, before either has
 * a place for a body; one of them may have none. From within `head` of one, the answer goes on as
 * the other's. */
void rg_exchange_trade(struct rg_exchange *a, struct rg_exchange *b);

#endif
