/* Byte streams over sockets: see transport.h. One machine serves plain and TLS, client and server:
 * what differs is whether bytes pass through rg_tls on their way. */
#include "http/transport.h"

#include "http/tls_traffic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What TLS may have to say while we only read: an alert, or the answer to a key update. */
#define REPLY_SIZE_MAX 512
/* Up to here a small buffer takes all of what is sent to a proxy inside its TLS. */
#define WRAPPED_SMALL_MAX RG_KIB(16)
/* What one receive holds after a layer of TLS was taken off: a record may have begun earlier. */
#define UNWRAPPED_SIZE (RG_RECV_SIZE_MAX + RG_TLS_PLAIN_MAX)

struct rg_transport_loop {
    struct rg_loop *loop;
    struct rg_tls_loop tls;
    struct rg_send_buffers buffers;
    uint8_t *
        unwrapped; /* UNWRAPPED_SIZE bytes, from the first time on; valid as what was received is */
    uint8_t reply[REPLY_SIZE_MAX];
};

int rg_transport_loop_create(struct rg_transport_loop **out_shared, struct rg_loop *loop,
                             uint32_t connections_max)
{
    RG_ASSERT(loop != NULL);
    struct rg_transport_loop *shared = calloc(1, sizeof(*shared));
    if (shared == NULL) {
        return -ENOMEM;
    }
    shared->loop = loop;
    int rc = rg_tls_loop_init(&shared->tls, connections_max);
    if (rc < 0) {
        free(shared);
        return rc;
    }
    *out_shared = shared;
    return 0;
}

void rg_transport_loop_destroy(struct rg_transport_loop *shared)
{
    if (shared == NULL) {
        return;
    }
    rg_send_buffers_fini(&shared->buffers);
    free(shared->unwrapped);
    rg_tls_loop_fini(&shared->tls);
    free(shared);
}

void rg_transport_loop_memory(const struct rg_transport_loop *shared,
                              struct rg_transport_memory *out_memory)
{
    *out_memory = (struct rg_transport_memory){
        .lent_bytes = shared->buffers.lent_bytes,
        .kept_bytes = shared->buffers.kept_bytes,
        .shared_bytes = shared->unwrapped != NULL ? UNWRAPPED_SIZE : 0,
    };
}

static void buffer_return(struct rg_transport *transport)
{
    rg_send_buffer_return(&transport->shared->buffers, transport->buffer);
    transport->buffer = NULL;
}

static void wire_return(struct rg_transport *transport)
{
    rg_send_buffer_return(&transport->shared->buffers, transport->wire);
    transport->wire = NULL;
}

/* The transport's buffer, borrowed if it has none; NULL: no memory. */
static struct rg_send_buffer *buffer_get(struct rg_transport *transport, bool large)
{
    if (transport->buffer == NULL) {
        transport->buffer = rg_send_buffer_borrow(&transport->shared->buffers, large);
    }
    return transport->buffer;
}

static struct rg_loop *loop_of(const struct rg_transport *transport)
{
    return transport->shared->loop;
}

static void transport_fail(struct rg_transport *transport, enum rg_status status, int os_error,
                           const char *text)
{
    RG_ASSERT(transport->state != RG_TRANSPORT_CLOSING);
    if (transport->state != RG_TRANSPORT_ENDED) {
        transport->state = RG_TRANSPORT_ENDED;
        transport->failure =
            (struct rg_transport_failure){.status = status, .os_error = os_error, .text = text};
        transport->tell_ended = true;
    }
}

static void transport_fail_tls(struct rg_transport *transport)
{
    enum rg_status status = rg_tls_failure_status(transport->tls.failure);
    if (transport->told_ready &&
        (status == RG_STATUS_TLS_PROTOCOL || status == RG_STATUS_CONNECT)) {
        /* The peers did agree: an alert or garbage behind the handshake says that something broke.
         */
        status = RG_STATUS_CONNECTION_LOST;
    }
    transport_fail(transport, status, 0, rg_tls_failure_text(&transport->tls));
}

