/* See transport_output.h. */
#include "http/transport_output.h"

#include "http/tls_traffic.h"

#include <errno.h>
#include <string.h>

#define BIT(state) (1u << (state))

static const uint8_t states_after[] = {
    [RG_TRANSPORT_EMPTY] = BIT(RG_TRANSPORT_FILLING) | BIT(RG_TRANSPORT_LENDING),
    [RG_TRANSPORT_FILLING] = BIT(RG_TRANSPORT_SENDING) | BIT(RG_TRANSPORT_EMPTY),
    [RG_TRANSPORT_SENDING] =
        BIT(RG_TRANSPORT_FILLING) | BIT(RG_TRANSPORT_EMPTY) | BIT(RG_TRANSPORT_FAILED),
    [RG_TRANSPORT_LENDING] = BIT(RG_TRANSPORT_EMPTY) | BIT(RG_TRANSPORT_FAILED),
    [RG_TRANSPORT_FAILED] = BIT(RG_TRANSPORT_EMPTY),
};
static_assert(RG_ARRAY_LEN(states_after) == RG_TRANSPORT_OUTPUT_STATE_COUNT,
              "every state is listed");

static bool invariants(const struct rg_transport_output *output)
{
    const struct rg_send_buffer *buffer = output->buffer;
    bool fills = output->state == RG_TRANSPORT_FILLING;
    bool sends = output->state == RG_TRANSPORT_SENDING;
    bool lends = output->state == RG_TRANSPORT_LENDING;
    bool in_flight = !rg_op_idle(&output->op) && output->op.kind == RG_OP_SEND;
    bool sound =
        buffer == NULL || (buffer->sending <= buffer->size && buffer->size <= buffer->capacity &&
                           (buffer->sending > 0) == sends);
    return sound && in_flight == (sends || lends) &&
           (output->state == RG_TRANSPORT_FAILED || (buffer != NULL) == (fills || sends));
}

static void output_enter(struct rg_transport_output *output, enum rg_transport_output_state state)
{
    RG_ASSERT(states_after[output->state] & BIT(state));
    output->state = (uint8_t)state;
    RG_VERIFY(invariants(output));
}

void rg_transport_output_init(struct rg_transport_output *output, struct rg_transport_loop *shared,
                              struct rg_socket *socket, void (*done)(struct rg_op *op))
{
    *output = (struct rg_transport_output){.shared = shared, .socket = socket};
    rg_op_init(&output->op, done);
}

bool rg_transport_output_reserve(struct rg_transport_output *output, bool large)
{
    if (output->state == RG_TRANSPORT_EMPTY) {
        output->buffer = rg_send_buffer_borrow(&output->shared->buffers, large);
        if (output->buffer == NULL) {
            return false;
        }
        output_enter(output, RG_TRANSPORT_FILLING);
    }
    RG_ASSERT(output->buffer != NULL);
    return true;
}

void rg_transport_output_drop(struct rg_transport_output *output)
{
    RG_ASSERT(rg_op_idle(&output->op));
    rg_send_buffer_return(&output->shared->buffers, output->buffer);
    output->buffer = NULL;
    if (output->state != RG_TRANSPORT_EMPTY) {
        output_enter(output, RG_TRANSPORT_EMPTY);
    }
}

ssize_t rg_transport_output_write(struct rg_transport_output *output, struct rg_tls *tls,
                                  const void *data, size_t size, bool large)
{
    if (!rg_transport_output_reserve(output, large)) {
        return -ENOMEM;
    }
    struct rg_send_buffer *buffer = output->buffer;
    if (tls == NULL) {
        size_t taken = RG_MIN(size, rg_send_buffer_room(buffer));
        memcpy(buffer->data + buffer->size, data, taken);
        buffer->size += taken;
        return (ssize_t)taken;
    }
    struct rg_tls_out out = rg_transport_output_place(output);
    ssize_t taken = rg_tls_seal(tls, data, size, &out);
    buffer->size = out.size;
    return taken;
}

