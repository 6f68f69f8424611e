/* Buffers for bytes on their way into sockets: those of one event loop, borrowed by a transport
 * while it has something to send. The one that came back last is lent first, because it is hot; a
 * number of each size is kept, more are freed. */
#ifndef RG_HTTP_SEND_BUFFER_H
#define RG_HTTP_SEND_BUFFER_H

#include "runtime/base.h"

/* The two sizes: for requests, and for bodies. A record of TLS fits either. */
#define RG_SEND_SMALL_SIZE RG_KIB(20)
#define RG_SEND_LARGE_SIZE RG_KIB(256)
/* Kept for the next borrower, of each size. */
#define RG_SEND_BUFFERS_KEPT_MAX 64

struct rg_send_buffer {
    struct rg_send_buffer *next;
    size_t capacity, size;
    size_t sending; /* bytes that are in flight; a prefix of size */
    uint8_t data[];
};

/* The zero state is valid. Single-threaded. */
struct rg_send_buffers {
    struct {
        struct rg_send_buffer *first;
        uint32_t count;
    } small, large;
    size_t lent_bytes, kept_bytes;
};

/* None may be lent. */
void rg_send_buffers_fini(struct rg_send_buffers *buffers);
/* An empty one, or NULL: no memory. */
struct rg_send_buffer *rg_send_buffer_borrow(struct rg_send_buffers *buffers, bool large);
/* NULL is fine. */
void rg_send_buffer_return(struct rg_send_buffers *buffers, struct rg_send_buffer *buffer);

static inline size_t rg_send_buffer_room(const struct rg_send_buffer *buffer)
{
    return buffer->capacity - buffer->size;
}

#endif
