/* Exchanges over a pool of ours without a GCS client above it, on a loop with a thread of its own.
 * Everything here is for one test thread; what happens on the loop is handed over when it is done.
 */
#ifndef RG_TESTS_SUPPORT_EXCHANGE_H
#define RG_TESTS_SUPPORT_EXCHANGE_H

#include "http/pool.h"
#include "tests/support/scripted_server.h"

#include <semaphore.h>

/* One GET and what became of it. */
struct rg_test_exchange {
    enum rg_body_action action; /* LEASE; INTO `into`; DISCARD */
    bool head_request;
    uint8_t *into;
    uint64_t into_size, body_max; /* body_max 0: none */
    const uint8_t *upload;
    uint64_t upload_size;
    /* Valid when it is done. */
    enum rg_status status;
    int os_error;
    uint16_t http_status;
    uint32_t good_before;
    bool stale, request_sent;
    char text[128];
    uint8_t *body; /* a copy, owned by the exchange; freed by rg_test_exchange_fini */
    uint64_t body_size;
    uint64_t told_size; /* bytes that `data` was told of */
    unsigned done_count;
    uint64_t done_ns; /* CLOCK_MONOTONIC */
    /* Private. */
    struct rg_exchange x;
    struct rg_test_pool *pool;
};

struct rg_test_pool {
    /* Set by the test; zero means as usual: 4 connections, a minute each. */
    struct rg_pool_options options;
    struct rg_resolver_options resolver_options;
    uint64_t memory_max; /* 16 MiB */
    /* Set by open. */
    struct rg_loop *loop;
    struct rg_transport_loop *transports;
    struct rg_resolver *resolver;
    struct rg_pool *pool;
    sem_t done;
};

/* A pool for 127.0.0.1 and the port, or what options.host says. */
void rg_test_pool_open(struct rg_test_pool *pool, uint16_t port);
/* Fails what is out, and waits for everything. */
void rg_test_pool_close(struct rg_test_pool *pool);

void rg_test_exchange_submit(struct rg_test_pool *pool, struct rg_test_exchange *exchange);
void rg_test_exchange_cancel(struct rg_test_exchange *exchange, enum rg_status status);
/* Waits until one more exchange of the pool is done; the case fails when none is. */
void rg_test_exchange_wait(struct rg_test_pool *pool);
void rg_test_exchange_fini(struct rg_test_exchange *exchange);
/* Submits one and waits for it. */
void rg_test_exchange_run(struct rg_test_pool *pool, struct rg_test_exchange *exchange);
uint32_t rg_test_pool_connections(struct rg_test_pool *pool);
void rg_test_pool_prewarm(struct rg_test_pool *pool, uint32_t connections);

#endif
