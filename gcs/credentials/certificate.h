/* External accounts whose identity is an X.509 certificate (workload identity federation): the
 * token server is reached by mutual TLS, and the subject token is the chain of certificates. */
#ifndef RG_GCS_CREDENTIALS_CERTIFICATE_H
#define RG_GCS_CREDENTIALS_CERTIFICATE_H

#include "gcs/credentials/kind.h"

/* The most certificates of a chain: the leaf and what leads from it to a root. */
#define RG_CERTIFICATE_CHAIN_MAX 16

/* "credential_source" with a certificate. */
void rg_certificate_source_read(struct rg_credentials_reader *reader, yyjson_val *source,
                                struct rg_credentials_config *config);
/* The subject token; NULL: noted in the run. From then on the run's fetcher shows the certificate,
 * where a server asks for one. */
char *rg_certificate_subject_token(struct rg_credentials_run *run,
                                   const struct rg_credentials_config *config);

#endif
