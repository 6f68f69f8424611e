/* Buffers of one size that a server's connections borrow while there are bytes in them, so that
 * idle connections hold none.
 *
 * rg_server_buffer_borrow (the one that was returned last, or a new one) -> _return (kept for the
 * next, up to RG_SERVER_BUFFERS_KEPT) -> rg_server_buffers_free. All on the loop's thread. */
#ifndef RG_HTTP_SERVER_BUFFER_H
#define RG_HTTP_SERVER_BUFFER_H

#include "runtime/base.h"

/* Buffers kept for the next borrower, per size; more are freed. */
#define RG_SERVER_BUFFERS_KEPT 32

struct rg_server_buffer {
    struct rg_server_buffer *next;
    uint8_t data[];
};

/* Last in, first out: the first one is hot. */
struct rg_server_buffers {
    struct rg_server_buffer *first;
    uint32_t count;
    size_t size;
};

/* NULL: no memory. */
struct rg_server_buffer *rg_server_buffer_borrow(struct rg_server_buffers *buffers);
/* Returns *buffer, if any, and makes it NULL. */
void rg_server_buffer_return(struct rg_server_buffers *buffers, struct rg_server_buffer **buffer);
/* Those that are kept; none may be out. */
void rg_server_buffers_free(struct rg_server_buffers *buffers);

#endif
