/* Exchanges over pools: see exchange.h. */
#include "tests/support/exchange.h"

#include "runtime/clock.h"
#include "tests/support/loop.h"
#include "tests/support/test.h"

#include <time.h>

static struct rg_test_exchange *exchange_of(struct rg_exchange *x)
{
    return RG_CONTAINER_OF(x, struct rg_test_exchange, x);
}

static int exchange_encode(struct rg_exchange *x, struct rg_h1_encoder *encoder)
{
    rg_h1_encode_request(encoder,
                         x->head_request      ? "HEAD"
                         : x->upload_size > 0 ? "PUT"
                                              : "GET",
                         "/");
    rg_h1_encode_header(encoder, "Host", "test");
    if (x->upload_size > 0) {
        rg_h1_encode_header_u64(encoder, "Content-Length", x->upload_size);
    }
    return rg_h1_encode_end(encoder);
}

static enum rg_body_action exchange_head(struct rg_exchange *x, const struct rg_h1_head *head)
{
    struct rg_test_exchange *exchange = exchange_of(x);
    (void)head;
    if (exchange->body_max != 0) {
        x->body_max = exchange->body_max;
    }
    x->into = exchange->into;
    x->into_size = exchange->into_size;
    return exchange->action;
}

static void exchange_data(struct rg_exchange *x, const uint8_t *data, size_t size)
{
    (void)data;
    exchange_of(x)->told_size += size;
}

static void exchange_done(struct rg_exchange *x)
{
    struct rg_test_exchange *exchange = exchange_of(x);
    exchange->status = x->status;
    exchange->os_error = x->os_error;
    exchange->http_status = x->http_status;
    exchange->good_before = x->good_before;
    exchange->stale = x->stale;
    exchange->request_sent = x->request_sent;
    exchange->done_ns = rg_now_ns();
    snprintf(exchange->text, sizeof(exchange->text), "%s", x->text != NULL ? x->text : "");
    exchange->body_size = x->body_size;
    if (x->body != NULL && x->body_size > 0) {
        exchange->body = malloc(x->body_size);
        memcpy(exchange->body, x->body, x->body_size);
    }
    rg_lease_release(x->lease);
    exchange->done_count++;
    sem_post(&exchange->pool->done);
}

static const struct rg_exchange_ops exchange_ops = {
    .encode = exchange_encode,
    .head = exchange_head,
    .data = exchange_data,
    .done = exchange_done,
};

static void pool_open_run(void *context)
{
    struct rg_test_pool *pool = context;
    RG_ASSERT(rg_pool_create(&pool->pool, pool->loop, &pool->options) == 0);
}

static void default_ns(uint64_t *value)
{
    *value = *value != 0 ? *value : 60 * RG_NS_PER_S;
}

void rg_test_pool_open(struct rg_test_pool *pool, uint16_t port)
{
    struct rg_pool_options *options = &pool->options;
    pool->loop = rg_test_loop_start(pool->memory_max != 0 ? pool->memory_max : RG_MIB(16));
    sem_init(&pool->done, 0, 0);
    options->host = options->host != NULL ? options->host : "127.0.0.1";
    options->port = port;
    options->connections_max = options->connections_max != 0 ? options->connections_max : 4;
    default_ns(&options->connect_timeout_ns);
    default_ns(&options->first_byte_timeout_ns);
    default_ns(&options->stall_timeout_ns);
    default_ns(&options->idle_timeout_ns);
    RG_CHECK_EQ(rg_transport_loop_create(&pool->transports, pool->loop, options->connections_max),
                0);
    RG_CHECK_EQ(rg_resolver_create(&pool->resolver, &pool->resolver_options), 0);
    options->transports = pool->transports;
    options->resolver = pool->resolver;
    rg_loop_call(pool->loop, pool_open_run, pool);
}

static void wait_for(sem_t *semaphore)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += RG_TEST_PATIENCE_NS / RG_NS_PER_S;
    int rc;
    do {
        rc = sem_timedwait(semaphore, &until);
    } while (rc < 0 && errno == EINTR);
    RG_CHECK_EQ(rc, 0);
}

static void pool_closed(void *context)
{
    sem_post(context);
}

struct pool_close {
    struct rg_pool *pool;
    sem_t closed;
};

static void pool_close_run(void *context)
{
    struct pool_close *closing = context;
    rg_pool_close(closing->pool, pool_closed, &closing->closed);
}

void rg_test_pool_close(struct rg_test_pool *pool)
{
    struct pool_close closing = {.pool = pool->pool};
    sem_init(&closing.closed, 0, 0);
    rg_loop_call(pool->loop, pool_close_run, &closing);
    wait_for(&closing.closed);
    sem_destroy(&closing.closed);
    rg_resolver_destroy(pool->resolver);
    rg_loop_stop(pool->loop);
    rg_transport_loop_destroy(pool->transports);
    rg_loop_destroy(pool->loop);
    sem_destroy(&pool->done);
}

static void submit_run(void *context)
{
    struct rg_test_exchange *exchange = context;
    rg_pool_submit(exchange->pool->pool, &exchange->x);
}

void rg_test_exchange_submit(struct rg_test_pool *pool, struct rg_test_exchange *exchange)
{
    exchange->pool = pool;
    exchange->x.ops = &exchange_ops;
    exchange->x.head_request = exchange->head_request;
    exchange->x.upload = exchange->upload;
    exchange->x.upload_size = exchange->upload_size;
    rg_loop_call(pool->loop, submit_run, exchange);
}

struct cancel {
    struct rg_test_exchange *exchange;
    enum rg_status status;
};

static void cancel_run(void *context)
{
    struct cancel *cancel = context;
    rg_pool_cancel(cancel->exchange->pool->pool, &cancel->exchange->x, cancel->status);
}

void rg_test_exchange_cancel(struct rg_test_exchange *exchange, enum rg_status status)
{
    struct cancel cancel = {exchange, status};
    rg_loop_call(exchange->pool->loop, cancel_run, &cancel);
}

void rg_test_exchange_wait(struct rg_test_pool *pool)
{
    wait_for(&pool->done);
}

void rg_test_exchange_fini(struct rg_test_exchange *exchange)
{
    free(exchange->body);
    exchange->body = NULL;
}

void rg_test_exchange_run(struct rg_test_pool *pool, struct rg_test_exchange *exchange)
{
    rg_test_exchange_submit(pool, exchange);
    rg_test_exchange_wait(pool);
    RG_CHECK_EQ(exchange->done_count, 1);
}

struct connections {
    struct rg_pool *pool;
    uint32_t count;
};

static void connections_run(void *context)
{
    struct connections *connections = context;
    connections->count = rg_pool_connections(connections->pool);
}

uint32_t rg_test_pool_connections(struct rg_test_pool *pool)
{
    struct connections connections = {.pool = pool->pool};
    rg_loop_call(pool->loop, connections_run, &connections);
    return connections.count;
}

static void prewarm_run(void *context)
{
    struct connections *connections = context;
    rg_pool_prewarm(connections->pool, connections->count);
}

void rg_test_pool_prewarm(struct rg_test_pool *pool, uint32_t connections)
{
    struct connections wanted = {.pool = pool->pool, .count = connections};
    rg_loop_call(pool->loop, prewarm_run, &wanted);
}
