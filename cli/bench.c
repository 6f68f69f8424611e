/* `ringest bench`: what it is asked for, and the order in which it measures, prints and cleans up.
 * The load itself is in bench_load.c, its processes in bench_workers.c. */
#include "cli/bench_document.h"
#include "cli/bench_objects.h"
#include "cli/bench_python.h"
#include "cli/bench_report.h"
#include "cli/bench_workers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONCURRENCY 64
#define CONCURRENCY_MAX 65536
#define LIST_CONCURRENCY 16
#define LIST_CONCURRENCY_MAX 1024
#define COUNT_MAX UINT64_C(1000000000)
#define PUT_COUNT 1000
#define OBJECT_SIZE 102400
#define OBJECT_SIZE_MAX (UINT64_C(1) << 32)
#define SECONDS_MIN 0.001
#define INTERVAL_MIN 0.01
#define RATE_MAX 1e8
/* Words of the command that the document repeats. */
#define WORDS_MAX 256

const char *const bench_op_names[] = {"get", "put", "list"};

enum {
    OPTION_CONCURRENCY = CLI_OPTION_FIRST,
    OPTION_COUNT,
    OPTION_SECONDS,
    OPTION_WARM_UP,
    OPTION_RAMP,
    OPTION_RATE,
    OPTION_ARRIVAL,
    OPTION_INTERVAL,
    OPTION_PROCESSES,
    OPTION_ROUNDS,
    OPTION_OBJECT_SIZE,
    OPTION_VERIFY,
    OPTION_KEEP,
    OPTION_PER_CONNECTION,
    OPTION_RESULT,
};

static bool parse_arrival(struct bench_options *bench, const char *text)
{
    bench->is_poisson = strcmp(text, "poisson") == 0;
    if (!bench->is_poisson && strcmp(text, "fixed") != 0) {
        cli_usage("--arrival must be fixed or poisson, got \"%s\"", text);
        return false;
    }
    return true;
}

static bool parse_rate(struct bench_options *bench, const char *text)
{
    if (!cli_parse_double("--rate", text, SECONDS_MIN, &bench->rate_per_s)) {
        return false;
    }
    if (bench->rate_per_s > RATE_MAX) {
        cli_usage("--rate may be %.0f requests/s at most, got \"%s\"", RATE_MAX, text);
        return false;
    }
    return true;
}

static bool load_option(struct bench_options *bench, int option, const char *argument)
{
    switch (option) {
    case OPTION_CONCURRENCY:
        return cli_parse_u64("--concurrency", argument, 1, CONCURRENCY_MAX, &bench->concurrency);
    case OPTION_COUNT:
        return cli_parse_u64("--count", argument, 1, COUNT_MAX, &bench->count);
    case OPTION_SECONDS:
        return cli_parse_double("--seconds", argument, SECONDS_MIN, &bench->seconds);
    case OPTION_WARM_UP:
        return cli_parse_double("--warm-up", argument, SECONDS_MIN, &bench->warm_up_s);
    case OPTION_RAMP:
        return cli_parse_double("--ramp", argument, SECONDS_MIN, &bench->ramp_s);
    case OPTION_RATE:
        return parse_rate(bench, argument);
    case OPTION_ARRIVAL:
        return parse_arrival(bench, argument);
    case OPTION_INTERVAL:
        return cli_parse_double("--interval", argument, INTERVAL_MIN, &bench->interval_s);
    case OPTION_PROCESSES:
        return cli_parse_u64("--processes", argument, 1, BENCH_PROCESSES_MAX, &bench->processes);
    case OPTION_ROUNDS:
        return cli_parse_u64("--rounds", argument, 1, BENCH_ROUNDS_MAX, &bench->rounds);
    case OPTION_OBJECT_SIZE:
        bench->has_object_size = true;
        return cli_parse_size("--object-size", argument, 0, OBJECT_SIZE_MAX, &bench->object_size);
    default:
        return false;
    }
}

