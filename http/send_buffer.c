/* See send_buffer.h. */
#include "http/send_buffer.h"

#include <stdlib.h>

struct rg_send_buffer *rg_send_buffer_borrow(struct rg_send_buffers *buffers, bool large)
{
    struct rg_send_buffer **first = large ? &buffers->large.first : &buffers->small.first;
    struct rg_send_buffer *buffer = *first;
    if (buffer != NULL) {
        *first = buffer->next;
        *(large ? &buffers->large.count : &buffers->small.count) -= 1;
        buffers->kept_bytes -= buffer->capacity;
    } else {
        size_t capacity = large ? RG_SEND_LARGE_SIZE : RG_SEND_SMALL_SIZE;
        buffer = malloc(sizeof(*buffer) + capacity);
        if (buffer == NULL) {
            return NULL;
        }
        buffer->capacity = capacity;
    }
    buffer->next = NULL;
    buffer->size = buffer->sending = 0;
    buffers->lent_bytes += buffer->capacity;
    return buffer;
}

void rg_send_buffer_return(struct rg_send_buffers *buffers, struct rg_send_buffer *buffer)
{
    if (buffer == NULL) {
        return;
    }
    bool large = buffer->capacity == RG_SEND_LARGE_SIZE;
    uint32_t *count = large ? &buffers->large.count : &buffers->small.count;
    struct rg_send_buffer **first = large ? &buffers->large.first : &buffers->small.first;
    RG_ASSERT(buffers->lent_bytes >= buffer->capacity);
    buffers->lent_bytes -= buffer->capacity;
    if (*count == RG_SEND_BUFFERS_KEPT_MAX) {
        free(buffer);
        return;
    }
    buffers->kept_bytes += buffer->capacity;
    buffer->next = *first;
    *first = buffer;
    *count += 1;
}

static void list_free(struct rg_send_buffer *first)
{
    while (first != NULL) {
        struct rg_send_buffer *next = first->next;
        free(first);
        first = next;
    }
}

void rg_send_buffers_fini(struct rg_send_buffers *buffers)
{
    RG_ASSERT(buffers->lent_bytes == 0);
    list_free(buffers->small.first);
    list_free(buffers->large.first);
    *buffers = (struct rg_send_buffers){0};
}
