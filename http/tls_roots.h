/* The certificates that a client trusts. A system's bundle has more than a hundred of them, and a
 * client needs one or two: so they are kept as bytes, and a certificate is parsed when a chain
 * names it as its issuer. A chain that fails with these is judged once more with all of them, so
 * that the verdict and its words are those of the whole bundle.
 *
 * Used by any number of threads once opened. */
#ifndef RG_HTTP_TLS_ROOTS_H
#define RG_HTTP_TLS_ROOTS_H

#include "runtime/base.h"

#include <openssl/x509.h>

/* A larger bundle is parsed as a whole when it is opened. */
#define RG_TLS_BUNDLE_MAX RG_MIB(16)

struct rg_tls_roots;

/* A PEM bundle, a hashed directory, or both. The bundle is read now, and not again. Returns 0 and
 * owned roots; -EINVAL: BoringSSL's error queue says what is wrong; -ENOMEM. */
int rg_tls_roots_open(struct rg_tls_roots **out_roots, const char *file, const char *directory);
void rg_tls_roots_close(struct rg_tls_roots *roots);

/* Borrowed: a store of what may have issued the leaf and the others of a chain. What it accepts the
 * store of all accepts, too; the other way round that need not be. NULL: to be judged by all. */
X509_STORE *rg_tls_roots_some(struct rg_tls_roots *roots, const X509 *leaf,
                              const STACK_OF(X509) * untrusted);

/* Borrowed: the store of all, as BoringSSL loads the bundle. NULL: out of memory. */
X509_STORE *rg_tls_roots_all(struct rg_tls_roots *roots);

/* How many of all could not be parsed. They are not trusted. */
size_t rg_tls_roots_broken(const struct rg_tls_roots *roots);

#endif
