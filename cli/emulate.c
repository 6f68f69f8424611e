/* `ringest emulate`: the embedded emulator as a program. It listens before it says so, and runs
 * until a signal asks it to end, or until the command that it was given ends. */
#include "cli/cli.h"
#include "cli/emulate_command.h"
#include "cli/session.h"

#include "emulator/emulator.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The line about where it listens: two texts of the file system's and DNS's limits. */
#define READY_SIZE_MAX 8192

/* Signals that end the emulator. They are blocked before the first thread starts, so that every
 * thread inherits that and they stay pending for sigwait. */
static void end_signals_block(sigset_t *out_signals)
{
    sigemptyset(out_signals);
    sigaddset(out_signals, SIGINT);
    sigaddset(out_signals, SIGTERM);
    sigaddset(out_signals, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, out_signals, NULL);
}

static int ready_print(const struct rg_emulator *emulator)
{
    char ready[READY_SIZE_MAX];
    int rc = rg_emulator_format_ready(emulator, ready, sizeof(ready));
    if (rc < 0) {
        return cli_fail("the line with the address could not be made: %s", strerror(-rc));
    }
    printf("%s\n", ready);
    if (fflush(stdout) != 0) {
        return cli_fail("standard output: %s", strerror(errno));
    }
    return CLI_DONE;
}

static int wait_for_signal(const struct rg_emulator *emulator, const sigset_t *end_signals)
{
    int status = ready_print(emulator);
    int number = 0;
    while (status == CLI_DONE && number != SIGINT && number != SIGTERM) {
        sigwait(end_signals, &number);
    }
    return status;
}

/* `command`: NULL, or its arguments and a NULL. */
static int emulate_go(const struct rg_emulator_options *options, char **command)
{
    sigset_t end_signals;
    end_signals_block(&end_signals);
    cli_allow_descriptors();
    struct rg_emulator *emulator;
    char error[512] = "";
    int rc = rg_emulator_open(&emulator, options, error, sizeof(error));
    if (rc == -EINVAL) {
        return cli_usage("%s", error);
    }
    if (rc < 0) {
        return cli_fail("%s%s", error,
                        rc == -EADDRINUSE ? "; give another port, or 0 for any free one" : "");
    }
    int status = command != NULL ? emulate_command_run(emulator, command, &end_signals)
                                 : wait_for_signal(emulator, &end_signals);
    rg_emulator_close(emulator);
    return status;
}

enum {
    OPTION_LISTEN = CLI_OPTION_FIRST,
    OPTION_ROOT,
    OPTION_SYNTHETIC,
    OPTION_BUCKET,
    OPTION_STRICT_BUCKETS,
    OPTION_PLAIN,
    OPTION_TLS_DIR,
    OPTION_LATENCY_MS,
    OPTION_CONN_MBPS,
    OPTION_RATE_LIMIT,
};

/* What can be given several times; each has room for every argument of the command line. */
struct emulate_lists {
    const char **synthetic, **buckets;
};

static bool emulate_option(struct rg_emulator_options *emulate, const struct emulate_lists *lists,
                           int option)
{
    uint64_t threads;
    switch (option) {
    case OPTION_LISTEN:
        emulate->listen = optarg;
        return true;
    case OPTION_ROOT:
        emulate->root = optarg;
        return true;
    case OPTION_SYNTHETIC:
        lists->synthetic[emulate->synthetic_count++] = optarg;
        return true;
    case OPTION_BUCKET:
        lists->buckets[emulate->bucket_count++] = optarg;
        return true;
    case OPTION_STRICT_BUCKETS:
        emulate->strict_buckets = true;
        return true;
    case OPTION_PLAIN:
        emulate->plain = true;
        return true;
    case OPTION_TLS_DIR:
        emulate->tls_dir = optarg;
        return true;
    case OPTION_LATENCY_MS:
        emulate->latency_ms = optarg;
        return true;
    case OPTION_CONN_MBPS:
        emulate->conn_mbps = optarg;
        return true;
    case OPTION_RATE_LIMIT:
        emulate->rate_limit = optarg;
        return true;
    case CLI_OPTION_THREADS:
        if (!cli_parse_u64("--threads", optarg, 1, RG_EMULATOR_THREADS_MAX, &threads)) {
            return false;
        }
        emulate->threads = (uint32_t)threads;
        return true;
    default:
        return false;
    }
}

