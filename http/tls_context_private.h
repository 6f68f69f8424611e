/* The inside of a TLS context, for the http/tls_*.c files: tls_context.c opens it, and connections,
 * peers and verification read it. */
#ifndef RG_HTTP_TLS_CONTEXT_PRIVATE_H
#define RG_HTTP_TLS_CONTEXT_PRIVATE_H

#include "http/tls_roots.h"
#include "runtime/base.h"

#include <limits.h>
#include <openssl/ssl.h>

struct rg_tls_context {
    SSL_CTX *ssl;
    struct rg_tls_roots *roots; /* NULL on a server */
    bool boringssl_records;
    char trust[PATH_MAX];
};

#endif
