/* What the commands of the `ringest` program share: usage and errors, common options, URIs, output.
 */
#ifndef RG_CLI_CLI_H
#define RG_CLI_CLI_H

#include "runtime/base.h"

#include <ringest/ringest.h>

#include <getopt.h>
#include <stdio.h>

/* Exit statuses. */
enum cli_exit { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli_command {
    const char *name;
    const char *arguments; /* behind the name in the usage line */
    const char *summary;   /* one line */
    const char *help;      /* options and remarks */
    int (*run)(int argc, char **argv);
};

extern const struct cli_command cli_bench, cli_cat, cli_doctor, cli_emulate, cli_ls;

/* The command that is running, for messages. */
extern const struct cli_command *cli_current;

/* One line on standard error: "ringest: cat: ...". Returns CLI_FAILED. */
int cli_fail(const char *format, ...) RG_PRINTF(1, 2);
/* The same with a hint at --help. Returns CLI_USAGE. */
int cli_usage(const char *format, ...) RG_PRINTF(1, 2);
/* Prints the help of the running command to standard output. Returns CLI_DONE. */
int cli_help(void);

/* Numbers of options; both print what is wrong and return false. */
bool cli_parse_u64(const char *option, const char *text, uint64_t min, uint64_t max,
                   uint64_t *out_value);
bool cli_parse_double(const char *option, const char *text, double min, double *out_value);
/* A size in bytes, with an optional suffix K, M, G (1024) or KiB, MiB, GiB. */
bool cli_parse_size(const char *option, const char *text, uint64_t min, uint64_t max,
                    uint64_t *out_value);

/* gs://BUCKET/NAME; the name may be empty. Both are copied into the struct. */
struct cli_uri {
    char bucket[RG_BUCKET_NAME_SIZE_MAX + 1];
    char name[RG_OBJECT_NAME_SIZE_MAX + 1];
};
bool cli_parse_uri(const char *text, struct cli_uri *out_uri);

/* Options that every command has which talks to a server. */
struct cli_connection {
    const char *endpoint, *ca;
    uint32_t threads, connections, prewarm;
    bool no_checksum;
    uint64_t memory;
};

/* For the option tables and switches of those commands. */
enum cli_option {
    CLI_OPTION_ENDPOINT = 256,
    CLI_OPTION_CA,
    CLI_OPTION_THREADS,
    CLI_OPTION_HELP,
    CLI_OPTION_JSON,
    CLI_OPTION_FIRST /* commands number their own from here */
};
#define CLI_CONNECTION_OPTIONS                                                                     \
    {"endpoint", required_argument, NULL, CLI_OPTION_ENDPOINT},                                    \
        {"ca", required_argument, NULL, CLI_OPTION_CA},                                            \
        {"threads", required_argument, NULL, CLI_OPTION_THREADS},                                  \
        {"help", no_argument, NULL, CLI_OPTION_HELP},                                              \
    {                                                                                              \
        "json", no_argument, NULL, CLI_OPTION_JSON                                                 \
    }
#define CLI_CONNECTION_HELP                                                                        \
    "  --endpoint URL     server to use; default: STORAGE_EMULATOR_HOST, else Cloud Storage\n"     \
    "  --ca PEM           file of trusted certificates; default: the system's\n"                   \
    "  --threads N        event loops; default: RINGEST_THREADS, else by the machine\n"

/* Takes one of the common options. True: it was one. *out_ok is false when it was malformed. */
bool cli_connection_option(struct cli_connection *connection, int option, const char *argument,
                           bool *out_ok);

/* Raises the number of files that may be open to what is allowed; each connection takes one. The
 * soft limit is low for programs that call select, which this one does not. */
void cli_allow_descriptors(void);

struct cli_session {
    struct rg_runtime *runtime;
    struct rg_client *client;
    struct rg_cq *cq;
    uint32_t cq_capacity;
};

/* Opens a runtime, a client and a queue; CLI_DONE, or an exit status after printing why not. */
int cli_session_open(struct cli_session *session, const struct cli_connection *connection,
                     uint32_t cq_capacity);
void cli_session_close(struct cli_session *session);

/* Waits for one completion of whatever was submitted last. False: interrupted by a signal. */
bool cli_wait_one(struct cli_session *session, struct rg_completion *out_completion);

/* "detail" of a failed completion, or its status text. */
const char *cli_completion_text(const struct rg_completion *completion);

/* True if standard error is a terminal that wants progress shown. */
bool cli_shows_progress(void);
/* One line that replaces itself; the last call is with done == total. total 0: unknown. */
void cli_progress(const char *what, uint64_t done, uint64_t total);

/* Strings in JSON: quoted and escaped, to standard output. */
void cli_json_string(const char *text);

/* "12.3 MiB" */
const char *cli_format_size(uint64_t bytes, char buffer[static 32]);

#endif