static bool bench_option(struct bench_options *bench, int option, const char *argument)
{
    switch (option) {
    case OPTION_VERIFY:
        bench->verify = true;
        return true;
    case OPTION_KEEP:
        bench->keep = true;
        return true;
    case OPTION_PER_CONNECTION:
        bench->per_connection = true;
        return true;
    case OPTION_RESULT:
        bench->result = argument;
        if (strcmp(argument, "-") == 0) {
            cli_usage("--result needs a FILE; --json prints to standard output");
            return false;
        }
        return cli_file_check(argument);
    case CLI_OPTION_JSON:
        bench->json = true;
        return true;
    default:
        return load_option(bench, option, argument);
    }
}

static int bench_parse_op(struct bench_options *bench, const char *name)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(bench_op_names); i++) {
        if (strcmp(name, bench_op_names[i]) == 0) {
            bench->op = (enum bench_op)i;
            return CLI_DONE;
        }
    }
    return cli_usage(
        "the operation must be get, put, list, run, presets, compare or report, got \"%s\"", name);
}

/* What does not go together. */
static int bench_check(const struct bench_options *bench, bool has_arrival)
{
    if (bench->seconds > 0 && bench->count > 0) {
        return cli_usage("--count and --seconds exclude each other");
    }
    if (bench->keep && bench->op != BENCH_PUT) {
        return cli_usage("--keep is for put: %s writes nothing", bench_op_names[bench->op]);
    }
    if (bench->has_object_size && bench->op != BENCH_PUT) {
        return cli_usage("--object-size is for put: %s takes objects as they are",
                         bench_op_names[bench->op]);
    }
    if (bench->verify && bench->op == BENCH_PUT) {
        return cli_usage("--verify is for get and list; what put leaves with --keep, "
                         "`ringest bench get --verify` reads");
    }
    if (bench->op == BENCH_LIST && (bench->rate_per_s > 0 || bench->ramp_s > 0)) {
        return cli_usage("--rate and --ramp are for get and put: each page names the next");
    }
    if (bench->per_connection && (bench->processes > 1 || bench->op == BENCH_LIST)) {
        return cli_usage("--per-connection is for get and put of one process");
    }
    if (has_arrival && bench->rate_per_s == 0) {
        return cli_usage("--arrival needs --rate");
    }
    if (bench->seconds > 0 && bench->ramp_s > bench->seconds) {
        return cli_usage("--ramp may be as long as --seconds at most");
    }
    if (bench->seconds > 0 && bench->interval_s > 0 &&
        bench->seconds / bench->interval_s > BENCH_POINTS_MAX) {
        return cli_usage("--interval must be longer: a series has %d points at most",
                         BENCH_POINTS_MAX);
    }
    return CLI_DONE;
}

static int bench_arguments(struct bench_options *bench, int argc, char **argv, bool has_arrival)
{
    if (argc - optind != 2) {
        return cli_usage(
            "needs get, put or list, and gs://BUCKET/PREFIX; or run, presets, compare or report");
    }
    int status = bench_parse_op(bench, argv[optind]);
    if (status != CLI_DONE || !cli_parse_uri(argv[optind + 1], &bench->uri)) {
        return CLI_USAGE;
    }
    status = bench_check(bench, has_arrival);
    if (status != CLI_DONE) {
        return status;
    }
    if (bench->count == 0 && bench->seconds == 0 && bench->op == BENCH_PUT) {
        bench->count = PUT_COUNT;
    }
    if (bench->op == BENCH_LIST) {
        uint64_t usual = LIST_CONCURRENCY;
        bench->concurrency = bench->concurrency != 0 ? bench->concurrency : usual;
        bench->concurrency = RG_MIN(bench->concurrency, (uint64_t)LIST_CONCURRENCY_MAX);
    }
    bench->concurrency = bench->concurrency != 0 ? bench->concurrency : CONCURRENCY;
    bench->connection.connections = (uint32_t)bench->concurrency;
    bench->connection.prewarm = (uint32_t)bench->concurrency;
    bench->shows_progress = !bench->json && bench->processes == 1;
    struct rg_runtime_options runtime;
    struct rg_client_options client;
    if (!cli_options_make(&bench->connection, &runtime, &client)) {
        return CLI_USAGE;
    }
    bench->is_cached = client.cache != NULL && *client.cache != '\0';
    return bench->op == BENCH_PUT ? bench_objects_folder(&bench->uri, bench->folder) : CLI_DONE;
}

