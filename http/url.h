/* URLs as this program meets them: endpoints (`https://host:port/prefix`, `host:port`), and the
 * targets of requests on the server side. Nothing is copied: every
 * slice borrows the text it was parsed from. All functions return -EINVAL for text they refuse and
 * leave their outputs untouched then. */
#ifndef RG_HTTP_URL_H
#define RG_HTTP_URL_H

#include "http/h1_decoder.h"

#define RG_URL_HOST_SIZE_MAX 253 /* RFC 1035 section 2.3.4, in text. */
#define RG_URL_PATH_SIZE_MAX 1024

struct rg_url {
    bool is_tls;
    bool host_is_ipv6;
    uint16_t port;                /* The scheme's own when the text names none. */
    struct rg_h1_slice host;      /* To resolve and to verify: IPv6 literals without brackets. */
    struct rg_h1_slice authority; /* For the Host field: host and port as they were written. */
    struct rg_h1_slice path;      /* Empty, or starts with '/' and does not end in one. */
};

/* `http://` and `https://` URLs, and without a scheme `host[:port][/path]`, which means http
 * because that is how emulators are named. User names, queries and fragments are refused: an
 * endpoint has none, and a password in it would be sent nowhere. */
int rg_url_parse(const char *text, size_t size, struct rg_url *out_url);

/* Divides a request target in origin-form or absolute-form; both parts still percent-encoded. The
 * query comes without its question mark and is empty when there is none. */
void rg_url_target_split(struct rg_h1_slice target, struct rg_h1_slice *out_path,
                         struct rg_h1_slice *out_query);

/* Takes the next `name[=value]` off the front of `query`; both still percent-encoded. Empty
 * pairs are passed over. False at the end. */
bool rg_url_query_next(struct rg_h1_slice *query, struct rg_h1_slice *out_name,
                       struct rg_h1_slice *out_value);

/* In a query '+' stands for a space, as in forms; in a path it stands for itself. */
enum rg_url_part { RG_URL_PATH, RG_URL_QUERY };

/* Decodes once. Returns the decoded size, which is never more than the encoded one, so that
 * `out` may be the encoded text itself; -ENOSPC when it does not fit. The result may hold any
 * byte, NUL too. */
int rg_url_percent_decode(struct rg_h1_slice encoded, enum rg_url_part part, char *out,
                          size_t out_capacity);

#endif
