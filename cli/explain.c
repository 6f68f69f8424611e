/* `ringest explain`: where the time of the last steps of loops over datasets went, by what they
 * tell in the shared region (gcs/host/told.h). What it says of them is what dataset.explain() says
 * inside (dataset/causes.h). */
#include "cli/live.h"
#include "dataset/causes.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_STEPS = 2000, OPTION_SECONDS };

#define STEPS_DEFAULT 100
#define SECONDS_MAX 86400.0
#define PIDS_MAX RG_HOST_TOLD_PLACES
/* A step that has taken so long is worth a line. */
#define LONG_NS RG_NS_PER_S

struct explain {
    struct live live;
    uint64_t steps;
    double seconds; /* 0: by steps */
    const char *folder;
    uint32_t pids[PIDS_MAX]; /* none: all */
    uint32_t pid_count;
    struct rg_told *found; /* RG_HOST_TOLD_PLACES, of which so many are there */
    uint32_t count;
    uint32_t last_other; /* a process that was not asked for; 0: there is none */
    uint64_t now_ns;
};

static bool is_asked_for(const struct explain *explain, uint32_t pid)
{
    bool is_one = explain->pid_count == 0;
    for (uint32_t i = 0; i < explain->pid_count && !is_one; i++) {
        is_one = explain->pids[i] == pid;
    }
    return is_one;
}

static void told_found(void *context, const struct rg_told *told)
{
    struct explain *explain = context;
    if (!is_asked_for(explain, told->pid)) {
        explain->last_other = told->pid;
    } else if (explain->count < RG_HOST_TOLD_PLACES) {
        struct rg_told *kept = &explain->found[explain->count++];
        *kept = *told;
        cli_make_printable(kept->command);
        cli_make_printable(kept->dataset);
        cli_make_printable(kept->source);
        cli_make_printable(kept->ahead);
    }
}

static int told_compare(const void *a, const void *b)
{
    const struct rg_told *one = a, *other = b;
    if (one->pid != other->pid) {
        return one->pid < other->pid ? -1 : 1;
    }
    return one->began_ns < other->began_ns ? -1 : one->began_ns > other->began_ns;
}

static uint64_t silent_ns(const struct explain *explain, const struct rg_told *told)
{
    return explain->now_ns - RG_MIN(told->told_ns, explain->now_ns);
}

/* Who waits for data tells of it again and again. If not, its thread is at something else since. */
static bool is_busy_inside(const struct explain *explain, const struct rg_told *told)
{
    return told->state == RG_TOLD_INSIDE && silent_ns(explain, told) >= LONG_NS;
}

/* Time inside in which it did not sleep, like that of any transform. */
static void silence_add(const struct explain *explain, struct rg_told *told)
{
    if (is_busy_inside(explain, told)) {
        told->open.inside_ns += silent_ns(explain, told);
        told->open.ended_ns += silent_ns(explain, told);
    }
}

/* Nobody who shares anything is no error. */
static int take(struct explain *explain)
{
    char why[RG_HOST_PATH_SIZE_MAX + 100];
    struct rg_host_region region;
    explain->count = explain->last_other = 0;
    int rc = explain->folder != NULL
                 ? rg_host_region_find(&region, explain->folder, why, sizeof(why))
                 : -ENOENT;
    if (rc == -ENOENT) {
        return CLI_DONE;
    }
    if (rc < 0) {
        return cli_fail("%s", why);
    }
    rc = rg_told_read(&region, told_found, explain);
    rg_host_region_close(&region);
    explain->now_ns = rg_now_ns();
    for (uint32_t i = 0; i < explain->count; i++) {
        silence_add(explain, &explain->found[i]);
    }
    qsort(explain->found, explain->count, sizeof(explain->found[0]), told_compare);
    return rc < 0 ? cli_fail("what processes share cannot be read: %s", rg_error_text(-rc))
                  : CLI_DONE;
}

static struct rg_causes causes_of(const struct explain *explain, const struct rg_told *told)
{
    uint64_t since_ns = 0, steps = explain->steps;
    if (explain->seconds > 0) {
        uint64_t window_ns = (uint64_t)(explain->seconds * (double)RG_NS_PER_S);
        since_ns = explain->now_ns - RG_MIN(explain->now_ns, window_ns);
        steps = UINT64_MAX;
    }
    static const struct rg_told_step none;
    struct rg_told_step sum = rg_told_sum(told, steps, since_ns);
    bool has_open = told->open.ended_ns >= since_ns;
    return rg_causes_find(&sum, has_open ? &told->open : &none, rg_told_busy(told));
}