/* What was measured is shown before anything that may take long or fail. */
static void bench_measured(const struct bench_results *results, uint64_t round)
{
    const struct bench_result *result = bench_results_round(results, round);
    if (result->requests > 0 && !results->options->json) {
        bench_report_text(results->options, result, round);
        if (results->connections != NULL) {
            bench_connections_text(&results->connections[round]);
        }
        cli_output_end(CLI_DONE);
    }
}

/* What is shown when all is done. */
static int bench_show(const struct bench_options *bench, const struct bench_results *results)
{
    uint64_t count = bench_results_count(results);
    for (uint64_t i = 0; bench->json && i < count; i++) {
        bench_report_json(bench, bench_results_round(results, i),
                          results->connections != NULL ? &results->connections[i] : NULL);
    }
    if (!bench->json && count > 0 && bench->op == BENCH_PUT) {
        bench_report_objects(bench, bench_results_round(results, 0));
    }
    return cli_output_end(CLI_DONE);
}

static int bench_go(const struct bench_options *bench, const char *const *words, size_t count)
{
    struct rg_new_file file;
    struct bench_results results;
    /* Made first, so that a wrong path is told before anything is measured. */
    int rc = bench->result != NULL ? rg_new_file_open(&file, bench->result) : 0;
    if (rc < 0) {
        return cli_fail("the result cannot be written to %s: %s", bench->result,
                        rc == -EEXIST ? "it is no file; --json prints to standard output"
                                      : strerror(-rc));
    }
    int status = bench_workers_run(bench, &results, bench_measured);
    bool has_any = bench_results_count(&results) > 0;
    int shown = bench_show(bench, &results);
    status = status == CLI_DONE ? shown : status;
    const char *missing = cli_interrupted()                               ? "interrupted"
                          : bench_results_count(&results) < bench->rounds ? "rounds are missing"
                                                                          : NULL;
    if (bench->result != NULL && has_any) {
        int written = bench_document_write(&file, bench, &results, words, count, missing);
        status = status == CLI_DONE ? written : status;
    } else if (bench->result != NULL) {
        rg_new_file_abandon(&file);
    }
    bench_results_free(&results);
    if (status == CLI_DONE && !has_any && !cli_interrupted()) {
        return cli_fail("nothing in gs://%s begins with \"%s\"", bench->uri.bucket,
                        bench->uri.name);
    }
    if (cli_interrupted()) {
        return cli_fail("interrupted%s", has_any ? "" : " before the first request was answered");
    }
    return status;
}

