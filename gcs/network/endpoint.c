/* See endpoint.h. */
#include "gcs/network/endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void copy(char *out, size_t capacity, struct rg_h1_slice slice)
{
    RG_ASSERT(slice.size < capacity);
    memcpy(out, slice.data, slice.size);
    out[slice.size] = '\0';
}

/* The text is never repeated: a password in it is one of the things that are refused. */
static int refuse(char *error, size_t error_size, const char *source, const char *problem,
                  const char *expected)
{
    snprintf(error, error_size, "%s %s: expected %s", source, problem, expected);
    return -EINVAL;
}

/* Addresses of the service for networks that let nothing else out: they show its certificate, and
 * expect its name in the Host field. */
static void front_end_resolve(struct rg_endpoint *endpoint)
{
    static const char *const front_ends[] = {"private.googleapis.com", "restricted.googleapis.com"};
    for (size_t i = 0; i < RG_ARRAY_LEN(front_ends); i++) {
        size_t size = strlen(front_ends[i]);
        if (endpoint->is_tls && strcasecmp(endpoint->host, front_ends[i]) == 0) {
            char port[sizeof(endpoint->authority)];
            strcpy(port, endpoint->authority + size);
            strcpy(endpoint->host, RG_ENDPOINT_SERVICE_HOST);
            snprintf(endpoint->authority, sizeof(endpoint->authority), "%.*s%s",
                     (int)sizeof(RG_ENDPOINT_SERVICE_HOST), RG_ENDPOINT_SERVICE_HOST, port);
        }
    }
}

/* What is wrong with it; NULL: nothing. */
static const char *endpoint_parse(struct rg_endpoint *endpoint, const char *text)
{
    struct rg_url url;
    size_t size = strlen(text);
    const char *scheme_end = strstr(text, "://");
    bool is_http = strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0;
    if (scheme_end != NULL && !is_http) {
        return "has a scheme other than http and https";
    }
    if (size > RG_ENDPOINT_SIZE_MAX || rg_url_parse(text, size, &url) < 0) {
        return "is not valid";
    }
    if (url.path.size > 0) {
        return "has a path, where Cloud Storage has none";
    }
    endpoint->is_tls = url.is_tls;
    endpoint->port = url.port;
    endpoint->connect_port = url.port;
    copy(endpoint->host, sizeof(endpoint->host), url.host);
    copy(endpoint->connect_host, sizeof(endpoint->connect_host), url.host);
    copy(endpoint->authority, sizeof(endpoint->authority), url.authority);
    copy(endpoint->text, sizeof(endpoint->text), (struct rg_h1_slice){text, (uint32_t)size});
    front_end_resolve(endpoint);
    return NULL;
}

/* "host[:port]": what a URL without scheme and path is. Without a port the endpoint's own counts.
 */
static int connect_parse(struct rg_endpoint *endpoint, const char *text)
{
    struct rg_url url;
    size_t size = strlen(text);
    if (rg_url_parse(text, size, &url) < 0 || url.authority.size != size) {
        return -EINVAL;
    }
    copy(endpoint->connect_host, sizeof(endpoint->connect_host), url.host);
    /* Brackets of an IPv6 literal also belong to the host. */
    if (url.authority.size > url.host.size + (url.host_is_ipv6 ? 2u : 0u)) {
        endpoint->connect_port = url.port;
    }
    return 0;
}

int rg_endpoint_resolve(struct rg_endpoint *out_endpoint, const char *option,
                        const char *connect_to, char *error, size_t error_size)
{
    RG_ASSERT(error_size > 0);
    const char *source = "the endpoint", *text = option;
    struct rg_endpoint endpoint = {0};
    if (text == NULL) {
        source = "STORAGE_EMULATOR_HOST";
        text = getenv(source);
        endpoint.is_emulator = text != NULL && text[0] != '\0';
        text = endpoint.is_emulator ? text : RG_ENDPOINT_DEFAULT;
    }
    const char *problem = endpoint_parse(&endpoint, text);
    if (problem != NULL) {
        return refuse(error, error_size, source, problem,
                      "https://HOST[:PORT], http://HOST[:PORT] or HOST:PORT");
    }
    if (connect_to != NULL && connect_parse(&endpoint, connect_to) < 0) {
        return refuse(error, error_size, "connect_to", "is not valid", "HOST[:PORT]");
    }
    *out_endpoint = endpoint;
    return 0;
}
