/* The inner side of a client: what its requests share.
 *
 * A client has one struct rg_client_loop per event loop: a connection pool and the requests
 * that are out on that loop. Requests come from one array that was allocated when the client was
 * opened; a free one is found by a lock-free stack, because any thread submits and every loop
 * completes. */
#ifndef RG_GCS_REQUEST_CLIENT_LOOP_H
#define RG_GCS_REQUEST_CLIENT_LOOP_H

#include "gcs/host/peers.h"
#include "gcs/network/endpoint.h"
#include "gcs/network/network.h"
#include "gcs/request/authorize.h"
#include "gcs/request/part_memory.h"
#include "gcs/request/rates.h"
#include "gcs/request/retry.h"
#include "http/pool.h"
#include "runtime/option.h"
#include "runtime/runtime.h"

#include <ringest/gcs.h>

#include <semaphore.h>
#include <stdatomic.h>

/* Defaults of rg_client_options (two are in runtime/option.h), and what an option may be at most.
 */
#define RG_CONNECTIONS_DEFAULT 256
#define RG_CONNECTIONS_LIMIT 65536
#define RG_REQUESTS_DEFAULT 8192
#define RG_REQUESTS_LIMIT (1 << 20)
#define RG_ATTEMPTS_DEFAULT 8
#define RG_ATTEMPTS_LIMIT 1000
#define RG_CONNECT_TIMEOUT_DEFAULT_NS (10 * RG_NS_PER_S)
#define RG_FIRST_BYTE_TIMEOUT_DEFAULT_NS (30 * RG_NS_PER_S)
#define RG_STALL_TIMEOUT_DEFAULT_NS (20 * RG_NS_PER_S)
#define RG_IDLE_TIMEOUT_DEFAULT_NS (60 * RG_NS_PER_S)
/* The most that hedges_per_1000 may be: every request. */
#define RG_HEDGES_LIMIT 1000

struct rg_cache;
struct rg_cached_reads;
struct rg_memory;
struct rg_newest;
struct rg_request;

/* How long the server's clock is taken to go as ours does. */
#define RG_CLIENT_CLOCK_NS (60 * RG_NS_PER_S)
/* How long closing waits for what is removed from the server before. */
#define RG_CLIENT_CLEAN_TIME_NS (10 * RG_NS_PER_S)

/* OPEN -> CLOSING -> POOL_CLOSED -> CLOSED. From CLOSING on no request begins and none is tried
 * again. */
enum rg_client_loop_state {
    RG_CLIENT_LOOP_OPEN = 0,
    RG_CLIENT_LOOP_CLOSING,     /* what waits is cancelled, and the pool ends what is sent */
    RG_CLIENT_LOOP_POOL_CLOSED, /* operations may still be waiting for files to be read */
    RG_CLIENT_LOOP_CLOSED,      /* all requests have ended, and `pool` is NULL */
};

struct rg_client_loop {
    struct rg_client *client;
    struct rg_loop *loop;
    struct rg_transport_loop *transports;
    struct rg_pool *pool;
    struct rg_traffic *traffic;
    struct rg_peers peers; /* loops of other processes, too; the traffic's to change */
    struct rg_list active; /* requests between their mail and their completion */
    struct rg_retry_budget retry_budget;
    uint64_t writes;       /* that were given an idempotency token */
    uint64_t clock_due_ns; /* when an answer's date is looked at again */
    struct rg_part_memory part_memory;
    struct rg_cached_reads *cached; /* NULL: the client has no cache */
    uint32_t reads_out;             /* of the cache, by the kernel, also for gets that have ended */
    struct rg_authorizer authorizer;
    /* Changed by rg_client_loop_become alone, on the loop. Who closes the client looks at it, too.
     */
    _Atomic enum rg_client_loop_state state;
    void (*emptied)(struct rg_client_loop *client_loop); /* its pool and all requests are gone */
    sem_t closed; /* posted once when the pool and all requests are gone; valid while closing */
};

struct rg_client {
    struct rg_runtime *runtime;
    struct rg_client_options options; /* numbers only; its strings are not kept */
    struct rg_endpoint endpoint;
    struct rg_network network;
    struct rg_resolver *resolver;
    struct rg_rates *rates;             /* NULL: requests begin as fast as they come */
    struct rg_cache *cache;             /* NULL: none was asked for */
    struct rg_memory *memory;           /* the same in memory, asked first; NULL: none */
    struct rg_newest *newest;           /* where there is either */
    uint64_t write_seed[2];             /* of idempotency tokens */
    struct rg_credentials *credentials; /* NULL: none, or a fixed token */
    bool has_token;                     /* the fixed one */
    char *share_folder; /* of what the processes of a host share; NULL: nothing is shared */
    struct rg_secret_arena fields_arena;
    char *common_fields; /* of every request: Host and the like, each with its CRLF; in the arena */
    size_t common_fields_size;
    struct rg_request *requests; /* options.requests_max of them */
    struct {
        alignas(RG_CACHE_LINE) _Atomic uint64_t free_head; /* tag << 32 | index + 1; 0: none */
        _Atomic uint32_t loop_next;
        _Atomic bool closing;
        /* What the server was found not to have: XML multipart uploads, and batches of requests
         * whose answers can be read. */
        _Atomic bool no_multipart, no_batches;
        /* The server's clock less rg_now_ns, in nanoseconds; 0: not known. */
        _Atomic int64_t server_clock_ns;
    } shared;
    uint32_t loop_count;
    struct rg_client_loop *loops;
    pthread_mutex_t users_lock;
    struct rg_list users; /* see struct rg_client_user */
};

/* Makes all of client->requests, which are zeros, free ones. Before another thread knows the
 * client.
 */
void rg_client_fill_requests(struct rg_client *client);
/* Takes up to `count` free requests, linked by free_next; sets *out_first. Returns how many. */
uint32_t rg_client_take_requests(struct rg_client *client, uint32_t count,
                                 struct rg_request **out_first);
void rg_client_give_request(struct rg_client *client, struct rg_request *request);
/* In whose name requests are sent, for people. Like snprintf. */
int rg_client_principal_write(const struct rg_client *client, char *out, size_t out_size);
/* The loop for the next request of `count` that are submitted together: in turn, among those of the
 * caller's NUMA node where these have connections for them. */
struct rg_client_loop *rg_client_next_loop(struct rg_client *client, uint32_t count);

/* Reserves one slot of the queue and one request for it; for submit functions that are not batched.
 */
int rg_client_reserve(struct rg_client *client, struct rg_cq *cq, struct rg_request **out_request);
void rg_client_unreserve(struct rg_request *request);
static inline bool rg_client_loop_is_closing(const struct rg_client_loop *client_loop)
{
    return client_loop->state != RG_CLIENT_LOOP_OPEN;
}
void rg_client_loop_become(struct rg_client_loop *client_loop, enum rg_client_loop_state state);
/* A request of a client loop that may be closing has ended. */
void rg_client_check_closed(struct rg_client_loop *client_loop);
/* Hands a prepared request to a loop. */
void rg_client_post(struct rg_request *request);

#endif
