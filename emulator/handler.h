/* The emulated service as a handler for our HTTP server: what of a request goes where. One rg_api
 * serves all loops; everything of a call lives in the call's state, and what the loops write lives
 * on cache lines of their own. */
#ifndef RG_EMULATOR_HANDLER_H
#define RG_EMULATOR_HANDLER_H

#include "emulator/faults/latency.h"
#include "emulator/store/store.h"
#include "http/server.h"

struct rg_api;

struct rg_api_options {
    struct rg_store *store; /* Borrowed. */
    struct rg_latency_model latency;
    double requests_per_second; /* Over all loops; 0: no limit. */
    uint64_t bytes_per_second;  /* Of each connection; 0: no limit. */
    uint32_t loop_count;        /* Calls have a loop_index below it. */
    bool tls;                   /* For the links in resources. */
    uint64_t seed;              /* Of the latencies. */
};

/* The context of a server with this handler is an rg_api. */
extern const struct rg_server_handler rg_api_handler;

int rg_api_create(struct rg_api **out_api, const struct rg_api_options *options);
void rg_api_destroy(struct rg_api *api);

#endif
