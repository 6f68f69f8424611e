/* One call of the emulated API from its begin to its release, and what all calls of one API share.
 *
 * Life of a call: the handler (handler.h) begins it -> somebody answers it at once (reply.h), or
 * names a receiver for the request's body, which answers when the body is complete at the latest ->
 * the server sends the answer -> release. The state is zeroed at first. */
#ifndef RG_EMULATOR_REQUEST_CALL_H
#define RG_EMULATOR_REQUEST_CALL_H

#include "emulator/request/fault.h"
#include "emulator/store/store.h"
#include "emulator/wire/text.h"
#include "http/server.h"

struct rg_api_request;
struct rg_retry_tests;
struct rg_rules;
struct rg_sessions;
struct rg_strike;

/* What one loop alone writes. */
struct rg_service_loop {
    _Alignas(RG_CACHE_LINE) int64_t date_seconds; /* What `date` says. */
    char date[RG_TEXT_HTTP_DATE_SIZE + 1];
    uint64_t random;
    uint64_t request_count;
};

/* What every call can reach. The handler owns it and all that it points at, but for the store. */
struct rg_service {
    struct rg_store *store;
    struct rg_retry_tests *retry_tests;
    struct rg_rules *rules;
    struct rg_sessions *sessions;
    struct rg_service_loop *loops; /* By the call's loop_index. */
    bool tls;                      /* For the links in resources. */
    /* Answers a call, or names who receives its body: for calls within calls (nested.h). */
    void (*route)(struct rg_server_call *call, const struct rg_api_request *request);
};

/* Receives the body of a request that was not answered at its head. `receive` may answer the
 * call. `finish` is called when the body is complete, and has to answer it. `destroy` frees
 * `received`. */
struct rg_receiver {
    void (*receive)(struct rg_server_call *call, const uint8_t *data, size_t size);
    void (*finish)(struct rg_server_call *call);
    void (*destroy)(void *received);
};

/* In rg_server_call.state. */
struct rg_call {
    bool json;         /* The dialect of errors. */
    bool head_request; /* The answer has no body. */
    bool keep_alive;
    bool replied;
    struct rg_store_object object; /* Open: the body is the object's bytes from `first`. */
    uint64_t first;
    struct rg_fault fault;
    struct rg_strike *strike; /* A rule strikes the call; shared with the rule. NULL: none does.
                                 rules.h releases it. */
    uint64_t awaited_rule;    /* The call is answered when this rule strikes. */
    struct rg_text text;      /* The body, unless an object is open. */
    const struct rg_receiver *receiver;
    void *received; /* The receiver's. Owned. */
    struct rg_server_response response;
    /* A call within a call encodes its head here. NULL: at the server's place. */
    struct rg_h1_encoder *nested_head;
};
_Static_assert(sizeof(struct rg_call) <= RG_SERVER_STATE_SIZE_MAX, "a call fits its state");

static inline struct rg_call *rg_call_of(struct rg_server_call *call)
{
    return (struct rg_call *)(void *)call->state;
}

static inline struct rg_service *rg_service_of(struct rg_server_call *call)
{
    return call->context;
}

/* Closes the call's object, frees its text and ends its receiver. Doing it again does nothing. */
void rg_call_release(struct rg_server_call *call);

#endif
