/* See certificate.h. A certificate configuration names the files, which are read at
 * each refresh, because certificates of workloads live short:
 *
 *   {"cert_configs": {"workload": {"cert_path": "...", "key_path": "..."}}}
 *
 * The subject token is a JSON array of base64: the leaf, then the trust chain. PEM holds just that
 * base64, so nothing has to be decoded. */
#include "gcs/credentials/certificate.h"

#include "gcs/credentials/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_FILE "certificate_config.json"
#define PEM_BEGIN "-----BEGIN CERTIFICATE-----"
#define PEM_END "-----END CERTIFICATE-----"

static const char *default_location(struct rg_credentials_reader *reader)
{
    const char *named = rg_credentials_environment(reader, "GOOGLE_API_CERTIFICATE_CONFIG");
    if (named != NULL) {
        return named;
    }
    const char *folder = getenv("CLOUDSDK_CONFIG"), *home = getenv("HOME");
    if (folder != NULL && *folder != '\0') {
        return rg_secret_printf(reader->arena, "%s/" CONFIG_FILE, folder);
    }
    return rg_secret_printf(reader->arena, "%s/.config/gcloud/" CONFIG_FILE,
                            home != NULL ? home : "");
}

void rg_certificate_source_read(struct rg_credentials_reader *reader, yyjson_val *source,
                                struct rg_credentials_config *config)
{
    yyjson_val *certificate = yyjson_obj_get(source, "certificate");
    bool by_default = yyjson_is_true(yyjson_obj_get(certificate, "use_default_certificate_config"));
    const char *location =
        rg_credentials_text(reader, certificate, "certificate_config_location", false);
    if (by_default == (location != NULL)) {
        rg_credentials_refuse(reader, "field \"certificate\" needs one of "
                                      "use_default_certificate_config and "
                                      "certificate_config_location");
        return;
    }
    config->source_kind = RG_SOURCE_CERTIFICATE;
    config->certificate.location = by_default ? default_location(reader) : location;
    config->certificate.trust_chain =
        rg_credentials_text(reader, certificate, "trust_chain_path", false);
}

static char *file_read(struct rg_credentials_run *run, const char *what, const char *path)
{
    char *text;
    size_t size;
    int rc =
        rg_credentials_read_file(&run->arena, path, RG_CREDENTIALS_FILE_SIZE_MAX, &text, &size);
    if (rc < 0) {
        rg_credentials_fail(run, rc, false, "%s %.120s: %s", what, path, rg_error_text(-rc));
        return NULL;
    }
    return text;
}

/* The base64 of the next certificate in PEM, without line breaks, in place; *text moves behind it.
 * NULL: there is none. */
static char *certificate_next(char **text)
{
    char *begin = strstr(*text, PEM_BEGIN);
    char *end = begin != NULL ? strstr(begin, PEM_END) : NULL;
    if (end == NULL) {
        return NULL;
    }
    char *base64 = begin + strlen(PEM_BEGIN), *to = base64;
    for (const char *from = base64; from < end; from++) {
        if (strchr(" \t\r\n", *from) == NULL) {
            *to++ = *from;
        }
    }
    *text = end + strlen(PEM_END);
    *to = '\0';
    bool valid =
        to > base64 && base64[strspn(base64, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
                                             "uvwxyz0123456789+/=")] == '\0';
    return valid ? base64 : NULL;
}

/* The certificates of the trust chain but for the leaf, which may stand in front. -EBADMSG: it
 * stands elsewhere. */
static int chain_read(char *text, const char *leaf, const char *out_chain[RG_CERTIFICATE_CHAIN_MAX])
{
    int count = 0;
    const char *next;
    for (bool first = true; (next = certificate_next(&text)) != NULL; first = false) {
        bool is_leaf = strcmp(next, leaf) == 0;
        if ((is_leaf && !first) || count == RG_CERTIFICATE_CHAIN_MAX) {
            return -EBADMSG;
        }
        if (!is_leaf) {
            out_chain[count++] = next;
        }
    }
    return count;
}

static char *token_make(struct rg_credentials_run *run, const char *leaf, const char *const *chain,
                        int count)
{
    size_t size = strlen(leaf) + sizeof("[\"\"]");
    for (int i = 0; i < count; i++) {
        size += strlen(chain[i]) + sizeof(",\"\"") - 1;
    }
    char *token = rg_secret_alloc(&run->arena, size);
    if (token == NULL) {
        rg_credentials_fail(run, -ENOMEM, false, "no memory for a subject token");
        return NULL;
    }
    char *end = stpcpy(stpcpy(stpcpy(token, "[\""), leaf), "\"");
    for (int i = 0; i < count; i++) {
        end = stpcpy(stpcpy(stpcpy(end, ",\""), chain[i]), "\"");
    }
    strcpy(end, "]");
    return token;
}

char *rg_certificate_subject_token(struct rg_credentials_run *run,
                                   const struct rg_credentials_config *config)
{
    const struct rg_certificate_source *source = &config->certificate;
    char *text = file_read(run, "certificate configuration", source->location);
    if (text == NULL) {
        return NULL;
    }
    yyjson_val *root = rg_json_parse(&run->arena, text, strlen(text));
    yyjson_val *workload = yyjson_obj_get(yyjson_obj_get(root, "cert_configs"), "workload");
    const char *cert_path = rg_json_text(workload, "cert_path");
    const char *key_path = rg_json_text(workload, "key_path");
    if (cert_path == NULL || key_path == NULL) {
        rg_credentials_fail(run, -EBADMSG, false,
                            "%.120s names no cert_path and key_path in cert_configs.workload",
                            source->location);
        return NULL;
    }
    char *pem = file_read(run, "certificate", cert_path);
    const char *leaf = pem != NULL ? certificate_next(&pem) : NULL;
    if (leaf == NULL) {
        rg_credentials_fail(run, -EBADMSG, false, "%.120s holds no certificate in PEM", cert_path);
        return NULL;
    }
    const char *chain[RG_CERTIFICATE_CHAIN_MAX];
    int count = 0;
    if (source->trust_chain != NULL) {
        char *more = file_read(run, "trust chain", source->trust_chain);
        if (more == NULL) {
            return NULL;
        }
        count = chain_read(more, leaf, chain);
    }
    if (count < 0) {
        rg_credentials_fail(run, count, false,
                            "%.120s: the leaf certificate is not the first one, or there are more "
                            "than %d",
                            source->trust_chain, RG_CERTIFICATE_CHAIN_MAX);
        return NULL;
    }
    run->fetcher.cert_file = cert_path;
    run->fetcher.key_file = key_path;
    return token_make(run, leaf, chain, count);
}
