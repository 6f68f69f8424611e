/* What the server hands to a handler of requests, and what it gets back.
 *
 * The life of a call: begin (the head is there) -> body, any number of times -> end -> the handler
 * has called rg_server_respond, in `end` at the latest -> produce, as the socket takes bytes ->
 * release. release is called exactly once for every begin that returned 0, also when the connection
 * is lost in between, and nothing is called after it. All of a call happens on one loop thread; a
 * handler that is used by several loops synchronises what it shares. */
#ifndef RG_HTTP_SERVER_HANDLER_H
#define RG_HTTP_SERVER_HANDLER_H

#include "http/h1_decoder.h"
#include "http/h1_encoder.h"
#include "runtime/base.h"

/* Room for the handler's own state of one call, so that it need not allocate. */
#define RG_SERVER_STATE_SIZE_MAX 512
/* A held response is asked after this often: whoever releases it may be on another thread, and
 * faults for tests are not worth a way across threads of their own. */
#define RG_SERVER_HOLD_NS RG_NS_PER_MS
/* The largest response head, and with it the largest that fits rg_server_head(). */
#define RG_SERVER_HEAD_SIZE_MAX 16384

struct rg_server_call {
    /* Valid in `begin` only: slices point into the receive buffer. */
    const struct rg_h1_head *head;
    void *context;   /* the handler's, from the options */
    uint64_t now_ns; /* the loop's clock */
    uint32_t loop_index;
    _Alignas(16) uint8_t state[RG_SERVER_STATE_SIZE_MAX]; /* the handler's; zeroed before begin */
};

struct rg_server_response {
    uint64_t body_size;        /* bytes that `produce` will give; Content-Length is the handler's to
                                * encode */
    uint64_t delay_ns;         /* held back this long before the first byte is sent */
    uint64_t bytes_per_second; /* cap for this response's body; 0: none */
    bool close;                /* end the connection after it ("Connection: close" is encoded by the
                                * handler) */
    /* Faults, for tests: after this many body bytes the connection is cut (reset: by RST) or
     * nothing more is sent for stall_ns. UINT64_MAX: never. */
    uint64_t cut_after, stall_after, stall_ns;
    bool reset;
    bool cut_head; /* cut before anything of it is sent */
    bool held;     /* nothing is sent until the handler's `resume` says so */
};

struct rg_server_handler {
    /* The head of a request has arrived. 0: go on with body and end. Anything else is a refusal: a
     * negative errno, and the connection is closed without an answer. */
    int (*begin)(struct rg_server_call *call);
    /* A piece of the request's body; borrowed. Same results as begin. */
    int (*body)(struct rg_server_call *call, const uint8_t *data, size_t size);
    /* The request is complete: answer it. */
    void (*end)(struct rg_server_call *call);
    /* Asked every RG_SERVER_HOLD_NS while the response is held. True: it goes out, as it has been
     * made by then: rg_server_head() may have been encoded anew. NULL where no response is held. */
    bool (*resume)(struct rg_server_call *call, struct rg_server_response *response);
    /* Points *out_data at bytes of the response's body from `offset` on and returns how many there
     * are in one piece (at least 1 while offset < body_size). They stay valid until the next
     * produce or release of this call. */
    size_t (*produce)(struct rg_server_call *call, uint64_t offset, const uint8_t **out_data);
    void (*release)(struct rg_server_call *call);
};

/* An encoder over a buffer of RG_SERVER_HEAD_SIZE_MAX bytes for the response's head; from `begin`
 * on, until rg_server_respond, and again in `resume`. */
struct rg_h1_encoder *rg_server_head(struct rg_server_call *call);

/* Sends the encoded head and then body_size bytes from `produce`. Once per call, from within begin,
 * body or end; in begin or body it is an early answer, after which neither is called any more: what
 * comes of the request's body is dropped. A response without
 * faults and limits is {.body_size = n, .cut_after = UINT64_MAX, .stall_after = UINT64_MAX}. */
void rg_server_respond(struct rg_server_call *call, const struct rg_server_response *response);

/* What a server has seen so far. */
struct rg_server_stats {
    uint64_t connections_open; /* now */
    uint64_t accepted_count, accept_failure_count;
    uint64_t request_count;
    uint64_t malformed_count; /* requests that were refused as such */
    uint64_t timeout_count;   /* connections closed for want of progress, idle ones apart */
};

#endif
