/* Connections of one client on one loop: see pool.h. The one place where connections are opened and
 * exchanges meet them is pool_pump. */
#include "http/pool.h"

#include "runtime/errors.h"
#include "runtime/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Idle connections that are looked at for one to another address. */
#define IDLE_SCAN_MAX 16

static uint64_t now_of(const struct rg_pool *pool)
{
    return pool->shared.response.loop->now_ns;
}

static struct rg_candidates *candidates_of(struct rg_pool *pool)
{
    return &pool->addresses.candidates;
}

static struct rg_pool *pool_of(const struct rg_conn *conn)
{
    return RG_CONTAINER_OF(conn->shared, struct rg_pool, shared);
}

static void pool_pump_soon(struct rg_pool *pool)
{
    rg_loop_defer(pool->shared.response.loop, &pool->pump_task);
}

static struct rg_exchange *queue_pop(struct rg_pool *pool)
{
    struct rg_list *node = rg_list_pop_front(&pool->queue);
    if (node == NULL) {
        return NULL;
    }
    RG_ASSERT(pool->queue_count > 0);
    pool->queue_count--;
    return RG_CONTAINER_OF(node, struct rg_exchange, node);
}

/* An exchange that never had a connection is done. */
static void exchange_fail(struct rg_exchange *x, const struct rg_transport_failure *failure)
{
    x->status = failure->status;
    x->os_error = failure->os_error;
    x->text = failure->text;
    x->http_status = 0;
    x->good_before = 0;
    x->lease = NULL;
    x->body = NULL;
    x->body_size = 0;
    x->stale = false;
    x->final = failure->final;
    x->ops->done(x);
}

/* Fails what is in the queue now, not what owners add meanwhile. */
static void queue_fail(struct rg_pool *pool, const struct rg_transport_failure *failure)
{
    uint32_t count = pool->queue_count;
    for (uint32_t i = 0; i < count && pool->queue_count > 0; i++) {
        exchange_fail(queue_pop(pool), failure);
    }
}

static uint16_t connect_port(const struct rg_pool *pool)
{
    return pool->options.connect_port != 0 ? pool->options.connect_port : pool->options.port;
}

/* 0: a connection is being made. */
static int conn_begin(struct rg_pool *pool)
{
    struct rg_list *node = rg_list_pop_front(&pool->free);
    RG_ASSERT(node != NULL);
    struct rg_conn *conn = RG_CONTAINER_OF(node, struct rg_conn, node);
    rg_candidates_begin(candidates_of(pool),
                        rg_candidates_choose(candidates_of(pool), now_of(pool)), &conn->use);
    const struct rg_address *address = rg_candidate_address(&conn->use);
    struct rg_transport_target target = {
        .address = (const struct sockaddr *)&address->storage,
        .address_size = address->size,
        .peer = pool->options.tls != NULL ? &pool->peer : NULL,
        .route = pool->options.proxy != NULL ? &pool->route : NULL,
        .local = pool->options.local,
    };
    int rc = rg_conn_open(conn, &target);
    if (rc < 0) {
        rg_candidates_withdraw(candidates_of(pool), &conn->use);
        rg_list_push_front(&pool->free, &conn->node);
        return rc;
    }
    rg_growth_begun(&pool->growth, pool->open_count);
    pool->open_count++;
    pool->connecting_count++;
    return 0;
}

/* No connection could even be begun. */
static void conn_begin_failed(struct rg_pool *pool, int rc)
{
    rg_metric_add(&pool->shared.response.loop->metrics.connections_failed, 1);
    struct rg_transport_failure failure = {
        .status = rg_errors_status(RG_ERRORS_OPEN, -rc),
        .os_error = -rc,
    };
    if (rc == -EMFILE || rc == -ENFILE) {
        failure.text = "no file descriptor is left for a connection (ulimit -n)";
    } else if (rc == -EAFNOSUPPORT && pool->options.local != NULL) {
        failure.text = "the server has no address of the local address's family";
    }
    if (pool->open_count > 0) {
        /* Go on with the connections that are open. */
        pool->connections_max = pool->open_count;
        return;
    }
    queue_fail(pool, &failure);
}

