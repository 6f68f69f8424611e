/* "external_account": workload and workforce identity federation. A token that somebody else issued
 * (the subject token) is exchanged for one of Google's, which may then impersonate a service
 * account. */
#include "gcs/credentials/external.h"

#include "gcs/credentials/aws.h"
#include "gcs/credentials/certificate.h"
#include "gcs/credentials/exchange.h"
#include "runtime/clock.h"
#include "runtime/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TYPE_PREFIX "urn:ietf:params:oauth:token-type:"
#define TYPE_AWS "urn:ietf:params:aws:token-type:aws4_request"
#define SWITCH "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES"
#define TIMEOUT_MS_DEFAULT 30000
#define TIMEOUT_MS_MIN 5000
#define TIMEOUT_MS_MAX 120000
/* How often a program that runs is looked after: for its end, and for ours. */
#define PROGRAM_POLL_MS 20
/* "service_account_impersonation": the lifetimes that the service allows. */
#define LIFETIME_S_MIN 600
#define LIFETIME_S_MAX 43200

extern char **environ;

static void format_read(struct rg_credentials_reader *reader, yyjson_val *source,
                        struct rg_external_format *format)
{
    yyjson_val *object = yyjson_obj_get(source, "format");
    const char *type = rg_json_text(object, "type");
    if (type == NULL || strcmp(type, "text") == 0) {
        return;
    }
    if (strcmp(type, "json") != 0) {
        rg_credentials_refuse(reader, "field \"format.type\" is neither text nor json");
        return;
    }
    format->is_json = true;
    format->field = rg_credentials_text(reader, object, "subject_token_field_name", true);
}

static void headers_read(struct rg_credentials_reader *reader, yyjson_val *source,
                         struct rg_credentials_config *config)
{
    yyjson_val *object = yyjson_obj_get(source, "headers"), *key, *value;
    size_t index, count;
    yyjson_obj_foreach(object, index, count, key, value)
    {
        if (!yyjson_is_str(value) || config->header_count == RG_ARRAY_LEN(config->headers)) {
            rg_credentials_refuse(reader, "field \"headers\" is not an object of a few strings");
            return;
        }
        config->headers[config->header_count++] =
            (struct rg_fetch_field){yyjson_get_str(key), yyjson_get_str(value)};
    }
}

static void executable_read(struct rg_credentials_reader *reader, yyjson_val *object,
                            struct rg_credentials_config *config)
{
    struct rg_executable_source *executable = &config->executable;
    executable->command = rg_credentials_text(reader, object, "command", true);
    executable->output_file = rg_credentials_text(reader, object, "output_file", false);
    executable->timeout_ms = TIMEOUT_MS_DEFAULT;
    yyjson_val *timeout = yyjson_obj_get(object, "timeout_millis");
    if (timeout != NULL) {
        executable->timeout_ms = yyjson_get_uint(timeout);
        if (executable->timeout_ms < TIMEOUT_MS_MIN || executable->timeout_ms > TIMEOUT_MS_MAX) {
            rg_credentials_refuse(reader, "field \"timeout_millis\" is not between %d and %d",
                                  TIMEOUT_MS_MIN, TIMEOUT_MS_MAX);
        }
    }
    const char *permission = getenv(SWITCH);
    executable->allowed = permission != NULL && strcmp(permission, "1") == 0;
    config->source_kind = RG_SOURCE_EXECUTABLE;
}

