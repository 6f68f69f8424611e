/* The identity of the emulator over TLS: a certificate authority made for the purpose, and one leaf
 * signed by it. They are two certificates, because some clients refuse a leaf that is an authority.
 *
 * In the folder lie ca.pem (for clients to trust), cert.pem and key.pem (readable by the owner
 * only). What is there already is used while it is valid, so that a client that was set up once
 * stays set up. The authority's own key is thrown away after signing: nobody can sign anything else
 * with it. */
#ifndef RG_EMULATOR_CERTIFICATE_H
#define RG_EMULATOR_CERTIFICATE_H

#include "runtime/base.h"

/* Valid from a day ago, for clients whose clock is behind, for a year. */
#define RG_CERTIFICATE_DAYS 365
#define RG_CERTIFICATE_DAYS_BACK 1
/* A certificate that is valid for less than this is made anew. */
#define RG_CERTIFICATE_DAYS_LEFT_MIN 7

struct rg_certificate;

/* The leaf is for localhost, the loopback addresses, and `host`, which is a name or an address;
 * NULL or an unspecified address adds none. `folder` is made when it is not there; NULL is a
 * private one in the temporary folder, which is removed at close. On failure `error` says why.
 * Returns owned. */
int rg_certificate_open(struct rg_certificate **out_certificate, const char *folder,
                        const char *host, char *error, size_t error_size);
void rg_certificate_close(struct rg_certificate *certificate);

/* Absolute; valid until close, as are the two PEM texts. */
const char *rg_certificate_ca_path(const struct rg_certificate *certificate);
const char *rg_certificate_chain_pem(const struct rg_certificate *certificate);
const char *rg_certificate_key_pem(const struct rg_certificate *certificate);

#endif