/* When the exchange was begun that has been on a connection the longest; 0: there is none. */
static uint64_t oldest_started_ns(const struct rg_pool *pool)
{
    const struct rg_exchange *x =
        rg_list_empty(&pool->busy)
            ? NULL
            : RG_CONTAINER_OF(pool->busy.next, struct rg_conn, node)->response.x;
    return x != NULL ? x->started_ns : 0;
}

/* How many connections the exchanges that wait are worth. Without TLS one costs next to nothing. */
static uint32_t growth_allowed(const struct rg_pool *pool)
{
    uint64_t started_ns = oldest_started_ns(pool);
    const uint32_t *processes = pool->options.processes;
    struct rg_growth_now now = {
        .max = pool->connections_max,
        .processes = processes != NULL ? *processes : 1,
        .open = pool->open_count - pool->slow_count,
        .connecting = pool->connecting_count - pool->slow_count,
        .oldest_ns = started_ns != 0 ? now_of(pool) - started_ns : 0,
    };
    if (pool->options.tls != NULL) {
        now.crowd = rg_loop_crowd(pool->shared.response.loop);
    }
    return pool->options.tls != NULL ? rg_growth_allowed(&pool->growth, &now) : UINT32_MAX;
}

/* Exchanges wait, and no connection is worth its cost: looks again when they have waited long. Then
 * ever less often, since looking itself costs turns on a CPU that many wait for. */
static void growth_await(struct rg_pool *pool)
{
    uint64_t age_ns = rg_growth_age(&pool->growth), started_ns = oldest_started_ns(pool);
    if (age_ns != UINT64_MAX && started_ns != 0) {
        uint64_t now_ns = now_of(pool);
        uint64_t pause_ns = RG_MAX((now_ns - started_ns) / 2, RG_LOOP_CROWD_NS);
        rg_loop_set_alarm(pool->shared.response.loop, &pool->alarm,
                          RG_MAX(started_ns + age_ns + 1, now_ns + pause_ns));
    }
}

static uint32_t connections_wanted(struct rg_pool *pool)
{
    uint32_t on_the_way = pool->connecting_count - pool->slow_count;
    uint32_t for_queue = pool->queue_count > on_the_way ? pool->queue_count - on_the_way : 0;
    uint32_t prewarm =
        pool->prewarm_target > pool->open_count ? pool->prewarm_target - pool->open_count : 0;
    if (for_queue > 0 && pool->open_count < pool->connections_max) {
        for_queue = RG_MIN(for_queue, growth_allowed(pool));
        if (for_queue == 0) {
            growth_await(pool);
        }
    }
    return RG_MAX(for_queue, prewarm);
}

static bool may_open(const struct rg_pool *pool)
{
    return pool->open_count < pool->connections_max && !rg_list_empty(&pool->free) &&
           pool->connecting_count - pool->slow_count < RG_POOL_CONNECTING_MAX;
}

/* The idle connection for what waits first: the one that was used last, and not asked for less,
 * unless another address is better. */
static struct rg_conn *idle_choose(struct rg_pool *pool)
{
    struct rg_conn *first = RG_CONTAINER_OF(pool->idle.next, struct rg_conn, node);
    const struct rg_conn *avoid =
        RG_CONTAINER_OF(pool->queue.next, struct rg_exchange, node)->avoid;
    struct rg_list *node = pool->idle.next;
    for (uint32_t i = 0; i < IDLE_SCAN_MAX && avoid != NULL && node != &pool->idle; i++) {
        struct rg_conn *conn = RG_CONTAINER_OF(node, struct rg_conn, node);
        if (conn->use.addresses == avoid->use.addresses && conn->use.index != avoid->use.index) {
            return conn;
        }
        node = node->next;
    }
    return first;
}

/* True where every connection is one that is being made. */
static bool is_alone(const struct rg_pool *pool)
{
    return pool->open_count == pool->connecting_count;
}