static void source_read(struct rg_credentials_reader *reader, yyjson_val *object,
                        struct rg_credentials_config *config)
{
    yyjson_val *source = yyjson_obj_get(object, "credential_source");
    yyjson_val *executable = yyjson_obj_get(source, "executable");
    if (!yyjson_is_obj(source)) {
        rg_credentials_refuse(reader, "field \"credential_source\" is missing or is no object");
    } else if (yyjson_obj_get(source, "environment_id") != NULL) {
        rg_aws_source_read(reader, source, config);
    } else if (yyjson_is_obj(executable)) {
        executable_read(reader, executable, config);
    } else if (yyjson_obj_get(source, "file") != NULL) {
        config->file = rg_credentials_text(reader, source, "file", true);
        config->source_kind = RG_SOURCE_FILE;
        format_read(reader, source, &config->format);
    } else if (yyjson_obj_get(source, "url") != NULL) {
        config->url = rg_credentials_text(reader, source, "url", true);
        config->source_kind = RG_SOURCE_URL;
        format_read(reader, source, &config->format);
        headers_read(reader, source, config);
    } else if (yyjson_is_obj(yyjson_obj_get(source, "certificate"))) {
        rg_certificate_source_read(reader, source, config);
    } else {
        rg_credentials_refuse(reader, "field \"credential_source\" has none of file, url, "
                                      "executable, certificate and environment_id");
    }
}

static void impersonation_read(struct rg_credentials_reader *reader, yyjson_val *object,
                               struct rg_credentials_config *config)
{
    static const char name[] = "service_account_impersonation_url";
    config->impersonation_url = rg_credentials_text(reader, object, name, false);
    if (config->impersonation_url == NULL) {
        return;
    }
    rg_credentials_check_url(reader, name, config->impersonation_url, config->universe, true);
    config->account = rg_impersonated_account(reader->arena, config->impersonation_url);
    yyjson_val *options = yyjson_obj_get(object, "service_account_impersonation");
    yyjson_val *lifetime = yyjson_obj_get(options, "token_lifetime_seconds");
    config->lifetime_s = RG_TOKEN_LIFETIME_S;
    if (lifetime != NULL) {
        int64_t seconds = rg_json_seconds(options, "token_lifetime_seconds");
        if (seconds < LIFETIME_S_MIN || seconds > LIFETIME_S_MAX) {
            rg_credentials_refuse(reader,
                                  "field \"token_lifetime_seconds\" is not between %d and %d",
                                  LIFETIME_S_MIN, LIFETIME_S_MAX);
            return;
        }
        config->lifetime_s = (uint32_t)seconds;
    }
}

static void external_read(struct rg_credentials_reader *reader, yyjson_val *object,
                          struct rg_credentials_config *config)
{
    config->audience = rg_credentials_text(reader, object, "audience", true);
    config->subject_token_type = rg_credentials_text(reader, object, "subject_token_type", true);
    config->client_id = rg_credentials_text(reader, object, "client_id", false);
    config->client_secret = rg_credentials_text(reader, object, "client_secret", false);
    config->workforce_project =
        rg_credentials_text(reader, object, "workforce_pool_user_project", false);
    if (config->workforce_project != NULL && strpbrk(config->workforce_project, "\"\\") != NULL) {
        rg_credentials_refuse(reader, "field \"workforce_pool_user_project\" is no project");
    }
    config->token_url = rg_credentials_text(reader, object, "token_url", false);
    if (config->token_url == NULL) {
        yyjson_val *source = yyjson_obj_get(object, "credential_source");
        bool mutual = yyjson_obj_get(source, "certificate") != NULL;
        config->token_url = rg_secret_printf(reader->arena, "https://sts.%s%s/v1/token",
                                             mutual ? "mtls." : "", config->universe);
    }
    rg_credentials_check_url(reader, "token_url", config->token_url, config->universe, true);
    impersonation_read(reader, object, config);
    source_read(reader, object, config);
}

/* A subject token in a document: all of it, or a field. */
static char *document_token(struct rg_credentials_run *run, const struct rg_external_format *format,
                            char *text, const char *where)
{
    if (format->is_json) {
        yyjson_val *root = rg_json_parse(&run->arena, text, strlen(text));
        const char *token = rg_json_text(root, format->field);
        if (token == NULL) {
            rg_credentials_fail(run, -EBADMSG, false,
                                "%.120s holds no JSON with a string \"%.40s\"", where,
                                format->field);
            return NULL;
        }
        return rg_secret_copy(&run->arena, token, strlen(token));
    }
    size_t size = strlen(text);
    while (size > 0 && strchr(" \t\r\n", text[size - 1]) != NULL) {
        text[--size] = '\0';
    }
    if (size == 0) {
        rg_credentials_fail(run, -EBADMSG, false, "%.120s is empty", where);
        return NULL;
    }
    return text;
}

