/* A server on one loop: see server.h. Here it accepts, and owns what its connections share. The
 * life of a server: create (accepting begins) -> destroy (nothing is accepted any more, every
 * connection is cut) -> when the last connection and the accept op have come back, everything is
 * freed and `done` is called. */
#include "http/server.h"

#include "http/server_conn.h"
#include "runtime/descriptor.h"
#include "runtime/errors.h"
#include "runtime/socket.h"

#include <errno.h>
#include <stdlib.h>

/* Wait for descriptors or memory to come back before accepting again. */
#define ACCEPT_BACKOFF_NS (50 * RG_NS_PER_MS)
/* An accept that was about to finish when it was cancelled may wait once more: cancel it again. */
#define ACCEPT_CANCEL_NS (10 * RG_NS_PER_MS)

struct rg_server {
    struct rg_server_shared shared;
    struct rg_server_options options;
    /* connections_max of them, of which the first `used_count` have ever been touched: memory that
     * was never needed is never there. */
    struct rg_server_conn *conns;
    uint32_t used_count;
    struct rg_list free;
    struct rg_socket listener; /* a descriptor of our own for the shared socket */
    struct rg_op accepting;
    struct rg_alarm accept_alarm;
    bool closing;
    struct rg_task finish_task;
    void (*done)(void *done_context);
    void *done_context;
};

static void server_free(struct rg_server *server)
{
    RG_ASSERT(rg_op_idle(&server->accepting));
    rg_socket_close(server->shared.loop, &server->listener, false);
    rg_transport_loop_destroy(server->shared.transports);
    rg_server_buffers_free(&server->shared.inputs);
    rg_server_buffers_free(&server->shared.heads);
    free(server->conns);
    free(server);
}

static void finish_run(struct rg_task *task)
{
    struct rg_server *server = RG_CONTAINER_OF(task, struct rg_server, finish_task);
    RG_ASSERT(server->closing && server->shared.stats.connections_open == 0);
    void (*done)(void *done_context) = server->done;
    void *done_context = server->done_context;
    rg_loop_cancel_alarm(server->shared.loop, &server->accept_alarm);
    server_free(server);
    done(done_context);
}

static void closing_check(struct rg_server *server)
{
    if (server->closing && server->shared.stats.connections_open == 0 &&
        rg_op_idle(&server->accepting)) {
        /* From a task, because the caller is a callback of what will be freed. */
        rg_loop_defer(server->shared.loop, &server->finish_task);
    }
}

static void accept_start(struct rg_server *server)
{
    if (server->closing || !rg_op_idle(&server->accepting) ||
        server->shared.stats.connections_open == server->options.connections_max) {
        return;
    }
    rg_loop_cancel_alarm(server->shared.loop, &server->accept_alarm);
    rg_op_accept(server->shared.loop, &server->accepting, &server->listener);
}

static struct rg_server_conn *conn_take(struct rg_server *server)
{
    struct rg_list *node = rg_list_pop_front(&server->free);
    if (node != NULL) {
        return RG_CONTAINER_OF(node, struct rg_server_conn, node);
    }
    RG_ASSERT(server->used_count < server->options.connections_max);
    struct rg_server_conn *conn = &server->conns[server->used_count++];
    rg_server_conn_init(conn, &server->shared);
    return conn;
}

static int conn_accept(struct rg_server *server, int fd)
{
    RG_ASSERT(server->shared.stats.connections_open < server->options.connections_max);
    struct rg_server_conn *conn = conn_take(server);
    int rc = rg_server_conn_open(conn, fd);
    if (rc < 0) {
        rg_fd_close(fd, false);
        rg_list_push_front(&server->free, &conn->node);
        return rc;
    }
    server->shared.stats.accepted_count++;
    server->shared.stats.connections_open++;
    return 0;
}

/* True where only the connection is lost that was to be accepted. Everything else says that this
 * process or the system is short of something, which takes time to mend. */
static bool is_the_peers(int os_error)
{
    return rg_errors_status(RG_ERRORS_ACCEPT, os_error) == RG_STATUS_CONNECTION_LOST;
}