/* How long it has waited for the value that it waits for. */
static uint64_t waiting_ns(const struct explain *explain, const struct rg_told *told)
{
    uint64_t began_ns = told->open.ended_ns - told->open.inside_ns;
    return told->state == RG_TOLD_INSIDE && explain->now_ns > began_ns ? explain->now_ns - began_ns
                                                                       : 0;
}

static void state_print(FILE *out, const struct explain *explain, const struct rg_told *told)
{
    double silent = (double)silent_ns(explain, told) / (double)RG_NS_PER_S;
    double waiting = (double)waiting_ns(explain, told) / (double)RG_NS_PER_S;
    if (told->state == RG_TOLD_OVER) {
        fprintf(out, "The iteration ended %.1f s ago.\n", silent);
    } else if (is_busy_inside(explain, told)) {
        fprintf(
            out,
            "It was asked for the next batch %.1f s ago, and for %.1f s a transform, or another "
            "thread of the process, is busy, or the process is stopped.\n",
            waiting, silent);
    } else if (told->state == RG_TOLD_INSIDE && waiting_ns(explain, told) >= LONG_NS) {
        fprintf(out, "It has waited for the next batch for %.1f s.\n", waiting);
    } else if (told->state == RG_TOLD_AWAY && silent_ns(explain, told) >= LONG_NS) {
        fprintf(out, "No step has ended for %.1f s: the loop, or a transform, is busy.\n", silent);
    }
}

/* Nothing that a program can do about its reading explains that no step ends for longer than all of
 * these have taken. */
static void advise(const struct explain *explain, const struct rg_told *told,
                   const struct rg_causes *causes, char out[static RG_CAUSES_ADVICE_MAX])
{
    double silent = (double)silent_ns(explain, told) / (double)RG_NS_PER_S;
    bool is_away = told->state == RG_TOLD_AWAY && silent_ns(explain, told) >= LONG_NS;
    if (is_away && silent > causes->consumer + causes->wait) {
        snprintf(out, RG_CAUSES_ADVICE_MAX,
                 "Look at what the loop does: `py-spy dump --pid %" PRIu32
                 "` says where each thread of a Python program is.",
                 told->pid);
    } else {
        rg_causes_advise(causes, told->ahead, out);
    }
}

static void told_print(FILE *out, const struct explain *explain, const struct rg_told *told)
{
    struct rg_causes causes = causes_of(explain, told);
    char text[RG_CAUSES_TEXT_MAX], advice[RG_CAUSES_ADVICE_MAX];
    fprintf(out, "process %" PRIu32 " (%s): %s of %s", told->pid, told->command, told->dataset,
            told->source);
    if (told->world_size > 1) {
        fprintf(out, ", rank %" PRIu32 " of %" PRIu32, told->rank, told->world_size);
    }
    if (told->worker_count > 1) {
        fprintf(out, ", worker %" PRIu32 " of %" PRIu32, told->worker, told->worker_count);
    }
    fprintf(out, "\n");
    if (causes.steps == 0 && causes.wait == 0) {
        fprintf(out, "No step has ended in that time.\n");
        state_print(out, explain, told);
        return;
    }
    rg_causes_write(&causes, text);
    advise(explain, told, &causes, advice);
    fprintf(out, "%s\n", text);
    state_print(out, explain, told);
    fprintf(out, "%s\n", advice);
}

static void text_print(const struct explain *explain)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return;
    }
    if (explain->count == 0) {
        fprintf(out, explain->pid_count == 0
                         ? "No process of this user on this host tells of a loop over a dataset. "
                           "One tells of it when it has run for 0.1 s; of epochs that are over "
                           "sooner, dataset.explain() inside of the program does.\n"
                         : "No loop over a dataset is told of now by what was asked for.\n");
    }
    for (uint32_t i = 0; i < explain->count; i++) {
        fprintf(out, "%s", i > 0 ? "\n" : "");
        told_print(out, explain, &explain->found[i]);
    }
    if (fclose(out) == 0) {
        live_print(&explain->live, text);
    }
}

