/* What the transports of one event loop share: the loop's part of TLS, the buffers for sending, and
 * two pieces of scratch memory. Single-threaded. Life: create -> transports come and go -> destroy,
 * when none is left. */
#ifndef RG_HTTP_TRANSPORT_LOOP_H
#define RG_HTTP_TRANSPORT_LOOP_H

#include "http/send_buffer.h"
#include "http/tls_loop.h"
#include "runtime/loop.h"

/* What TLS may have to say while a transport only reads: an alert, or the answer to a key update.
 */
#define RG_TRANSPORT_REPLY_SIZE 512
/* What one receive holds after a layer of TLS was taken off: a record may have begun earlier. */
#define RG_TRANSPORT_UNWRAPPED_SIZE (RG_RECV_SIZE_MAX + RG_TLS_PLAIN_MAX)

struct rg_transport_loop {
    struct rg_loop *loop;
    struct rg_tls_loop tls;
    struct rg_send_buffers buffers;
    /* RG_TRANSPORT_UNWRAPPED_SIZE bytes; NULL until something comes inside a proxy's own TLS. Valid
     * as long as what was received is. */
    uint8_t *unwrapped;
    uint8_t reply[RG_TRANSPORT_REPLY_SIZE];
};

/* connections_max: transports that may be open at once. 0 or -ENOMEM. */
int rg_transport_loop_create(struct rg_transport_loop **out_shared, struct rg_loop *loop,
                             uint32_t connections_max);
/* NULL is fine. */
void rg_transport_loop_destroy(struct rg_transport_loop *shared);

/* The memory for what comes inside a proxy's own TLS; NULL: there is none. */
uint8_t *rg_transport_loop_unwrapped(struct rg_transport_loop *shared);

/* What the loop's transports hold together beside the kernel's memory: buffers for sending, lent
 * and kept, and `unwrapped`. */
struct rg_transport_memory {
    size_t lent_bytes, kept_bytes, shared_bytes;
};
void rg_transport_loop_memory(const struct rg_transport_loop *shared,
                              struct rg_transport_memory *out_memory);

#endif
