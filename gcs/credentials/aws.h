/* External accounts whose identity is AWS's: credentials of the machine or of the environment, and
 * a request that is signed with them but sent to Google, who has AWS check it. */
#ifndef RG_GCS_CREDENTIALS_AWS_H
#define RG_GCS_CREDENTIALS_AWS_H

#include "gcs/credentials/kind.h"

#define RG_SIGV4_FIELDS_MAX 8
#define RG_SIGV4_SIZE_MAX RG_KIB(4)

/* What AWS's signature version 4 signs; the body is empty. */
struct rg_sigv4 {
    const char *access_key, *secret_key, *region, *service;
    const char *method, *path, *query;   /* encoded; parameters sorted by name */
    const char *time;                    /* "20150830T123600Z" */
    const struct rg_fetch_field *fields; /* names in lower case, sorted */
    size_t field_count;
};

/* The Authorization field, in the arena; NULL when it does not fit. */
char *rg_sigv4_authorization(struct rg_secret_arena *arena, const struct rg_sigv4 *request);

/* "credential_source" with an environment_id. */
void rg_aws_source_read(struct rg_credentials_reader *reader, yyjson_val *source,
                        struct rg_credentials_config *config);
/* The subject token; NULL: noted in the run. */
char *rg_aws_subject_token(struct rg_credentials_run *run,
                           const struct rg_credentials_config *config);

#endif
