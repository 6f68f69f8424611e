/* "service_account": a key of our own. Without a wish for scopes, a token that we sign ourselves is
 * the access token (AIP-4111) and no server is asked; with one, the signed token is traded for an
 * access token (RFC 7523), except in universes other than Google's own, which know the first way
 * only. */
#include "gcs/credentials/exchange.h"
#include "gcs/credentials/sign.h"
#include "gcs/wire/digest.h"
#include "runtime/clock.h"
#include "runtime/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GOOGLE_TOKEN_URL "https://oauth2.googleapis.com/token"
#define GRANT "urn:ietf:params:oauth:grant-type:jwt-bearer"
/* Clocks ahead of Google's would make tokens that are not valid yet. */
#define BACKDATE_S 10
/* A clock that is off by this much is the cause when a grant is refused. */
#define SKEW_S_MIN 30

static void service_read(struct rg_credentials_reader *reader, yyjson_val *object,
                         struct rg_credentials_config *config)
{
    config->client_email = rg_credentials_text(reader, object, "client_email", true);
    config->account = config->client_email;
    config->private_key = rg_credentials_text(reader, object, "private_key", true);
    config->private_key_id = rg_credentials_text(reader, object, "private_key_id", false);
    config->project = rg_credentials_text(reader, object, "project_id", false);
    config->token_url = rg_credentials_text(reader, object, "token_uri", false);
    if (config->token_url == NULL) {
        config->token_url = GOOGLE_TOKEN_URL;
    }
    rg_credentials_check_url(reader, "token_uri", config->token_url, config->universe, false);
    if (reader->rc == 0 && rg_rsa_key_check(config->private_key) < 0) {
        rg_credentials_refuse(reader, "field \"private_key\" is not an RSA private key in PEM");
    }
}

struct claims {
    const char *audience, *scope; /* NULL: left out */
    bool has_subject;
    int64_t issued_s;
};

static char *claims_write(struct rg_credentials_run *run,
                          const struct rg_credentials_config *config, const struct claims *claims)
{
    yyjson_alc allocator = rg_json_allocator(&run->arena);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&allocator);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "iss", config->client_email);
    if (claims->has_subject) {
        yyjson_mut_obj_add_str(doc, root, "sub", config->client_email);
    }
    if (claims->audience != NULL) {
        yyjson_mut_obj_add_str(doc, root, "aud", claims->audience);
    }
    if (claims->scope != NULL) {
        yyjson_mut_obj_add_str(doc, root, "scope", claims->scope);
    }
    yyjson_mut_obj_add_int(doc, root, "iat", claims->issued_s);
    yyjson_mut_obj_add_int(doc, root, "exp", claims->issued_s + RG_TOKEN_LIFETIME_S);
    return doc != NULL ? yyjson_mut_write_opts(doc, 0, &allocator, NULL, NULL) : NULL;
}

static char *header_write(struct rg_credentials_run *run,
                          const struct rg_credentials_config *config)
{
    yyjson_alc allocator = rg_json_allocator(&run->arena);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&allocator);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "alg", "RS256");
    yyjson_mut_obj_add_str(doc, root, "typ", "JWT");
    if (config->private_key_id != NULL) {
        yyjson_mut_obj_add_str(doc, root, "kid", config->private_key_id);
    }
    return doc != NULL ? yyjson_mut_write_opts(doc, 0, &allocator, NULL, NULL) : NULL;
}

static char *base64url(struct rg_credentials_run *run, const void *data, size_t size)
{
    char *out = rg_secret_alloc(&run->arena, RG_BASE64URL_SIZE(size));
    if (out != NULL) {
        rg_base64url_encode(data, size, out);
    }
    return out;
}