static int emulate_parse(const struct emulate_lists *lists, int argc, char **argv)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, OPTION_LISTEN},
        {"root", required_argument, NULL, OPTION_ROOT},
        {"synthetic", required_argument, NULL, OPTION_SYNTHETIC},
        {"bucket", required_argument, NULL, OPTION_BUCKET},
        {"strict-buckets", no_argument, NULL, OPTION_STRICT_BUCKETS},
        {"plain", no_argument, NULL, OPTION_PLAIN},
        {"tls-dir", required_argument, NULL, OPTION_TLS_DIR},
        {"latency-ms", required_argument, NULL, OPTION_LATENCY_MS},
        {"conn-mbps", required_argument, NULL, OPTION_CONN_MBPS},
        {"rate-limit", required_argument, NULL, OPTION_RATE_LIMIT},
        {"threads", required_argument, NULL, CLI_OPTION_THREADS},
        {"help", no_argument, NULL, CLI_OPTION_HELP},
        {0}};
    struct rg_emulator_options emulate = {.synthetic = lists->synthetic, .buckets = lists->buckets};
    int option;
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (option == CLI_OPTION_HELP) {
            return cli_help();
        }
        if (!emulate_option(&emulate, lists, option)) {
            return CLI_USAGE;
        }
    }
    if (optind < argc && strcmp(argv[optind - 1], "--") != 0) {
        return cli_usage("unexpected argument \"%s\"; a command to run comes after --",
                         argv[optind]);
    }
    return emulate_go(&emulate, optind < argc ? argv + optind : NULL);
}

static int emulate_run(int argc, char **argv)
{
    const char **texts = calloc(2 * (size_t)argc, sizeof(*texts));
    if (texts == NULL) {
        return cli_fail("no memory");
    }
    struct emulate_lists lists = {texts, texts + argc};
    int status = emulate_parse(&lists, argc, argv);
    free(texts);
    return status;
}

const struct cli_command cli_emulate = {
    .name = "emulate",
    .arguments = "[OPTIONS] [-- COMMAND [ARGUMENT]...]",
    .summary = "serve buckets on this machine as Cloud Storage would",
    .help =
        "Options:\n"
        "  --listen HOST:PORT address to listen on; port 0 is any free one; default: 127.0.0.1:0\n"
        "  --root DIR         keep buckets as folders below DIR, which is created if it does not\n"
        "                     exist; objects and their metadata outlast the emulator\n"
        "  --synthetic BUCKET/PREFIX:COUNT:SIZE\n"
        "                     serve COUNT objects PREFIX00000000... of SIZE bytes, which are\n"
        "                     computed and take no memory; can be given several times\n"
        "  --bucket NAME      create this bucket; can be given several times\n"
        "  --strict-buckets   answer 404 for an object in a bucket that was not created, as the\n"
        "                     service does; default: the object creates the bucket\n"
        "  --plain            HTTP instead of HTTPS\n"
        "  --tls-dir DIR      keep ca.pem, cert.pem and key.pem in DIR, so that clients that "
        "trust\n"
        "                     ca.pem go on doing so; default: a temporary folder\n"
        "  --latency-ms P50[:P99]\n"
        "                     delay each answer by milliseconds with this median and 99th\n"
        "                     percentile, drawn from a log-normal distribution\n"
        "  --conn-mbps N      send at most N megabits per second on each connection\n"
        "  --rate-limit RPS   answer 429 beyond RPS requests per second\n"
        "  --threads N        event loops; default: one for each CPU\n"
        "\nWithout --root, uploaded objects are kept in memory. When the emulator listens, it\n"
        "prints one line, {\"endpoint\":\"https://localhost:PORT\",\"ca\":\"PATH\",\"pid\":N},\n"
        "and runs until SIGINT or SIGTERM. With --plain, \"ca\" is null.\n"
        "\nTests of clients ask for faults by POST /fault_rule and POST /retry_test, and for what\n"
        "uploads were left unfinished by GET /unfinished_uploads: see ringest-emulate(1).\n"
        "\nWith COMMAND, it prints nothing. It runs the command with STORAGE_EMULATOR_HOST and\n"
        "SSL_CERT_FILE set, so that its clients use the emulator, and ends with it:\n"
        "  ringest emulate --synthetic train/:2000:10KiB -- bash\n",
    .run = emulate_run,
};
