/* See tunnel_tls.h. */
#include "http/tunnel_tls.h"

#include "http/tls_traffic.h"

#include <errno.h>
#include <string.h>

/* Up to here a small buffer takes all of what is wrapped. */
#define SMALL_MAX RG_KIB(16)

static_assert(RG_SEND_SMALL_SIZE > RG_TUNNEL_REPLY_SIZE + SMALL_MAX + RG_TLS_SEAL_MIN,
              "what TLS has to say and one record fit the smallest buffer");

int rg_tunnel_tls_init(struct rg_tunnel_tls *outer, struct rg_tls_loop *loop,
                       struct rg_tls_peer *peer)
{
    *outer = (struct rg_tunnel_tls){0};
    return rg_tls_init_client(&outer->tls, loop, peer);
}

void rg_tunnel_tls_fini(struct rg_tunnel_tls *outer)
{
    RG_ASSERT(outer->wire == NULL);
    rg_tls_fini(&outer->tls);
}

int rg_tunnel_tls_unwrap(struct rg_tunnel_tls *outer, struct rg_tls_in *in, uint8_t *plain,
                         size_t room)
{
    /* What is in a record is smaller than the record, and one may have begun earlier. */
    RG_ASSERT(room >= in->size + RG_TLS_PLAIN_MAX);
    size_t size = 0;
    for (;;) {
        struct rg_tls_out reply = {outer->reply, outer->reply_size, sizeof(outer->reply)};
        ssize_t got = rg_tls_open(&outer->tls, in, plain + size, room - size, &reply);
        outer->reply_size = reply.size;
        if (got == -ENODATA && size == 0) {
            return -ENODATA;
        }
        if (got < 0 && got != -ENODATA) {
            return -EPROTO;
        }
        if (got <= 0) {
            break;
        }
        size += (size_t)got;
    }
    *in = (struct rg_tls_in){plain, size};
    return 0;
}

int rg_tunnel_tls_wrap(struct rg_tunnel_tls *outer, struct rg_send_buffers *buffers,
                       struct rg_send_buffer *buffer)
{
    RG_ASSERT(outer->wire == NULL);
    RG_ASSERT(buffer->size > 0 && buffer->sending == 0);
    struct rg_send_buffer *wire = rg_send_buffer_borrow(buffers, buffer->size > SMALL_MAX);
    if (wire == NULL) {
        return -ENOMEM;
    }
    memcpy(wire->data, outer->reply, outer->reply_size);
    struct rg_tls_out out = {wire->data, outer->reply_size, wire->capacity};
    outer->reply_size = 0;
    ssize_t taken = rg_tls_seal(&outer->tls, buffer->data, buffer->size, &out);
    if (taken < 0) {
        rg_send_buffer_return(buffers, wire);
        return -EPROTO;
    }
    RG_ASSERT(taken > 0);
    wire->size = out.size;
    outer->wire = wire;
    buffer->sending = (size_t)taken;
    return 0;
}

void rg_tunnel_tls_sent(struct rg_tunnel_tls *outer, struct rg_send_buffers *buffers)
{
    rg_send_buffer_return(buffers, outer->wire);
    outer->wire = NULL;
}
