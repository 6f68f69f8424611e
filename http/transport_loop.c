/* See transport_loop.h. */
#include "http/transport_loop.h"

#include <errno.h>
#include <stdlib.h>

int rg_transport_loop_create(struct rg_transport_loop **out_shared, struct rg_loop *loop,
                             uint32_t connections_max)
{
    RG_ASSERT(loop != NULL);
    struct rg_transport_loop *shared = calloc(1, sizeof(*shared));
    if (shared == NULL) {
        return -ENOMEM;
    }
    shared->loop = loop;
    int rc = rg_tls_loop_init(&shared->tls, connections_max);
    if (rc < 0) {
        free(shared);
        return rc;
    }
    *out_shared = shared;
    return 0;
}

void rg_transport_loop_destroy(struct rg_transport_loop *shared)
{
    if (shared == NULL) {
        return;
    }
    rg_send_buffers_fini(&shared->buffers);
    free(shared->unwrapped);
    rg_tls_loop_fini(&shared->tls);
    free(shared);
}

uint8_t *rg_transport_loop_unwrapped(struct rg_transport_loop *shared)
{
    if (shared->unwrapped == NULL) {
        shared->unwrapped = malloc(RG_TRANSPORT_UNWRAPPED_SIZE);
    }
    return shared->unwrapped;
}

void rg_transport_loop_memory(const struct rg_transport_loop *shared,
                              struct rg_transport_memory *out_memory)
{
    *out_memory = (struct rg_transport_memory){
        .lent_bytes = shared->buffers.lent_bytes,
        .kept_bytes = shared->buffers.kept_bytes,
        .shared_bytes = shared->unwrapped != NULL ? RG_TRANSPORT_UNWRAPPED_SIZE : 0,
    };
}
