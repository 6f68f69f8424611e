/* Byte streams over sockets: see transport.h. One machine serves plain and TLS, client and server:
 * what differs is whether bytes pass through rg_tls on their way. */
#include "http/transport.h"

#include "http/tls_traffic.h"

#include "runtime/errors.h"
#include "runtime/log.h"
#include "runtime/tracing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BIT(state) (1u << (state))
#define CLOSED_BITS                                                                                \
    (BIT(RG_TRANSPORT_GOODBYE) | BIT(RG_TRANSPORT_CLOSING) | BIT(RG_TRANSPORT_RESETTING))

/* The name of each state, and those that may follow it. */
static const struct {
    const char *name;
    uint32_t after;
} states[] = {
    [RG_TRANSPORT_IDLE] = {"idle", BIT(RG_TRANSPORT_CONNECTING) | BIT(RG_TRANSPORT_HANDSHAKING) |
                                       BIT(RG_TRANSPORT_OPEN) | CLOSED_BITS},
    [RG_TRANSPORT_CONNECTING] = {"connecting", BIT(RG_TRANSPORT_TUNNELLING) |
                                                   BIT(RG_TRANSPORT_HANDSHAKING) |
                                                   BIT(RG_TRANSPORT_OPEN) |
                                                   BIT(RG_TRANSPORT_ENDING) | CLOSED_BITS},
    [RG_TRANSPORT_TUNNELLING] = {"tunnelling", BIT(RG_TRANSPORT_HANDSHAKING) |
                                                   BIT(RG_TRANSPORT_OPEN) |
                                                   BIT(RG_TRANSPORT_ENDING) | CLOSED_BITS},
    [RG_TRANSPORT_HANDSHAKING] = {"handshaking",
                                  BIT(RG_TRANSPORT_OPEN) | BIT(RG_TRANSPORT_ENDING) | CLOSED_BITS},
    [RG_TRANSPORT_OPEN] = {"open", BIT(RG_TRANSPORT_ENDING) | CLOSED_BITS},
    [RG_TRANSPORT_ENDING] = {"ending", BIT(RG_TRANSPORT_ENDED) | CLOSED_BITS},
    [RG_TRANSPORT_ENDED] = {"ended", CLOSED_BITS},
    [RG_TRANSPORT_GOODBYE] = {"goodbye", BIT(RG_TRANSPORT_CLOSING) | BIT(RG_TRANSPORT_RESETTING)},
    [RG_TRANSPORT_CLOSING] = {"closing", BIT(RG_TRANSPORT_RESETTING) | BIT(RG_TRANSPORT_IDLE)},
    [RG_TRANSPORT_RESETTING] = {"resetting", BIT(RG_TRANSPORT_IDLE)},
};
static_assert(RG_ARRAY_LEN(states) == RG_TRANSPORT_STATE_COUNT, "every state has a name");

static struct rg_loop *loop_of(const struct rg_transport *transport)
{
    return transport->shared->loop;
}

static bool has_ended(const struct rg_transport *transport)
{
    return transport->state == RG_TRANSPORT_ENDING || transport->state == RG_TRANSPORT_ENDED;
}

static bool is_closing(const struct rg_transport *transport)
{
    return transport->state >= RG_TRANSPORT_GOODBYE;
}

static bool invariants(const struct rg_transport *transport)
{
    bool idle = rg_op_idle(&transport->reading) && rg_op_idle(&transport->output.op);
    bool empty = idle && transport->output.state == RG_TRANSPORT_EMPTY &&
                 transport->tunnel == NULL && transport->input.stash == NULL;
    return (transport->state != RG_TRANSPORT_IDLE || empty) &&
           (transport->state != RG_TRANSPORT_TUNNELLING || transport->tunnel != NULL) &&
           (transport->state != RG_TRANSPORT_HANDSHAKING || transport->secure) &&
           (rg_op_idle(&transport->reading) || transport->input.state == RG_TRANSPORT_FLOWING);
}

