/* URLs: see url.h. */
#include "http/url.h"

#include <arpa/inet.h>
#include <string.h>

#define PORT_HTTP 80
#define PORT_HTTPS 443
#define PORT_DIGITS_MAX 5
#define LABEL_SIZE_MAX 63
/* No URL of any kind that is parsed here comes near it; it keeps sizes within their slices. */
#define TEXT_SIZE_MAX RG_MIB(1)

static struct rg_h1_slice slice(const char *start, const char *end)
{
    RG_ASSERT(start <= end);
    return (struct rg_h1_slice){start, (uint32_t)(end - start)};
}

/* Skips a prefix that is written in lower case, in any case. */
static bool skip_prefix(const char **at, const char *end, const char *prefix)
{
    RG_ASSERT(*at <= end);
    size_t size = strlen(prefix);
    if ((size_t)(end - *at) < size) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        char c = (*at)[i];
        if ((c >= 'A' && c <= 'Z' ? c | 0x20 : c) != prefix[i]) {
            return false;
        }
    }
    *at += size;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alphanumeric(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Labels of letters, digits, '-' and '_', divided by single dots. Also fits IPv4 addresses. */
static bool is_host_name(struct rg_h1_slice host)
{
    RG_ASSERT(host.data != NULL);
    uint32_t label_size = 0;
    for (uint32_t i = 0; i < host.size; i++) {
        char c = host.data[i];
        if (c == '.') {
            if (label_size == 0) {
                return false;
            }
            label_size = 0;
            continue;
        }
        if ((!is_alphanumeric(c) && c != '-' && c != '_') || ++label_size > LABEL_SIZE_MAX) {
            return false;
        }
    }
    return label_size > 0 && host.size <= RG_URL_HOST_SIZE_MAX;
}

static bool is_ipv6(struct rg_h1_slice host)
{
    RG_ASSERT(host.data != NULL);
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (host.size >= sizeof(text) || memchr(host.data, '\0', host.size) != NULL) {
        return false;
    }
    memcpy(text, host.data, host.size);
    text[host.size] = '\0';
    return inet_pton(AF_INET6, text, &address) == 1;
}

/* ":1" to ":65535", or nothing. */
static bool parse_port(const char *at, const char *end, uint16_t *port)
{
    RG_ASSERT(at <= end);
    if (at == end) {
        return true;
    }
    if (*at != ':' || end - at < 2 || end - at > 1 + PORT_DIGITS_MAX) {
        return false;
    }
    uint32_t value = 0;
    for (at++; at < end; at++) {
        if (!is_digit(*at)) {
            return false;
        }
        value = value * 10 + (uint32_t)(*at - '0');
    }
    if (value == 0 || value > UINT16_MAX) {
        return false;
    }
    *port = (uint16_t)value;
    return true;
}

static bool parse_authority(struct rg_url *url)
{
    RG_ASSERT(url->port > 0);
    const char *at = url->authority.data, *end = at + url->authority.size;
    if (at < end && *at == '[') {
        const char *bracket = memchr(at, ']', (size_t)(end - at));
        if (bracket == NULL) {
            return false;
        }
        url->host = slice(at + 1, bracket);
        url->host_is_ipv6 = true;
        return is_ipv6(url->host) && parse_port(bracket + 1, end, &url->port);
    }
    const char *colon = memchr(at, ':', (size_t)(end - at));
    const char *host_end = colon == NULL ? end : colon;
    url->host = slice(at, host_end);
    return is_host_name(url->host) && parse_port(host_end, end, &url->port);
}

static bool parse_path(struct rg_url *url, const char *at, const char *end)
{
    size_t size = (size_t)(end - at);
    if (rg_h1_target_span(at, size) != size || memchr(at, '?', size) != NULL ||
        size > RG_URL_PATH_SIZE_MAX) {
        return false;
    }
    while (end > at && end[-1] == '/') {
        end--;
    }
    url->path = slice(at, end);
    return true;
}

int rg_url_parse(const char *text, size_t size, struct rg_url *out_url)
{
    RG_ASSERT(text != NULL);
    if (size > TEXT_SIZE_MAX) {
        return -EINVAL;
    }
    const char *at = text, *end = text + size;
    struct rg_url url = {.port = PORT_HTTP};
    if (skip_prefix(&at, end, "https://")) {
        url.is_tls = true;
        url.port = PORT_HTTPS;
    } else {
        skip_prefix(&at, end, "http://");
    }
    const char *slash = memchr(at, '/', (size_t)(end - at));
    const char *authority_end = slash == NULL ? end : slash;
    url.authority = slice(at, authority_end);
    if (!parse_authority(&url) || !parse_path(&url, authority_end, end)) {
        return -EINVAL;
    }
    *out_url = url;
    return 0;
}

/* Behind the scheme and the authority of an absolute-form target, which origin-form has not. */
static const char *target_path(const char *at, const char *end)
{
    RG_ASSERT(at < end);
    if (!skip_prefix(&at, end, "http://") && !skip_prefix(&at, end, "https://")) {
        return at;
    }
    while (at < end && *at != '/' && *at != '?') {
        at++;
    }
    return at;
}

void rg_url_target_split(struct rg_h1_slice target, struct rg_h1_slice *out_path,
                         struct rg_h1_slice *out_query)
{
    RG_ASSERT(target.size > 0);
    const char *end = target.data + target.size;
    const char *path = target_path(target.data, end);
    const char *mark = memchr(path, '?', (size_t)(end - path));
    struct rg_h1_slice query = mark == NULL ? slice(end, end) : slice(mark + 1, end);
    *out_path = slice(path, mark == NULL ? end : mark);
    *out_query = query;
    if (out_path->size == 0) {
        /* RFC 9110 section 4.2.3: an empty path with an authority is "/". */
        *out_path = (struct rg_h1_slice){"/", 1};
    }
}

bool rg_url_query_next(struct rg_h1_slice *query, struct rg_h1_slice *out_name,
                       struct rg_h1_slice *out_value)
{
    RG_ASSERT(query->data != NULL || query->size == 0);
    const char *at = query->data, *end = at + query->size;
    while (at < end && *at == '&') {
        at++;
    }
    if (at == end) {
        query->size = 0;
        return false;
    }
    const char *ampersand = memchr(at, '&', (size_t)(end - at));
    const char *pair_end = ampersand == NULL ? end : ampersand;
    const char *equals = memchr(at, '=', (size_t)(pair_end - at));
    *out_name = slice(at, equals == NULL ? pair_end : equals);
    *out_value = equals == NULL ? slice(pair_end, pair_end) : slice(equals + 1, pair_end);
    *query = slice(pair_end, end);
    return true;
}

static int hex_value(char c)
{
    if (is_digit(c)) {
        return c - '0';
    }
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

int rg_url_percent_decode(struct rg_h1_slice encoded, enum rg_url_part part, char *out,
                          size_t out_capacity)
{
    RG_ASSERT(encoded.size <= INT32_MAX);
    uint32_t size = 0;
    for (uint32_t i = 0; i < encoded.size; i++) {
        char c = encoded.data[i];
        if (c == '%') {
            int high = encoded.size - i > 2 ? hex_value(encoded.data[i + 1]) : -1;
            int low = high >= 0 ? hex_value(encoded.data[i + 2]) : -1;
            if (low < 0) {
                return -EINVAL;
            }
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && part == RG_URL_QUERY) {
            c = ' ';
        }
        if (size == out_capacity) {
            return -ENOSPC;
        }
        out[size++] = c;
    }
    RG_ASSERT(size <= encoded.size);
    return (int)size;
}