/* Read at every refresh: Kubernetes replaces such files. */
static char *file_token(struct rg_credentials_run *run, const struct rg_credentials_config *config)
{
    char *text;
    size_t size;
    int rc = rg_credentials_read_file(&run->arena, config->file, RG_CREDENTIALS_FILE_SIZE_MAX,
                                      &text, &size);
    if (rc < 0) {
        rg_credentials_fail(run, rc, false, "subject token file %.120s: %s", config->file,
                            rg_error_text(-rc));
        return NULL;
    }
    return document_token(run, &config->format, text, config->file);
}

static char *url_token(struct rg_credentials_run *run, const struct rg_credentials_config *config)
{
    struct rg_fetch_request request = {
        .method = "GET",
        .url = config->url,
        .fields = config->headers,
        .field_count = config->header_count,
    };
    char *text = rg_fetch_document(run, &request, "the subject token");
    return text != NULL ? document_token(run, &config->format, text, "the subject token's URL")
                        : NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

int rg_command_split(char *text, char *words[RG_COMMAND_WORDS_MAX + 1])
{
    int count = 0;
    char *in = text, *out = text;
    for (;;) {
        while (is_blank(*in)) {
            in++;
        }
        if (*in == '\0') {
            break;
        }
        if (count == RG_COMMAND_WORDS_MAX) {
            return -EINVAL;
        }
        words[count++] = out;
        char quote = '\0';
        for (; *in != '\0' && (quote != '\0' || !is_blank(*in)); in++) {
            bool escapes =
                *in == '\\' && (quote == '\0' || (quote == '"' && strchr("\"\\", in[1])));
            if (escapes && in[1] != '\0') {
                *out++ = *++in;
            } else if (quote == '\0' && (*in == '"' || *in == '\'')) {
                quote = *in;
            } else if (*in == quote) {
                quote = '\0';
            } else {
                *out++ = *in;
            }
        }
        if (quote != '\0') {
            return -EINVAL;
        }
        bool more = *in != '\0';
        in += more;
        *out++ = '\0';
        if (!more) {
            break;
        }
    }
    words[count] = NULL;
    return count > 0 ? count : -EINVAL;
}

/* The environment of a program: ours, and what the protocol adds. */
static char **program_environment(struct rg_credentials_run *run,
                                  const struct rg_credentials_config *config)
{
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **list = rg_secret_alloc(&run->arena, (count + 6) * sizeof(*list));
    if (list == NULL) {
        return NULL;
    }
    memcpy(list, environ, count * sizeof(*list));
    const struct {
        const char *name, *value;
    } added[] = {
        {"AUDIENCE", config->audience},
        {"TOKEN_TYPE", config->subject_token_type},
        {"INTERACTIVE", "0"},
        {"IMPERSONATED_EMAIL", config->account},
        {"OUTPUT_FILE", config->executable.output_file},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(added); i++) {
        if (added[i].value != NULL) {
            list[count] = rg_secret_printf(&run->arena, "GOOGLE_EXTERNAL_ACCOUNT_%s=%s",
                                           added[i].name, added[i].value);
            if (list[count++] == NULL) {
                return NULL;
            }
        }
    }
    list[count] = NULL;
    return list;
}

/* A child of the application's that is forked meanwhile must not keep the end to write to: the
 * output would not end before that child does. */
static int pipe_make(int ends[static 2])
{
    rg_fd_hold();
    int rc = pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
    if (rc == 0) {
        rg_fd_track(ends[0]);
        rg_fd_track(ends[1]);
    }
    rg_fd_release();
    return rc;
}

/* Starts the program in a process group of its own, with its standard output in a pipe. */
static int program_start(struct rg_credentials_run *run, const struct rg_credentials_config *config,
                         char *const words[], pid_t *out_pid, int *out_fd)
{
    char **environment = program_environment(run, config);
    if (environment == NULL) {
        return -ENOMEM;
    }
    int ends[2];
    int rc = pipe_make(ends);
    if (rc < 0) {
        return rc;
    }
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    rc = posix_spawnp(out_pid, words[0], &actions, &attributes, words, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    rg_fd_drop(ends[1]);
    if (rc != 0) {
        rg_fd_drop(ends[0]);
        return -rc;
    }
    *out_fd = ends[0];
    return 0;
}

static bool must_stop(struct rg_credentials_run *run, uint64_t until_ns)
{
    return rg_now_ns() >= until_ns || atomic_load(&run->fetcher.cancelled);
}

/* Reads until the end of the output. False: the program was too slow or said too much. */
static bool program_read(struct rg_credentials_run *run, int fd, uint64_t until_ns, char *out,
                         size_t capacity)
{
    size_t size = 0;
    while (!must_stop(run, until_ns) && size < capacity) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        if (poll(&poller, 1, PROGRAM_POLL_MS) <= 0) {
            continue;
        }
        ssize_t got = read(fd, out + size, capacity - size);
        if (got == 0) {
            return true;
        }
        size += got > 0 ? (size_t)got : 0;
    }
    return false;
}

/* Waits for the end. True: it exited with 0, or somebody else has waited for it already. */
static bool program_wait(struct rg_credentials_run *run, pid_t pid, uint64_t until_ns)
{
    for (;;) {
        int status;
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended < 0 && errno == EINTR) {
            continue;
        }
        if (ended != 0) {
            return ended < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        if (must_stop(run, until_ns)) {
            kill(-pid, SIGKILL);
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
            }
            return false;
        }
        poll(NULL, 0, PROGRAM_POLL_MS);
    }
}

