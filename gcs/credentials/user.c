/* Users: "authorized_user", which gcloud writes for Google accounts, and
 * "external_account_authorized_user", for workforce pools. Both trade a refresh token for an access
 * token (RFC 6749 section 6); where a client shows who it is differs. */
#include "gcs/credentials/exchange.h"

#include <errno.h>
#include <string.h>

#define GOOGLE_TOKEN_URL "https://oauth2.googleapis.com/token"
#define HINT "log in again: gcloud auth application-default login"

/* Into a place that has room for the one that may replace it. */
static void refresh_token_read(struct rg_credentials_reader *reader, yyjson_val *object,
                               struct rg_credentials_config *config)
{
    const char *text = rg_credentials_text(reader, object, "refresh_token", true);
    config->refresh_token = rg_secret_alloc(reader->arena, RG_TOKEN_SIZE_MAX + 1);
    if (text == NULL || config->refresh_token == NULL) {
        rg_credentials_refuse(reader, "no memory");
        return;
    }
    if (strlen(text) > RG_TOKEN_SIZE_MAX) {
        rg_credentials_refuse(reader, "field \"refresh_token\" is too long");
        return;
    }
    strcpy(config->refresh_token, text);
}

static void refresh_token_replace(struct rg_credentials_config *config,
                                  const struct rg_token_answer *answer)
{
    const char *text = answer->refresh_token;
    if (text != NULL && strlen(text) <= RG_TOKEN_SIZE_MAX) {
        explicit_bzero(config->refresh_token, RG_TOKEN_SIZE_MAX + 1);
        strcpy(config->refresh_token, text);
    }
}

static void user_read(struct rg_credentials_reader *reader, yyjson_val *object,
                      struct rg_credentials_config *config)
{
    config->client_id = rg_credentials_text(reader, object, "client_id", true);
    config->client_secret = rg_credentials_text(reader, object, "client_secret", true);
    refresh_token_read(reader, object, config);
    config->account = rg_credentials_text(reader, object, "account", false);
    config->token_url = rg_credentials_text(reader, object, "token_uri", false);
    if (config->token_url == NULL) {
        config->token_url = GOOGLE_TOKEN_URL;
    }
    rg_credentials_check_url(reader, "token_uri", config->token_url, config->universe, false);
}

static int user_obtain(struct rg_credentials_run *run, struct rg_credentials_config *config,
                       struct rg_token_out *out_token)
{
    struct rg_form form;
    rg_form_init(&form, run);
    rg_form_add(&form, "grant_type", "refresh_token");
    rg_form_add(&form, "client_id", config->client_id);
    rg_form_add(&form, "client_secret", config->client_secret);
    rg_form_add(&form, "refresh_token", config->refresh_token);
    rg_form_add(&form, "scope", run->scope);
    struct rg_token_answer answer;
    int rc = rg_token_request(run, config->token_url, &form, NULL, HINT, &answer);
    if (rc == 0) {
        refresh_token_replace(config, &answer);
        *out_token = answer.token;
    }
    return rc;
}

const struct rg_credentials_kind rg_credentials_authorized_user = {
    .type = "authorized_user",
    .label = "user",
    .may_be_source = true,
    .read = user_read,
    .obtain = user_obtain,
};

static void external_user_read(struct rg_credentials_reader *reader, yyjson_val *object,
                               struct rg_credentials_config *config)
{
    config->audience = rg_credentials_text(reader, object, "audience", false);
    config->client_id = rg_credentials_text(reader, object, "client_id", true);
    config->client_secret = rg_credentials_text(reader, object, "client_secret", true);
    refresh_token_read(reader, object, config);
    config->token_url = rg_credentials_text(reader, object, "token_url", false);
    if (config->token_url == NULL) {
        config->token_url =
            rg_secret_printf(reader->arena, "https://sts.%s/v1/oauthtoken", config->universe);
    }
    rg_credentials_check_url(reader, "token_url", config->token_url, config->universe, true);
}

static int external_user_obtain(struct rg_credentials_run *run,
                                struct rg_credentials_config *config,
                                struct rg_token_out *out_token)
{
    struct rg_form form;
    rg_form_init(&form, run);
    rg_form_add(&form, "grant_type", "refresh_token");
    rg_form_add(&form, "refresh_token", config->refresh_token);
    rg_form_add(&form, "scope", run->scope);
    const char *basic = rg_basic_authorization(run, config->client_id, config->client_secret);
    if (basic == NULL) {
        return rg_credentials_fail(run, -ENOMEM, false, "no memory for a token request");
    }
    struct rg_token_answer answer;
    int rc = rg_token_request(run, config->token_url, &form, basic, HINT, &answer);
    if (rc == 0) {
        refresh_token_replace(config, &answer);
        *out_token = answer.token;
    }
    return rc;
}

const struct rg_credentials_kind rg_credentials_external_user = {
    .type = "external_account_authorized_user",
    .label = "workforce user",
    .may_be_source = true,
    .read = external_user_read,
    .obtain = external_user_obtain,
};
