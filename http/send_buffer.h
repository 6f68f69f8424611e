/* The buffers in which bytes wait to be sent. They belong to one event loop. A transport borrows
 * one while it has something to send, and returns it when all of it was sent.
 *
 * The life of a buffer: allocated by the borrow that finds none -> lent -> returned and kept ->
 * lent again, the one that came back last first, because it is still in the cache -> freed with the
 * loop. Of each size RG_SEND_KEPT_BYTES are kept. That is as many as a loop lends at once unless
 * more than 819 connections send at the same time; so those of a warm loop are not allocated. A
 * buffer that comes back beyond that is freed.
 *
 * Invariant: the kept buffers of a size are in its list, empty and no more than fit
 * RG_SEND_KEPT_BYTES; kept_bytes is the sum of both lists. */
#ifndef RG_HTTP_SEND_BUFFER_H
#define RG_HTTP_SEND_BUFFER_H

#include "runtime/base.h"

/* The two sizes: for requests, and for bodies. A record of TLS fits either. */
#define RG_SEND_SMALL_SIZE RG_KIB(20)
#define RG_SEND_LARGE_SIZE RG_KIB(256)
/* How much is kept for the next borrower, of each size. */
#define RG_SEND_KEPT_BYTES RG_MIB(16)

struct rg_send_buffer {
    struct rg_send_buffer *next;
    size_t capacity, size;
    size_t sending; /* bytes that are in flight; a prefix of size */
    uint8_t data[];
};

/* The kept buffers of one size. */
struct rg_send_kept {
    struct rg_send_buffer *first;
    uint32_t count;
};

/* The zero state is valid. Single-threaded. */
struct rg_send_buffers {
    struct rg_send_kept small, large;
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