/* The program's output; NULL: noted in the run. */
static char *program_run(struct rg_credentials_run *run, const struct rg_credentials_config *config)
{
    const char *command = config->executable.command;
    char *words[RG_COMMAND_WORDS_MAX + 1];
    char *text = rg_secret_copy(&run->arena, command, strlen(command));
    char *output = rg_secret_alloc(&run->arena, RG_CREDENTIALS_FILE_SIZE_MAX + 1);
    if (text == NULL || output == NULL || rg_command_split(text, words) < 0) {
        rg_credentials_fail(run, -EINVAL, true,
                            "the executable's command cannot be divided into "
                            "words");
        return NULL;
    }
    pid_t pid;
    int fd = -1, rc = program_start(run, config, words, &pid, &fd);
    if (rc < 0) {
        rg_credentials_fail(run, rc, rc == -ENOENT || rc == -EACCES, "executable %.100s: %s",
                            words[0], rg_error_text(-rc));
        return NULL;
    }
    uint64_t until_ns = rg_now_ns() + config->executable.timeout_ms * RG_NS_PER_MS;
    bool complete = program_read(run, fd, until_ns, output, RG_CREDENTIALS_FILE_SIZE_MAX);
    rg_fd_drop(fd);
    bool ended_well = program_wait(run, pid, complete ? until_ns : 0);
    if (!complete || (!ended_well && *output == '\0')) {
        rg_credentials_fail(run, -ECHILD, false, "executable %.100s %s", words[0],
                            complete ? "failed" : "did not answer in time, or with too much");
        return NULL;
    }
    return output;
}

/* What a program printed, or had written to its output file. With `cached`, what cannot be used is
 * no failure: the program is then run. */