/* Where those are counted that are at this state; NULL: nowhere. */
static uint32_t *opening_count(struct rg_transport *transport, enum rg_transport_state state)
{
    uint32_t *opening = transport->shared->loop->stages.opening;
    switch (state) {
    case RG_TRANSPORT_CONNECTING:
    case RG_TRANSPORT_TUNNELLING:
        return &opening[RG_OPENING_CONNECT];
    case RG_TRANSPORT_HANDSHAKING:
        return &opening[RG_OPENING_TLS];
    default:
        return NULL;
    }
}

/* Of a trace: what the connection is at. */
__attribute__((cold)) static void opening_trace(const struct rg_transport *transport,
                                                enum rg_transport_state state)
{
    static const char *const names[RG_TRANSPORT_STATE_COUNT] = {
        [RG_TRANSPORT_CONNECTING] = "connect",
        [RG_TRANSPORT_TUNNELLING] = "proxy",
        [RG_TRANSPORT_HANDSHAKING] = "tls",
        [RG_TRANSPORT_OPEN] = "open",
    };
    const struct rg_loop *loop = transport->shared->loop;
    const struct rg_trace_event event = {
        .at_ns = loop->now_ns,
        .connection = (uintptr_t)transport,
        .what = names[state] != NULL ? names[state] : "closed",
        .thread = loop->index,
    };
    rg_tracing_add(&event);
}

static void opening_note(struct rg_transport *transport, enum rg_transport_state state)
{
    uint32_t *before = opening_count(transport, transport->state);
    uint32_t *after = opening_count(transport, state);
    if (before != NULL) {
        --*before;
    }
    if (after != NULL) {
        ++*after;
    }
}

static void transport_enter(struct rg_transport *transport, enum rg_transport_state state)
{
    RG_ASSERT(states[transport->state].after & BIT(state));
    rg_log(RG_LOG_DEBUG, "transport of descriptor %d: %s -> %s (TLS: %s)", transport->socket.fd,
           states[transport->state].name, states[state].name, rg_tls_state_name(&transport->tls));
    opening_note(transport, state);
    if (rg_tracing_is_on()) {
        opening_trace(transport, state);
    }
    transport->state = (uint8_t)state;
    RG_VERIFY(invariants(transport));
}

static void transport_fail(struct rg_transport *transport, enum rg_status status, int os_error,
                           const char *text)
{
    if (!has_ended(transport)) {
        transport_enter(transport, RG_TRANSPORT_ENDING);
        transport->failure =
            (struct rg_transport_failure){.status = status, .os_error = os_error, .text = text};
    }
}

static void transport_fail_memory(struct rg_transport *transport)
{
    transport_fail(transport, RG_STATUS_NO_RESOURCES, ENOMEM, NULL);
}

static void transport_fail_tls(struct rg_transport *transport)
{
    enum rg_status status = rg_tls_failure_status(transport->tls.failure);
    if (transport->state == RG_TRANSPORT_OPEN &&
        (status == RG_STATUS_TLS_PROTOCOL || status == RG_STATUS_CONNECT)) {
        /* The handshake succeeded. An alert or garbage behind it means that something broke on the
         * way. */
        status = RG_STATUS_CONNECTION_LOST;
    }
    transport_fail(transport, status, 0, rg_tls_failure_text(&transport->tls));
}

/* Tells the owner of an end that it has not been told of. From the loop's own calls only. */
static void tell_ended(struct rg_transport *transport)
{
    if (transport->state == RG_TRANSPORT_ENDING) {
        transport_enter(transport, RG_TRANSPORT_ENDED);
        transport->owner->on_ended(transport);
    }
}

static void receive_start(struct rg_transport *transport)
{
    if (transport->state != RG_TRANSPORT_OPEN && transport->state != RG_TRANSPORT_HANDSHAKING &&
        transport->state != RG_TRANSPORT_TUNNELLING) {
        return;
    }
    if (transport->input.state != RG_TRANSPORT_FLOWING || !rg_op_idle(&transport->reading)) {
        return;
    }
    if (transport->direct != NULL) {
        uint8_t *direct = transport->direct;
        transport->direct = NULL;
        rg_op_recv_into(loop_of(transport), &transport->reading, &transport->socket, direct,
                        transport->direct_size);
        return;
    }
    rg_op_recv(loop_of(transport), &transport->reading, &transport->socket, transport->receive_max);
}

