/* What a benchmark prints: see bench_report.h. */
#include "cli/bench_report.h"

#include <inttypes.h>

static double ratio(double value, double by)
{
    return by > 0 ? value / by : 0;
}

static double quantile_ms(const struct histogram *histogram, double share)
{
    return (double)histogram_quantile(histogram, share) / 1e6;
}

/* Bytes that came or went over sockets, TLS included, for each byte of objects. */
static double amplification(const struct bench_options *options, const struct bench_result *result)
{
    uint64_t wire = options->op == BENCH_PUT ? result->sent_bytes : result->recv_bytes;
    return ratio((double)wire, (double)result->bytes);
}

static void rate_lines(const struct bench_options *options, const struct bench_result *result)
{
    if (options->rate_per_s == 0) {
        return;
    }
    printf("  due           %" PRIu64 " at %g requests/s (%s), %" PRIu64
           " of them never sent, the latest %.2f ms late\n",
           result->due, options->rate_per_s, options->is_poisson ? "poisson" : "fixed",
           result->unsent, (double)result->late_ns / 1e6);
    if (!bench_result_keeps_rate(result)) {
        printf(
            "  NOT KEPT      the rate: %.1f%% of what was due was never sent, and has no latency\n",
            100 * ratio((double)result->unsent, (double)result->due));
    }
}

static void cpu_line(const struct bench_result *result)
{
    double requests = (double)bench_result_done(result);
    printf("  CPU           %.1f us per request (user %.1f, system %.1f)",
           ratio(bench_result_cpu_s(result) * 1e6, requests),
           ratio(result->cpu_user_s * 1e6, requests), ratio(result->cpu_system_s * 1e6, requests));
    if (result->bytes > 0) {
        printf(", %.3f s/GB", ratio(bench_result_cpu_s(result), (double)result->bytes / 1e9));
    }
    putchar('\n');
}

static void wire_line(const struct bench_options *options, const struct bench_result *result)
{
    char received[CLI_QUANTITY_SIZE], sent[CLI_QUANTITY_SIZE];
    printf("  wire          %s received, %s sent", cli_format_size(result->recv_bytes, received),
           cli_format_size(result->sent_bytes, sent));
    if (result->bytes > 0) {
        printf(": %.3f bytes for each of the objects'", amplification(options, result));
    }
    putchar('\n');
}

static void series_lines(const struct bench_result *result)
{
    double before = 0;
    if (result->point_count > 0) {
        printf("  series        until s  requests/s      GB/s    p50 ms    p99 ms     CPU s\n");
    }
    for (uint32_t i = 0; i < result->point_count; i++) {
        const struct bench_point *point = &result->points[i];
        double end = bench_result_point_end_s(result, i), seconds = end - before;
        printf("             %10.2f  %10.0f  %8.3f  %8.2f  %8.2f  %8.3f\n", end,
               ratio((double)point->requests, seconds), ratio((double)point->bytes / 1e9, seconds),
               quantile_ms(&point->latency, 0.5), quantile_ms(&point->latency, 0.99), point->cpu_s);
        before = end;
    }
}

static void latency_lines(const struct bench_options *options, const struct bench_result *result)
{
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {
        {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999}};
    const struct histogram *latency = &result->latency;
    if (result->first_ns == 0) {
        printf("  latency       no answer came\n");
        return;
    }
    printf("  latency       ");
    for (size_t i = 0; i < RG_ARRAY_LEN(quantiles); i++) {
        if (histogram_supports(latency, quantiles[i].share)) {
            printf("%s %.2f ms, ", quantiles[i].name, quantile_ms(latency, quantiles[i].share));
        }
    }
    printf("max %.2f ms\n", (double)latency->max / 1e6);
    printf("                from when a request %s; the first answer came after %.2f ms\n",
           options->rate_per_s > 0 ? "was due" : "got a connection",
           (double)(result->first_ns - result->started_ns) / 1e6);
    if (options->is_cached) {
        printf("                of %" PRIu64 " requests; what the cache had needs no connection\n",
               latency->total);
    }
}

