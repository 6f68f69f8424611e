/* See session.h. */
#include "cli/session.h"

#include "cli/nearest.h"
#include "cli/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* More than there are. */
#define CLIENT_OPTIONS_MAX 128

static bool log_level_parse(const char *source, const char *text, enum rg_log_level *out_level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out_level = (enum rg_log_level)(RG_LOG_ERROR + i);
            return true;
        }
    }
    cli_usage("%s must be error, warn, info or debug, got \"%s\"", source, text);
    return false;
}

static bool numa_parse(const char *text, enum rg_numa_policy *out_policy)
{
    static const char *const names[] = {"auto", "compact", "spread", "none"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out_policy = (enum rg_numa_policy)(RG_NUMA_AUTO + i);
            return true;
        }
    }
    cli_usage("--numa must be auto, compact, spread or none, got \"%s\"", text);
    return false;
}

static bool option_add(struct cli_connection *connection, const char *text)
{
    const char *value = strchr(text, '=');
    if (value == NULL || value == text) {
        cli_usage("--option needs NAME=VALUE, got \"%s\"", text);
        return false;
    }
    if (connection->option_count == CLI_OPTIONS_MAX) {
        cli_usage("there are more than %d of --option", CLI_OPTIONS_MAX);
        return false;
    }
    connection->options[connection->option_count++] = text;
    return true;
}

/* Which sizes there may be is the library's to say, as of `--option memory=`. */
static bool memory_parse(const char *text, uint64_t *out_memory)
{
    char error[256];
    struct rg_runtime_options runtime;
    rg_runtime_options_init(&runtime);
    if (rg_option_set(&runtime, NULL, "memory", text, error, sizeof(error)) < 0) {
        cli_usage("--%s", error);
        return false;
    }
    *out_memory = runtime.memory_max;
    return true;
}

bool cli_connection_option(struct cli_connection *connection, int option, const char *argument,
                           bool *out_ok)
{
    uint64_t value;
    *out_ok = true;
    switch (option) {
    case CLI_OPTION_ENDPOINT:
        connection->endpoint = argument;
        return true;
    case CLI_OPTION_CA:
        connection->ca = argument;
        return true;
    case CLI_OPTION_CREDENTIALS:
        connection->credentials = argument;
        return true;
    case CLI_OPTION_PROXY:
        connection->proxy = argument;
        return true;
    case CLI_OPTION_THREADS:
        *out_ok = cli_parse_u64("--threads", argument, 1, 256, &value);
        if (*out_ok) {
            connection->threads = (uint32_t)value;
        }
        return true;
    case 'q':
        cli_quiet_set();
        return true;
    case CLI_OPTION_MEMORY:
        *out_ok = memory_parse(argument, &connection->memory);
        return true;
    case CLI_OPTION_NUMA:
        *out_ok = numa_parse(argument, &connection->numa);
        return true;
    case CLI_OPTION_LOG:
        *out_ok = log_level_parse("--log", argument, &connection->log_level);
        return true;
    case CLI_OPTION_LOG_FILE:
        connection->log_file = argument;
        return true;
    case CLI_OPTION_OPTION:
        *out_ok = option_add(connection, argument);
        return true;
    default:
        return false;
    }
}

/* What goes to a file has its own level, and leaves standard error as it is without --log. */
static bool log_file_open(const struct cli_connection *connection)
{
    enum rg_log_level level =
        connection->log_level != RG_LOG_DEFAULT ? connection->log_level : RG_LOG_INFO;
    return connection->log_file == NULL || cli_log_file_set(connection->log_file, level);
}

/* What the library is to log: the option's level, RINGEST_LOG's, or errors. False after saying that
 * RINGEST_LOG is no level. */
static bool log_level(const struct cli_connection *connection, enum rg_log_level *out_level)
{
    const char *value = getenv("RINGEST_LOG");
    bool is_said = connection->log_level != RG_LOG_DEFAULT && connection->log_file == NULL;
    *out_level = is_said ? connection->log_level : RG_LOG_ERROR;
    return is_said || value == NULL || *value == '\0' ||
           log_level_parse("RINGEST_LOG", value, out_level);
}

static void set_u32(uint32_t *option, uint32_t named)
{
    *option = named != 0 ? named : *option;
}

static void set_text(const char **option, const char *named)
{
    *option = named != NULL ? named : *option;
}

/* Options that commands have under names of their own come before the same by --option. */
static void named_set(const struct cli_connection *connection, struct rg_runtime_options *runtime,
                      struct rg_client_options *options)
{
    set_u32(&runtime->threads, connection->threads);
    runtime->numa_policy =
        connection->numa != RG_NUMA_AUTO ? connection->numa : runtime->numa_policy;
    runtime->memory_max = connection->memory != 0 ? connection->memory : runtime->memory_max;
    set_text(&options->endpoint, connection->endpoint);
    set_text(&options->ca_file, connection->ca);
    set_text(&options->credentials, connection->credentials);
    set_text(&options->proxy, connection->proxy);
    set_u32(&options->connections_max, connection->connections);
    set_u32(&options->prewarm, connection->prewarm);
    if (connection->no_checksum) {
        options->checksum = RG_SWITCH_OFF;
    }
}

static bool option_is_known(const char *name)
{
    const char *names[CLIENT_OPTIONS_MAX], *known;
    size_t count = 0;
    while ((known = rg_option_name(count)) != NULL) {
        RG_ASSERT(count < CLIENT_OPTIONS_MAX);
        if (strcmp(name, known) == 0) {
            return true;
        }
        names[count++] = known;
    }
    const char *nearest = nearest_word(name, names, count);
    cli_usage(nearest != NULL
                  ? "--option: there is no option \"%s\" of the client; did you mean %s?"
                  : "--option: there is no option \"%s\" of the client; `man ringest` lists them",
              name, nearest);
    return false;
}

