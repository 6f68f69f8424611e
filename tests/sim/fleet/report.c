/* The tables of docs/internals/fleet.md, as that page has them.
 * usage: fleet-report [HOSTS]...
 * Each run is independent, so that a row is the same whatever else is asked for. */
#include "tests/sim/fleet/fleet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char *const control_names[RG_FLEET_CONTROL_COUNT] = {
    [RG_FLEET_NONE] = "none",
    [RG_FLEET_RAMP] = "ramp",
    [RG_FLEET_OWN] = "own",
    [RG_FLEET_SHARED] = "shared",
};
static const char *const sizes[] = {"1", "8", "64", "512", "4096"};
/* Beyond these it takes many minutes, and says the same. */
#define COLD_HOSTS_MAX 4096
#define ONE_PREFIX_HOSTS_MAX 64
#define SEED 1

static double cpu_seconds, attempts;

static void run(struct rg_fleet_result *result, const struct rg_fleet_options *options)
{
    struct timespec begun, ended;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
    rg_fleet_run(result, options);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    cpu_seconds += (double)(ended.tv_sec - begun.tv_sec) +
                   (double)(ended.tv_nsec - begun.tv_nsec) / (double)RG_NS_PER_S;
    attempts += (double)result->all.attempts;
}

static uint32_t number_of(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

static void print_seconds(double seconds)
{
    if (seconds < 0) {
        printf(" | never");
    } else {
        printf(" | %.0f", seconds);
    }
}

static double percent(uint64_t part, const struct rg_fleet_counts *counts)
{
    return 100 * (double)part / (double)RG_MAX(counts->attempts, 1);
}

static void print_run(const char *control, uint32_t hosts, const struct rg_fleet_result *result)
{
    const struct rg_fleet_counts *counts = &result->measured;
    printf("| %u | %s | %.0f | %.2f | %.1f | %.1f | %.1f | %.3f", hosts, control,
           result->served_per_s, result->served_per_s / result->ideal_per_s, 100 * result->waste,
           percent(counts->lost, counts), percent(counts->refused, counts), result->jain);
}

static void print_step(const struct rg_fleet_result *result)
{
    if (result->step_p50_s == 0) {
        printf(" | - | -");
    } else {
        printf(" | %.2f | %.1f", result->step_p50_s, result->step_max_s / result->step_p50_s);
    }
}

/* A bucket that has grown, and an outage of a minute. */
static void steady_table(const char *const *hosts, unsigned count)
{
    printf("## A bucket that has grown, then an outage of 60 s\n\n"
           "| hosts | control | samples/s | of the ideal | wasted, %% | by hedges | refused | Jain "
           "| step, s | slowest / median | asked in the outage | peak | mended, s | given up |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (unsigned i = 0; i < count; i++) {
        for (unsigned control = 0; control < RG_FLEET_CONTROL_COUNT; control++) {
            const struct rg_fleet_options options = {
                .hosts = number_of(hosts[i]),
                .control = (enum rg_fleet_control)control,
                .seed = SEED,
                .is_warm = true,
                .seconds = 270,
                .measure_from = 90,
                .measure_to = 150,
                .outage_from = 150,
                .outage_to = 210,
            };
            struct rg_fleet_result result;
            run(&result, &options);
            print_run(control_names[control], options.hosts, &result);
            print_step(&result);
            printf(" | %.2f | %.2f", result.outage_asked, result.peak);
            print_seconds(result.mended_s);
            printf(" | %" PRIu64 " |\n", result.all.given_up);
        }
    }
}

static void cold_table(const char *const *hosts, unsigned count, bool is_one_prefix)
{
    printf("\n## %s\n\n"
           "| hosts | control | samples/s | of the ideal | wasted, %% | by hedges | refused | Jain "
           "| step, s | slowest / median | full rate after, s |\n"
           "|---|---|---|---|---|---|---|---|---|---|---|\n",
           is_one_prefix ? "Cold, all names with one prefix" : "A cold bucket");
    uint32_t hosts_max = is_one_prefix ? ONE_PREFIX_HOSTS_MAX : COLD_HOSTS_MAX;
    for (unsigned i = 0; i < count; i++) {
        for (unsigned control = 0; control < RG_FLEET_CONTROL_COUNT; control++) {
            const struct rg_fleet_options options = {
                .hosts = number_of(hosts[i]),
                .control = (enum rg_fleet_control)control,
                .seed = SEED,
                .is_one_prefix = is_one_prefix,
                .seconds = 720,
                .measure_to = 720,
            };
            struct rg_fleet_result result;
            if (options.hosts > hosts_max) {
                continue;
            }
            run(&result, &options);
            print_run(control_names[control], options.hosts, &result);
            print_step(&result);
            print_seconds(result.full_s);
            printf(" |\n");
        }
    }
}

int main(int argc, char **argv)
{
    const char *const *hosts = argc > 1 ? (const char *const *)argv + 1 : sizes;
    unsigned count = argc > 1 ? (unsigned)argc - 1 : (unsigned)RG_ARRAY_LEN(sizes);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    steady_table(hosts, count);
    cold_table(hosts, count, false);
    cold_table(hosts, count, true);
    fprintf(stderr, "%.0f requests in %.1f s: %.1f million a second\n", attempts, cpu_seconds,
            attempts / cpu_seconds / 1e6);
    return 0;
}
