/* See send_buffer.h. */
#include "http/send_buffer.h"

#include <stdlib.h>

static size_t capacity_of(bool large)
{
    return large ? RG_SEND_LARGE_SIZE : RG_SEND_SMALL_SIZE;
}

static struct rg_send_kept *kept_of(struct rg_send_buffers *buffers, bool large)
{
    return large ? &buffers->large : &buffers->small;
}

static bool kept_invariants(const struct rg_send_kept *kept, size_t capacity)
{
    uint32_t count = 0;
    bool same = true;
    for (const struct rg_send_buffer *at = kept->first; at != NULL; at = at->next) {
        same = same && at->capacity == capacity && at->sending == 0;
        count++;
    }
    return same && count == kept->count && count * capacity <= RG_SEND_KEPT_BYTES;
}

static bool invariants(const struct rg_send_buffers *buffers)
{
    return kept_invariants(&buffers->small, RG_SEND_SMALL_SIZE) &&
           kept_invariants(&buffers->large, RG_SEND_LARGE_SIZE) &&
           buffers->kept_bytes == buffers->small.count * RG_SEND_SMALL_SIZE +
                                      buffers->large.count * RG_SEND_LARGE_SIZE;
}

struct rg_send_buffer *rg_send_buffer_borrow(struct rg_send_buffers *buffers, bool large)
{
    struct rg_send_kept *kept = kept_of(buffers, large);
    struct rg_send_buffer *buffer = kept->first;
    if (buffer != NULL) {
        kept->first = buffer->next;
        kept->count--;
        buffers->kept_bytes -= buffer->capacity;
    } else {
        buffer = malloc(sizeof(*buffer) + capacity_of(large));
        if (buffer == NULL) {
            return NULL;
        }
        buffer->capacity = capacity_of(large);
    }
    buffer->next = NULL;
    buffer->size = buffer->sending = 0;
    buffers->lent_bytes += buffer->capacity;
    RG_VERIFY(invariants(buffers));
    return buffer;
}

void rg_send_buffer_return(struct rg_send_buffers *buffers, struct rg_send_buffer *buffer)
{
    if (buffer == NULL) {
        return;
    }
    struct rg_send_kept *kept = kept_of(buffers, buffer->capacity == RG_SEND_LARGE_SIZE);
    RG_ASSERT(buffers->lent_bytes >= buffer->capacity);
    buffers->lent_bytes -= buffer->capacity;
    if ((kept->count + 1) * buffer->capacity > RG_SEND_KEPT_BYTES) {
        free(buffer);
        return;
    }
    buffer->size = buffer->sending = 0;
    buffers->kept_bytes += buffer->capacity;
    buffer->next = kept->first;
    kept->first = buffer;
    kept->count++;
    RG_VERIFY(invariants(buffers));
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
