/* The way to the endpoint as the options and the environment describe it: proxy, trust, client
 * certificate, and where connections begin. Opened once for a client and used by its pools. */
#ifndef RG_GCS_NETWORK_NETWORK_H
#define RG_GCS_NETWORK_NETWORK_H

#include "gcs/network/endpoint.h"
#include "http/pool.h"

#include <ringest/gcs.h>

struct rg_network {
    struct rg_tls_context *tls;       /* of the endpoint; NULL: plain */
    struct rg_tls_context *proxy_tls; /* of a proxy with TLS */
    struct rg_proxy proxy;            /* host empty: none */
    struct rg_local local;
    bool has_local;
};

/* Opens a zeroed network; rg_network_close is due also after a failure. Negative errno with a line
 * in `error`, of error_size bytes, at least 1, that names the option or variable. */
int rg_network_open(struct rg_network *network, const struct rg_client_options *options,
                    const struct rg_endpoint *endpoint, char *error, size_t error_size);
void rg_network_close(struct rg_network *network);

/* Fills what a pool needs to know of it. The network is borrowed while the pool lives. */
void rg_network_apply(const struct rg_network *network, struct rg_pool_options *pool);
/* Transports that a loop must have room for, so that so many connections can be open. */
uint32_t rg_network_transports(const struct rg_network *network, uint32_t connections);

#endif
