/* See proxy.h. */
#include "http/proxy.h"

#include "http/h1_encoder.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void base64_append(char *out, const uint8_t *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        uint32_t left = (uint32_t)RG_MIN(size - i, (size_t)3);
        uint32_t bits = (uint32_t)data[i] << 16;
        bits |= left > 1 ? (uint32_t)data[i + 1] << 8 : 0;
        bits |= left > 2 ? data[i + 2] : 0;
        *out++ = digits[bits >> 18];
        *out++ = digits[bits >> 12 & 63];
        *out++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[bits & 63] : '=';
    }
    *out = '\0';
}

static int credentials_take(struct rg_proxy *proxy, const char *text, size_t size)
{
    char decoded[RG_PROXY_CREDENTIALS_SIZE_MAX + 1];
    if (size > UINT32_MAX) {
        return -EINVAL;
    }
    struct rg_h1_slice encoded = {text, (uint32_t)size};
    /* Leaves room for a colon. */
    int decoded_size = rg_url_percent_decode(encoded, RG_URL_PATH, decoded, sizeof(decoded) - 2);
    if (decoded_size < 0) {
        return -EINVAL;
    }
    if (memchr(decoded, ':', (size_t)decoded_size) == NULL) {
        decoded[decoded_size++] = ':';
    }
    memcpy(proxy->authorization, "Basic ", 6);
    base64_append(proxy->authorization + 6, (const uint8_t *)decoded, (size_t)decoded_size);
    explicit_bzero(decoded, sizeof(decoded));
    return 0;
}

static bool is_ipv6(const char *host)
{
    return strchr(host, ':') != NULL;
}

static void proxy_name(struct rg_proxy *proxy)
{
    char target[RG_PROXY_TARGET_SIZE_MAX];
    rg_proxy_target_format(target, proxy->host, proxy->port);
    snprintf(proxy->name, sizeof(proxy->name), "%s://%s", proxy->is_tls ? "https" : "http", target);
    snprintf(proxy->via, sizeof(proxy->via), "through the proxy %s", proxy->name);
}

int rg_proxy_parse(struct rg_proxy *out_proxy, const char *text)
{
    struct rg_proxy proxy = {0};
    char plain[RG_PROXY_NAME_SIZE_MAX + 16];
    const char *scheme_end = strstr(text, "://");
    const char *authority = scheme_end != NULL ? scheme_end + 3 : text;
    /* A password may hold an '@' that nobody has encoded; a host may not. */
    const char *at = strrchr(authority, '@');
    int scheme_size = (int)(authority - text);
    if (scheme_size > 8 ||
        (at != NULL && credentials_take(&proxy, authority, (size_t)(at - authority)) < 0)) {
        return -EINVAL;
    }
    int size = snprintf(plain, sizeof(plain), "%.*s%s", scheme_size, text,
                        at != NULL ? at + 1 : authority);
    struct rg_url url;
    if (size < 0 || (size_t)size >= sizeof(plain) || rg_url_parse(plain, (size_t)size, &url) < 0 ||
        url.path.size > 0) {
        rg_proxy_fini(&proxy);
        return -EINVAL;
    }
    proxy.is_tls = url.is_tls;
    proxy.port = url.port;
    memcpy(proxy.host, url.host.data, url.host.size);
    proxy_name(&proxy);
    *out_proxy = proxy;
    rg_proxy_fini(&proxy);
    return 0;
}

void rg_proxy_fini(struct rg_proxy *proxy)
{
    explicit_bzero(proxy->authorization, sizeof(proxy->authorization));
}

