/* The metadata server of Compute Engine, GKE, Cloud Run: the machine's own service account. Plain
 * HTTP by design: the server is the hypervisor, at a link-local address. Whether there is one at
 * all is found out by the first request for a token, because opening a client asks nobody. */
#include "gcs/credentials/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOST_DEFAULT "metadata.google.internal"
#define IP_DEFAULT "169.254.169.254"
#define TIMEOUT_S_DEFAULT 3
#define DETECT_TRIES_DEFAULT 3
#define SETTING_MAX 60
/* GKE's server is often not there yet when a pod starts: tens of seconds, in these many tries. */
#define TOKEN_TRIES 8
#define TOKEN_PATH "/computeMetadata/v1/instance/service-accounts/default/token"
#define PRODUCT_FILE "/sys/class/dmi/id/product_name"
#define NO_CREDENTIALS                                                                             \
    "no credentials: GOOGLE_APPLICATION_CREDENTIALS is not set and gcloud has none; run `gcloud "  \
    "auth application-default login`, or choose credentials \"anonymous\""

static const struct rg_fetch_field flavor = {"Metadata-Flavor", "Google"};

static unsigned environment_number(const char *name, unsigned standard)
{
    const char *text = getenv(name);
    long value = text != NULL ? strtol(text, NULL, 10) : 0;
    return value > 0 && value <= SETTING_MAX ? (unsigned)value : standard;
}

static bool firmware_is_google(void)
{
    char name[64] = "";
    int fd = open(PRODUCT_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t size = read(fd, name, sizeof(name) - 1);
    close(fd);
    return size > 0 && strncmp(name, "Google", 6) == 0;
}

static struct rg_credentials_config *config_new(struct rg_credentials_reader *reader,
                                                const struct rg_credentials_kind *kind)
{
    struct rg_credentials_config *config = rg_secret_alloc(reader->arena, sizeof(*config));
    if (config == NULL) {
        rg_credentials_refuse(reader, "no memory");
        return NULL;
    }
    config->kind = kind;
    config->universe = rg_credentials_environment(reader, "GOOGLE_CLOUD_UNIVERSE_DOMAIN");
    if (config->universe == NULL) {
        config->universe = RG_UNIVERSE_DEFAULT;
    }
    return config;
}

struct rg_credentials_config *rg_credentials_from_nothing(struct rg_credentials_reader *reader)
{
    return config_new(reader, &rg_credentials_none);
}

struct rg_credentials_config *rg_credentials_from_metadata(struct rg_credentials_reader *reader)
{
    struct rg_credentials_config *config = config_new(reader, &rg_credentials_metadata);
    if (config == NULL) {
        return NULL;
    }
    config->account = "the machine's default service account";
    config->metadata_host = rg_credentials_environment(reader, "GCE_METADATA_HOST");
    if (config->metadata_host == NULL) {
        config->metadata_host = rg_credentials_environment(reader, "GCE_METADATA_ROOT");
    }
    config->metadata_is_certain = config->metadata_host != NULL || firmware_is_google();
    if (config->metadata_host == NULL) {
        config->metadata_host = HOST_DEFAULT;
    }
    config->metadata_ip = rg_credentials_environment(reader, "GCE_METADATA_IP");
    if (config->metadata_ip == NULL) {
        config->metadata_ip = IP_DEFAULT;
    }
    config->metadata_timeout_ns =
        environment_number("GCE_METADATA_TIMEOUT", TIMEOUT_S_DEFAULT) * RG_NS_PER_S;
    config->metadata_detect_tries =
        environment_number("GCE_METADATA_DETECT_RETRIES", DETECT_TRIES_DEFAULT);
    return config;
}

/* Anything may answer at a link-local address; the field says that it is what we look for. */
static bool is_there(struct rg_credentials_run *run, const struct rg_credentials_config *config)
{
    char error[RG_CREDENTIALS_TEXT_SIZE] = "";
    char *url = rg_secret_printf(&run->arena, "http://%s/", config->metadata_ip);
    struct rg_fetch_request request = {
        .method = "GET",
        .url = url,
        .fields = &flavor,
        .field_count = 1,
        .timeout_ns = config->metadata_timeout_ns,
        .tries = config->metadata_detect_tries,
    };
    struct rg_fetch_response response = {0};
    return url != NULL &&
           rg_fetch(&run->fetcher, &run->arena, &request, &response, error, sizeof(error)) == 0 &&
           response.status == 200 && response.is_metadata;
}

/* With scopes where they were asked for: separated by commas here. */
static char *token_url(struct rg_credentials_run *run, const struct rg_credentials_config *config)
{
    char *url = rg_secret_printf(&run->arena, "http://%s" TOKEN_PATH "%s%s", config->metadata_host,
                                 run->scope != NULL ? "?scopes=" : "",
                                 run->scope != NULL ? run->scope : "");
    for (char *at = url; at != NULL && *at != '\0'; at++) {
        *at = *at == ' ' ? ',' : *at;
    }
    return url;
}

static int metadata_obtain(struct rg_credentials_run *run, struct rg_credentials_config *config,
                           struct rg_token_out *out_token)
{
    if (!config->metadata_is_certain && !is_there(run, config)) {
        return rg_credentials_fail(run, -ENOENT, true, NO_CREDENTIALS);
    }
    char *url = token_url(run, config);
    if (url == NULL) {
        return rg_credentials_fail(run, -ENOMEM, false, "no memory for a token request");
    }
    struct rg_fetch_request request = {
        .method = "GET",
        .url = url,
        .fields = &flavor,
        .field_count = 1,
        .timeout_ns = config->metadata_timeout_ns,
        .tries = TOKEN_TRIES,
    };
    struct rg_token_answer answer;
    int rc = rg_token_fetch(run, &request, true, &answer);
    if (rc == 0) {
        *out_token = answer.token;
    }
    return rc;
}

const struct rg_credentials_kind rg_credentials_metadata = {
    .type = "compute_engine",
    .label = "metadata server",
    .obtain = metadata_obtain,
};

static int none_obtain(struct rg_credentials_run *run, struct rg_credentials_config *config,
                       struct rg_token_out *out_token)
{
    (void)config;
    (void)out_token;
    return rg_credentials_fail(run, -ENOENT, true, NO_CREDENTIALS);
}

const struct rg_credentials_kind rg_credentials_none = {
    .type = "none",
    .label = "no credentials",
    .obtain = none_obtain,
};