/* How many connections may be begun to the addresses there are. */
static uint32_t connections_allowed(struct rg_pool *pool)
{
    uint64_t free_ns = rg_candidates_free_ns(candidates_of(pool));
    if (pool->open_count == 0 || free_ns <= now_of(pool)) {
        return UINT32_MAX;
    }
    if (is_alone(pool) && pool->slow_count == 0 && rg_candidates_fresh(candidates_of(pool))) {
        /* All were lost. One attempt alone might meet the one bad server of many. */
        return UINT32_MAX;
    }
    if (rg_candidates_hopeful(candidates_of(pool))) {
        /* The address is slow, or one of several servers behind it is: one more at a time. */
        return pool->connecting_count == pool->slow_count ? 1 : 0;
    }
    /* Go on with the connections that are open until the penalties have passed: the server may be
     * overloaded. */
    rg_loop_set_alarm(pool->shared.response.loop, &pool->alarm, free_ns);
    return 0;
}

static void pool_pump(struct rg_pool *pool)
{
    while (!rg_list_empty(&pool->idle) && pool->queue_count > 0) {
        struct rg_conn *conn = idle_choose(pool);
        rg_list_remove(&conn->node);
        rg_list_push_back(&pool->busy, &conn->node);
        rg_conn_assign(conn, queue_pop(pool));
    }
    uint32_t wanted = connections_wanted(pool);
    if (wanted == 0 || pool->state == RG_POOL_CLOSING) {
        return;
    }
    rg_pool_addresses_refresh(&pool->addresses);
    wanted =
        rg_pool_addresses_known(&pool->addresses) ? RG_MIN(wanted, connections_allowed(pool)) : 0;
    while (wanted-- > 0 && may_open(pool)) {
        int rc = conn_begin(pool);
        if (rc < 0) {
            conn_begin_failed(pool, rc);
            return;
        }
    }
}

static void alarm_fire(struct rg_alarm *alarm)
{
    pool_pump(RG_CONTAINER_OF(alarm, struct rg_pool, alarm));
}

/* An exchange that holds memory waits for a connection, and all connections wait for memory: one of
 * them gives way, or none would ever go on. */
static void pool_break_deadlock(struct rg_pool *pool)
{
    if (pool->queue_count == 0 || rg_list_empty(&pool->busy) || !rg_list_empty(&pool->idle) ||
        pool->connecting_count > 0 || pool->closing_count > 0) {
        return;
    }
    if (!RG_CONTAINER_OF(pool->queue.next, struct rg_exchange, node)->holds_memory) {
        return;
    }
    for (struct rg_list *node = pool->busy.next; node != &pool->busy; node = node->next) {
        if (!rg_transport_paused(&RG_CONTAINER_OF(node, struct rg_conn, node)->transport)) {
            return;
        }
    }
    rg_conn_fail(RG_CONTAINER_OF(pool->busy.prev, struct rg_conn, node), RG_STATUS_NO_RESOURCES,
                 ENOMEM, "the memory budget is used up by bodies that broke off");
}

/* The counts are those of the connections' states, no more connect than are open, and a pool that
 * closes has neither open connections nor exchanges that wait. */
static bool invariants(const struct rg_pool *pool)
{
    uint32_t counts[RG_CONN_STATE_COUNT] = {0};
    for (uint32_t i = 0; i < pool->options.connections_max; i++) {
        counts[pool->conns[i].state]++;
    }
    uint32_t connecting = counts[RG_CONN_CONNECTING] + counts[RG_CONN_SLOW];
    return connecting == pool->connecting_count && counts[RG_CONN_SLOW] == pool->slow_count &&
           connecting + counts[RG_CONN_IDLE] + counts[RG_CONN_BUSY] == pool->open_count &&
           counts[RG_CONN_CLOSING] == pool->closing_count &&
           (pool->state == RG_POOL_OPEN || (pool->open_count == 0 && pool->queue_count == 0));
}