/* Sends what TLS said while it read. */
static void reply_send(struct rg_transport *transport, const struct rg_tls_out *reply)
{
    if (RG_LIKELY(!rg_transport_output_grew(&transport->output, reply))) {
        return;
    }
    if (rg_transport_output_take(&transport->output, reply) < 0) {
        transport_fail_memory(transport);
        return;
    }
    rg_transport_flush(transport);
}

/* Sends what TLS held for want of room, in a buffer of its own: tickets may lie in front of a key
 * update. True: something is on its way, and what found no room there follows it. */
static bool held_send(struct rg_transport *transport)
{
    if (!transport->secure || transport->state != RG_TRANSPORT_OPEN ||
        !rg_tls_holds(&transport->tls)) {
        return false;
    }
    if (!rg_transport_output_reserve(&transport->output, false)) {
        transport_fail_memory(transport);
        return false;
    }
    struct rg_tls_out out = rg_transport_output_place(&transport->output);
    int rc = rg_tls_flush(&transport->tls, &out);
    RG_ASSERT(rc == 0 || rc == -ENOBUFS || rc == -EPROTO);
    if (rc == -EPROTO) {
        transport_fail_tls(transport);
    }
    (void)rg_transport_output_take(&transport->output, &out);
    rg_transport_flush(transport);
    return rc != -EPROTO && rg_transport_sending(transport);
}

/* Sends what a step of a handshake has said. False: that has failed. */
static bool answer_flush(struct rg_transport *transport, const struct rg_tls_out *out, int rc)
{
    uint8_t state = transport->state;
    (void)rg_transport_output_take(&transport->output, out);
    rg_transport_flush(transport);
    if ((rc == -ENOBUFS) != (transport->input.state == RG_TRANSPORT_BLOCKED)) {
        rg_transport_input_enter(&transport->input,
                                 rc == -ENOBUFS ? RG_TRANSPORT_BLOCKED : RG_TRANSPORT_FLOWING);
    }
    return transport->state == state;
}

static void open_tell(struct rg_transport *transport)
{
    transport_enter(transport, RG_TRANSPORT_OPEN);
    transport->owner->on_ready(transport);
}

static void handshake_step(struct rg_transport *transport)
{
    if (!rg_transport_output_reserve(&transport->output, false)) {
        transport_fail_memory(transport);
        return;
    }
    struct rg_tls_out out = rg_transport_output_place(&transport->output);
    int rc = rg_tls_handshake(&transport->tls, &transport->input.in, &out);
    if (answer_flush(transport, &out, rc) && rc == 0) {
        open_tell(transport);
    } else if (rc == -EPROTO) {
        transport_fail_tls(transport);
    }
}

static void transport_fail_tunnel(struct rg_transport *transport)
{
    const struct rg_tunnel *tunnel = transport->tunnel;
    transport_fail(transport, tunnel->status, 0, tunnel->text);
    transport->failure.final = tunnel->final;
}

/* Bytes now flow between us and the peer itself. */
static void peer_reached(struct rg_transport *transport)
{
    transport->reached_ns = transport->shared->loop->now_ns;
    if (transport->secure) {
        transport_enter(transport, RG_TRANSPORT_HANDSHAKING);
        handshake_step(transport);
    } else {
        open_tell(transport);
    }
}

static void tunnel_step(struct rg_transport *transport)
{
    if (!rg_transport_output_reserve(&transport->output, false)) {
        transport_fail_memory(transport);
        return;
    }
    struct rg_tls_out out = rg_transport_output_place(&transport->output);
    int rc = rg_tunnel_step(transport->tunnel, &transport->input.in, &out);
    if (answer_flush(transport, &out, rc) && rc == 0) {
        peer_reached(transport);
    } else if (rc == -ECONNABORTED) {
        transport_fail_tunnel(transport);
    }
}

static void delivery_end(struct rg_transport *transport)
{
    if (transport->input.state == RG_TRANSPORT_DELIVERING) {
        rg_transport_input_enter(&transport->input, RG_TRANSPORT_FLOWING);
    }
}

