/* Where requests go: the endpoint that the options or the environment name. */
#ifndef RG_GCS_NETWORK_ENDPOINT_H
#define RG_GCS_NETWORK_ENDPOINT_H

#include "http/url.h"

#define RG_ENDPOINT_SERVICE_HOST "storage.googleapis.com"
#define RG_ENDPOINT_DEFAULT "https://" RG_ENDPOINT_SERVICE_HOST
#define RG_ENDPOINT_SIZE_MAX (RG_URL_HOST_SIZE_MAX + RG_URL_PATH_SIZE_MAX + 32)
#define RG_AUTHORITY_SIZE_MAX (RG_URL_HOST_SIZE_MAX + 8) /* brackets, colon and port */

struct rg_endpoint {
    bool is_tls;
    bool is_emulator; /* named by STORAGE_EMULATOR_HOST, which also means: send no credentials */
    uint16_t port;
    uint16_t connect_port; /* where to connect to: the same, unless the user says otherwise */
    char connect_host[RG_URL_HOST_SIZE_MAX + 1];
    char host[RG_URL_HOST_SIZE_MAX + 1];       /* for the certificate; IPv6 without brackets */
    char authority[RG_AUTHORITY_SIZE_MAX + 1]; /* for the Host field */
    char text[RG_ENDPOINT_SIZE_MAX + 1];       /* as it was given, for people */
};

/* The endpoint is `option` where that is not NULL, else STORAGE_EMULATOR_HOST where that is set and
 * not empty, else the service itself; it has no path. `connect_to` is "host[:port]" or NULL.
 * -EINVAL: one of them cannot be used; `error`, of error_size bytes, at least 1, then holds a line
 * that says which. */
int rg_endpoint_resolve(struct rg_endpoint *out_endpoint, const char *option,
                        const char *connect_to, char *error, size_t error_size);

#endif
