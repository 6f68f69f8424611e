/* A session with a server: the options that say which one and how, and the runtime, client and
 * queue of a command that talks to it.
 *
 *   options -> cli_session_open -> requests, cli_wait_one -> cli_session_close */
#ifndef RG_CLI_SESSION_H
#define RG_CLI_SESSION_H

#include "cli/cli.h"

#define CLI_OPTIONS_MAX 32

/* Options that every command has which talks to a server. */
struct cli_connection {
    const char *endpoint, *ca, *credentials, *proxy;
    uint32_t threads, connections, prewarm;
    bool no_checksum;
    uint64_t memory;                      /* bytes; 0: the library's default */
    enum rg_numa_policy numa;             /* AUTO: what RINGEST_NUMA says */
    enum rg_log_level log_level;          /* DEFAULT: what RINGEST_LOG says */
    const char *log_file;                 /* NULL: standard error */
    const char *options[CLI_OPTIONS_MAX]; /* NAME=VALUE, in their order */
    uint32_t option_count;
};

/* For the option tables and switches of those commands. */
enum cli_option {
    CLI_OPTION_ENDPOINT = 256,
    CLI_OPTION_CA,
    CLI_OPTION_CREDENTIALS,
    CLI_OPTION_PROXY,
    CLI_OPTION_THREADS,
    CLI_OPTION_HELP,
    CLI_OPTION_JSON,
    CLI_OPTION_MEMORY,
    CLI_OPTION_LOG,
    CLI_OPTION_LOG_FILE,
    CLI_OPTION_NUMA,
    CLI_OPTION_OPTION,
    CLI_OPTION_FIRST /* commands number their own from here */
};
#define CLI_CONNECTION_OPTIONS                                                                     \
    {"endpoint", required_argument, NULL, CLI_OPTION_ENDPOINT},                                    \
        {"ca", required_argument, NULL, CLI_OPTION_CA},                                            \
        {"credentials", required_argument, NULL, CLI_OPTION_CREDENTIALS},                          \
        {"proxy", required_argument, NULL, CLI_OPTION_PROXY},                                      \
        {"threads", required_argument, NULL, CLI_OPTION_THREADS},                                  \
        {"memory", required_argument, NULL, CLI_OPTION_MEMORY}, {"quiet", no_argument, NULL, 'q'}, \
        {"log", required_argument, NULL, CLI_OPTION_LOG},                                          \
        {"log-file", required_argument, NULL, CLI_OPTION_LOG_FILE},                                \
        {"numa", required_argument, NULL, CLI_OPTION_NUMA},                                        \
        {"option", required_argument, NULL, CLI_OPTION_OPTION},                                    \
        {"help", no_argument, NULL, CLI_OPTION_HELP},                                              \
    {                                                                                              \
        "json", no_argument, NULL, CLI_OPTION_JSON                                                 \
    }
#define CLI_CONNECTION_HELP                                                                        \
    "  --endpoint URL     server to use; default: STORAGE_EMULATOR_HOST, else Cloud Storage\n"     \
    "  --ca PEM           file of trusted certificates; default: the system's\n"                   \
    "  --credentials FILE credential file, \"default\" or \"anonymous\"; default: Application\n"   \
    "                     Default Credentials for Cloud Storage, otherwise none\n"                 \
    "  --proxy URL        proxy to the server, \"\" for none; default: HTTPS_PROXY, NO_PROXY\n"    \
    "  --threads N        event loops; default: RINGEST_THREADS, else by the machine\n"            \
    "  --memory SIZE      for bodies in flight; default: 1G or a quarter of the machine's\n"       \
    "  --numa POLICY      loops on nodes: auto, compact, spread or none; default: RINGEST_NUMA\n"  \
    "  --option NAME=VALUE  of the client, such as stall_timeout=5; `man ringest` lists them\n"    \
    "  --log LEVEL        log error, warn, info or debug; default: RINGEST_LOG, else error\n"      \
    "  --log-file FILE    append the log to it, and what is said on standard error; default\n"     \
    "                     level: info\n"                                                           \
    "  -q, --quiet        print errors only: no progress, no summary, no notes\n"

/* Takes one of the common options. True: it was one. *out_ok is false when it was malformed. */
bool cli_connection_option(struct cli_connection *connection, int option, const char *argument,
                           bool *out_ok);

/* Takes the options of a command that makes a file of objects and shows it: the common ones, --json
 * and --long. False: *out_status is the command's. */
bool cli_file_options(int argc, char **argv, struct cli_connection *connection, bool *json,
                      bool *is_long, int *out_status);

/* Makes the options of a runtime and a client: those that commands have names for, --option, and
 * what the environment gives. False after saying what is wrong. */
bool cli_options_make(const struct cli_connection *connection, struct rg_runtime_options *runtime,
                      struct rg_client_options *client);

/* Credentials were named, and the environment names an emulator, which the library sends none. */
bool cli_credentials_are_idle(const struct cli_connection *connection);

/* Raises the number of files that may be open to what is allowed; each connection takes one. The
 * soft limit is low for programs that call select, which this one does not. */
void cli_allow_descriptors(void);

struct cli_session {
    struct rg_runtime *runtime;
    struct rg_client *client;
    struct rg_cq *cq;
    uint32_t cq_capacity;
    uint64_t memory_max; /* that was asked for; 0: the library's default */
    struct watch *watch; /* NULL: nobody looks */
};

/* Opens a runtime, a client and a queue; CLI_DONE, or an exit status after printing why not. */
int cli_session_open(struct cli_session *session, const struct cli_connection *connection,
                     uint32_t cq_capacity);
void cli_session_close(struct cli_session *session);

/* Waits for one completion of whatever was submitted last. False: interrupted by a signal. */
bool cli_wait_one(struct cli_session *session, struct rg_completion *out_completion);

/* "detail" of a failed completion, or its status text. */
const char *cli_completion_text(const struct rg_completion *completion);
/* Why a request for an object was not even accepted. */
const char *cli_submit_text(int rc);

/* What has nothing to do with one object: the others would fail like this one, each after as many
 * attempts. */
bool cli_is_everybodys(enum rg_status status);

#endif