static void machine_lines(const struct bench_options *options, const struct bench_result *result)
{
    printf("  connections   %" PRIu64 ", %" PRIu64 " opened meanwhile, for %" PRIu64
           " requests that were sent\n",
           result->connections, result->opened, result->attempts);
    printf("  memory        %.0f MB at most\n", (double)result->rss_max_bytes / 1e6);
    if (options->processes > 1) {
        printf("  processes     %" PRIu64 "; CPU, memory and connections of all together\n",
               options->processes);
    }
    bool has_reason = result->backend_reason[0] != '\0';
    printf("  backend       %s%s%s%s\n", result->backend, has_reason ? " (" : "",
           result->backend_reason, has_reason ? ")" : "");
    if (options->is_cached) {
        printf("  cache         %" PRIu64 " hits, %" PRIu64 " misses\n", result->cache_hits,
               result->cache_misses);
    }
}

void bench_report_text(const struct bench_options *options, const struct bench_result *result,
                       uint64_t round)
{
    char size[CLI_QUANTITY_SIZE];
    double seconds = bench_result_seconds(result);
    printf("%s gs://%s/%s", bench_op_names[options->op], options->uri.bucket, options->uri.name);
    if (options->rounds > 1) {
        printf(", round %" PRIu64 " of %" PRIu64, round + 1, options->rounds);
    }
    putchar('\n');
    printf("  requests      %" PRIu64 " in %.2f s, %" PRIu64 " errors, %" PRIu64
           " retries, %" PRIu64 " hedges\n",
           result->requests, seconds, result->errors, result->retries, result->hedges);
    printf("  rate          %.0f requests/s, %.2f GB/s (%s)\n",
           ratio((double)bench_result_done(result), seconds),
           ratio((double)result->bytes / 1e9, seconds), cli_format_size(result->bytes, size));
    rate_lines(options, result);
    if (options->op == BENCH_LIST) {
        printf("  names         %" PRIu64 ", %.0f per CPU second\n", result->names,
               ratio((double)result->names, bench_result_cpu_s(result)));
    }
    if (result->backoffs > 0 || result->bucket_rate_per_s > 0) {
        char when[32] = "before the clock";
        if (result->backoffs > 0) {
            snprintf(when, sizeof(when), "%" PRIu64 " times", result->backoffs);
        }
        printf("  slowed down   %s by the bucket (429, 503 or latency)", when);
        if (result->bucket_rate_per_s > 0) {
            printf(", to %.1f %s/s at last", result->bucket_rate_per_s,
                   options->op == BENCH_PUT ? "writes" : "reads");
        }
        putchar('\n');
    }
    cpu_line(result);
    latency_lines(options, result);
    wire_line(options, result);
    machine_lines(options, result);
    series_lines(result);
    if (options->op == BENCH_GET) {
        printf("  checked       %s\n", options->verify
                                           ? "CRC32C, size and generation, against the listing"
                                           : "CRC32C, against each answer");
    } else if (options->op == BENCH_LIST && options->verify) {
        printf("  checked       each name, size and generation, against a listing made before\n");
    }
}

void bench_report_objects(const struct bench_options *options, const struct bench_result *result)
{
    if (options->keep) {
        printf("  objects       kept in gs://%s/%s\n", options->uri.bucket, options->folder);
    } else {
        printf("  objects       %" PRIu64 " removed again from gs://%s/%s%s\n", result->removed,
               options->uri.bucket, options->folder, result->left > 0 ? ", the rest is left" : "");
    }
}