/* An address of either family in 16 bytes, IPv4 as ::ffff:a.b.c.d. */
static bool address_parse(const char *text, uint8_t out[static 16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (inet_pton(AF_INET, text, out + 12) == 1) {
        memcpy(out, mapped, sizeof(mapped));
        return true;
    }
    return inet_pton(AF_INET6, text, out) == 1;
}

static bool network_holds(char *entry, const char *host)
{
    uint8_t network[16], address[16];
    char *slash = strchr(entry, '/');
    char *end;
    *slash = '\0';
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (end == slash + 1 || *end != '\0' || !address_parse(entry, network) ||
        !address_parse(host, address)) {
        return false;
    }
    bits += is_ipv6(entry) ? 0 : 96;
    if (bits > 128) {
        return false;
    }
    size_t whole = bits / 8;
    unsigned rest = 8 - bits % 8;
    return memcmp(network, address, whole) == 0 &&
           (rest == 8 || network[whole] >> rest == address[whole] >> rest);
}

/* Takes "[address]:port" and "name:port" apart; a bare IPv6 address has no port. False: the port is
 * another. */
static bool entry_port_fits(char **entry, uint16_t port)
{
    char *colon = strrchr(*entry, ':');
    char *bracket = strchr(*entry, ']');
    if (**entry == '[' && bracket != NULL) {
        colon = bracket[1] == ':' ? bracket + 1 : NULL;
        *bracket = '\0';
        (*entry)++;
    } else if (colon != NULL && strchr(*entry, ':') != colon) {
        colon = NULL;
    }
    if (colon == NULL) {
        return true;
    }
    *colon = '\0';
    return strtoul(colon + 1, NULL, 10) == port;
}

static bool domain_holds(const char *entry, const char *host)
{
    size_t entry_size = strlen(entry), host_size = strlen(host);
    if (entry_size == 0 || entry_size > host_size) {
        return false;
    }
    const char *tail = host + host_size - entry_size;
    return strcasecmp(tail, entry) == 0 && (tail == host || tail[-1] == '.');
}

static bool entry_names(char *entry, const char *host, uint16_t port)
{
    if (strcmp(entry, "*") == 0) {
        return true;
    }
    if (strchr(entry, '/') != NULL) {
        return network_holds(entry, host);
    }
    if (!entry_port_fits(&entry, port)) {
        return false;
    }
    uint8_t listed[16], address[16];
    if (address_parse(host, address)) {
        return address_parse(entry, listed) && memcmp(listed, address, sizeof(listed)) == 0;
    }
    entry += *entry == '*' ? 1 : 0;
    entry += *entry == '.' ? 1 : 0;
    return domain_holds(entry, host);
}

bool rg_proxy_list_names(const char *list, const char *host, uint16_t port)
{
    static const char dividers[] = ", \t\r\n";
    while (*list != '\0') {
        char entry[RG_URL_HOST_SIZE_MAX + 16];
        list += strspn(list, dividers);
        size_t size = strcspn(list, dividers);
        if (size > 0 && size < sizeof(entry)) {
            memcpy(entry, list, size);
            entry[size] = '\0';
            if (entry_names(entry, host, port)) {
                return true;
            }
        }
        list += size;
    }
    return false;
}

bool rg_proxy_host_is_local(const char *host)
{
    return rg_proxy_list_names("localhost,127.0.0.0/8,::1", host, 0);
}

static const char *environment(const char *lower, const char *upper, const char **out_name)
{
    const char *value = getenv(lower);
    *out_name = value != NULL ? lower : upper;
    return value != NULL ? value : getenv(upper);
}

const char *rg_proxy_environment(const char *host, uint16_t port, const char **out_variable)
{
    const char *name;
    const char *exempt = environment("no_proxy", "NO_PROXY", &name);
    const char *proxy = environment("https_proxy", "HTTPS_PROXY", out_variable);
    if (proxy == NULL || proxy[0] == '\0' || rg_proxy_host_is_local(host) ||
        (exempt != NULL && rg_proxy_list_names(exempt, host, port))) {
        return NULL;
    }
    return proxy;
}

void rg_proxy_target_format(char out_target[static RG_PROXY_TARGET_SIZE_MAX], const char *host,
                            uint16_t port)
{
    snprintf(out_target, RG_PROXY_TARGET_SIZE_MAX, is_ipv6(host) ? "[%s]:%u" : "%s:%u", host, port);
}

int rg_proxy_encode(const struct rg_proxy *proxy, const char *target, char *out, size_t capacity)
{
    struct rg_h1_encoder encoder;
    rg_h1_encoder_init(&encoder, out, capacity);
    rg_h1_encode_request(&encoder, "CONNECT", target);
    rg_h1_encode_header(&encoder, "Host", target);
    if (proxy->authorization[0] != '\0') {
        rg_h1_encode_header(&encoder, "Proxy-Authorization", proxy->authorization);
    }
    return rg_h1_encode_end(&encoder);
}
