/* "impersonated_service_account": the credentials of somebody (a user, mostly) who may act as a
 * service account, by himself or through a chain of delegates. */
#include "gcs/credentials/exchange.h"

#include <errno.h>
#include <string.h>

static void delegates_read(struct rg_credentials_reader *reader, yyjson_val *object,
                           struct rg_credentials_config *config)
{
    yyjson_val *list = yyjson_obj_get(object, "delegates");
    if (list == NULL || yyjson_is_null(list)) {
        return;
    }
    size_t index, count;
    yyjson_val *value;
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) > RG_DELEGATES_MAX) {
        rg_credentials_refuse(reader, "field \"delegates\" is not a list of at most %d accounts",
                              RG_DELEGATES_MAX);
        return;
    }
    yyjson_arr_foreach(list, index, count, value)
    {
        const char *text = yyjson_get_str(value);
        if (text == NULL || *text == '\0') {
            rg_credentials_refuse(reader, "field \"delegates\" holds something else than accounts");
            return;
        }
        config->delegates[config->delegate_count++] = text;
    }
}

/* A list of strings, or one string. */
static const char *scopes_read(struct rg_credentials_reader *reader, yyjson_val *object)
{
    yyjson_val *list = yyjson_obj_get(object, "scopes");
    if (!yyjson_is_arr(list)) {
        return rg_credentials_text(reader, object, "scopes", false);
    }
    const char *joined = NULL;
    size_t index, count;
    yyjson_val *value;
    yyjson_arr_foreach(list, index, count, value)
    {
        const char *text = yyjson_get_str(value);
        if (text == NULL || *text == '\0' || index >= RG_SCOPES_MAX) {
            rg_credentials_refuse(reader, "field \"scopes\" is not a list of at most %d scopes",
                                  RG_SCOPES_MAX);
            return NULL;
        }
        joined = joined == NULL ? text : rg_secret_printf(reader->arena, "%s %s", joined, text);
        if (joined == NULL) {
            rg_credentials_refuse(reader, "no memory");
            return NULL;
        }
    }
    return joined;
}

static void impersonated_read(struct rg_credentials_reader *reader, yyjson_val *object,
                              struct rg_credentials_config *config)
{
    const char *url =
        rg_credentials_text(reader, object, "service_account_impersonation_url", true);
    config->impersonation_url = url;
    rg_credentials_check_url(reader, "service_account_impersonation_url", url, config->universe,
                             true);
    config->account = rg_impersonated_account(reader->arena, url);
    if (reader->rc == 0 && config->account == NULL) {
        rg_credentials_refuse(reader, "field \"service_account_impersonation_url\" does not end in "
                                      "ACCOUNT:generateAccessToken");
    }
    delegates_read(reader, object, config);
    config->scopes = scopes_read(reader, object);
    config->lifetime_s = RG_TOKEN_LIFETIME_S;
    yyjson_val *source = yyjson_obj_get(object, "source_credentials");
    if (reader->rc == 0 && !yyjson_is_obj(source)) {
        rg_credentials_refuse(reader, "field \"source_credentials\" is missing or is no object");
    }
    if (reader->rc == 0) {
        config->source = rg_credentials_read_object(reader, source, true);
    }
}

static int impersonated_obtain(struct rg_credentials_run *run, struct rg_credentials_config *config,
                               struct rg_token_out *out_token)
{
    const char *scope = run->scope;
    struct rg_token_out source;
    /* A user's refresh token was granted scopes once and for all, and IAM's may not be among them
     * by name. */
    bool is_user = config->source->kind == &rg_credentials_authorized_user ||
                   config->source->kind == &rg_credentials_external_user;
    run->scope = is_user ? NULL : RG_SCOPE_IAM;
    int rc = config->source->kind->obtain(run, config->source, &source);
    run->scope = scope;
    return rc < 0 ? rc : rg_impersonate(run, config, source.text, out_token);
}

const struct rg_credentials_kind rg_credentials_impersonated = {
    .type = "impersonated_service_account",
    .label = "impersonated service account",
    .read = impersonated_read,
    .obtain = impersonated_obtain,
};