static void causes_print_json(const struct rg_causes *causes, const char *advice)
{
    printf(", \"steps\": %" PRIu64 ", \"seconds\": %.9g, \"consumer\": %.9g, \"wait\": %.9g"
           ", \"parts\": {",
           causes->steps, causes->consumer + causes->wait, causes->consumer, causes->wait);
    for (unsigned i = 0; i < RG_CAUSE_COUNT; i++) {
        unsigned cause = (i + 1) % RG_CAUSE_COUNT; /* what is not known comes last */
        printf("%s\"%s\": %.9g", i > 0 ? ", " : "", rg_cause_name(cause), causes->parts[cause]);
    }
    printf("}, \"loops_busy\": %.9g, \"attributed\": %.9g, \"advice\": ", causes->busy,
           rg_causes_attributed(causes));
    cli_json_string(causes->steps > 0 || causes->wait > 0 ? advice : "");
}

static void json_print(const struct explain *explain)
{
    static const char *const states[] = {
        [RG_TOLD_AWAY] = "running", [RG_TOLD_INSIDE] = "waiting", [RG_TOLD_OVER] = "over"};
    printf("{\"iterations\": [");
    for (uint32_t i = 0; i < explain->count; i++) {
        const struct rg_told *told = &explain->found[i];
        struct rg_causes causes = causes_of(explain, told);
        printf("%s{\"pid\": %" PRIu32 ", \"program\": ", i > 0 ? ", " : "", told->pid);
        cli_json_string(told->command);
        printf(", \"dataset\": ");
        cli_json_string(told->dataset);
        printf(", \"source\": ");
        cli_json_string(told->source);
        printf(", \"rank\": %" PRIu32 ", \"world_size\": %" PRIu32 ", \"worker\": %" PRIu32
               ", \"workers\": %" PRIu32,
               told->rank, told->world_size, told->worker, told->worker_count);
        printf(", \"state\": ");
        cli_json_string(told->state < RG_ARRAY_LEN(states) ? states[told->state] : "unknown");
        printf(", \"silent_s\": %.9g, \"waiting_s\": %.9g",
               (double)silent_ns(explain, told) / (double)RG_NS_PER_S,
               (double)waiting_ns(explain, told) / (double)RG_NS_PER_S);
        char advice[RG_CAUSES_ADVICE_MAX];
        advise(explain, told, &causes, advice);
        causes_print_json(&causes, advice);
        printf("}");
    }
    printf("]}\n");
}

