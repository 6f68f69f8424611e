/* See network.h. */
#include "gcs/network/network.h"

#include "http/tls_context.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What may hold a password is never repeated. */
static int proxy_open(struct rg_network *network, const struct rg_client_options *options,
                      const struct rg_endpoint *endpoint, char *error, size_t error_size)
{
    const char *source = "proxy", *text = options->proxy;
    if (text == NULL && endpoint->is_tls && !endpoint->is_emulator &&
        !rg_proxy_host_is_local(endpoint->connect_host)) {
        text = rg_proxy_environment(endpoint->host, endpoint->port, &source);
    }
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    if (rg_proxy_parse(&network->proxy, text) < 0) {
        snprintf(error, error_size, "%s is not valid: expected http://[USER:PASSWORD@]HOST[:PORT]",
                 source);
        return -EINVAL;
    }
    if (network->proxy.is_tls && !endpoint->is_tls) {
        snprintf(error, error_size, "the proxy %s needs an https endpoint: %s is none",
                 network->proxy.name, endpoint->text);
        return -EINVAL;
    }
    return 0;
}

static int local_address_parse(struct rg_local *local, const char *text)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&local->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&local->address;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        local->address_size = sizeof(*v4);
        return 0;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        local->address_size = sizeof(*v6);
        return 0;
    }
    return -EINVAL;
}

/* Tried now, so that a wrong address or device is told when the client is opened. */
static int local_try(const struct rg_local *local)
{
    int family = local->address_size > 0 ? local->address.ss_family : AF_INET;
    int fd = rg_fd_open_tcp(family, 0);
    if (fd < 0) {
        return fd;
    }
    int rc = rg_fd_bind(fd, family, local);
    rg_fd_close(fd, false);
    return rc;
}

static int local_open(struct rg_network *network, const struct rg_client_options *options,
                      char *error, size_t error_size)
{
    const char *address = options->local_address, *device = options->local_device;
    struct rg_local *local = &network->local;
    if (address == NULL && device == NULL) {
        return 0;
    }
    if (address != NULL && local_address_parse(local, address) < 0) {
        snprintf(error, error_size, "local_address is not valid: expected an IP address");
        return -EINVAL;
    }
    if (device != NULL && (device[0] == '\0' || strlen(device) >= sizeof(local->device))) {
        snprintf(error, error_size, "local_device is not valid: expected a device as eth0");
        return -EINVAL;
    }
    strcpy(local->device, device != NULL ? device : "");
    int rc = local_try(local);
    if (rc < 0) {
        snprintf(error, error_size, "cannot connect from %s%s%s: %s",
                 address != NULL ? address : "", address != NULL && device != NULL ? " on " : "",
                 local->device, rg_error_text(-rc));
        return rc;
    }
    network->has_local = true;
    return 0;
}

static int tls_open(struct rg_network *network, const struct rg_client_options *options,
                    const struct rg_endpoint *endpoint, char *error, size_t error_size)
{
    struct rg_tls_client_options tls = {.ca_file = options->ca_file};
    int rc = 0;
    if (network->proxy.is_tls) {
        /* The client's certificate is for the endpoint, not for those on the way. */
        rc = rg_tls_context_open_client(&network->proxy_tls, &tls, error, error_size);
    }
    tls.cert_file = options->client_cert_file;
    tls.key_file = options->client_key_file;
    if (rc == 0 && endpoint->is_tls) {
        rc = rg_tls_context_open_client(&network->tls, &tls, error, error_size);
    }
    return rc;
}

int rg_network_open(struct rg_network *network, const struct rg_client_options *options,
                    const struct rg_endpoint *endpoint, char *error, size_t error_size)
{
    int rc = proxy_open(network, options, endpoint, error, error_size);
    if (rc == 0) {
        rc = local_open(network, options, error, error_size);
    }
    return rc == 0 ? tls_open(network, options, endpoint, error, error_size) : rc;
}

void rg_network_close(struct rg_network *network)
{
    rg_tls_context_close(network->tls);
    rg_tls_context_close(network->proxy_tls);
    rg_proxy_fini(&network->proxy);
}

void rg_network_apply(const struct rg_network *network, struct rg_pool_options *pool)
{
    pool->tls = network->tls;
    pool->proxy = network->proxy.host[0] != '\0' ? &network->proxy : NULL;
    pool->proxy_tls = network->proxy_tls;
    pool->local = network->has_local ? &network->local : NULL;
}

uint32_t rg_network_transports(const struct rg_network *network, uint32_t connections)
{
    /* Either of two layers of TLS can hold a record that was cut. */
    return network->proxy_tls != NULL ? 2 * connections : connections;
}