/* Gives what has come to the handshake or the owner, and arranges for what comes next. */
static void data_deliver(struct rg_transport *transport)
{
    if (transport->state == RG_TRANSPORT_TUNNELLING) {
        tunnel_step(transport);
    }
    if (transport->state == RG_TRANSPORT_HANDSHAKING) {
        handshake_step(transport);
    }
    if (transport->state == RG_TRANSPORT_OPEN) {
        rg_transport_input_enter(&transport->input, RG_TRANSPORT_DELIVERING);
        transport->owner->on_data(transport);
        delivery_end(transport);
    }
    RG_ASSERT(transport->input.in.size == 0 || transport->input.state != RG_TRANSPORT_FLOWING ||
              transport->state != RG_TRANSPORT_OPEN);
    if (rg_transport_input_end(&transport->input) < 0 && !is_closing(transport)) {
        transport_fail_memory(transport);
    }
    tell_ended(transport);
    receive_start(transport);
    RG_VERIFY(invariants(transport));
}

static void peer_ended(struct rg_transport *transport)
{
    if (transport->state == RG_TRANSPORT_TUNNELLING) {
        rg_tunnel_ended(transport->tunnel);
        transport_fail_tunnel(transport);
    } else if (transport->state == RG_TRANSPORT_HANDSHAKING) {
        transport_fail(transport, RG_STATUS_CONNECTION_LOST, 0,
                       "the peer closed the connection during the TLS handshake");
    } else if (transport->secure) {
        /* Without close_notify anybody on the path could have cut the stream (RFC 8446 6.1). */
        transport_fail(transport, RG_STATUS_CONNECTION_LOST, 0,
                       "the peer closed the connection without close_notify");
    } else {
        transport_fail(transport, RG_STATUS_OK, 0, NULL);
    }
}

/* Takes the TLS with the proxy off what has come. False: the connection has ended. */
static bool input_unwrap(struct rg_transport *transport)
{
    uint8_t *plain = rg_transport_loop_unwrapped(transport->shared);
    if (plain == NULL) {
        transport->input.in = (struct rg_tls_in){0};
        transport_fail_memory(transport);
        return false;
    }
    int rc = rg_tunnel_unwrap(transport->tunnel, &transport->input.in, plain,
                              RG_TRANSPORT_UNWRAPPED_SIZE);
    if (rc == 0) {
        return true;
    }
    transport->input.in = (struct rg_tls_in){0};
    if (rc == -ENODATA) {
        peer_ended(transport);
    } else {
        transport_fail_tunnel(transport);
    }
    return false;
}

/* True where TLS with the proxy lies around what is received and sent. */
static bool is_wrapped(const struct rg_transport *transport)
{
    return transport->tunnel != NULL && rg_tunnel_wraps(transport->tunnel);
}

static void reading_done(struct rg_op *op)
{
    struct rg_transport *transport = RG_CONTAINER_OF(op, struct rg_transport, reading);
    if (is_closing(transport)) {
        rg_loop_defer(loop_of(transport), &transport->task);
        return;
    }
    if (has_ended(transport)) {
        return;
    }
    if (op->result < 0) {
        transport_fail(transport, rg_errors_status(RG_ERRORS_RECEIVE, -op->result), -op->result,
                       NULL);
    } else if (op->result == 0) {
        peer_ended(transport);
    } else if (op->kind == RG_OP_RECV_INTO) {
        rg_transport_input_enter(&transport->input, RG_TRANSPORT_DELIVERING);
        transport->owner->on_direct(transport, (size_t)op->result);
        delivery_end(transport);
        receive_start(transport);
    } else {
        RG_ASSERT(transport->input.in.size == 0);
        transport->input.in = (struct rg_tls_in){op->data, (size_t)op->result};
        if (!is_wrapped(transport) || input_unwrap(transport)) {
            data_deliver(transport);
            return;
        }
    }
    tell_ended(transport);
}