static bool is_gone(uint32_t pid)
{
    return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

/* Why a process that was asked for tells nothing. */
static int pid_fail(const struct explain *explain, uint32_t pid)
{
    char others[64] = "no process of this user does";
    if (explain->last_other != 0) {
        snprintf(others, sizeof(others), "process %" PRIu32 " does", explain->last_other);
    }
    if (is_gone(pid)) {
        return cli_fail("there is no process %" PRIu32, pid);
    }
    if (kill((pid_t)pid, 0) < 0 && errno == EPERM) {
        return cli_fail("process %" PRIu32 " is another user's: run this as that user", pid);
    }
    return cli_fail("process %" PRIu32
                    " tells of no loop over a dataset of ringest (%s): it has begun none, or less "
                    "than 0.1 s ago; its epochs are over sooner (dataset.explain() inside tells of "
                    "them); its DataLoader's workers do; it reads a MapDataset, of which nothing "
                    "is told; it shares nothing (RINGEST_SHARING); or its ringest is of another "
                    "version",
                    pid, others);
}

static int pids_check(const struct explain *explain)
{
    for (uint32_t i = 0; i < explain->pid_count; i++) {
        bool is_there = false;
        for (uint32_t j = 0; j < explain->count && !is_there; j++) {
            is_there = explain->found[j].pid == explain->pids[i];
        }
        if (!is_there) {
            return pid_fail(explain, explain->pids[i]);
        }
    }
    return CLI_DONE;
}

/* All that was asked for. Between two epochs a process tells nothing, and goes on. */
static bool are_gone(const struct explain *explain)
{
    bool are_gone = explain->pid_count > 0 && explain->count == 0;
    for (uint32_t i = 0; i < explain->pid_count && are_gone; i++) {
        are_gone = is_gone(explain->pids[i]);
    }
    return are_gone;
}

static int look(const struct explain *explain)
{
    if (explain->live.json) {
        json_print(explain);
    } else {
        text_print(explain);
    }
    return cli_output_end(CLI_DONE);
}

static int watch(struct explain *explain)
{
    cli_interrupt_catch();
    int status = take(explain);
    status = status == CLI_DONE ? pids_check(explain) : status;
    while (status == CLI_DONE && !cli_interrupted()) {
        status = look(explain);
        if (status != CLI_DONE || explain->live.once) {
            break;
        }
        live_pause(explain->live.interval_s);
        status = cli_interrupted() ? CLI_DONE : take(explain);
        if (status == CLI_DONE && are_gone(explain)) {
            cli_note("%s has ended", explain->pid_count == 1 ? "that process" : "each of them");
            break;
        }
    }
    return status;
}

static int explain_start(struct explain *explain)
{
    int status = live_folder_find(&explain->folder);
    if (status != CLI_DONE) {
        return status;
    }
    explain->live.once |= explain->folder == NULL;
    explain->found = calloc(RG_HOST_TOLD_PLACES, sizeof(*explain->found));
    status = explain->found != NULL ? watch(explain) : cli_fail("there is no memory");
    free(explain->found);
    return status;
}

static int option_read(struct explain *explain, int option)
{
    if (option == OPTION_STEPS) {
        return cli_parse_u64("--steps", optarg, 1, UINT32_MAX, &explain->steps) ? CLI_DONE
                                                                                : CLI_USAGE;
    }
    if (option != OPTION_SECONDS) {
        return live_option_read(&explain->live, option);
    }
    if (!cli_parse_double("--seconds", optarg, 0.1, &explain->seconds)) {
        return CLI_USAGE;
    }
    return explain->seconds <= SECONDS_MAX ? CLI_DONE
                                           : cli_usage("--seconds is at most %.0f", SECONDS_MAX);
}

static int pids_read(struct explain *explain, char **argv, int count)
{
    if (count > (int)PIDS_MAX) {
        return cli_usage("at most %d processes, got %d", (int)PIDS_MAX, count);
    }
    for (int i = 0; i < count; i++) {
        char *end;
        errno = 0;
        unsigned long pid = strtoul(argv[i], &end, 10);
        if (*argv[i] < '0' || *argv[i] > '9' || *end != '\0' || errno != 0 || pid == 0 ||
            pid > INT32_MAX) {
            return cli_usage("\"%s\" is no number of a process", argv[i]);
        }
        explain->pids[explain->pid_count++] = (uint32_t)pid;
    }
    return CLI_DONE;
}

static int explain_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"once", no_argument, NULL, LIVE_OPTION_ONCE},
        {"json", no_argument, NULL, LIVE_OPTION_JSON},
        {"interval", required_argument, NULL, LIVE_OPTION_INTERVAL},
        {"steps", required_argument, NULL, OPTION_STEPS},
        {"seconds", required_argument, NULL, OPTION_SECONDS},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    static struct explain explain = {.live.interval_s = 1};
    int option;
    while ((option = cli_getopt(argc, argv, ":h", options)) != -1) {
        if (option == 'h' || option == '?') {
            return option == 'h' ? cli_help() : CLI_USAGE;
        }
        int status = option_read(&explain, option);
        if (status != CLI_DONE) {
            return status;
        }
    }
    if (explain.steps > 0 && explain.seconds > 0) {
        return cli_usage("--steps and --seconds exclude each other");
    }
    explain.steps = explain.steps > 0 ? explain.steps : STEPS_DEFAULT;
    int status = pids_read(&explain, argv + optind, argc - optind);
    return status == CLI_DONE ? explain_start(&explain) : status;
}

const struct cli_command cli_explain = {
    .name = "explain",
    .arguments = "[OPTIONS] [PID...]",
    .summary = "say why the steps of loops over datasets are slow",
    .help = "  --steps N             of the last N steps; default: 100\n"
            "  --seconds SECONDS     of the steps that ended in the last SECONDS\n"
            "  --interval SECONDS    between two looks; default: 1\n"
            "  --once                one look, and end\n"
            "  --json                one JSON object for each look, in a line\n"
            "\nOf each loop over a dataset of ringest, of these processes or of all of this user:\n"
            "how much of a step is the loop's own, how much it waits for data, and what for;\n"
            "and what would make it faster. Programs need no option for that. It is what\n"
            "dataset.explain() says inside of them. Of a DataLoader each worker is shown.\n"
            "\nExamples:\n"
            "  ringest explain --once\n"
            "  ringest explain --seconds 10 4242\n",
    .run = explain_run,
};
