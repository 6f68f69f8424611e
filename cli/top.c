/* `ringest top`: what the processes of this user on this host do, by the accounts that their event
 * loops keep in the shared region (gcs/host/account.h).
 *
 * A sample is all accounts of a moment. What a loop did in a second is the difference between two
 * of them; one that was not in the first began since then. */
#include "cli/live.h"
#include "gcs/host/account.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An account that was not told for so long is of a loop without requests, or of a stopped one. */
#define IDLE_NS RG_NS_PER_S

struct sample {
    uint64_t taken_ns;
    struct rg_account accounts[RG_HOST_PLACES];
    uint32_t count;
};

/* A process and a bucket: the sum of its loops. */
struct line {
    struct rg_account sum;
    double requests_per_s, bytes_per_s;
    bool is_idle;
};

struct top {
    struct live live;
    const char *folder;
    struct sample *now, *before;
    struct line lines[RG_HOST_PLACES];
    uint32_t line_count;
};

/* A program may have any name, of which there are 15 bytes. */
static void account_found(void *context, const struct rg_account *account)
{
    struct sample *sample = context;
    if (sample->count < RG_HOST_PLACES) {
        struct rg_account *kept = &sample->accounts[sample->count++];
        *kept = *account;
        cli_make_printable(kept->command);
        cli_make_printable(kept->bucket);
    }
}

/* CLI_DONE; nobody who shares anything is no error. */
static int sample_take(const struct top *top, struct sample *sample)
{
    char why[RG_HOST_PATH_SIZE_MAX + 100];
    struct rg_host_region region;
    sample->count = 0;
    sample->taken_ns = rg_now_ns();
    int rc = rg_host_region_find(&region, top->folder, why, sizeof(why));
    if (rc == -ENOENT) {
        return CLI_DONE;
    }
    if (rc < 0) {
        return cli_fail("%s", why);
    }
    rc = rg_accounts_read(&region, account_found, sample);
    rg_host_region_close(&region);
    return rc < 0 ? cli_fail("what processes share cannot be read: %s", rg_error_text(-rc))
                  : CLI_DONE;
}

static const struct rg_account *account_before(const struct sample *before,
                                               const struct rg_account *account)
{
    for (uint32_t i = 0; i < before->count; i++) {
        const struct rg_account *one = &before->accounts[i];
        if (one->process == account->process && one->loop == account->loop &&
            one->since_ns == account->since_ns && strcmp(one->bucket, account->bucket) == 0) {
            return one;
        }
    }
    return NULL;
}

static struct line *line_of(struct top *top, const struct rg_account *account)
{
    for (uint32_t i = 0; i < top->line_count; i++) {
        const struct rg_account *sum = &top->lines[i].sum;
        if (sum->process == account->process && strcmp(sum->bucket, account->bucket) == 0) {
            return &top->lines[i];
        }
    }
    struct line *line = &top->lines[top->line_count++];
    *line = (struct line){.is_idle = true};
    line->sum.process = account->process;
    line->sum.pid = account->pid;
    memcpy(line->sum.command, account->command, sizeof(line->sum.command));
    memcpy(line->sum.bucket, account->bucket, sizeof(line->sum.bucket));
    return line;
}

static bool account_is_idle(const struct rg_account *account, uint64_t now_ns)
{
    return account->told_ns + IDLE_NS < now_ns;
}

/* Loops tell at moments of their own, so rates are by their clocks. One without requests tells
 * nothing: what it has done since is of the time after that. */
static void line_add(struct line *line, const struct rg_account *account,
                     const struct rg_account *before, uint64_t before_ns, uint64_t now_ns)
{
    struct rg_account *sum = &line->sum;
    bool is_idle = account_is_idle(account, now_ns);
    uint64_t since_ns = before != NULL ? before->told_ns : account->since_ns;
    if (before != NULL && account_is_idle(before, before_ns)) {
        since_ns = before_ns;
    }
    double seconds = account->told_ns > since_ns
                         ? (double)(account->told_ns - since_ns) / (double)RG_NS_PER_S
                         : 0;
    sum->requests += account->requests;
    sum->bytes += account->bytes;
    sum->retries += account->retries;
    sum->in_flight += account->in_flight;
    sum->waiting += account->waiting;
    sum->rate_mhz += account->rate_mhz;
    sum->p50_us = RG_MAX(sum->p50_us, account->p50_us);
    sum->p99_us = RG_MAX(sum->p99_us, account->p99_us);
    line->is_idle &= is_idle;
    if (seconds > 0 && !is_idle) {
        uint64_t requests = before != NULL ? before->requests : 0;
        uint64_t bytes = before != NULL ? before->bytes : 0;
        line->requests_per_s += (double)(account->requests - requests) / seconds;
        line->bytes_per_s += (double)(account->bytes - bytes) / seconds;
    }
}

static int line_compare(const void *a, const void *b)
{
    const struct line *one = a, *other = b;
    if (one->bytes_per_s != other->bytes_per_s) {
        return one->bytes_per_s < other->bytes_per_s ? 1 : -1;
    }
    if (one->sum.pid != other->sum.pid) {
        return one->sum.pid < other->sum.pid ? -1 : 1;
    }
    return strcmp(one->sum.bucket, other->sum.bucket);
}

static void lines_make(struct top *top)
{
    uint64_t now_ns = rg_now_ns();
    top->line_count = 0;
    for (uint32_t i = 0; i < top->now->count; i++) {
        const struct rg_account *account = &top->now->accounts[i];
        line_add(line_of(top, account), account, account_before(top->before, account),
                 top->before->taken_ns, now_ns);
    }
    qsort(top->lines, top->line_count, sizeof(top->lines[0]), line_compare);
}