static void latency_json(const struct bench_result *result)
{
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {{"p50_ms", 0.5},    {"p90_ms", 0.9},      {"p99_ms", 0.99},
                     {"p999_ms", 0.999}, {"p9999_ms", 0.9999}, {"max_ms", 1}};
    for (size_t i = 0; i < RG_ARRAY_LEN(quantiles); i++) {
        printf("\"%s\":%.4f,", quantiles[i].name,
               quantile_ms(&result->latency, quantiles[i].share));
    }
    if (result->first_ns == 0) {
        printf("\"first_ms\":null,");
        return;
    }
    printf("\"first_ms\":%.4f,", (double)(result->first_ns - result->started_ns) / 1e6);
}

static void rate_json(const struct bench_options *options, const struct bench_result *result)
{
    if (options->rate_per_s > 0) {
        printf("\"rate\":%g,\"arrival\":\"%s\",\"due\":%" PRIu64 ",\"unsent\":%" PRIu64
               ",\"late_ms\":%.4f,\"rate_kept\":%s,",
               options->rate_per_s, options->is_poisson ? "poisson" : "fixed", result->due,
               result->unsent, (double)result->late_ns / 1e6,
               bench_result_keeps_rate(result) ? "true" : "false");
    }
}

static void series_json(const struct bench_result *result)
{
    printf("\"series\":[");
    for (uint32_t i = 0; i < result->point_count; i++) {
        const struct bench_point *point = &result->points[i];
        printf("%s{\"at_seconds\":%.6f,\"requests\":%" PRIu64 ",\"bytes\":%" PRIu64
               ",\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"cpu_seconds\":%.6f}",
               i > 0 ? "," : "", bench_result_point_end_s(result, i), point->requests, point->bytes,
               quantile_ms(&point->latency, 0.5), quantile_ms(&point->latency, 0.99), point->cpu_s);
    }
    printf("],");
}

static void cpu_json(const struct bench_result *result)
{
    double requests = (double)bench_result_done(result), cpu_s = bench_result_cpu_s(result);
    printf("\"cpu_us_per_request\":%.3f,\"cpu_user_seconds\":%.6f,\"cpu_system_seconds\":%.6f,"
           "\"cpu_s_per_gb\":%.4f,",
           ratio(cpu_s * 1e6, requests), result->cpu_user_s, result->cpu_system_s,
           ratio(cpu_s, (double)result->bytes / 1e9));
}

void bench_report_json(const struct bench_options *options, const struct bench_result *result,
                       const struct bench_connections *connections)
{
    double seconds = bench_result_seconds(result);
    printf("{\"op\":\"%s\",\"requests\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"retries\":%" PRIu64
           ",\"hedges\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"seconds\":%.6f,\"requests_per_s\":%.1f,\"gb_per_s\":%.4f,",
           bench_op_names[options->op], result->requests, result->errors, result->retries,
           result->hedges, result->bytes, seconds,
           ratio((double)bench_result_done(result), seconds),
           ratio((double)result->bytes / 1e9, seconds));
    cpu_json(result);
    latency_json(result);
    rate_json(options, result);
    printf("\"received_bytes\":%" PRIu64 ",\"sent_bytes\":%" PRIu64
           ",\"amplification\":%.4f,\"processes\":%" PRIu64 ",\"connections\":%" PRIu64
           ",\"connections_opened\":%" PRIu64 ",\"attempts\":%" PRIu64 ",\"rss_max_mb\":%.1f,",
           result->recv_bytes, result->sent_bytes, amplification(options, result),
           options->processes, result->connections, result->opened, result->attempts,
           (double)result->rss_max_bytes / 1e6);
    series_json(result);
    if (connections != NULL) {
        bench_connections_json(connections);
    }
    printf("\"backend\":\"%s\",\"cache_hits\":%" PRIu64 ",\"cache_misses\":%" PRIu64
           ",\"names\":%" PRIu64 ",\"removed\":%" PRIu64 ",\"left\":%" PRIu64 ",\"folder\":",
           result->backend, result->cache_hits, result->cache_misses, result->names,
           result->removed, result->left);
    cli_json_string_or_null(options->op == BENCH_PUT ? options->folder : NULL);
    printf("}\n");
}
