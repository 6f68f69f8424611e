/* The emulator as a handler for the library's HTTP server: it takes the server's events, finds out
 * which part of which API a request is for, and hands over the answer. One rg_handler serves all
 * loops. All that belongs to a call lives in the call's state (request/call.h), and what the loops
 * write lives on cache lines of their own. */
#ifndef RG_EMULATOR_HANDLER_H
#define RG_EMULATOR_HANDLER_H

#include "emulator/faults/latency.h"
#include "emulator/store/store.h"
#include "http/server.h"

struct rg_handler;

struct rg_handler_options {
    struct rg_store *store; /* Borrowed. */
    struct rg_latency_model latency;
    double requests_per_second; /* Over all loops; 0: no limit. */
    uint64_t bytes_per_second;  /* On each connection; 0: no limit. */
    uint32_t loop_count;        /* Calls have a loop_index below it. */
    bool tls;                   /* For the links in resources. */
    uint64_t seed;              /* For drawing latencies. */
};

/* The context of a server with this handler is an rg_handler. */
extern const struct rg_server_handler rg_handler_events;

int rg_handler_create(struct rg_handler **out_handler, const struct rg_handler_options *options);
void rg_handler_destroy(struct rg_handler *handler);

#endif