static void line_print(FILE *out, const struct line *line)
{
    const struct rg_account *sum = &line->sum;
    char limit[24] = "-";
    if (sum->rate_mhz > 0) {
        snprintf(limit, sizeof(limit), "%.1f/s", (double)sum->rate_mhz / 1000);
    }
    fprintf(out,
            "%7" PRIu32 "  %-15s  %8.1f  %8.1f  %5" PRIu32 "  %5" PRIu32 "  %7.1f  %7.1f  %7" PRIu64
            "  %8s  %s\n",
            sum->pid, sum->command, line->requests_per_s, line->bytes_per_s / 1e6, sum->in_flight,
            sum->waiting, sum->p50_us / 1e3, sum->p99_us / 1e3, sum->retries, limit, sum->bucket);
}

static void table_print(const struct top *top)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return;
    }
    fprintf(out, "%7s  %-15s  %8s  %8s  %5s  %5s  %7s  %7s  %7s  %8s  %s\n", "PID", "PROGRAM",
            "REQ/S", "MB/S", "OUT", "WAIT", "P50 MS", "P99 MS", "RETRIES", "LIMIT", "BUCKET");
    for (uint32_t i = 0; i < top->line_count; i++) {
        line_print(out, &top->lines[i]);
    }
    if (fclose(out) == 0) {
        live_print(&top->live, text);
    }
}

static void json_print(const struct top *top)
{
    printf("{\"processes\": [");
    for (uint32_t i = 0; i < top->line_count; i++) {
        const struct line *line = &top->lines[i];
        const struct rg_account *sum = &line->sum;
        printf("%s{\"pid\": %" PRIu32 ", \"program\": ", i > 0 ? ", " : "", sum->pid);
        cli_json_string(sum->command);
        printf(", \"bucket\": ");
        cli_json_string(sum->bucket);
        printf(", \"requests\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"retries\": %" PRIu64
               ", \"requests_per_s\": %.3f, \"bytes_per_s\": %.3f",
               sum->requests, sum->bytes, sum->retries, line->requests_per_s, line->bytes_per_s);
        printf(", \"in_flight\": %" PRIu32 ", \"waiting\": %" PRIu32
               ", \"first_byte_p50_ms\": %.3f, \"first_byte_p99_ms\": %.3f"
               ", \"limit_per_s\": %.3f, \"idle\": %s}",
               sum->in_flight, sum->waiting, sum->p50_us / 1e3, sum->p99_us / 1e3,
               (double)sum->rate_mhz / 1000, line->is_idle ? "true" : "false");
    }
    printf("]}\n");
}

static void lines_print(const struct top *top)
{
    if (top->live.json) {
        json_print(top);
    } else {
        table_print(top);
    }
}

/* One table. The one before it was `interval_s` ago. */
static int look(struct top *top)
{
    live_pause(top->live.interval_s);
    int status = cli_interrupted() ? CLI_DONE : sample_take(top, top->now);
    if (status != CLI_DONE || cli_interrupted()) {
        return status;
    }
    lines_make(top);
    lines_print(top);
    struct sample *before = top->before;
    top->before = top->now;
    top->now = before;
    return cli_output_end(CLI_DONE);
}

static int watch(struct top *top)
{
    cli_interrupt_catch();
    int status = sample_take(top, top->before);
    do {
        status = status == CLI_DONE ? look(top) : status;
    } while (status == CLI_DONE && !top->live.once && !cli_interrupted());
    return status;
}

static int top_start(struct top *top)
{
    int status = live_folder_find(&top->folder);
    if (status != CLI_DONE) {
        return status;
    }
    if (top->folder == NULL) {
        lines_print(top);
        return cli_output_end(CLI_DONE);
    }
    top->now = calloc(1, sizeof(*top->now));
    top->before = calloc(1, sizeof(*top->before));
    status = top->now != NULL && top->before != NULL ? watch(top) : cli_fail("there is no memory");
    free(top->now);
    free(top->before);
    return status;
}

static int top_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"once", no_argument, NULL, LIVE_OPTION_ONCE},
        {"json", no_argument, NULL, LIVE_OPTION_JSON},
        {"interval", required_argument, NULL, LIVE_OPTION_INTERVAL},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    static struct top top = {.live.interval_s = 1};
    int option;
    while ((option = cli_getopt(argc, argv, ":h", options)) != -1) {
        if (option == 'h' || option == '?') {
            return option == 'h' ? cli_help() : CLI_USAGE;
        }
        int status = live_option_read(&top.live, option);
        if (status != CLI_DONE) {
            return status;
        }
    }
    if (optind < argc) {
        return cli_usage("takes no arguments, got \"%s\"", argv[optind]);
    }
    return top_start(&top);
}

const struct cli_command cli_top = {
    .name = "top",
    .arguments = "[OPTIONS]",
    .summary = "show what processes of this user on this host do",
    .help = "  --interval SECONDS    between two tables; default: 1\n"
            "  --once                one table, and end\n"
            "  --json                one JSON object for each table, in a line\n"
            "\nA line for each process and bucket: requests and MB a second, requests that are\n"
            "out and that wait to be sent, median and p99 of the time until an answer\n"
            "begins, retries so far, and the requests a second to which a busy service\n"
            "slows it down (-: it is not slowed down).\n"
            "\nExamples:\n"
            "  ringest top\n"
            "  ringest top --once --json\n",
    .run = top_run,
};
