/* The `ringest` program: finds the command and runs it. */
#include "cli/cli.h"
#include "cli/habits.h"
#include "cli/nearest.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const struct cli_command *const commands[] = {
    &cli_ls,    &cli_stat,    &cli_du,      &cli_hash,     &cli_cat,     &cli_cp,   &cli_mv,
    &cli_rm,    &cli_rsync,   &cli_signurl, &cli_manifest, &cli_tar,     &cli_ckpt, &cli_cache,
    &cli_bench, &cli_emulate, &cli_doctor,  &cli_top,      &cli_explain,
};

static int print_usage(FILE *stream, int status)
{
    fprintf(stream, "Usage: ringest COMMAND [ARGUMENTS]\n\n"
                    "Reads and writes objects of Google Cloud Storage, many at once.\n\n"
                    "Commands:\n");
    for (size_t i = 0; i < RG_ARRAY_LEN(commands); i++) {
        fprintf(stream, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(stream,
            "\n`ringest help COMMAND` explains a command, `man ringest` has more.\n\n"
            "Environment: STORAGE_EMULATOR_HOST (server), SSL_CERT_FILE and SSL_CERT_DIR (trusted\n"
            "certificates), RINGEST_BACKEND=uring|epoll, RINGEST_THREADS,\n"
            "RINGEST_LOG=error|warn|info|debug, RINGEST_HEADERS (extra request fields),\n"
            "RINGEST_SHARING=0 (nothing with other processes), RINGEST_NUMA, RINGEST_MEMORY,\n"
            "RINGEST_LOCAL_RANK and RINGEST_LOCAL_WORLD_SIZE (ranks of a host),\n"
            "and RINGEST_<NAME> for each option of the client.\n"
            "Exit status: 0 done, 1 failed, 2 usage error, 130 after Ctrl-C.\n");
    return status == CLI_DONE ? cli_output_end(status) : status;
}

static const struct cli_command *command_find(const char *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(commands); i++) {
        if (strcmp(name, commands[i]->name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static const char *command_meant(const char *name)
{
    const char *names[RG_ARRAY_LEN(commands)], *meant = habit_command(name);
    for (size_t i = 0; i < RG_ARRAY_LEN(commands); i++) {
        names[i] = commands[i]->name;
    }
    return meant != NULL ? meant : nearest_word(name, names, RG_ARRAY_LEN(names));
}

/* next: the argument behind it, or NULL. */
static int command_unknown(const char *name, const char *next)
{
    if (name[0] == '-') {
        return cli_usage("the command comes first, and its options behind it, got \"%s\"", name);
    }
    if (habit_is_front(name)) {
        const char *meant = next != NULL && next[0] != '-' ? command_meant(next) : NULL;
        return cli_usage(meant != NULL
                             ? "there is no command \"%s\"; did you mean `ringest %s`?"
                             : "there is no command \"%s\"; its commands are `ringest ls` "
                               "and so on",
                         name, meant);
    }
    const char *meant = command_meant(name);
    return cli_usage(meant != NULL ? "there is no command \"%s\"; did you mean %s?"
                                   : "there is no command \"%s\"",
                     name, meant);
}

/* `ringest help`, and `ringest help COMMAND`. */
static int help(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[2], "help") == 0) {
        return print_usage(stdout, CLI_DONE);
    }
    cli_current = command_find(argv[2]);
    return cli_current != NULL ? cli_help() : command_unknown(argv[2], argv[3]);
}

/* Whoever starts the program may have closed some of the first three descriptors. A file or a
 * connection must not get such a number: messages would be written into it. What is opened in its
 * place fails with EBADF, as the closed one would. */
static void descriptors_hold(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int main(int argc, char **argv)
{
    descriptors_hold();
    /* A pipe whose reader is gone is an error of write, not the end of the program. */
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        return print_usage(stderr, CLI_USAGE);
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return help(argc, argv);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("ringest %s\n", rg_version());
        return cli_output_end(CLI_DONE);
    }
    cli_current = command_find(name);
    if (cli_current == NULL) {
        return command_unknown(name, argv[2]);
    }
    return cli_exit_status(cli_current->run(argc - 1, argv + 1));
}