static char *program_answer(struct rg_credentials_run *run, const char *text, bool cached)
{
    yyjson_val *root = rg_json_parse(&run->arena, text, strlen(text));
    const char *type = rg_json_text(root, "token_type");
    bool saml = type != NULL && strcmp(type, TYPE_PREFIX "saml2") == 0;
    bool known = saml || (type != NULL && (strcmp(type, TYPE_PREFIX "jwt") == 0 ||
                                           strcmp(type, TYPE_PREFIX "id_token") == 0));
    const char *token = rg_json_text(root, saml ? "saml_response" : "id_token");
    int64_t expires_s = rg_json_seconds(root, "expiration_time");
    bool expired = yyjson_obj_get(root, "expiration_time") != NULL && expires_s <= time(NULL);
    bool success = yyjson_get_bool(yyjson_obj_get(root, "success"));
    if (yyjson_get_uint(yyjson_obj_get(root, "version")) == 1 && success && known &&
        token != NULL && !expired && (!cached || expires_s > 0)) {
        return rg_secret_copy(&run->arena, token, strlen(token));
    }
    if (cached) {
        return NULL;
    }
    const char *code = rg_json_text(root, "code"), *message = rg_json_text(root, "message");
    if (root != NULL && !success && code != NULL) {
        rg_credentials_fail(run, -EACCES, false, "the executable failed: %.40s: %.100s", code,
                            message != NULL ? message : "");
    } else {
        rg_credentials_fail(run, -EBADMSG, false, "the executable %s",
                            expired ? "gave a token that has expired"
                                    : "did not print a version 1 answer with a token");
    }
    return NULL;
}

static char *executable_token(struct rg_credentials_run *run,
                              const struct rg_credentials_config *config)
{
    const struct rg_executable_source *executable = &config->executable;
    if (!executable->allowed) {
        rg_credentials_fail(run, -EPERM, true,
                            "the credential file wants to run a program: set " SWITCH
                            "=1 if you trust it");
        return NULL;
    }
    char *cached;
    size_t size;
    if (executable->output_file != NULL &&
        rg_credentials_read_file(&run->arena, executable->output_file, RG_CREDENTIALS_FILE_SIZE_MAX,
                                 &cached, &size) == 0) {
        char *token = program_answer(run, cached, true);
        if (token != NULL) {
            return token;
        }
    }
    char *output = program_run(run, config);
    return output != NULL ? program_answer(run, output, false) : NULL;
}

static char *subject_token(struct rg_credentials_run *run,
                           const struct rg_credentials_config *config)
{
    switch (config->source_kind) {
    case RG_SOURCE_FILE:
        return file_token(run, config);
    case RG_SOURCE_URL:
        return url_token(run, config);
    case RG_SOURCE_EXECUTABLE:
        return executable_token(run, config);
    case RG_SOURCE_CERTIFICATE:
        return rg_certificate_subject_token(run, config);
    default:
        return rg_aws_subject_token(run, config);
    }
}

static int external_obtain(struct rg_credentials_run *run, struct rg_credentials_config *config,
                           struct rg_token_out *out_token)
{
    char *subject = subject_token(run, config);
    if (subject == NULL) {
        return rg_credentials_fail(run, -ENOMEM, false, "no memory for a subject token");
    }
    bool impersonates = config->impersonation_url != NULL;
    const char *scope = impersonates         ? RG_SCOPE_IAM
                        : run->scope != NULL ? run->scope
                                             : RG_SCOPE_DEFAULT;
    const char *type = config->source_kind == RG_SOURCE_AWS ? TYPE_AWS : config->subject_token_type;
    struct rg_token_out token;
    int rc = rg_sts_exchange(run, config, subject, type, scope, &token);
    /* A client's certificate is for the token server alone. */
    run->fetcher.cert_file = run->fetcher.key_file = NULL;
    if (rc == 0 && impersonates) {
        rc = rg_impersonate(run, config, token.text, &token);
    }
    if (rc == 0) {
        *out_token = token;
    }
    return rc;
}

const struct rg_credentials_kind rg_credentials_external_account = {
    .type = "external_account",
    .label = "external account",
    .may_be_source = true,
    .read = external_read,
    .obtain = external_obtain,
};
