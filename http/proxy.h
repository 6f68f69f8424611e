/* HTTP proxies: which one a connection has to take, and how it is asked for a tunnel (CONNECT, RFC
 * 9110 section 9.3.6). A protocol core without socket and clock. The environment is read by
 * rg_proxy_environment only. */
#ifndef RG_HTTP_PROXY_H
#define RG_HTTP_PROXY_H

#include "http/url.h"

/* User name, colon and password, decoded. */
#define RG_PROXY_CREDENTIALS_SIZE_MAX 512
/* "Basic " and the credentials in base64. */
#define RG_PROXY_AUTHORIZATION_SIZE_MAX (6 + (RG_PROXY_CREDENTIALS_SIZE_MAX + 2) / 3 * 4)
#define RG_PROXY_NAME_SIZE_MAX (RG_URL_HOST_SIZE_MAX + 20)
/* "host:port" of what is behind the proxy, with brackets. */
#define RG_PROXY_TARGET_SIZE_MAX (RG_URL_HOST_SIZE_MAX + 8)
/* The request for a tunnel: twice the target, the credentials, and the words around them. */
#define RG_PROXY_REQUEST_SIZE_MAX 2048
/* The head of its answer; what is larger is refused. */
#define RG_PROXY_ANSWER_SIZE_MAX RG_KIB(16)

struct rg_proxy {
    bool is_tls; /* the proxy itself is spoken to by TLS, whatever goes through the tunnel */
    uint16_t port;
    char host[RG_URL_HOST_SIZE_MAX + 1];   /* IPv6 without brackets */
    char name[RG_PROXY_NAME_SIZE_MAX];     /* "http://host:port", for people; without credentials */
    char via[RG_PROXY_NAME_SIZE_MAX + 32]; /* "through the proxy http://host:port" */
    char authorization[RG_PROXY_AUTHORIZATION_SIZE_MAX + 1]; /* a secret; empty: none */
};

/* "[http[s]://][user[:password]@]host[:port]"; the ports of the schemes are 80 and 443. User and
 * password are percent-encoded. -EINVAL. */
int rg_proxy_parse(struct rg_proxy *out_proxy, const char *text);
/* Wipes the credentials. */
void rg_proxy_fini(struct rg_proxy *proxy);

/* True when a list as in NO_PROXY names the host. Its entries are divided by commas or blanks. An
 * entry is "*", a domain (and all below it; a leading dot or "*." makes no difference), an address,
 * or a network as in 10.0.0.0/8. A domain or address may have a port. */
bool rg_proxy_list_names(const char *list, const char *host, uint16_t port);
/* True for this machine itself: localhost and what is below it, 127.0.0.0/8, ::1. */
bool rg_proxy_host_is_local(const char *host);
/* Returns the proxy that the environment names for connections to an https endpoint, or NULL: the
 * value of https_proxy or, where that is not set, HTTPS_PROXY. NULL too where no_proxy or NO_PROXY
 * names the host, or where the host is this machine. *out_variable is the variable's name. */
const char *rg_proxy_environment(const char *host, uint16_t port, const char **out_variable);

/* "host:port", an IPv6 address in brackets. */
void rg_proxy_target_format(char out_target[static RG_PROXY_TARGET_SIZE_MAX], const char *host,
                            uint16_t port);
/* The request for a tunnel to `target`. Returns its size, or a negative errno. */
int rg_proxy_encode(const struct rg_proxy *proxy, const char *target, char *out, size_t capacity);

#endif