static int bench_run(int argc, char **argv)
{
    static const struct option options[] = {
        CLI_CONNECTION_OPTIONS,
        {"concurrency", required_argument, NULL, OPTION_CONCURRENCY},
        {"count", required_argument, NULL, OPTION_COUNT},
        {"seconds", required_argument, NULL, OPTION_SECONDS},
        {"warm-up", required_argument, NULL, OPTION_WARM_UP},
        {"ramp", required_argument, NULL, OPTION_RAMP},
        {"rate", required_argument, NULL, OPTION_RATE},
        {"arrival", required_argument, NULL, OPTION_ARRIVAL},
        {"interval", required_argument, NULL, OPTION_INTERVAL},
        {"processes", required_argument, NULL, OPTION_PROCESSES},
        {"rounds", required_argument, NULL, OPTION_ROUNDS},
        {"object-size", required_argument, NULL, OPTION_OBJECT_SIZE},
        {"verify", no_argument, NULL, OPTION_VERIFY},
        {"keep", no_argument, NULL, OPTION_KEEP},
        {"per-connection", no_argument, NULL, OPTION_PER_CONNECTION},
        {"result", required_argument, NULL, OPTION_RESULT},
        {0}};
    struct bench_options bench = {.object_size = OBJECT_SIZE, .processes = 1, .rounds = 1};
    int option;
    bool ok, has_arrival = false;
    if (bench_python_is_asked(argc, argv)) {
        return bench_python_run(argc, argv);
    }
    const char *words[WORDS_MAX] = {"ringest"}; /* before they are put into another order */
    size_t count = 1;
    for (int i = 0; i < argc && count < WORDS_MAX; i++) {
        words[count++] = argv[i];
    }
    while ((option = cli_getopt(argc, argv, ":", options)) != -1) {
        if (option == CLI_OPTION_HELP) {
            return cli_help();
        }
        has_arrival = has_arrival || option == OPTION_ARRIVAL;
        if (!cli_connection_option(&bench.connection, option, optarg, &ok)) {
            ok = bench_option(&bench, option, optarg);
        }
        if (!ok) {
            return CLI_USAGE;
        }
    }
    int status = bench_arguments(&bench, argc, argv, has_arrival);
    return status == CLI_DONE ? bench_go(&bench, words, count) : status;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .arguments = "get|put|list gs://BUCKET/PREFIX [OPTIONS]",
    .summary = "measure requests, and the CPU time of each",
    .help =
        "Or one of these, which need Python with the package ringest (`ringest bench run "
        "--help`):\n" BENCH_PYTHON_HELP "\nOptions of get, put and list:\n"
        "  --concurrency N    requests in flight, each on its own connection, of each process;\n"
        "                     default: 64, and 16 with list\n"
        "  --count N          requests in all; default: every object once (get), 1000 (put),\n"
        "                     all pages (list)\n"
        "  --seconds S        send requests for S seconds, instead of a number of them\n"
        "  --warm-up S        first do the same for S seconds without measuring; default: a few\n"
        "                     requests (get)\n"
        "  --rate N           send N requests/s, whether or not those before are answered; a\n"
        "                     latency counts from when its request was due; default: as fast as\n"
        "                     they are answered\n"
        "  --arrival KIND     with --rate: fixed, at equal distances, or poisson; default: fixed\n"
        "  --ramp S           let the concurrency, or the rate, grow for the first S seconds\n"
        "  --interval S       a time series: what happened in each S seconds\n"
        "  --per-connection   latencies by connection, too, of a trace, which takes CPU time\n"
        "  --processes N      do it in N processes, each with the concurrency; default: 1\n"
        "  --rounds N         measure N times; default: 1\n"
        "  --object-size SIZE size of the objects that put writes; default: 100K\n"
        "  --keep             put: leave the objects there, and say where\n"
        "  --verify           get: compare size, generation and CRC32C with the listing too;\n"
        "                     list: compare each name, size and generation with a listing made\n"
        "                     before, one page after the other\n"
        "  --json             one JSON object on standard output for each round\n"
        "  --result FILE      write all that was measured, with the histogram of latencies, as\n"
        "                     JSON that `ringest bench report` reads\n" CLI_CONNECTION_HELP
        "\nget reads every object completely into memory, and compares its CRC32C with the "
        "server's.\n"
        "put writes new objects into a folder of its own, PREFIXringest-bench-ID/, and "
        "removes\n"
        "them at the end, also after an error or Ctrl-C. It never replaces an object. get and "
        "list\n"
        "write nothing. After Ctrl-C the results so far are printed.\n"
        "A prefix is literal: gs://b/a reads everything that begins with \"a\". If put is killed,\n"
        "the next one names its folder, and `ringest rm -r` removes it.\n"
        "\nExamples:\n"
        "  ringest bench get gs://bucket/train/ --concurrency 256 --seconds 10\n"
        "  ringest bench get gs://bucket/train/ --seconds 10 --rate 2000 --interval 1\n"
        "  ringest bench put gs://bucket/ --object-size 1M --count 500\n"
        "  ringest bench presets\n"
        "  ringest bench --preset unet3d\n",
    .run = bench_run,
};
