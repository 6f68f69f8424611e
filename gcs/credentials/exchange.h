/* What several kinds of credentials do alike: forms that go to OAuth token servers and the answers
 * that come back, the exchange of a foreign token (RFC 8693), and impersonation of a service
 * account (IAM Service Account Credentials API, generateAccessToken). */
#ifndef RG_GCS_CREDENTIALS_EXCHANGE_H
#define RG_GCS_CREDENTIALS_EXCHANGE_H

#include "gcs/credentials/kind.h"

/* What the token of a source is asked for, when it shall impersonate an account. */
#define RG_SCOPE_IAM "https://www.googleapis.com/auth/iam"
/* Where a scope must be named and the caller named none. */
#define RG_SCOPE_DEFAULT "https://www.googleapis.com/auth/devstorage.full_control"

/* An application/x-www-form-urlencoded body in the run's arena. Errors are sticky. */
struct rg_form {
    struct rg_credentials_run *run;
    char *data;
    size_t size, capacity;
    bool full;
};
void rg_form_init(struct rg_form *form, struct rg_credentials_run *run);
/* A NULL value adds nothing. */
void rg_form_add(struct rg_form *form, const char *name, const char *value);

/* "Basic ..." of RFC 6749 section 2.3.1; NULL when there is no memory. */
char *rg_basic_authorization(struct rg_credentials_run *run, const char *user,
                             const char *password);

struct rg_token_answer {
    struct rg_token_out token;
    const char *refresh_token; /* NULL: none came */
    bool clock_refused;        /* a failure: the server did not like the time in our assertion */
    int64_t date_s;            /* the server's clock; 0: unknown */
};

/* Posts the form to a token server. `authorization` may be NULL. 0, or a negative errno noted in
 * the run. `hint` says what a user does when the grant itself is refused. */
int rg_token_request(struct rg_credentials_run *run, const char *url, const struct rg_form *form,
                     const char *authorization, const char *hint,
                     struct rg_token_answer *out_answer);

/* The same for a request that needs no form. With `metadata`, the answer must come from a metadata
 * server. */
int rg_token_fetch(struct rg_credentials_run *run, const struct rg_fetch_request *request,
                   bool metadata, struct rg_token_answer *out_answer);

/* Exchanges a subject token of an external account. */
int rg_sts_exchange(struct rg_credentials_run *run, const struct rg_credentials_config *config,
                    const char *subject_token, const char *subject_token_type, const char *scope,
                    struct rg_token_out *out_token);

/* Has a token of config->impersonation_url's account made by the bearer of `source_token`. */
int rg_impersonate(struct rg_credentials_run *run, const struct rg_credentials_config *config,
                   const char *source_token, struct rg_token_out *out_token);

/* The account in an impersonation URL, in the arena; NULL when the URL has none. */
const char *rg_impersonated_account(struct rg_secret_arena *arena, const char *url);

/* A GET of a small document, which must be answered with 200; `what` names it in messages. NULL:
 * noted in the run. */
char *rg_fetch_document(struct rg_credentials_run *run, const struct rg_fetch_request *request,
                        const char *what);

/* yyjson's memory out of an arena. */
yyjson_alc rg_json_allocator(struct rg_secret_arena *arena);
/* Parses JSON; NULL when it is no object. */
yyjson_val *rg_json_parse(struct rg_secret_arena *arena, const char *text, size_t size);
/* A non-empty string of an object, or NULL. */
const char *rg_json_text(yyjson_val *object, const char *name);
/* A number of seconds, given as a number or as a string of digits; -1: neither. */
int64_t rg_json_seconds(yyjson_val *object, const char *name);
/* Seconds since 1970 of an RFC 3339 time, or -1. */
int64_t rg_rfc3339_parse(const char *text);

#endif
