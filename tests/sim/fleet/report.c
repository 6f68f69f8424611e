/* The tables of docs/internals/fleet.md, as that page has them, or what happened in each second.
 * usage: fleet-report [--series] [--control NAME] [--table NAME] [--seed N] [HOSTS]...
 *   --series        instead of tables: CSV, a line for each second of each life
 *   --control NAME  none, ramp, own, default, shared, informed or oracle alone
 *   --table NAME    grown, cold, one-prefix, 503 or ill alone
 *   --seed N        1 in the page, where it says nothing else
 * Each run is independent, so that a row is the same whatever else is asked for. */
#include "tests/sim/fleet/fleet.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const control_names[RG_FLEET_CONTROL_COUNT] = {
    [RG_FLEET_NONE] = "none",     [RG_FLEET_RAMP] = "ramp",     [RG_FLEET_OWN] = "own",
    [RG_FLEET_TOLD] = "default",  [RG_FLEET_SHARED] = "shared", [RG_FLEET_INFORMED] = "informed",
    [RG_FLEET_ORACLE] = "oracle",
};
static const char *const sizes[] = {"1", "8", "64", "512", "4096"};
/* Beyond that it takes many minutes, and says the same. */
#define ONE_PREFIX_HOSTS_MAX 64
#define UNAVAILABLE_HOSTS_MAX 512
#define ILL_HOSTS_MAX 64

/* What was asked for. */
static struct {
    bool wants[RG_FLEET_CONTROL_COUNT];
    const char *const *hosts;
    unsigned count;
    const char *table; /* NULL: all */
    uint64_t seed;
} asked = {.seed = 1};

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
static struct rg_fleet_options grown_life(uint32_t hosts, enum rg_fleet_control control)
{
    return (struct rg_fleet_options){
        .hosts = hosts,
        .control = control,
        .seed = asked.seed,
        .is_warm = true,
        .seconds = 270,
        .measure_from = 90,
        .measure_to = 150,
        .outage_from = 150,
        .outage_to = 210,
    };
}

static struct rg_fleet_options cold_life(uint32_t hosts, enum rg_fleet_control control)
{
    return (struct rg_fleet_options){
        .hosts = hosts,
        .control = control,
        .seed = asked.seed,
        .seconds = 720,
        .measure_to = 720,
    };
}

typedef void row_print(uint32_t hosts, enum rg_fleet_control control);

static void unavailable_row(uint32_t hosts, enum rg_fleet_control control);

/* Where all refusals are 429, who is informed does as the default. */
static bool is_in_table(enum rg_fleet_control control, row_print *print)
{
    return asked.wants[control] && (control != RG_FLEET_INFORMED || print == unavailable_row);
}

static void each_row(uint32_t hosts_max, row_print *print)
{
    for (unsigned i = 0; i < asked.count; i++) {
        for (unsigned control = 0; control < RG_FLEET_CONTROL_COUNT; control++) {
            uint32_t hosts = number_of(asked.hosts[i]);
            if (is_in_table((enum rg_fleet_control)control, print) && hosts <= hosts_max) {
                print(hosts, (enum rg_fleet_control)control);
            }
        }
    }
}

static void grown_row(uint32_t hosts, enum rg_fleet_control control)
{
    const struct rg_fleet_options options = grown_life(hosts, control);
    struct rg_fleet_result result;
    run(&result, &options);
    print_run(control_names[control], hosts, &result);
    print_step(&result);
    printf(" | %.2f | %.2f", result.outage_asked, result.peak);
    print_seconds(result.mended_s);
    printf(" | %" PRIu64 " |\n", result.all.given_up);
}

static void unavailable_row(uint32_t hosts, enum rg_fleet_control control)
{
    struct rg_fleet_options options = grown_life(hosts, control);
    options.percent_503 = 100;
    struct rg_fleet_result result;
    run(&result, &options);
    print_run(control_names[control], hosts, &result);
    printf(" |\n");
}

/* Servers that are ill, or that refuse some requests though they are well: all by 503. */
static void ill_row(uint32_t hosts, enum rg_fleet_control control)
{
    static const struct {
        const char *what;
        uint32_t front_ends, per_1000, seconds;
    } cases[] = {
        {"as in all tables", 0, 0, 0},
        {"all refuse 1 in 100", FLEET_FRONT_END_COUNT, 10, 0},
        {"one refuses 1 in 6", 1, 160, 0},
        {"one refuses all", 1, 1000, 0},
        {"each that fails does so for 60 s", 0, 0, 60},
    };
    for (unsigned i = 0; i < RG_ARRAY_LEN(cases); i++) {
        struct rg_fleet_options options = grown_life(hosts, control);
        options.seconds = options.outage_from = options.outage_to = options.measure_to;
        options.flaky_front_ends = cases[i].front_ends;
        options.flaky_per_1000 = cases[i].per_1000;
        options.ill_seconds = cases[i].seconds;
        struct rg_fleet_result result;
        run(&result, &options);
        print_run(control_names[control], hosts, &result);
        printf(" | %s |\n", cases[i].what);
    }
}