/* A JSON web token in compact form (RFC 7515 section 7.1); NULL: noted in the run. */
static char *jwt_sign(struct rg_credentials_run *run, const struct rg_credentials_config *config,
                      const struct claims *claims)
{
    char *header = header_write(run, config), *payload = claims_write(run, config, claims);
    char *header64 = header != NULL ? base64url(run, header, strlen(header)) : NULL;
    char *payload64 = payload != NULL ? base64url(run, payload, strlen(payload)) : NULL;
    char *input = header64 != NULL && payload64 != NULL
                      ? rg_secret_printf(&run->arena, "%s.%s", header64, payload64)
                      : NULL;
    uint8_t *signature = rg_secret_alloc(&run->arena, RG_RSA_SIGNATURE_SIZE_MAX);
    if (input == NULL || signature == NULL) {
        rg_credentials_fail(run, -ENOMEM, false, "no memory to sign a token");
        return NULL;
    }
    int size = rg_rsa_sha256_sign(config->private_key, input, strlen(input), signature);
    char *signature64 = size > 0 ? base64url(run, signature, (size_t)size) : NULL;
    char *jwt =
        signature64 != NULL ? rg_secret_printf(&run->arena, "%s.%s", input, signature64) : NULL;
    if (jwt == NULL) {
        rg_credentials_fail(run, -EINVAL, true, "the private key could not sign a token");
    }
    return jwt;
}

static int sign_ourselves(struct rg_credentials_run *run, struct rg_credentials_config *config,
                          struct rg_token_out *out_token)
{
    struct claims claims = {
        .scope = run->scope,
        .has_subject = true,
        .issued_s = (int64_t)time(NULL) - BACKDATE_S,
    };
    if (claims.scope == NULL) {
        claims.audience = rg_secret_printf(&run->arena, "https://storage.%s/", config->universe);
    }
    uint64_t now_ns = rg_now_ns();
    out_token->text = jwt_sign(run, config, &claims);
    out_token->expires_ns = now_ns + (RG_TOKEN_LIFETIME_S - BACKDATE_S) * RG_NS_PER_S;
    return out_token->text != NULL ? 0 : -EINVAL;
}

static int grant_at(struct rg_credentials_run *run, const struct rg_credentials_config *config,
                    int64_t now_s, struct rg_token_answer *answer)
{
    struct claims claims = {
        .audience = config->token_url,
        .scope = run->scope,
        .issued_s = now_s - BACKDATE_S,
    };
    *answer = (struct rg_token_answer){0};
    char *assertion = jwt_sign(run, config, &claims);
    if (assertion == NULL) {
        return -EINVAL;
    }
    struct rg_form form;
    rg_form_init(&form, run);
    rg_form_add(&form, "grant_type", GRANT);
    rg_form_add(&form, "assertion", assertion);
    return rg_token_request(run, config->token_url, &form, NULL,
                            "check that the key and the account still exist, and the clock",
                            answer);
}

/* A machine whose clock is wrong is told by the server's date, and asks once more by that. */
static int trade_assertion(struct rg_credentials_run *run, struct rg_credentials_config *config,
                           struct rg_token_out *out_token)
{
    struct rg_token_answer answer;
    int64_t now_s = (int64_t)time(NULL);
    int rc = grant_at(run, config, now_s, &answer);
    int64_t skew_s = answer.date_s != 0 ? answer.date_s - now_s : 0;
    if (rc < 0 && answer.clock_refused && llabs(skew_s) >= SKEW_S_MIN) {
        rg_log(RG_LOG_WARN, "credentials: this machine's clock is %" PRId64 " s off", -skew_s);
        run->text[0] = '\0';
        run->fatal = false;
        run->rc = 0;
        rc = grant_at(run, config, answer.date_s, &answer);
    }
    if (rc == 0) {
        *out_token = answer.token;
    }
    return rc;
}

static int service_obtain(struct rg_credentials_run *run, struct rg_credentials_config *config,
                          struct rg_token_out *out_token)
{
    bool is_google = strcmp(config->universe, RG_UNIVERSE_DEFAULT) == 0;
    return run->scope != NULL && is_google ? trade_assertion(run, config, out_token)
                                           : sign_ourselves(run, config, out_token);
}

const struct rg_credentials_kind rg_credentials_service_account = {
    .type = "service_account",
    .label = "service account",
    .may_be_source = true,
    .read = service_read,
    .obtain = service_obtain,
};