bool cli_options_make(const struct cli_connection *connection, struct rg_runtime_options *runtime,
                      struct rg_client_options *client)
{
    char error[512];
    rg_runtime_options_init(runtime);
    rg_client_options_init(client);
    if (!log_level(connection, &runtime->log_level)) {
        return false;
    }
    for (uint32_t i = 0; i < connection->option_count; i++) {
        char name[64];
        const char *text = connection->options[i], *value = strchr(text, '=');
        snprintf(name, sizeof(name), "%.*s", (int)(value - text), text);
        if (!option_is_known(name)) {
            return false;
        }
        if (rg_option_set(runtime, client, name, value + 1, error, sizeof(error)) < 0) {
            cli_usage("--option: %s", error);
            return false;
        }
    }
    if (rg_options_from_environment(runtime, client, error, sizeof(error)) < 0) {
        cli_usage("%s", error);
        return false;
    }
    named_set(connection, runtime, client);
    return log_file_open(connection);
}

bool cli_file_options(int argc, char **argv, struct cli_connection *connection, bool *json,
                      bool *is_long, int *out_status)
{
    static const struct option options[] = {
        CLI_CONNECTION_OPTIONS, {"long", no_argument, NULL, 'l'}, {0}};
    bool ok;
    int option;
    while ((option = cli_getopt(argc, argv, ":l", options)) != -1) {
        if (cli_connection_option(connection, option, optarg, &ok)) {
            if (!ok) {
                *out_status = CLI_USAGE;
                return false;
            }
        } else if (option == CLI_OPTION_JSON) {
            *json = true;
        } else if (option == 'l') {
            *is_long = true;
        } else {
            *out_status = option == CLI_OPTION_HELP ? cli_help() : CLI_USAGE;
            return false;
        }
    }
    return true;
}

bool cli_credentials_are_idle(const struct cli_connection *connection)
{
    const char *emulator = getenv("STORAGE_EMULATOR_HOST"), *named = connection->credentials;
    return connection->endpoint == NULL && emulator != NULL && *emulator != '\0' && named != NULL &&
           *named != '\0' && strcmp(named, "anonymous") != 0;
}

void cli_allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int cli_session_open(struct cli_session *session, const struct cli_connection *connection,
                     uint32_t cq_capacity)
{
    *session = (struct cli_session){.cq_capacity = cq_capacity};
    cli_allow_descriptors();
    struct rg_runtime_options runtime_options;
    struct rg_client_options options;
    if (!cli_options_make(connection, &runtime_options, &options)) {
        return CLI_USAGE;
    }
    int rc = rg_runtime_open(&session->runtime, &runtime_options);
    if (rc == -EPERM) {
        return cli_fail(
            "RINGEST_BACKEND is uring, and io_uring is forbidden here, or the kernel is "
            "older than Linux 6.1; unset it, and epoll is used");
    }
    if (rc < 0) {
        return cli_fail("the event loops could not be started: %s; check with `ringest doctor`",
                        strerror(-rc));
    }
    session->memory_max = runtime_options.memory_max;
    options.requests_max = RG_MAX(options.requests_max, RG_MAX(cq_capacity, (uint32_t)64));
    char error[512];
    rc = rg_client_open_explained(&session->client, session->runtime, &options, error,
                                  sizeof(error));
    if (rc < 0) {
        cli_session_close(session);
        return cli_fail("%s", error);
    }
    if (cli_credentials_are_idle(connection)) {
        cli_note("--credentials %s is not used: STORAGE_EMULATOR_HOST is set, and no token is sent "
                 "to an emulator; unset it, or name the server with --endpoint",
                 connection->credentials);
    }
    rc = rg_cq_open(&session->cq, session->runtime, cq_capacity);
    if (rc < 0) {
        cli_session_close(session);
        return cli_fail("%u requests cannot be prepared: %s", cq_capacity, strerror(-rc));
    }
    session->watch = cli_shows_progress() ? watch_open(session->runtime) : NULL;
    return CLI_DONE;
}

void cli_session_close(struct cli_session *session)
{
    watch_close(session->watch);
    rg_client_close(session->client);
    if (session->cq != NULL) {
        /* Requests that were out when a signal came have completed by now. */
        struct rg_completion rest[64];
        int count;
        while ((count = rg_cq_poll(session->cq, rest, RG_ARRAY_LEN(rest))) > 0) {
            for (int i = 0; i < count; i++) {
                rg_lease_release(rest[i].lease);
            }
        }
    }
    rg_cq_close(session->cq);
    rg_runtime_close(session->runtime);
    *session = (struct cli_session){0};
}

bool cli_wait_one(struct cli_session *session, struct rg_completion *out_completion)
{
    return rg_cq_wait(session->cq, out_completion, 1, 1, RG_FOREVER) == 1;
}

bool cli_is_everybodys(enum rg_status status)
{
    switch (status) {
    case RG_STATUS_RESOLVE:
    case RG_STATUS_CONNECT:
    case RG_STATUS_TLS_CERTIFICATE:
    case RG_STATUS_TLS_PROTOCOL:
    case RG_STATUS_UNAUTHENTICATED:
    case RG_STATUS_CREDENTIALS:
        return true;
    default:
        return false;
    }
}

const char *cli_submit_text(int rc)
{
    return rc == -EINVAL ? "not a valid name: UTF-8 of at most 1024 bytes without line breaks, and "
                           "not \".\" or \"..\"; buckets have small letters, digits, \"-\", "
                           "\"_\" and \".\""
                         : strerror(-rc);
}

const char *cli_completion_text(const struct rg_completion *completion)
{
    return completion->detail != NULL ? completion->detail : rg_status_text(completion->status);
}