static void cold_run(const struct rg_fleet_options *options)
{
    struct rg_fleet_result result;
    run(&result, options);
    print_run(control_names[options->control], options->hosts, &result);
    print_step(&result);
    print_seconds(result.full_s);
    printf(" |\n");
}

static void cold_row(uint32_t hosts, enum rg_fleet_control control)
{
    const struct rg_fleet_options options = cold_life(hosts, control);
    cold_run(&options);
}

static void one_prefix_row(uint32_t hosts, enum rg_fleet_control control)
{
    struct rg_fleet_options options = cold_life(hosts, control);
    options.is_one_prefix = true;
    cold_run(&options);
}

#define HEAD                                                                                       \
    "| hosts | control | samples/s | of the ideal | wasted, %% | by hedges | refused | Jain |"

static void print_head(const char *title, const char *more, unsigned columns)
{
    printf("\n## %s\n\n" HEAD "%s\n", title, more);
    for (unsigned i = 0; i < columns; i++) {
        printf("|---");
    }
    printf("|\n");
}

static void print_tables(void)
{
    static const char cold[] = " step, s | slowest / median | full rate after, s |";
    static const struct {
        const char *name, *title, *more;
        unsigned columns;
        uint32_t hosts_max;
        row_print *print;
    } tables[] = {
        {"grown", "A bucket that has grown, then an outage of 60 s",
         " step, s | slowest / median | asked in the outage | peak | mended, s | given up |", 14,
         UINT32_MAX, grown_row},
        {"cold", "A cold bucket", cold, 11, UINT32_MAX, cold_row},
        {"one-prefix", "Cold, all names with one prefix", cold, 11, ONE_PREFIX_HOSTS_MAX,
         one_prefix_row},
        {"503", "Grown, and what is too much is answered with 503", "", 8, UNAVAILABLE_HOSTS_MAX,
         unavailable_row},
        {"ill", "Grown, and front ends are ill", " what is ill |", 9, ILL_HOSTS_MAX, ill_row},
    };
    for (unsigned i = 0; i < RG_ARRAY_LEN(tables); i++) {
        if (asked.table == NULL || strcmp(asked.table, tables[i].name) == 0) {
            print_head(tables[i].title, tables[i].more, tables[i].columns);
            each_row(tables[i].hosts_max, tables[i].print);
        }
    }
}

static void series_run(const char *life, struct rg_fleet_options options)
{
    options.series = calloc(options.seconds, sizeof(*options.series));
    RG_ASSERT(options.series != NULL);
    struct rg_fleet_result result;
    run(&result, &options);
    for (uint32_t i = 0; i < options.seconds; i++) {
        const struct rg_fleet_second *second = &options.series[i];
        printf("%s,%u,%s,%u,%.0f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", life, options.hosts,
               control_names[options.control], i, second->rate, second->asked, second->served,
               second->refused);
    }
    free(options.series);
}

static void series_print(uint32_t hosts, enum rg_fleet_control control)
{
    series_run("grown", grown_life(hosts, control));
    series_run("cold", cold_life(hosts, control));
}

/* False: there is no such control. */
static bool control_want(const char *name)
{
    bool is_known = false;
    for (unsigned control = 0; control < RG_FLEET_CONTROL_COUNT; control++) {
        asked.wants[control] = strcmp(name, control_names[control]) == 0;
        is_known |= asked.wants[control];
    }
    return is_known;
}

static bool options_parse(int argc, char **argv, bool *out_is_series)
{
    static const struct option options[] = {
        {"control", required_argument, NULL, 'c'},
        {"series", no_argument, NULL, 's'},
        {"table", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 'n'},
        {0},
    };
    memset(asked.wants, true, sizeof(asked.wants));
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 's') {
            *out_is_series = true;
        } else if (option == 't') {
            asked.table = optarg;
        } else if (option == 'n') {
            asked.seed = number_of(optarg);
        } else if (option != 'c' || !control_want(optarg)) {
            fprintf(stderr, "usage: fleet-report [--series] [--control NAME] [--table NAME] "
                            "[--seed N] [HOSTS]...\n");
            return false;
        }
    }
    bool is_all = optind == argc;
    asked.hosts = is_all ? sizes : (const char *const *)argv + optind;
    asked.count = is_all ? (unsigned)RG_ARRAY_LEN(sizes) : (unsigned)(argc - optind);
    return true;
}

int main(int argc, char **argv)
{
    bool is_series = false;
    if (!options_parse(argc, argv, &is_series)) {
        return 2;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (is_series) {
        printf("life,hosts,control,second,rate,asked,answered,refused\n");
        each_row(UINT32_MAX, series_print);
    } else {
        print_tables();
    }
    fprintf(stderr, "%.0f requests in %.1f s: %.1f million a second\n", attempts, cpu_seconds,
            attempts / cpu_seconds / 1e6);
    return 0;
}
