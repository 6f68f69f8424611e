/* What a transport has to send.
 *
 *             bytes are written            flush
 *   EMPTY ------------------------> FILLING ----> SENDING ----> FAILED
 *    | ^                               ^             |  the send failed
 *    | |                               +-------------+
 *    | |                  more was written meanwhile |
 *    | +---------------------------------------------+
 *    | |                all of it was sent
 *    v |
 *   LENDING ----> FAILED
 *
 * Bytes wait in a buffer that is borrowed from the loop, so an EMPTY one holds none. While a part
 * of the buffer is SENDING, more may be written behind it. LENDING sends straight from memory of
 * the owner's instead. FAILED: the system refused bytes of the stream, and none may follow them.
 *
 * Life: init, with its transport -> written, flushed and sent, again and again -> drop, when
 * nothing is in flight any more, which leads back to EMPTY. On the loop's thread. Nothing here ends
 * the transport: what returns a negative errno leaves that to it.
 *
 * Invariant: a buffer is held in FILLING and SENDING, never in EMPTY and LENDING; bytes of it are
 * marked as being sent in SENDING only; and exactly then, or in LENDING, a send is in flight. */
#ifndef RG_HTTP_TRANSPORT_OUTPUT_H
#define RG_HTTP_TRANSPORT_OUTPUT_H

#include "http/tls_record.h"
#include "http/transport_loop.h"
#include "http/tunnel.h"
#include "runtime/op.h"

#include <sys/types.h>

enum rg_transport_output_state {
    RG_TRANSPORT_EMPTY = 0,
    RG_TRANSPORT_FILLING,
    RG_TRANSPORT_SENDING,
    RG_TRANSPORT_LENDING,
    RG_TRANSPORT_FAILED,
    RG_TRANSPORT_OUTPUT_STATE_COUNT,
};

struct rg_transport_output {
    struct rg_op op; /* of sending; the transport connects with it before */
    struct rg_transport_loop *shared;
    struct rg_socket *socket;
    struct rg_send_buffer *buffer; /* borrowed from the loop; NULL: none */
    uint8_t state;                 /* changed by one function */
};

/* Borrows the loop's part and the socket, which stay as long as the transport; `done` is called
 * when the op is done, and calls rg_transport_output_done where that was a send. */
void rg_transport_output_init(struct rg_transport_output *output, struct rg_transport_loop *shared,
                              struct rg_socket *socket, void (*done)(struct rg_op *op));

/* Borrows a buffer where there is none. False: there is no memory. `large`: a body is to come. */
bool rg_transport_output_reserve(struct rg_transport_output *output, bool large);
/* Takes bytes, sealed by `tls` (NULL: as they are), and returns how many: fewer than `size` where
 * the buffer is full. -ENOMEM, or -EPROTO: TLS failed. */
ssize_t rg_transport_output_write(struct rg_transport_output *output, struct rg_tls *tls,
                                  const void *data, size_t size, bool large);
/* Takes over what was appended in the place that rg_transport_output_place gave. A buffer that is
 * still empty is returned. 0 or -ENOMEM. */
int rg_transport_output_take(struct rg_transport_output *output, const struct rg_tls_out *out);

/* Sends what is there, wrapped where the tunnel (NULL: none) wraps. Harmless when there is nothing,
 * a send is in flight, or one has failed. 0; -ENOMEM, or -ECONNABORTED: the tunnel failed. Then
 * what was there is dropped. */
int rg_transport_output_flush(struct rg_transport_output *output, struct rg_tunnel *tunnel);
/* The same where more follows at once: see rg_op_send_more. */
int rg_transport_output_flush_more(struct rg_transport_output *output, struct rg_tunnel *tunnel);
/* Sends from the owner's memory. EMPTY only. */
void rg_transport_output_lend(struct rg_transport_output *output, const void *data, size_t size);
/* The send is done: EMPTY, or FILLING where more is to be flushed, or FAILED. */
void rg_transport_output_done(struct rg_transport_output *output, struct rg_tunnel *tunnel);
/* Returns the buffer, with whatever is in it. Nothing may be in flight. */
void rg_transport_output_drop(struct rg_transport_output *output);

/* Where TLS puts what it has to say: behind what waits to be sent, because it is sealed after that.
 * Without a buffer it is a place of the loop's, for the little that is said while reading. */
static inline struct rg_tls_out rg_transport_output_place(const struct rg_transport_output *output)
{
    struct rg_send_buffer *buffer = output->buffer;
    if (buffer == NULL) {
        return (struct rg_tls_out){output->shared->reply, 0, RG_TRANSPORT_REPLY_SIZE};
    }
    return (struct rg_tls_out){buffer->data, buffer->size, buffer->capacity};
}

/* True where something was appended in that place. */
static inline bool rg_transport_output_grew(const struct rg_transport_output *output,
                                            const struct rg_tls_out *out)
{
    return out->size > (output->buffer != NULL ? output->buffer->size : 0);
}

#endif
