/* The certificates that a client trusts. A system's bundle has more than a hundred of them, and a
 * client needs one or two: so they are kept as bytes, and a certificate is parsed and put into
 * BoringSSL's store when a chain names it as its issuer. A chain that fails is judged once more
 * with all of them in the store, so that the verdict and its words are those of the whole bundle.
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

/* Borrowed. What is in it is trusted; what is not may still come, see below. */
X509_STORE *rg_tls_roots_store(const struct rg_tls_roots *roots);

/* Puts those into the store whose subject is, byte for byte, the issuer of `certificate`. 0 or
 * -ENOMEM. */
int rg_tls_roots_add_issuers(struct rg_tls_roots *roots, const X509 *certificate);

/* Puts all that are left into the store, among them those whose names are the same in other bytes.
 * 0 or -ENOMEM. */
int rg_tls_roots_add_all(struct rg_tls_roots *roots);

/* True if all are in the store. To be asked before a chain is verified: a failure is final only
 * if they were. */
bool rg_tls_roots_complete(const struct rg_tls_roots *roots);

/* How many were to be put into the store and could not be parsed. They are not trusted. */
size_t rg_tls_roots_broken(const struct rg_tls_roots *roots);

#endif