static void pump_run(struct rg_task *task)
{
    struct rg_pool *pool = RG_CONTAINER_OF(task, struct rg_pool, pump_task);
    pool_pump(pool);
    pool_break_deadlock(pool);
    RG_VERIFY(invariants(pool));
}

/* Heads of requests are written there, with their tokens: core dumps leave it out. */
static uint8_t *scratch_new(void)
{
    void *scratch =
        mmap(NULL, RG_SCRATCH_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (scratch == MAP_FAILED) {
        return NULL;
    }
    (void)madvise(scratch, RG_SCRATCH_SIZE, MADV_DONTDUMP);
    return scratch;
}

static void scratch_free(uint8_t *scratch)
{
    if (scratch != NULL) {
        explicit_bzero(scratch, RG_SCRATCH_SIZE);
        munmap(scratch, RG_SCRATCH_SIZE);
    }
}

static void pool_free(struct rg_pool *pool)
{
    rg_loop_undefer(&pool->pump_task);
    rg_loop_cancel_alarm(pool->shared.response.loop, &pool->alarm);
    rg_pool_addresses_fini(&pool->addresses);
    if (pool->options.tls != NULL) {
        rg_tls_peer_fini(&pool->peer);
    }
    if (pool->options.proxy_tls != NULL) {
        rg_tls_peer_fini(&pool->proxy_peer);
    }
    scratch_free(pool->shared.response.scratch);
    free(pool->conns);
    free(pool->host);
    free(pool->connect_host);
    free(pool);
}

static void pool_close_join(struct rg_pool *pool)
{
    if (pool->state == RG_POOL_OPEN || pool->open_count > 0 || pool->closing_count > 0 ||
        rg_pool_addresses_looking_up(&pool->addresses)) {
        return;
    }
    RG_ASSERT(pool->queue_count == 0);
    void (*closed)(void *context) = pool->closed;
    void *context = pool->closed_context;
    pool_free(pool);
    closed(context);
}

static void looked_up(struct rg_pool_addresses *addresses,
                      const struct rg_transport_failure *failure)
{
    struct rg_pool *pool = RG_CONTAINER_OF(addresses, struct rg_pool, addresses);
    if (pool->state == RG_POOL_CLOSING) {
        pool_close_join(pool);
        return;
    }
    if (failure != NULL && !rg_pool_addresses_known(addresses) && pool->open_count == 0) {
        pool->prewarm_target = 0;
        queue_fail(pool, failure);
    }
    pool_pump_soon(pool);
}

void rg_pool_close(struct rg_pool *pool, void (*done)(void *context), void *context)
{
    RG_ASSERT(pool->state == RG_POOL_OPEN && done != NULL);
    rg_pool_addresses_cancel(&pool->addresses);
    pool->state = RG_POOL_CLOSING;
    pool->closed = done;
    pool->closed_context = context;
    struct rg_transport_failure closed = {.status = RG_STATUS_CLOSED};
    queue_fail(pool, &closed);
    for (uint32_t i = 0; i < pool->options.connections_max; i++) {
        struct rg_conn *conn = &pool->conns[i];
        if (conn->state != RG_CONN_CLOSED && conn->state != RG_CONN_CLOSING) {
            rg_conn_fail(conn, RG_STATUS_CLOSED, 0, NULL);
        }
    }
    pool_close_join(pool);
}

void rg_pool_submit(struct rg_pool *pool, struct rg_exchange *x)
{
    RG_ASSERT(x->conn == NULL && !rg_list_linked(&x->node));
    RG_ASSERT(x->ops != NULL && pool->state == RG_POOL_OPEN);
    x->pool = pool;
    x->request_sent = false;
    x->started_ns = 0;
    if (x->holds_memory || x->urgent) {
        rg_list_push_front(&pool->queue, &x->node);
    } else {
        rg_list_push_back(&pool->queue, &x->node);
    }
    pool->queue_count++;
    pool_pump_soon(pool);
}

void rg_pool_cancel(struct rg_pool *pool, struct rg_exchange *x, enum rg_status status)
{
    if (x->conn != NULL) {
        /* A connection that is closing already ends its exchange by itself. */
        if (x->conn->state != RG_CONN_CLOSING) {
            rg_conn_fail(x->conn, status, 0, NULL);
        }
    } else if (rg_list_linked(&x->node)) {
        struct rg_transport_failure failure = {.status = status};
        rg_list_remove(&x->node);
        pool->queue_count--;
        exchange_fail(x, &failure);
    }
}

void rg_pool_prewarm(struct rg_pool *pool, uint32_t connections)
{
    pool->prewarm_target = RG_MIN(connections, pool->options.connections_max);
    pool_pump_soon(pool);
}

uint32_t rg_pool_connections(const struct rg_pool *pool)
{
    return pool->open_count;
}

static void connecting_over(struct rg_pool *pool, enum rg_conn_state before)
{
    RG_ASSERT(pool->connecting_count > 0);
    pool->connecting_count--;
    if (before == RG_CONN_SLOW) {
        RG_ASSERT(pool->slow_count > 0);
        pool->slow_count--;
    }
}

static unsigned number_of(const struct rg_pool *pool, const struct rg_conn *conn)
{
    return (unsigned)(conn - pool->conns);
}

/* The first connection of a pool says, at info, how the others will be. */
static void connected_tell(struct rg_pool *pool, const struct rg_conn *conn)
{
    enum rg_log_level level = pool->has_connected ? RG_LOG_DEBUG : RG_LOG_INFO;
    pool->has_connected = true;
    if (RG_LIKELY(!rg_log_enabled(level))) {
        return;
    }
    const struct rg_transport *transport = &conn->transport;
    char secure[96] = "no TLS", address[INET6_ADDRSTRLEN];
    if (transport->secure) {
        snprintf(secure, sizeof(secure), "%s, %s%s", rg_tls_version(&transport->tls),
                 rg_tls_cipher(&transport->tls),
                 rg_tls_resumed(&transport->tls) ? ", resumed" : "");
    }
    rg_log(level, "%s: connection %u to %s opened in %.1f ms: %s", pool->host,
           number_of(pool, conn), rg_pool_address_text(&conn->use, address),
           (double)(now_of(pool) - conn->opened_ns) / 1e6, secure);
}

static void conn_ready(struct rg_conn *conn, enum rg_conn_state before)
{
    struct rg_pool *pool = pool_of(conn);
    RG_ASSERT(conn->state == RG_CONN_IDLE);
    RG_ASSERT(rg_conn_connects(before) != rg_list_linked(&conn->node));
    if (rg_conn_connects(before)) {
        connecting_over(pool, before);
        connected_tell(pool, conn);
        rg_candidates_succeeded(candidates_of(pool), &conn->use);
        rg_growth_connected(&pool->growth, conn->transport.reached_ns - conn->opened_ns,
                            now_of(pool) - conn->transport.reached_ns);
        /* One handshake less: others may begin. */
        pool_pump_soon(pool);
    } else {
        rg_growth_answered(&pool->growth, conn->exchange_ns);
    }
    rg_list_remove(&conn->node);
    struct rg_exchange *x = queue_pop(pool);
    if (x == NULL) {
        /* A server that is ill refuses at once: it would be the next to be asked, again and again.
         */
        bool is_refused = conn->served > 0 && conn->good_count == 0;
        (is_refused ? rg_list_push_back : rg_list_push_front)(&pool->idle, &conn->node);
        return;
    }
    if (pool->queue_count > 0 && may_open(pool) && growth_allowed(pool) > 0) {
        pool_pump_soon(pool);
    }
    rg_list_push_back(&pool->busy, &conn->node);
    rg_conn_assign(conn, x);
}

static void conn_slow(struct rg_conn *conn)
{
    struct rg_pool *pool = pool_of(conn);
    pool->slow_count++;
    rg_candidates_slow(candidates_of(pool), &conn->use, now_of(pool));
    pool_pump_soon(pool);
}

static bool conn_stuck(const struct rg_conn *conn)
{
    const struct rg_pool *pool = pool_of(conn);
    bool is_full = pool->open_count >= pool->connections_max || rg_list_empty(&pool->free);
    return is_full && pool->queue_count > 0 &&
           rg_candidates_free_ns(&pool->addresses.candidates) <= now_of(pool);
}

static void conn_waiting(struct rg_conn *conn)
{
    RG_ASSERT(rg_transport_paused(&conn->transport));
    pool_pump_soon(pool_of(conn));
}

static void connecting_failed(struct rg_conn *conn, const struct rg_transport_failure *failure,
                              enum rg_conn_state before)
{
    struct rg_pool *pool = pool_of(conn);
    connecting_over(pool, before);
    rg_metric_add(&pool->shared.response.loop->metrics.connections_failed, 1);
    rg_pool_addresses_failed(&pool->addresses, &conn->use, failure);
    if (pool->state == RG_POOL_CLOSING || !is_alone(pool) ||
        !rg_candidates_lost(candidates_of(pool), now_of(pool))) {
        return;
    }
    struct rg_transport_failure told = *rg_pool_addresses_all_failed(&pool->addresses);
    pool->prewarm_target = 0;
    queue_fail(pool, &told);
}

/* It was opened, and lost before its first answer. */
static bool was_useless(const struct rg_conn *conn, const struct rg_transport_failure *failure)
{
    return conn->served == 0 &&
           (failure->status == RG_STATUS_CONNECTION_LOST || failure->status == RG_STATUS_STALLED ||
            failure->status == RG_STATUS_HTTP_PROTOCOL);
}

/* A connection that is lost in a request is told at info. The end of an idle one, or one that we
 * ended, is told at debug. */
static void ended_tell(const struct rg_pool *pool, const struct rg_conn *conn,
                       const struct rg_transport_failure *failure)
{
    enum rg_status status = failure->status;
    bool is_ours = status == RG_STATUS_OK || status == RG_STATUS_CANCELLED ||
                   status == RG_STATUS_DEADLINE || status == RG_STATUS_CLOSED;
    const char *text = failure->text != NULL ? failure->text : "";
    if (!is_ours && conn->response.x != NULL) {
        rg_log_some(RG_LOG_INFO, "%s: connection %u lost in its request %u: %s%s%s", pool->host,
                    number_of(pool, conn), conn->served + 1, rg_status_text(status),
                    *text != '\0' ? ": " : "", text);
    } else {
        rg_log(RG_LOG_DEBUG, "%s: connection %u closed after %u requests%s%s", pool->host,
               number_of(pool, conn), conn->served, *text != '\0' ? ": " : "", text);
    }
}

static void conn_ended(struct rg_conn *conn, const struct rg_transport_failure *failure,
                       enum rg_conn_state before)
{
    struct rg_pool *pool = pool_of(conn);
    rg_list_remove(&conn->node);
    RG_ASSERT(pool->open_count > 0);
    pool->open_count--;
    pool->closing_count++;
    if (rg_conn_connects(before)) {
        connecting_failed(conn, failure, before);
    } else {
        rg_metric_add(&pool->shared.response.loop->metrics.connections_closed, 1);
        if (RG_UNLIKELY(rg_log_enabled(RG_LOG_INFO))) {
            ended_tell(pool, conn, failure);
        }
        if (was_useless(conn, failure)) {
            rg_candidates_useless(candidates_of(pool), &conn->use, now_of(pool));
        }
        if (is_alone(pool)) {
            rg_candidates_round_end(candidates_of(pool));
        }
    }
    pool_pump_soon(pool);
}

static void conn_closed(struct rg_conn *conn)
{
    struct rg_pool *pool = pool_of(conn);
    RG_ASSERT(pool->closing_count > 0 && !rg_list_linked(&conn->node));
    pool->closing_count--;
    rg_candidate_release(&conn->use);
    rg_list_push_front(&pool->free, &conn->node);
    /* A descriptor is free again. */
    pool->connections_max = pool->options.connections_max;
    if (pool->state == RG_POOL_CLOSING) {
        pool_close_join(pool);
    } else {
        pool_pump_soon(pool);
    }
}

static const struct rg_conn_owner conn_owner = {
    .waiting = conn_waiting,
    .ready = conn_ready,
    .slow = conn_slow,
    .stuck = conn_stuck,
    .ended = conn_ended,
    .closed = conn_closed,
};

static int route_setup(struct rg_pool *pool)
{
    struct rg_pool_options *options = &pool->options;
    pool->route.proxy = options->proxy;
    if (options->proxy == NULL) {
        options->proxy_tls = NULL;
        return 0;
    }
    rg_proxy_target_format(pool->route.target, pool->connect_host, connect_port(pool));
    if (options->proxy_tls == NULL) {
        return 0;
    }
    int rc = rg_tls_peer_init(&pool->proxy_peer, options->proxy_tls, options->proxy->host);
    if (rc < 0) {
        options->proxy_tls = NULL;
        return rc;
    }
    pool->route.peer = &pool->proxy_peer;
    return 0;
}

static void addresses_setup(struct rg_pool *pool)
{
    const struct rg_pool_options *options = &pool->options;
    const struct rg_proxy *proxy = options->proxy;
    pool->addresses = (struct rg_pool_addresses){
        .loop = pool->shared.response.loop,
        .resolver = options->resolver,
        .name = pool->host,
        .host = proxy != NULL ? proxy->host : pool->connect_host,
        .port = proxy != NULL ? proxy->port : connect_port(pool),
        .via = pool->shared.via,
        .local = options->local,
        .looked_up = looked_up,
    };
    rg_pool_addresses_init(&pool->addresses);
}

static int pool_setup(struct rg_pool *pool)
{
    const struct rg_pool_options *options = &pool->options;
    const char *connect_host = options->connect_host ? options->connect_host : options->host;
    pool->host = strdup(options->host);
    pool->connect_host = strdup(connect_host);
    pool->shared.response.scratch = scratch_new();
    pool->conns = calloc(options->connections_max, sizeof(*pool->conns));
    if (!pool->host || !pool->connect_host || !pool->shared.response.scratch || !pool->conns) {
        return -ENOMEM;
    }
    if (options->tls != NULL) {
        int rc = rg_tls_peer_init(&pool->peer, options->tls, pool->host);
        if (rc < 0) {
            pool->options.tls = NULL;
            return rc;
        }
    }
    int rc = route_setup(pool);
    if (rc < 0) {
        return rc;
    }
    for (uint32_t i = 0; i < options->connections_max; i++) {
        rg_conn_init(&pool->conns[i], &pool->shared);
        rg_list_push_back(&pool->free, &pool->conns[i].node);
    }
    addresses_setup(pool);
    return 0;
}

int rg_pool_create(struct rg_pool **out_pool, struct rg_loop *loop,
                   const struct rg_pool_options *options)
{
    RG_ASSERT(options->connections_max > 0 && options->host != NULL);
    struct rg_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return -ENOMEM;
    }
    pool->options = *options;
    pool->shared = (struct rg_conn_shared){
        .owner = &conn_owner,
        .response.loop = loop,
        .transports = options->transports,
        .via = options->proxy != NULL ? options->proxy->via : NULL,
        .connect_timeout_ns = options->connect_timeout_ns,
        .first_byte_timeout_ns = options->first_byte_timeout_ns,
        .stall_timeout_ns = options->stall_timeout_ns,
        .idle_timeout_ns = options->idle_timeout_ns,
        .watch_ns = RG_MIN(RG_MIN(options->first_byte_timeout_ns, options->stall_timeout_ns),
                           options->idle_timeout_ns),
    };
    pool->connections_max = options->connections_max;
    pool->pump_task.run = pump_run;
    rg_alarm_init(&pool->alarm, alarm_fire);
    rg_list_init(&pool->free);
    rg_list_init(&pool->idle);
    rg_list_init(&pool->busy);
    rg_list_init(&pool->queue);
    int rc = pool_setup(pool);
    if (rc < 0) {
        pool_free(pool);
        return rc;
    }
    *out_pool = pool;
    return 0;
}
