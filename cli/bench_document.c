/* The document of a benchmark: see bench_document.h. */
#include "cli/bench_document.h"
#include "runtime/hypervisor.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <yyjson.h>

#define FORMAT "ringest-bench/1"
#define TIME_SIZE 32
#define SERVICE "https://storage.googleapis.com"

typedef yyjson_mut_doc doc_t;
typedef yyjson_mut_val val_t;

static void add_number(doc_t *doc, val_t *object, const char *name, uint64_t value)
{
    yyjson_mut_obj_add_uint(doc, object, name, value);
}

static void add_real(doc_t *doc, val_t *object, const char *name, double value)
{
    yyjson_mut_obj_add_real(doc, object, name, value);
}

/* A time, where there is one. */
static void add_positive(doc_t *doc, val_t *object, const char *name, double value)
{
    if (value > 0) {
        add_real(doc, object, name, value);
    }
}

/* What follows "name :" in /proc/cpuinfo, where there is such a line. Owned. */
static char *cpuinfo_line(const char *name)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char *line = NULL, *found = NULL;
    size_t size = 0;
    while (file != NULL && found == NULL && getline(&line, &size, file) > 0) {
        char *colon = strchr(line, ':');
        size_t end = strlen(name);
        if (colon != NULL && strncmp(line, name, end) == 0 && strchr("\t :", line[end]) != NULL) {
            colon += strspn(colon, ": \t");
            colon[strcspn(colon, "\n")] = '\0';
            found = strdup(colon);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    free(line);
    return found;
}

static val_t *machine_make(doc_t *doc)
{
    val_t *machine = yyjson_mut_obj(doc);
    struct utsname system;
    uname(&system);
    char *model = cpuinfo_line("model name"), signature[RG_HYPERVISOR_SIGNATURE_SIZE];
    cpu_set_t cpus;
    yyjson_mut_obj_add_strcpy(doc, machine, "cpu", model != NULL ? model : system.machine);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
        add_number(doc, machine, "cpus", (uint64_t)CPU_COUNT(&cpus));
    }
    add_number(doc, machine, "memory_bytes",
               (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    yyjson_mut_obj_add_strcpy(doc, machine, "kernel", system.release);
    rg_hypervisor_signature(signature);
    const char *hypervisor = rg_hypervisor_name("", signature);
    if (hypervisor != NULL) {
        yyjson_mut_obj_add_str(doc, machine, "hypervisor", hypervisor);
    }
    free(model);
    return machine;
}

static val_t *parameters_make(doc_t *doc, const struct bench_options *options,
                              const struct bench_result *result)
{
    val_t *parameters = yyjson_mut_obj(doc);
    char uri[sizeof(options->uri) + 8];
    snprintf(uri, sizeof(uri), "gs://%s/%s", options->uri.bucket, options->uri.name);
    yyjson_mut_obj_add_strcpy(doc, parameters, "uri", uri);
    add_number(doc, parameters, "concurrency", options->concurrency);
    add_number(doc, parameters, "processes", options->processes);
    if (options->connection.threads > 0) {
        add_number(doc, parameters, "threads", options->connection.threads);
    }
    if (options->count > 0) {
        add_number(doc, parameters, "count", options->count);
    }
    add_positive(doc, parameters, "seconds", options->seconds);
    add_positive(doc, parameters, "warm_up", options->warm_up_s);
    add_positive(doc, parameters, "ramp", options->ramp_s);
    if (options->rate_per_s > 0) {
        add_real(doc, parameters, "rate", options->rate_per_s);
        yyjson_mut_obj_add_str(doc, parameters, "arrival",
                               options->is_poisson ? "poisson" : "fixed");
    }
    if (options->op == BENCH_PUT) {
        add_number(doc, parameters, "object_size", options->object_size);
    }
    /* What these cost is part of the figures. */
    if (options->verify) {
        yyjson_mut_obj_add_bool(doc, parameters, "verify", true);
    }
    if (options->per_connection) {
        yyjson_mut_obj_add_bool(doc, parameters, "per_connection", true);
    }
    yyjson_mut_obj_add_strcpy(doc, parameters, "backend", result->backend);
    return parameters;
}

static val_t *latency_make(doc_t *doc, const struct bench_options *options,
                           const struct histogram *histogram)
{
    val_t *latency = yyjson_mut_obj(doc);
    yyjson_mut_obj_add_str(doc, latency, "unit", "ns");
    add_number(doc, latency, "significant_digits", HISTOGRAM_SIGNIFICANT_DIGITS);
    add_number(doc, latency, "max", histogram->max);
    yyjson_mut_obj_add_str(doc, latency, "from", options->rate_per_s > 0 ? "scheduled" : "sent");
    val_t *counts = yyjson_mut_obj_add_arr(doc, latency, "counts");
    for (uint32_t i = histogram->first; i < histogram->end; i++) {
        if (histogram->counts[i] > 0) {
            val_t *pair = yyjson_mut_arr_add_arr(doc, counts);
            yyjson_mut_arr_add_uint(doc, pair, histogram_bound(i));
            yyjson_mut_arr_add_uint(doc, pair, histogram->counts[i]);
        }
    }
    return latency;
}

static val_t *series_make(doc_t *doc, const struct bench_result *result)
{
    val_t *series = yyjson_mut_arr(doc);
    for (uint32_t i = 0; i < result->point_count; i++) {
        const struct bench_point *part = &result->points[i];
        val_t *point = yyjson_mut_arr_add_obj(doc, series);
        add_real(doc, point, "at_seconds", bench_result_point_end_s(result, i));
        add_number(doc, point, "operations", part->requests);
        add_number(doc, point, "bytes", part->bytes);
        if (part->latency.total > 0) {
            add_real(doc, point, "p50_ns", (double)histogram_quantile(&part->latency, 0.5));
            add_real(doc, point, "p99_ns", (double)histogram_quantile(&part->latency, 0.99));
        }
        add_real(doc, point, "cpu_seconds", part->cpu_s);
    }
    return series;
}

static void phase_add(doc_t *doc, val_t *phases, const char *name, const struct bench_phase *phase)
{
    if (phase->seconds > 0) {
        val_t *added = yyjson_mut_arr_add_obj(doc, phases);
        yyjson_mut_obj_add_str(doc, added, "name", name);
        add_real(doc, added, "seconds", phase->seconds);
        add_number(doc, added, "operations", phase->requests);
        add_number(doc, added, "bytes", phase->bytes);
    }
}

static val_t *phases_make(doc_t *doc, const struct bench_result *result)
{
    val_t *phases = yyjson_mut_arr(doc);
    struct bench_phase ramp = result->ramp, rest;
    ramp.seconds = RG_MIN(ramp.seconds, bench_result_seconds(result));
    rest = (struct bench_phase){.seconds = bench_result_seconds(result) - ramp.seconds,
                                .requests = bench_result_done(result) - ramp.requests,
                                .bytes = result->bytes - ramp.bytes};
    phase_add(doc, phases, "warm-up", &result->warm_up);
    phase_add(doc, phases, "ramp", &ramp);
    phase_add(doc, phases, ramp.seconds > 0 ? "steady" : "measured", &rest);
    return phases;
}

static val_t *metrics_make(doc_t *doc, const struct bench_options *options,
                           const struct bench_result *result)
{
    val_t *metrics = yyjson_mut_obj(doc);
    add_number(doc, metrics, "retries", result->retries);
    add_number(doc, metrics, "hedges", result->hedges);
    add_number(doc, metrics, "connections", result->connections);
    add_number(doc, metrics, "connections_opened", result->opened);
    add_number(doc, metrics, "backoffs", result->backoffs);
    if (options->op == BENCH_LIST) {
        add_number(doc, metrics, "names", result->names);
    }
    if (options->is_cached) {
        add_number(doc, metrics, "cache_hits", result->cache_hits);
        add_number(doc, metrics, "cache_misses", result->cache_misses);
    }
    if (options->rate_per_s > 0) {
        add_number(doc, metrics, "due", result->due);
        add_number(doc, metrics, "unsent", result->unsent);
        add_real(doc, metrics, "late_seconds", (double)result->late_ns / 1e9);
    }
    return metrics;
}

static val_t *round_make(doc_t *doc, const struct bench_options *options,
                         const struct bench_result *result)
{
    val_t *round = yyjson_mut_obj(doc);
    add_real(doc, round, "seconds", bench_result_seconds(result));
    add_number(doc, round, "operations", bench_result_done(result));
    add_number(doc, round, "errors", result->errors);
    add_number(doc, round, "bytes", result->bytes);
    add_number(doc, round, "requests", result->attempts);
    add_number(doc, round, "wire_received_bytes", result->recv_bytes);
    add_number(doc, round, "wire_sent_bytes", result->sent_bytes);
    add_real(doc, round, "cpu_user_seconds", result->cpu_user_s);
    add_real(doc, round, "cpu_system_seconds", result->cpu_system_s);
    add_number(doc, round, "peak_rss_bytes", result->rss_max_bytes);
    if (result->first_ns > 0) {
        add_real(doc, round, "time_to_first_seconds",
                 (double)(result->first_ns - result->started_ns) / 1e9);
    }
    yyjson_mut_obj_add_val(doc, round, "latency", latency_make(doc, options, &result->latency));
    yyjson_mut_obj_add_val(doc, round, "series", series_make(doc, result));
    yyjson_mut_obj_add_val(doc, round, "phases", phases_make(doc, result));
    yyjson_mut_obj_add_val(doc, round, "metrics", metrics_make(doc, options, result));
    return round;
}

static const char *endpoint_of(const struct bench_options *options)
{
    const char *emulator = getenv("STORAGE_EMULATOR_HOST");
    if (options->connection.endpoint != NULL) {
        return options->connection.endpoint;
    }
    return emulator != NULL && *emulator != '\0' ? emulator : SERVICE;
}

static doc_t *document_make(const struct bench_options *options,
                            const struct bench_results *results, const char *const *command,
                            size_t count, const char *error)
{
    doc_t *doc = yyjson_mut_doc_new(NULL);
    val_t *root = yyjson_mut_obj(doc);
    char made[TIME_SIZE];
    time_t now = time(NULL);
    struct tm utc;
    strftime(made, sizeof(made), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_str(doc, root, "format", FORMAT);
    yyjson_mut_obj_add_strcpy(doc, root, "made", made);
    yyjson_mut_obj_add_val(doc, root, "machine", machine_make(doc));
    val_t *versions = yyjson_mut_obj_add_obj(doc, root, "versions");
    yyjson_mut_obj_add_str(doc, versions, "ringest", rg_version());
    val_t *words = yyjson_mut_obj_add_arr(doc, root, "command");
    for (size_t i = 0; i < count; i++) {
        char *word = strdup(command[i]);
        if (word != NULL) {
            cli_make_printable(word);
            yyjson_mut_arr_add_strcpy(doc, words, word);
        }
        free(word);
    }
    yyjson_mut_obj_add_str(doc, root, "endpoint", endpoint_of(options));
    val_t *row = yyjson_mut_arr_add_obj(doc, yyjson_mut_obj_add_arr(doc, root, "rows"));
    yyjson_mut_obj_add_str(doc, row, "workload", bench_op_names[options->op]);
    yyjson_mut_obj_add_str(doc, row, "client", "ringest");
    yyjson_mut_obj_add_val(doc, row, "parameters",
                           parameters_make(doc, options, bench_results_round(results, 0)));
    if (error != NULL) {
        yyjson_mut_obj_add_str(doc, row, "error", error);
    }
    val_t *rounds = yyjson_mut_obj_add_arr(doc, row, "rounds");
    for (uint64_t i = 0; i < bench_results_count(results); i++) {
        const struct bench_result *result = bench_results_round(results, i);
        yyjson_mut_arr_add_val(rounds, round_make(doc, options, result));
    }
    return doc;
}

static int write_whole(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t count = write(fd, text, size);
        if (count < 0 && errno != EINTR) {
            return -errno;
        }
        text += RG_MAX(count, (ssize_t)0);
        size -= (size_t)RG_MAX(count, (ssize_t)0);
    }
    return 0;
}

int bench_document_write(struct rg_new_file *file, const struct bench_options *options,
                         const struct bench_results *results, const char *const *command,
                         size_t count, const char *error)
{
    doc_t *doc = document_make(options, results, command, count, error);
    yyjson_write_err wrong = {0};
    size_t size;
    char *text = yyjson_mut_write_opts(doc, YYJSON_WRITE_NOFLAG, NULL, &size, &wrong);
    yyjson_mut_doc_free(doc);
    if (text == NULL) {
        rg_new_file_abandon(file);
        return cli_fail("the result cannot be written to %s: %s", options->result, wrong.msg);
    }
    int rc = write_whole(file->fd, text, size);
    free(text);
    if (rc == 0) {
        rc = rg_new_file_publish(file);
    } else {
        rg_new_file_abandon(file);
    }
    return rc == 0
               ? CLI_DONE
               : cli_fail("the result cannot be written to %s: %s", options->result, strerror(-rc));
}