/* Tells the owner of an end that came up, from the loop's own calls only. */
static void tell_ended(struct rg_transport *transport)
{
    if (transport->tell_ended && transport->state == RG_TRANSPORT_ENDED) {
        transport->tell_ended = false;
        transport->owner->on_ended(transport);
    }
}

static void receive_start(struct rg_transport *transport)
{
    if (transport->state != RG_TRANSPORT_OPEN && transport->state != RG_TRANSPORT_HANDSHAKING &&
        transport->state != RG_TRANSPORT_TUNNELLING) {
        return;
    }
    if (transport->paused || transport->blocked || !rg_op_idle(&transport->reading)) {
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

/* Where TLS puts what it has to say while it reads: behind what waits to be sent, because it was
 * sealed after that. What finds no room there, TLS holds until there is some. */
static struct rg_tls_out reply_begin(const struct rg_transport *transport)
{
    struct rg_send_buffer *buffer = transport->buffer;
    if (buffer == NULL) {
        return (struct rg_tls_out){transport->shared->reply, 0, REPLY_SIZE_MAX};
    }
    return (struct rg_tls_out){buffer->data, buffer->size, buffer->capacity};
}

static void reply_end(struct rg_transport *transport, const struct rg_tls_out *reply)
{
    size_t before = transport->buffer != NULL ? transport->buffer->size : 0;
    if (RG_LIKELY(reply->size == before)) {
        return;
    }
    if (transport->buffer == NULL) {
        struct rg_send_buffer *buffer = buffer_get(transport, false);
        if (buffer == NULL) {
            transport_fail(transport, RG_STATUS_NO_RESOURCES, ENOMEM, NULL);
            return;
        }
        memcpy(buffer->data, reply->data, reply->size);
    }
    transport->buffer->size = reply->size;
    rg_transport_flush(transport);
}

/* Sends what TLS held for want of room. True: something is on its way. */
static bool held_send(struct rg_transport *transport)
{
    if (!transport->secure || transport->state != RG_TRANSPORT_OPEN ||
        !rg_tls_holds(&transport->tls)) {
        return false;
    }
    struct rg_tls_out out = reply_begin(transport);
    int rc = rg_tls_flush(&transport->tls, &out);
    reply_end(transport, &out);
    RG_ASSERT(rc == 0 || rc == -EPROTO);
    return rg_transport_sending(transport);
}

/* Sends what a step of a handshake has said. False: the transport has failed. */
static bool answer_flush(struct rg_transport *transport, const struct rg_tls_out *out, int rc)
{
    struct rg_send_buffer *buffer = transport->buffer;
    uint8_t state = transport->state;
    buffer->size = out->size;
    if (buffer->size == 0) {
        buffer_return(transport);
    }
    rg_transport_flush(transport);
    transport->blocked = rc == -ENOBUFS;
    return transport->state == state;
}

static void handshake_step(struct rg_transport *transport)
{
    struct rg_send_buffer *buffer = buffer_get(transport, false);
    if (buffer == NULL) {
        transport_fail(transport, RG_STATUS_NO_RESOURCES, ENOMEM, NULL);
        return;
    }
    struct rg_tls_out out = {buffer->data, buffer->size, buffer->capacity};
    int rc = rg_tls_handshake(&transport->tls, &transport->in, &out);
    if (answer_flush(transport, &out, rc) && rc == 0) {
        transport->state = RG_TRANSPORT_OPEN;
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

/* The bytes flow to whom they are for, at last. */
static void tunnel_open(struct rg_transport *transport)
{
    transport->state = transport->secure ? RG_TRANSPORT_HANDSHAKING : RG_TRANSPORT_OPEN;
    if (transport->secure) {
        handshake_step(transport);
    }
}

static void tunnel_step(struct rg_transport *transport)
{
    struct rg_send_buffer *buffer = buffer_get(transport, false);
    if (buffer == NULL) {
        transport_fail(transport, RG_STATUS_NO_RESOURCES, ENOMEM, NULL);
        return;
    }
    struct rg_tls_out out = {buffer->data, buffer->size, buffer->capacity};
    int rc = rg_tunnel_step(transport->tunnel, &transport->in, &out);
    if (answer_flush(transport, &out, rc) && rc == 0) {
        tunnel_open(transport);
    } else if (rc == -ECONNABORTED) {
        transport_fail_tunnel(transport);
    }
}

/* True for what is received and sent inside TLS with a proxy. */
static bool is_wrapped(const struct rg_transport *transport)
{
    return transport->tunnel != NULL && transport->tunnel->secure &&
           transport->tunnel->state == RG_TUNNEL_OPEN;
}

static void open_tell(struct rg_transport *transport)
{
    if (transport->state == RG_TRANSPORT_OPEN && !transport->told_ready) {
        transport->told_ready = true;
        transport->owner->on_ready(transport);
    }
}

/* Keeps the unread rest of the shared buffer, which is the loop's again when we return. */
static void input_stash(struct rg_transport *transport)
{
    if (transport->in.size == 0 || transport->stash != NULL) {
        return;
    }
    uint8_t *stash = malloc(transport->in.size);
    if (stash == NULL) {
        transport_fail(transport, RG_STATUS_NO_RESOURCES, ENOMEM, NULL);
        return;
    }
    memcpy(stash, transport->in.data, transport->in.size);
    transport->in.data = stash;
    transport->stash = stash;
}

static void input_drop(struct rg_transport *transport)
{
    free(transport->stash);
    transport->stash = NULL;
    transport->in = (struct rg_tls_in){0};
}

/* Gives the owner what is in transport->in, and arranges for what comes next. */
static void data_deliver(struct rg_transport *transport)
{
    if (transport->state == RG_TRANSPORT_TUNNELLING) {
        tunnel_step(transport);
        open_tell(transport);
    }
    if (transport->state == RG_TRANSPORT_HANDSHAKING) {
        handshake_step(transport);
        open_tell(transport);
    }
    if (transport->state == RG_TRANSPORT_OPEN && !transport->paused) {
        transport->in_data = true;
        transport->owner->on_data(transport);
        transport->in_data = false;
    }
    if (transport->paused || transport->blocked) {
        input_stash(transport);
    } else {
        RG_ASSERT(transport->in.size == 0 || transport->state != RG_TRANSPORT_OPEN);
        input_drop(transport);
    }
    tell_ended(transport);
    receive_start(transport);
}

static void peer_ended(struct rg_transport *transport)
{
    if (transport->state == RG_TRANSPORT_TUNNELLING) {
        rg_tunnel_ended(transport->tunnel);
        transport_fail_tunnel(transport);
    } else if (!transport->told_ready) {
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

/* False: the connection has ended. */
static bool input_unwrap(struct rg_transport *transport)
{
    struct rg_transport_loop *shared = transport->shared;
    if (shared->unwrapped == NULL) {
        shared->unwrapped = malloc(UNWRAPPED_SIZE);
    }
    if (shared->unwrapped == NULL) {
        transport->in = (struct rg_tls_in){0};
        transport_fail(transport, RG_STATUS_NO_RESOURCES, ENOMEM, NULL);
        return false;
    }
    int rc = rg_tunnel_unwrap(transport->tunnel, &transport->in, shared->unwrapped, UNWRAPPED_SIZE);
    if (rc == 0) {
        return true;
    }
    transport->in = (struct rg_tls_in){0};
    if (rc == -ENODATA) {
        peer_ended(transport);
    } else {
        transport_fail_tunnel(transport);
    }
    return false;
}

static void reading_done(struct rg_op *op)
{
    struct rg_transport *transport = RG_CONTAINER_OF(op, struct rg_transport, reading);
    if (transport->state == RG_TRANSPORT_CLOSING) {
        rg_loop_defer(loop_of(transport), &transport->task);
        return;
    }
    if (transport->state == RG_TRANSPORT_ENDED) {
        return;
    }
    if (op->result < 0) {
        transport_fail(transport, RG_STATUS_CONNECTION_LOST, -op->result, NULL);
    } else if (op->result == 0) {
        peer_ended(transport);
    } else if (op->kind == RG_OP_RECV_INTO) {
        transport->in_data = true;
        transport->owner->on_direct(transport, (size_t)op->result);
        transport->in_data = false;
        receive_start(transport);
    } else {
        RG_ASSERT(transport->in.size == 0);
        transport->in = (struct rg_tls_in){op->data, (size_t)op->result};
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
        transport_fail(transport, RG_STATUS_CONNECT, -result, via);
        tell_ended(transport);
        return;
    }
    if (transport->tunnel != NULL) {
        transport->state = RG_TRANSPORT_TUNNELLING;
        tunnel_step(transport);
        tell_ended(transport);
        receive_start(transport);
        return;
    }
    transport->state = transport->secure ? RG_TRANSPORT_HANDSHAKING : RG_TRANSPORT_OPEN;
    if (transport->secure) {
        handshake_step(transport);
    }
    open_tell(transport);
    tell_ended(transport);
    receive_start(transport);
}

static void send_done(struct rg_transport *transport, int32_t result)
{
    if (result < 0) {
        transport_fail(transport, RG_STATUS_CONNECTION_LOST, -result, NULL);
        tell_ended(transport);
        return;
    }
    struct rg_send_buffer *buffer = transport->buffer;
    transport->direct_source = NULL;
    if (transport->wire != NULL) {
        RG_ASSERT(buffer != NULL && (size_t)result == transport->wire->size);
        result = (int32_t)buffer->sending;
        wire_return(transport);
    }
    if (buffer != NULL) {
        RG_ASSERT((size_t)result >= buffer->sending);
        buffer->size -= buffer->sending;
        memmove(buffer->data, buffer->data + buffer->sending, buffer->size);
        buffer->sending = 0;
        if (buffer->size > 0) {
            rg_transport_flush(transport);
            return;
        }
        buffer_return(transport);
    }
    if (held_send(transport)) {
        return;
    }
    if (transport->state == RG_TRANSPORT_OPEN) {
        transport->owner->on_sent(transport);
    } else if (transport->blocked) {
        /* There is more to say than fitted the buffer. */
        data_deliver(transport);
    }
}

static void closing_proceed(struct rg_transport *transport)
{
    /* Shutting down sends FIN, which the peer would see before the RST and take for an end. */
    if (!transport->reset) {
        rg_socket_shutdown(loop_of(transport), &transport->socket);
    }
    rg_op_cancel(loop_of(transport), &transport->reading);
    rg_op_cancel(loop_of(transport), &transport->writing);
    rg_loop_defer(loop_of(transport), &transport->task);
}

static void writing_done(struct rg_op *op)
{
    struct rg_transport *transport = RG_CONTAINER_OF(op, struct rg_transport, writing);
    if (transport->state == RG_TRANSPORT_CLOSING) {
        closing_proceed(transport);
    } else if (transport->state == RG_TRANSPORT_ENDED) {
        return;
    } else if (op->kind == RG_OP_CONNECT) {
        connect_done(transport, op->result);
    } else {
        send_done(transport, op->result);
    }
}

static void closing_finish(struct rg_transport *transport)
{
    RG_ASSERT(rg_op_idle(&transport->reading) && rg_op_idle(&transport->writing));
    if (transport->secure) {
        rg_tls_fini(&transport->tls);
    }
    rg_socket_close(loop_of(transport), &transport->socket, transport->reset);
    rg_tunnel_destroy(transport->tunnel);
    transport->tunnel = NULL;
    input_drop(transport);
    buffer_return(transport);
    wire_return(transport);
    transport->state = RG_TRANSPORT_IDLE;
    transport->owner->on_closed(transport);
}

static void task_run(struct rg_task *task)
{
    struct rg_transport *transport = RG_CONTAINER_OF(task, struct rg_transport, task);
    if (transport->state == RG_TRANSPORT_CLOSING) {
        if (rg_op_idle(&transport->reading) && rg_op_idle(&transport->writing)) {
            closing_finish(transport);
        } else if (transport->reset) {
            /* An op that was ready when it was cancelled may wait once more, as nothing was shut
             * down. */
            closing_proceed(transport);
        }
        return;
    }
    if (transport->tell_data) {
        transport->tell_data = false;
        data_deliver(transport);
        return;
    }
    tell_ended(transport);
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
    rg_op_init(&transport->writing, writing_done);
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
    transport->state = RG_TRANSPORT_CONNECTING;
    rg_op_connect(loop_of(transport), &transport->writing, &transport->socket, target->address,
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
    transport->state = transport->secure ? RG_TRANSPORT_HANDSHAKING : RG_TRANSPORT_OPEN;
    transport->told_ready = !transport->secure;
    receive_start(transport);
    return 0;
}

ssize_t rg_transport_read(struct rg_transport *transport, uint8_t *dest, size_t room)
{
    RG_ASSERT(transport->in_data && room > 0);
    if (transport->state != RG_TRANSPORT_OPEN) {
        return -ENOTCONN;
    }
    if (!transport->secure) {
        size_t size = RG_MIN(room, transport->in.size);
        if (size == 0) {
            return -EAGAIN;
        }
        memcpy(dest, transport->in.data, size);
        transport->in.data += size;
        transport->in.size -= size;
        return (ssize_t)size;
    }
    struct rg_tls_out reply = reply_begin(transport);
    ssize_t got = rg_tls_open(&transport->tls, &transport->in, dest, room, &reply);
    reply_end(transport, &reply);
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
    transport->in.size = 0;
    return got;
}

bool rg_transport_has_input(const struct rg_transport *transport)
{
    return transport->in.size > 0;
}

void rg_transport_receive_into(struct rg_transport *transport, uint8_t *dest, size_t size)
{
    RG_ASSERT(!transport->secure && transport->in_data);
    RG_ASSERT(transport->in.size == 0 && size > 0);
    transport->direct = dest;
    transport->direct_size = size;
}

void rg_transport_pause(struct rg_transport *transport)
{
    RG_ASSERT(transport->in_data);
    transport->paused = true;
}

void rg_transport_resume(struct rg_transport *transport)
{
    if (transport->paused) {
        transport->paused = false;
        transport->tell_data = true;
        rg_loop_defer(loop_of(transport), &transport->task);
    }
}

/* The owner is told of the failure by the task, since it may be the one who writes or flushes. */
static void tell_later(struct rg_transport *transport)
{
    RG_ASSERT(transport->state == RG_TRANSPORT_ENDED);
    rg_loop_defer(loop_of(transport), &transport->task);
}

ssize_t rg_transport_write(struct rg_transport *transport, const void *data, size_t size,
                           bool large)
{
    if (transport->state != RG_TRANSPORT_OPEN) {
        return -ENOTCONN;
    }
    RG_ASSERT(transport->direct_source == NULL);
    struct rg_send_buffer *buffer = buffer_get(transport, large);
    if (buffer == NULL) {
        transport_fail(transport, RG_STATUS_NO_RESOURCES, ENOMEM, NULL);
        tell_later(transport);
        return -ENOMEM;
    }
    if (!transport->secure) {
        size_t taken = RG_MIN(size, rg_send_buffer_room(buffer));
        memcpy(buffer->data + buffer->size, data, taken);
        buffer->size += taken;
        return (ssize_t)taken;
    }
    struct rg_tls_out out = {buffer->data, buffer->size, buffer->capacity};
    ssize_t taken = rg_tls_seal(&transport->tls, data, size, &out);
    buffer->size = out.size;
    if (taken < 0) {
        transport_fail_tls(transport);
        tell_later(transport);
    }
    return taken;
}

static void flush_failed(struct rg_transport *transport, int rc)
{
    if (transport->state == RG_TRANSPORT_CLOSING) {
        return;
    }
    buffer_return(transport);
    if (rc == -ENOMEM) {
        transport_fail(transport, RG_STATUS_NO_RESOURCES, ENOMEM, NULL);
    } else {
        transport_fail_tunnel(transport);
    }
    tell_later(transport);
}

/* Sends inside the TLS with the proxy, as much as one buffer takes of it. */
static void wrapped_flush(struct rg_transport *transport)
{
    struct rg_send_buffer *buffer = transport->buffer;
    bool large = buffer->size > WRAPPED_SMALL_MAX;
    RG_ASSERT(transport->wire == NULL);
    struct rg_send_buffer *wire = rg_send_buffer_borrow(&transport->shared->buffers, large);
    if (wire == NULL) {
        flush_failed(transport, -ENOMEM);
        return;
    }
    struct rg_tls_out out = {wire->data, 0, wire->capacity};
    ssize_t taken = rg_tunnel_wrap(transport->tunnel, buffer->data, buffer->size, &out);
    transport->wire = wire;
    if (taken < 0) {
        wire_return(transport);
        flush_failed(transport, (int)taken);
        return;
    }
    RG_ASSERT(taken > 0);
    wire->size = out.size;
    buffer->sending = (size_t)taken;
    rg_op_send(loop_of(transport), &transport->writing, &transport->socket, wire->data, wire->size);
}

void rg_transport_flush(struct rg_transport *transport)
{
    struct rg_send_buffer *buffer = transport->buffer;
    if (buffer == NULL || buffer->size == 0 || !rg_op_idle(&transport->writing)) {
        return;
    }
    if (is_wrapped(transport)) {
        wrapped_flush(transport);
        return;
    }
    buffer->sending = buffer->size;
    rg_op_send(loop_of(transport), &transport->writing, &transport->socket, buffer->data,
               buffer->size);
}

void rg_transport_send_from(struct rg_transport *transport, const void *data, size_t size)
{
    RG_ASSERT(!transport->secure && transport->state == RG_TRANSPORT_OPEN);
    RG_ASSERT(transport->buffer == NULL && rg_op_idle(&transport->writing));
    transport->direct_source = data;
    rg_op_send(loop_of(transport), &transport->writing, &transport->socket, data, size);
}

bool rg_transport_sending(const struct rg_transport *transport)
{
    return transport->buffer != NULL || !rg_op_idle(&transport->writing);
}

void rg_transport_output(const struct rg_transport *transport, struct rg_socket_output *out_output)
{
    rg_socket_output(loop_of(transport), &transport->socket, out_output);
}

bool rg_transport_borrows(const struct rg_transport *transport)
{
    bool reads = !rg_op_idle(&transport->reading) && transport->reading.kind == RG_OP_RECV_INTO;
    bool writes = !rg_op_idle(&transport->writing) && transport->direct_source != NULL;
    return reads || writes;
}

/* True if a last word to the peer is on its way, which closing waits for: close_notify, or the
 * alert that says why a handshake failed. It blocks where the peer has not read what came before:
 * the owner bounds the wait, and closes again with `reset`. */
static bool closing_says_goodbye(struct rg_transport *transport, uint8_t state_before)
{
    if (transport->reset || !transport->secure) {
        return false;
    }
    if (state_before == RG_TRANSPORT_ENDED && !transport->told_ready) {
        return transport->buffer != NULL && transport->buffer->sending > 0;
    }
    if (state_before != RG_TRANSPORT_OPEN || rg_transport_sending(transport)) {
        return false;
    }
    struct rg_tls_out reply = reply_begin(transport);
    (void)rg_tls_close_notify(&transport->tls, &reply);
    reply_end(transport, &reply);
    return rg_transport_sending(transport);
}

void rg_transport_close(struct rg_transport *transport, bool reset)
{
    transport->reset |= reset;
    if (transport->state == RG_TRANSPORT_CLOSING) {
        if (reset) {
            /* Who closes again so has waited long enough for the last word to be taken. */
            closing_proceed(transport);
        }
        return;
    }
    uint8_t before = transport->state;
    transport->tell_data = transport->tell_ended = false;
    transport->direct = NULL;
    bool goodbye = closing_says_goodbye(transport, before);
    transport->state = RG_TRANSPORT_CLOSING;
    if (!goodbye) {
        closing_proceed(transport);
    }
}
