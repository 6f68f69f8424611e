/* Buffers that a server's connections borrow: see server_buffer.h. */
#include "http/server_buffer.h"

#include <stdlib.h>

struct rg_server_buffer *rg_server_buffer_borrow(struct rg_server_buffers *buffers)
{
    RG_ASSERT(buffers->size > 0);
    struct rg_server_buffer *buffer = buffers->first;
    if (buffer == NULL) {
        return malloc(sizeof(*buffer) + buffers->size);
    }
    RG_ASSERT(buffers->count > 0);
    buffers->first = buffer->next;
    buffers->count--;
    return buffer;
}

void rg_server_buffer_return(struct rg_server_buffers *buffers, struct rg_server_buffer **buffer)
{
    struct rg_server_buffer *returned = *buffer;
    *buffer = NULL;
    if (returned == NULL) {
        return;
    }
    if (buffers->count == RG_SERVER_BUFFERS_KEPT) {
        free(returned);
        return;
    }
    returned->next = buffers->first;
    buffers->first = returned;
    buffers->count++;
}

void rg_server_buffers_free(struct rg_server_buffers *buffers)
{
    while (buffers->first != NULL) {
        struct rg_server_buffer *next = buffers->first->next;
        free(buffers->first);
        buffers->first = next;
    }
    buffers->count = 0;
}