static void accept_done(struct rg_op *op)
{
    struct rg_server *server = RG_CONTAINER_OF(op, struct rg_server, accepting);
    if (server->closing) {
        if (op->result >= 0) {
            rg_fd_close(op->result, false);
        }
        closing_check(server);
        return;
    }
    int rc = op->result >= 0 ? conn_accept(server, op->result) : op->result;
    if (rc < 0) {
        server->shared.stats.accept_failure_count++;
    }
    if (rc < 0 && !is_the_peers(-rc)) {
        rg_loop_set_alarm(server->shared.loop, &server->accept_alarm,
                          server->shared.loop->now_ns + ACCEPT_BACKOFF_NS);
        return;
    }
    accept_start(server);
}

static void accept_cancel(struct rg_server *server)
{
    if (!rg_op_idle(&server->accepting)) {
        rg_op_cancel(server->shared.loop, &server->accepting);
        rg_loop_set_alarm(server->shared.loop, &server->accept_alarm,
                          server->shared.loop->now_ns + ACCEPT_CANCEL_NS);
    }
}

static void accept_alarm_fire(struct rg_alarm *alarm)
{
    struct rg_server *server = RG_CONTAINER_OF(alarm, struct rg_server, accept_alarm);
    if (server->closing) {
        accept_cancel(server);
    } else {
        accept_start(server);
    }
}

static void conn_closed(struct rg_server_conn *conn)
{
    struct rg_server *server = RG_CONTAINER_OF(conn->shared, struct rg_server, shared);
    RG_ASSERT(conn->state == RG_SERVER_CONN_FREE && server->shared.stats.connections_open > 0);
    server->shared.stats.connections_open--;
    rg_list_push_front(&server->free, &conn->node);
    closing_check(server);
    accept_start(server);
}

/* Closing ours must not end what the other loops accept from: hence a descriptor of its own. */
static int listener_adopt(struct rg_server *server, int fd)
{
    RG_ASSERT(fd >= 0);
    int own = rg_fd_copy(fd);
    if (own < 0) {
        return own;
    }
    int rc = rg_socket_adopt(server->shared.loop, &server->listener, own);
    if (rc < 0) {
        rg_fd_close(own, false);
    }
    return rc;
}

static int server_open(struct rg_server *server)
{
    const struct rg_server_options *options = &server->options;
    server->conns = calloc(options->connections_max, sizeof(*server->conns));
    if (server->conns == NULL) {
        return -ENOMEM;
    }
    int rc = rg_transport_loop_create(&server->shared.transports, server->shared.loop,
                                      options->connections_max);
    return rc < 0 ? rc : listener_adopt(server, options->listen_fd);
}

int rg_server_create(struct rg_server **out_server, struct rg_loop *loop,
                     const struct rg_server_options *options)
{
    RG_ASSERT(options->handler != NULL && options->connections_max > 0);
    RG_ASSERT(options->idle_timeout_ns > 0);
    struct rg_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return -ENOMEM;
    }
    server->options = *options;
    server->shared = (struct rg_server_shared){
        .loop = loop,
        .handler = options->handler,
        .context = options->context,
        .tls = options->tls,
        .idle_timeout_ns = options->idle_timeout_ns,
        .stall_ns = RG_MIN(options->idle_timeout_ns, RG_SERVER_STALL_NS),
        .inputs.size = RG_SERVER_INPUT_SIZE,
        .heads.size = RG_SERVER_HEAD_SIZE_MAX,
        .closed = conn_closed,
    };
    server->listener.fd = -1;
    server->finish_task.run = finish_run;
    rg_list_init(&server->free);
    rg_op_init(&server->accepting, accept_done);
    rg_alarm_init(&server->accept_alarm, accept_alarm_fire);
    int rc = server_open(server);
    if (rc < 0) {
        server_free(server);
        return rc;
    }
    accept_start(server);
    *out_server = server;
    return 0;
}

void rg_server_stats(const struct rg_server *server, struct rg_server_stats *out_stats)
{
    RG_ASSERT(out_stats != NULL);
    *out_stats = server->shared.stats;
}

void rg_server_destroy(struct rg_server *server, void (*done)(void *done_context),
                       void *done_context)
{
    RG_ASSERT(!server->closing && done != NULL);
    server->closing = true;
    server->done = done;
    server->done_context = done_context;
    rg_loop_cancel_alarm(server->shared.loop, &server->accept_alarm);
    accept_cancel(server);
    for (uint32_t i = 0; i < server->used_count; i++) {
        rg_server_conn_cut(&server->conns[i]);
    }
    closing_check(server);
}
