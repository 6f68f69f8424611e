/* What the commands share: see cli.h. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Progress is drawn at most this often. */
#define PROGRESS_INTERVAL_NS (100 * RG_NS_PER_MS)
#define PROGRESS_WIDTH 30

const struct cli_command *cli_current;

/* Whatever a name holds, a message is one line and cannot drive a terminal. */
static void message(const char *format, va_list args)
{
    char *text;
    if (vasprintf(&text, format, args) < 0) {
        return;
    }
    for (char *c = text; *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c)) {
            *c = '?';
        }
    }
    fprintf(stderr, "ringest: %s%s%s", cli_current != NULL ? cli_current->name : "",
            cli_current != NULL ? ": " : "", text);
    free(text);
}

int cli_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message(format, args);
    va_end(args);
    fputc('\n', stderr);
    return CLI_FAILED;
}

int cli_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    message(format, args);
    va_end(args);
    fprintf(stderr, "; see `ringest %s%s--help`\n", cli_current != NULL ? cli_current->name : "",
            cli_current != NULL ? " " : "");
    return CLI_USAGE;
}

int cli_help(void)
{
    const struct cli_command *command = cli_current;
    printf("Usage: ringest %s %s\n\n%s\n\n%s", command->name, command->arguments, command->summary,
           command->help);
    return CLI_DONE;
}

bool cli_parse_u64(const char *option, const char *text, uint64_t min, uint64_t max,
                   uint64_t *out_value)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool is_number = isdigit((unsigned char)*text) && *end == '\0' && errno == 0;
    if (!is_number || value < min || value > max) {
        cli_usage("%s is \"%s\", not a number from %" PRIu64 " to %" PRIu64, option, text, min,
                  max);
        return false;
    }
    *out_value = value;
    return true;
}

bool cli_parse_double(const char *option, const char *text, double min, double *out_value)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= min) || value > 1e12) {
        cli_usage("%s is \"%s\", not a number of at least %g", option, text, min);
        return false;
    }
    *out_value = value;
    return true;
}

bool cli_parse_size(const char *option, const char *text, uint64_t min, uint64_t max,
                    uint64_t *out_value)
{
    static const char suffixes[] = "KMGT";
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    bool is_valid = isdigit((unsigned char)*text) && errno == 0;
    const char *suffix = *end != '\0' ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
    if (suffix != NULL) {
        unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
        is_valid = is_valid && value <= UINT64_MAX >> shift;
        value <<= shift;
        end++;
        end += strcmp(end, "iB") == 0 ? 2 : strcmp(end, "B") == 0 ? 1 : 0;
    }
    if (!is_valid || *end != '\0' || value < min || value > max) {
        cli_usage("%s is \"%s\", not a size such as 102400 or 100K of %" PRIu64 " to %" PRIu64
                  " bytes",
                  option, text, min, max);
        return false;
    }
    *out_value = value;
    return true;
}

bool cli_parse_uri(const char *text, struct cli_uri *out_uri)
{
    static const char scheme[] = "gs://";
    if (strncmp(text, scheme, sizeof(scheme) - 1) != 0) {
        cli_usage("\"%s\" is not of the form gs://BUCKET/NAME", text);
        return false;
    }
    const char *bucket = text + sizeof(scheme) - 1;
    const char *slash = strchrnul(bucket, '/');
    size_t bucket_size = (size_t)(slash - bucket);
    const char *name = *slash == '/' ? slash + 1 : slash;
    if (bucket_size < 3 || bucket_size > RG_BUCKET_NAME_SIZE_MAX) {
        cli_usage("\"%s\" names no bucket of 3 to %d characters", text, RG_BUCKET_NAME_SIZE_MAX);
        return false;
    }
    if (strlen(name) > RG_OBJECT_NAME_SIZE_MAX) {
        cli_usage("the object name in \"%.60s...\" is longer than %d bytes", text,
                  RG_OBJECT_NAME_SIZE_MAX);
        return false;
    }
    memcpy(out_uri->bucket, bucket, bucket_size);
    out_uri->bucket[bucket_size] = '\0';
    strcpy(out_uri->name, name);
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
    case CLI_OPTION_THREADS:
        *out_ok = cli_parse_u64("--threads", argument, 1, 256, &value);
        if (*out_ok) {
            connection->threads = (uint32_t)value;
        }
        return true;
    default:
        return false;
    }
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
    rg_runtime_options_init(&runtime_options);
    runtime_options.threads = connection->threads;
    runtime_options.memory_max = connection->memory;
    if (getenv("RINGEST_LOG") == NULL) {
        runtime_options.log_level = RG_LOG_ERROR;
    }
    int rc = rg_runtime_open(&session->runtime, &runtime_options);
    if (rc < 0) {
        return cli_fail("the event loops could not be started: %s; `ringest doctor` tells more",
                        strerror(-rc));
    }
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.endpoint = connection->endpoint;
    options.ca_file = connection->ca;
    options.connections_max = connection->connections;
    options.prewarm_connections = connection->prewarm;
    options.no_checksum = connection->no_checksum;
    options.requests_max = RG_MAX(cq_capacity, (uint32_t)64);
    char error[512];
    rc = rg_client_open_explained(&session->client, session->runtime, &options, error,
                                  sizeof(error));
    if (rc < 0) {
        cli_session_close(session);
        return cli_fail("%s", error);
    }
    rc = rg_cq_open(&session->cq, session->runtime, cq_capacity);
    if (rc < 0) {
        cli_session_close(session);
        return cli_fail("no completion queue of %u entries: %s", cq_capacity, strerror(-rc));
    }
    return CLI_DONE;
}

void cli_session_close(struct cli_session *session)
{
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

const char *cli_completion_text(const struct rg_completion *completion)
{
    return completion->detail != NULL ? completion->detail : rg_status_text(completion->status);
}

bool cli_shows_progress(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

void cli_progress(const char *what, uint64_t done, uint64_t total)
{
    static uint64_t drawn_ns;
    uint64_t now_ns = rg_now_ns();
    bool last = total != 0 && done >= total;
    if (!last && now_ns - drawn_ns < PROGRESS_INTERVAL_NS) {
        return;
    }
    drawn_ns = now_ns;
    if (total == 0) {
        fprintf(stderr, "\r%s: %" PRIu64 "\033[K", what, done);
        return;
    }
    int filled = (int)(RG_MIN(done, total) * PROGRESS_WIDTH / total);
    fprintf(stderr, "\r%s [%.*s%*s] %3d%%\033[K", what, filled, "##############################",
            PROGRESS_WIDTH - filled, "", (int)(RG_MIN(done, total) * 100 / total));
    if (last) {
        /* The report takes the line. */
        fprintf(stderr, "\r\033[K");
    }
}

void cli_json_string(const char *text)
{
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            printf("\\%c", *c);
        } else if (*c < 0x20 || *c == 0x7f) {
            printf("\\u%04x", *c);
        } else {
            putchar(*c);
        }
    }
    putchar('"');
}

const char *cli_format_size(uint64_t bytes, char buffer[static 32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < RG_ARRAY_LEN(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}