static void connect_done(struct rg_transport *transport, int32_t result)
{
    if (result < 0) {
        const char *via = transport->tunnel != NULL ? transport->tunnel->route->proxy->via : NULL;
        transport_fail(transport, rg_errors_status(RG_ERRORS_CONNECT, -result), -result, via);
        tell_ended(transport);
        return;
    }
    if (transport->tunnel != NULL) {
        transport_enter(transport, RG_TRANSPORT_TUNNELLING);
        tunnel_step(transport);
    } else {
        peer_reached(transport);
    }
    tell_ended(transport);
    receive_start(transport);
}

static void send_done(struct rg_transport *transport, int32_t result)
{
    if (transport->output.state == RG_TRANSPORT_FAILED) {
        transport_fail(transport, rg_errors_status(RG_ERRORS_SEND, -result), -result, NULL);
        tell_ended(transport);
        return;
    }
    if (transport->output.state == RG_TRANSPORT_FILLING) {
        rg_transport_flush(transport);
        return;
    }
    if (held_send(transport)) {
        return;
    }
    if (transport->state == RG_TRANSPORT_OPEN) {
        transport->owner->on_sent(transport);
    } else if (transport->input.state == RG_TRANSPORT_BLOCKED) {
        /* The handshake has more to say than fitted the buffer. */
        data_deliver(transport);
    }
    tell_ended(transport);
}

static void closing_proceed(struct rg_transport *transport)
{
    /* Shutting down sends FIN, which the peer would see before the RST and take for an end. */
    if (transport->state != RG_TRANSPORT_RESETTING) {
        rg_socket_shutdown(loop_of(transport), &transport->socket);
    }
    rg_op_cancel(loop_of(transport), &transport->reading);
    rg_op_cancel(loop_of(transport), &transport->output.op);
    rg_loop_defer(loop_of(transport), &transport->task);
}

static void writing_done(struct rg_op *op)
{
    struct rg_transport *transport = RG_CONTAINER_OF(op, struct rg_transport, output.op);
    if (op->kind == RG_OP_SEND) {
        rg_transport_output_done(&transport->output, transport->tunnel);
    }
    if (is_closing(transport)) {
        if (transport->state == RG_TRANSPORT_GOODBYE) {
            transport_enter(transport, RG_TRANSPORT_CLOSING);
        }
        closing_proceed(transport);
    } else if (has_ended(transport)) {
        return;
    } else if (op->kind == RG_OP_CONNECT) {
        connect_done(transport, op->result);
    } else {
        send_done(transport, op->result);
    }
}

static void closing_finish(struct rg_transport *transport)
{
    RG_ASSERT(rg_op_idle(&transport->reading) && rg_op_idle(&transport->output.op));
    bool reset = transport->state == RG_TRANSPORT_RESETTING;
    if (transport->secure) {
        rg_tls_fini(&transport->tls);
    }
    rg_socket_close(loop_of(transport), &transport->socket, reset);
    rg_tunnel_destroy(transport->tunnel);
    transport->tunnel = NULL;
    rg_transport_input_drop(&transport->input);
    rg_transport_output_drop(&transport->output);
    transport_enter(transport, RG_TRANSPORT_IDLE);
    transport->owner->on_closed(transport);
}

static void task_run(struct rg_task *task)
{
    struct rg_transport *transport = RG_CONTAINER_OF(task, struct rg_transport, task);
    if (is_closing(transport)) {
        if (rg_op_idle(&transport->reading) && rg_op_idle(&transport->output.op)) {
            closing_finish(transport);
        } else if (transport->state == RG_TRANSPORT_RESETTING) {
            /* An op that was ready when it was cancelled may wait once more, as nothing was shut
             * down. */
            closing_proceed(transport);
        }
    } else if (transport->state == RG_TRANSPORT_OPEN &&
               transport->input.state == RG_TRANSPORT_RESUMING) {
        data_deliver(transport);
    } else {
        tell_ended(transport);
    }
}

void rg_transport_init(struct rg_transport *transport, struct rg_transport_loop *shared,
                       const struct rg_transport_owner *owner)
{
    RG_ASSERT(owner->on_closed != NULL && owner->on_ended != NULL);
    *transport = (struct rg_transport){
        .shared = shared,
        .owner = owner,
        .socket = {.fd = -1},
        .receive_max = RG_RECV_SIZE_MAX,
        .task.run = task_run,
    };
    rg_op_init(&transport->reading, reading_done);
    rg_transport_output_init(&transport->output, shared, &transport->socket, writing_done);
}

