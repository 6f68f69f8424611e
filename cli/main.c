/* The `ringest` program: finds the command and runs it. */
#include "cli/cli.h"

#include <signal.h>
#include <string.h>

static const struct cli_command *const commands[] = {
    &cli_ls,  &cli_stat, &cli_cat,   &cli_cp,      &cli_rm,     &cli_manifest,
    &cli_tar, &cli_ckpt, &cli_bench, &cli_emulate, &cli_doctor,
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
            "\n`ringest COMMAND --help` explains a command, `man ringest` has more.\n\n"
            "Environment: STORAGE_EMULATOR_HOST (server), SSL_CERT_FILE and SSL_CERT_DIR (trusted\n"
            "certificates), RINGEST_BACKEND=uring|epoll, RINGEST_THREADS,\n"
            "RINGEST_LOG=error|warn|info|debug, RINGEST_HEADERS (extra request fields).\n"
            "Exit status: 0 done, 1 the operation failed, 2 wrong usage, 130 after Ctrl-C.\n");
    return status;
}

int main(int argc, char **argv)
{
    /* A pipe whose reader is gone is an error of write, not the end of the program. */
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        return print_usage(stderr, CLI_USAGE);
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        return print_usage(stdout, CLI_DONE);
    }
    if (strcmp(name, "--version") == 0) {
        printf("ringest %s\n", rg_version());
        return CLI_DONE;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(commands); i++) {
        if (strcmp(name, commands[i]->name) == 0) {
            cli_current = commands[i];
            return cli_exit_status(cli_current->run(argc - 1, argv + 1));
        }
    }
    return cli_usage("there is no command \"%s\"", name);
}