int rg_transport_output_take(struct rg_transport_output *output, const struct rg_tls_out *out)
{
    if (output->buffer == NULL && out->size > 0) {
        RG_ASSERT(out->data == output->shared->reply);
        if (!rg_transport_output_reserve(output, false)) {
            return -ENOMEM;
        }
        memcpy(output->buffer->data, out->data, out->size);
    }
    if (output->buffer != NULL) {
        RG_ASSERT(out->size >= output->buffer->size);
        output->buffer->size = out->size;
        if (out->size == 0) {
            rg_transport_output_drop(output);
        }
    }
    return 0;
}

/* Sends inside the TLS with the proxy, as much as one buffer takes of it. */
static int flush_wrapped(struct rg_transport_output *output, struct rg_tunnel *tunnel)
{
    int rc = rg_tunnel_wrap(tunnel, &output->shared->buffers, output->buffer);
    if (rc < 0) {
        rg_transport_output_drop(output);
        return rc;
    }
    const struct rg_send_buffer *wire = tunnel->outer.wire;
    rg_op_send(output->shared->loop, &output->op, output->socket, wire->data, wire->size);
    output_enter(output, RG_TRANSPORT_SENDING);
    return 0;
}

static int output_flush(struct rg_transport_output *output, struct rg_tunnel *tunnel, bool more)
{
    struct rg_send_buffer *buffer = output->buffer;
    if (output->state != RG_TRANSPORT_FILLING || buffer->size == 0) {
        return 0;
    }
    if (tunnel != NULL && rg_tunnel_wraps(tunnel)) {
        return flush_wrapped(output, tunnel);
    }
    buffer->sending = buffer->size;
    struct rg_loop *loop = output->shared->loop;
    if (more) {
        rg_op_send_more(loop, &output->op, output->socket, buffer->data, buffer->size);
    } else {
        rg_op_send(loop, &output->op, output->socket, buffer->data, buffer->size);
    }
    output_enter(output, RG_TRANSPORT_SENDING);
    return 0;
}

int rg_transport_output_flush(struct rg_transport_output *output, struct rg_tunnel *tunnel)
{
    return output_flush(output, tunnel, false);
}

int rg_transport_output_flush_more(struct rg_transport_output *output, struct rg_tunnel *tunnel)
{
    return output_flush(output, tunnel, true);
}

void rg_transport_output_lend(struct rg_transport_output *output, const void *data, size_t size)
{
    RG_ASSERT(output->state == RG_TRANSPORT_EMPTY);
    rg_op_send(output->shared->loop, &output->op, output->socket, data, size);
    output_enter(output, RG_TRANSPORT_LENDING);
}

/* Takes what was sent out of the buffer. */
static void buffer_sent(struct rg_transport_output *output)
{
    struct rg_send_buffer *buffer = output->buffer;
    buffer->size -= buffer->sending;
    memmove(buffer->data, buffer->data + buffer->sending, buffer->size);
    buffer->sending = 0;
    if (buffer->size > 0) {
        output_enter(output, RG_TRANSPORT_FILLING);
    } else {
        rg_transport_output_drop(output);
    }
}

void rg_transport_output_done(struct rg_transport_output *output, struct rg_tunnel *tunnel)
{
    RG_ASSERT(rg_op_idle(&output->op) && output->op.kind == RG_OP_SEND);
    bool failed = output->op.result < 0 || output->op.cancelled;
    RG_ASSERT(failed || (size_t)output->op.result == output->op.size);
    if (tunnel != NULL && rg_tunnel_wraps(tunnel)) {
        rg_tunnel_tls_sent(&tunnel->outer, &output->shared->buffers);
    }
    if (failed) {
        if (output->buffer != NULL) {
            output->buffer->sending = 0;
        }
        output_enter(output, RG_TRANSPORT_FAILED);
    } else if (output->state == RG_TRANSPORT_LENDING) {
        output_enter(output, RG_TRANSPORT_EMPTY);
    } else {
        buffer_sent(output);
    }
}