/* Undoes the beginning of rg_transport_connect and rg_transport_accept; returns rc. */
static int open_failed(struct rg_transport *transport, int rc)
{
    if (transport->secure) {
        rg_tls_fini(&transport->tls);
    }
    rg_tunnel_destroy(transport->tunnel);
    transport->tunnel = NULL;
    return rc;
}

static int socket_open(struct rg_transport *transport, const struct rg_transport_target *target)
{
    sa_family_t family = target->address->sa_family;
    int rc = rg_socket_open(loop_of(transport), &transport->socket, family);
    if (rc < 0 || target->local == NULL) {
        return rc;
    }
    rc = rg_fd_bind(transport->socket.fd, family, target->local);
    if (rc < 0) {
        rg_socket_close(loop_of(transport), &transport->socket, false);
    }
    return rc;
}

int rg_transport_connect(struct rg_transport *transport, const struct rg_transport_target *target)
{
    RG_ASSERT(transport->state == RG_TRANSPORT_IDLE);
    struct rg_tls_loop *tls = &transport->shared->tls;
    transport->secure = target->peer != NULL;
    if (transport->secure) {
        int rc = rg_tls_init_client(&transport->tls, tls, target->peer);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = 0;
    if (target->route != NULL) {
        rc = rg_tunnel_create(&transport->tunnel, target->route, tls);
    }
    if (rc == 0) {
        rc = socket_open(transport, target);
    }
    if (rc < 0) {
        return open_failed(transport, rc);
    }
    transport_enter(transport, RG_TRANSPORT_CONNECTING);
    rg_op_connect(loop_of(transport), &transport->output.op, &transport->socket, target->address,
                  target->address_size);
    return 0;
}

int rg_transport_accept(struct rg_transport *transport, int fd, struct rg_tls_context *tls)
{
    RG_ASSERT(transport->state == RG_TRANSPORT_IDLE);
    transport->secure = tls != NULL;
    if (transport->secure) {
        int rc = rg_tls_init_server(&transport->tls, &transport->shared->tls, tls);
        if (rc < 0) {
            return rc;
        }
    }
    int rc = rg_socket_adopt(loop_of(transport), &transport->socket, fd);
    if (rc < 0) {
        return open_failed(transport, rc);
    }
    transport_enter(transport, transport->secure ? RG_TRANSPORT_HANDSHAKING : RG_TRANSPORT_OPEN);
    receive_start(transport);
    return 0;
}

ssize_t rg_transport_read(struct rg_transport *transport, uint8_t *dest, size_t room)
{
    RG_ASSERT(transport->input.state == RG_TRANSPORT_DELIVERING && room > 0);
    if (transport->state != RG_TRANSPORT_OPEN) {
        return -ENOTCONN;
    }
    if (!transport->secure) {
        size_t size = rg_transport_input_take(&transport->input, dest, room);
        return size > 0 ? (ssize_t)size : -EAGAIN;
    }
    struct rg_tls_out reply = rg_transport_output_place(&transport->output);
    ssize_t got = rg_tls_open(&transport->tls, &transport->input.in, dest, room, &reply);
    reply_send(transport, &reply);
    if (got > 0 || got == -ENOSPC) {
        return got;
    }
    if (got == 0) {
        return -EAGAIN;
    }
    if (got == -ENODATA) {
        transport_fail(transport, RG_STATUS_OK, 0, NULL);
    } else {
        transport_fail_tls(transport);
    }
    transport->input.in.size = 0;
    return got;
}

bool rg_transport_has_input(const struct rg_transport *transport)
{
    return transport->input.in.size > 0;
}

void rg_transport_receive_into(struct rg_transport *transport, uint8_t *dest, size_t size)
{
    RG_ASSERT(!transport->secure && transport->input.state == RG_TRANSPORT_DELIVERING);
    RG_ASSERT(transport->input.in.size == 0 && size > 0);
    transport->direct = dest;
    transport->direct_size = size;
}

void rg_transport_pause(struct rg_transport *transport)
{
    rg_transport_input_enter(&transport->input, RG_TRANSPORT_PAUSED);
}

void rg_transport_resume(struct rg_transport *transport)
{
    if (transport->input.state == RG_TRANSPORT_PAUSED) {
        rg_transport_input_enter(&transport->input, RG_TRANSPORT_RESUMING);
        rg_loop_defer(loop_of(transport), &transport->task);
    }
}

/* The owner itself may have called, to write or to flush: the task tells it of the failure. */
static void tell_later(struct rg_transport *transport)
{
    RG_ASSERT(has_ended(transport));
    rg_loop_defer(loop_of(transport), &transport->task);
}

ssize_t rg_transport_write(struct rg_transport *transport, const void *data, size_t size,
                           bool large)
{
    if (transport->state != RG_TRANSPORT_OPEN) {
        return -ENOTCONN;
    }
    ssize_t taken = rg_transport_output_write(
        &transport->output, transport->secure ? &transport->tls : NULL, data, size, large);
    if (taken == -ENOMEM) {
        transport_fail_memory(transport);
        tell_later(transport);
    } else if (taken < 0) {
        transport_fail_tls(transport);
        tell_later(transport);
    }
    return taken;
}

static void flushed(struct rg_transport *transport, int rc)
{
    if (RG_LIKELY(rc == 0) || is_closing(transport)) {
        return;
    }
    if (rc == -ENOMEM) {
        transport_fail_memory(transport);
    } else {
        transport_fail_tunnel(transport);
    }
    tell_later(transport);
}

void rg_transport_flush(struct rg_transport *transport)
{
    flushed(transport, rg_transport_output_flush(&transport->output, transport->tunnel));
}

void rg_transport_flush_more(struct rg_transport *transport)
{
    flushed(transport, rg_transport_output_flush_more(&transport->output, transport->tunnel));
}

void rg_transport_send_from(struct rg_transport *transport, const void *data, size_t size)
{
    RG_ASSERT(!transport->secure && transport->state == RG_TRANSPORT_OPEN);
    rg_transport_output_lend(&transport->output, data, size);
}

bool rg_transport_sending(const struct rg_transport *transport)
{
    return transport->output.state != RG_TRANSPORT_EMPTY;
}

void rg_transport_progress(const struct rg_transport *transport,
                           struct rg_socket_output *out_output)
{
    rg_socket_output(loop_of(transport), &transport->socket, out_output);
}

bool rg_transport_borrows(const struct rg_transport *transport)
{
    bool reads = !rg_op_idle(&transport->reading) && transport->reading.kind == RG_OP_RECV_INTO;
    return reads || transport->output.state == RG_TRANSPORT_LENDING;
}

/* True if a last word to the peer is on its way, which closing waits for: close_notify, or the
 * alert that says why a handshake failed. It waits for ever where the peer does not read: the owner
 * bounds that time, and closes again with `reset`. */
static bool goodbye_begin(struct rg_transport *transport)
{
    if (!transport->secure) {
        return false;
    }
    if (has_ended(transport) && !rg_tls_established(&transport->tls)) {
        return transport->output.state == RG_TRANSPORT_SENDING;
    }
    if (transport->state != RG_TRANSPORT_OPEN || rg_transport_sending(transport)) {
        return false;
    }
    struct rg_tls_out reply = rg_transport_output_place(&transport->output);
    (void)rg_tls_close_notify(&transport->tls, &reply);
    reply_send(transport, &reply);
    return rg_transport_sending(transport);
}

void rg_transport_close(struct rg_transport *transport, bool reset)
{
    if (is_closing(transport)) {
        if (reset) {
            /* The owner has waited long enough for the last word to be taken. */
            if (transport->state != RG_TRANSPORT_RESETTING) {
                transport_enter(transport, RG_TRANSPORT_RESETTING);
            }
            closing_proceed(transport);
        }
        return;
    }
    transport->direct = NULL;
    if (!reset && goodbye_begin(transport)) {
        transport_enter(transport, RG_TRANSPORT_GOODBYE);
        return;
    }
    transport_enter(transport, reset ? RG_TRANSPORT_RESETTING : RG_TRANSPORT_CLOSING);
    closing_proceed(transport);
}
