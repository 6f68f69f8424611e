/* The command that `ringest emulate` runs: see emulate_command.h. */
#include "cli/emulate_command.h"

#include "cli/cli.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a shell says of a command that is not there. */
#define STATUS_NO_COMMAND 127
/* At most two variables, and the end. */
#define ADDED_MAX 3

static bool names(const char *entry, const char *name)
{
    size_t size = strlen(name);
    return strncmp(entry, name, size) == 0 && entry[size] == '=';
}

/* Appends NAME=VALUE. */
static bool add(char **environment, size_t *count, const char *name, const char *value)
{
    if (value == NULL) {
        return true;
    }
    bool is_made = asprintf(&environment[*count], "%s=%s", name, value) >= 0;
    *count += is_made;
    return is_made;
}

/* This process's environment with the emulator in it. The last `*out_own` entries are to be freed,
 * and the array. NULL: no memory. */
static char **environment_make(const struct rg_emulator *emulator, size_t *out_own)
{
    const char *ca = rg_emulator_ca_path(emulator);
    size_t size = 0, count = 0;
    while (environ[size] != NULL) {
        size++;
    }
    char **environment = calloc(size + ADDED_MAX, sizeof(*environment));
    if (environment == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < size; i++) {
        bool is_certificate =
            names(environ[i], "SSL_CERT_FILE") || names(environ[i], "SSL_CERT_DIR");
        if (!names(environ[i], "STORAGE_EMULATOR_HOST") && !(ca != NULL && is_certificate)) {
            environment[count++] = environ[i];
        }
    }
    size_t kept = count;
    if (!add(environment, &count, "STORAGE_EMULATOR_HOST", rg_emulator_endpoint(emulator)) ||
        !add(environment, &count, "SSL_CERT_FILE", ca)) {
        free(count > kept ? environment[kept] : NULL);
        free(environment);
        return NULL;
    }
    *out_own = count - kept;
    return environment;
}

static void environment_free(char **environment, size_t own)
{
    size_t count = 0;
    while (environment[count] != NULL) {
        count++;
    }
    for (size_t i = count - own; i < count; i++) {
        free(environment[i]);
    }
    free(environment);
}

/* Starts the command with no signal blocked, and SIGPIPE, which this program ignores, as it is by
 * default. 0 or an errno. */
static int command_start(pid_t *out_pid, char **argv, char **environment)
{
    posix_spawnattr_t attributes;
    sigset_t none, by_default;
    sigemptyset(&none);
    sigemptyset(&by_default);
    sigaddset(&by_default, SIGPIPE);
    int rc = posix_spawnattr_init(&attributes);
    if (rc != 0) {
        return rc;
    }
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &by_default);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawnp(out_pid, argv[0], NULL, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    return rc;
}

static int command_wait(pid_t pid, const sigset_t *signals)
{
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        int number;
        sigwait(signals, &number);
        if (number == SIGTERM) {
            kill(pid, SIGTERM);
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_SIGNALLED + WTERMSIG(status);
}

int emulate_command_run(const struct rg_emulator *emulator, char **argv, const sigset_t *signals)
{
    size_t own;
    char **environment = environment_make(emulator, &own);
    if (environment == NULL) {
        return cli_fail("no memory");
    }
    pid_t pid;
    int rc = command_start(&pid, argv, environment);
    environment_free(environment, own);
    if (rc != 0) {
        cli_fail("%s cannot be run: %s", argv[0], strerror(rc));
        return STATUS_NO_COMMAND;
    }
    return command_wait(pid, signals);
}
