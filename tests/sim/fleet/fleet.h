/* A simulated job: hosts with FLEET_RANKS_PER_HOST ranks each read from one bucket for a while, and
 * what became of it is told. The same options always give the same result. */
#ifndef RG_TESTS_SIM_FLEET_FLEET_H
#define RG_TESTS_SIM_FLEET_FLEET_H

#include "tests/sim/fleet/rank.h"

/* Of the life, in seconds. */
struct rg_fleet_options {
    uint32_t hosts;
    enum rg_fleet_control control;
    uint64_t seed;
    bool is_warm;              /* the bucket has grown already */
    bool is_one_prefix;        /* all names are in one range */
    uint32_t percent_503;      /* of refusals are 503; the others are 429 */
    uint32_t ill_seconds;      /* of a front end that fails, by 503; 0: as parameters.h has it */
    uint32_t flaky_per_1000;   /* of the answers of flaky front ends are 503 */
    uint32_t flaky_front_ends; /* the first so many */
    uint32_t seconds;
    uint32_t measure_from, measure_to;
    uint32_t outage_from, outage_to; /* 0: none */
    struct rg_fleet_second *series;  /* NULL, or room for each second of the life */
};

struct rg_fleet_result {
    struct rg_fleet_counts all, measured;
    uint64_t open, out; /* requests, and attempts, that had not ended */
    /* Of the seconds in which it was measured. */
    double served_per_s, asked_per_s, ideal_per_s;
    double waste; /* attempts that brought nothing, of all */
    double jain;  /* of the hosts' samples */
    double step_p50_s, step_p99_s, step_max_s;
    /* Seconds from the beginning, or from the end of the outage, until nine tenths of what is
     * possible came in each of three seconds; -1: never. */
    double full_s, mended_s;
    double outage_asked, peak; /* asked in a second: mean in the outage, most after it, by steady */
    uint64_t fingerprint;
};

void rg_fleet_run(struct rg_fleet_result *out_result, const struct rg_fleet_options *options);

#endif
