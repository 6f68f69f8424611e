/* What all TLS connections of one kind share: protocol limits, trust store, certificate. A context
 * is immutable once opened and used by any number of threads; it outlives its connections. */
#ifndef RG_HTTP_TLS_CONTEXT_H
#define RG_HTTP_TLS_CONTEXT_H

#include "runtime/base.h"

struct rg_tls_context;

/* Paths are borrowed for the call. */
struct rg_tls_client_options {
    /* Trust anchors: PEM bundle and hashed directory. Both NULL: those that SSL_CERT_FILE and
     * SSL_CERT_DIR name; without these, the first bundle that the platform has. */
    const char *ca_file;
    const char *ca_dir;
    /* A client certificate with its chain, and its key, in PEM. Both or neither. */
    const char *cert_file;
    const char *key_file;
    /* Never use our own receiving record layer: to compare the two. */
    bool boringssl_records;
};

/* PEM in memory, borrowed for the call; the certificate comes first, its issuers follow. */
struct rg_tls_server_options {
    const char *cert_pem;
    size_t cert_size;
    const char *key_pem;
    size_t key_size;
    bool boringssl_records;
};

/* Returns 0 and an owned context. -ENOENT: there is no trust store, or a named file does not exist.
 * -EINVAL: what was found is no certificate or no key, or the two do not match. -ENOMEM. After a
 * failure `error` says what is wrong and what to do about it. */
int rg_tls_context_open_client(struct rg_tls_context **out_context,
                               const struct rg_tls_client_options *options, char *error,
                               size_t error_size);
int rg_tls_context_open_server(struct rg_tls_context **out_context,
                               const struct rg_tls_server_options *options, char *error,
                               size_t error_size);

/* NULL is a no-op. No connection may be left. */
void rg_tls_context_close(struct rg_tls_context *context);

/* Says to people where a client context took its trust anchors from. */
const char *rg_tls_context_trust(const struct rg_tls_context *context);

#endif
