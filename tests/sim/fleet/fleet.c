/* See fleet.h. First the life, then what is worked out of it. */
#include "tests/sim/fleet/fleet.h"

#include <stdlib.h>
#include <string.h>

/* A quarter of an hour of a bucket's steps is more than any table needs. */
#define STEPS_MAX (UINT64_C(1) << 22)
/* What counts as all, and for how long. */
#define FULL_SHARE 0.9
#define FULL_SECONDS 3

struct fleet {
    const struct rg_fleet_options *options;
    struct rg_fleet_wheel *wheel;
    struct rg_fleet_service *service;
    struct rg_fleet_second *seconds;
    struct rg_fleet_host *hosts;
    struct rg_fleet_rank *ranks;
    struct rg_fleet_limit *limits;
    struct rg_fleet_job job;
};

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    RG_ASSERT(memory != NULL);
    return memory;
}

static void fleet_start(struct fleet *fleet)
{
    struct rg_fleet_job *job = &fleet->job;
    bool is_shared = job->control == RG_FLEET_SHARED;
    for (uint32_t i = 0; i < job->rank_count; i++) {
        struct rg_fleet_host *host = &fleet->hosts[i / FLEET_RANKS_PER_HOST];
        struct rg_fleet_limit *limit = is_shared ? &host->limit : &fleet->limits[i];
        host->ranks = &fleet->ranks[i - i % FLEET_RANKS_PER_HOST];
        if (!is_shared || i % FLEET_RANKS_PER_HOST == 0) {
            rg_fleet_limit_init(limit, job, is_shared ? FLEET_RANKS_PER_HOST : 1);
        }
        rg_fleet_rank_start(&fleet->ranks[i], job, host, limit);
    }
}

static void fleet_open(struct fleet *fleet, const struct rg_fleet_options *options)
{
    uint32_t rank_count = options->hosts * FLEET_RANKS_PER_HOST;
    *fleet = (struct fleet){
        .options = options,
        .wheel = zeroed(1, sizeof(*fleet->wheel)),
        .service = zeroed(1, sizeof(*fleet->service)),
        .seconds = zeroed(options->seconds + 1, sizeof(*fleet->seconds)),
        .hosts = zeroed(options->hosts, sizeof(*fleet->hosts)),
        .ranks = zeroed(rank_count, sizeof(*fleet->ranks)),
        .limits = zeroed(rank_count, sizeof(*fleet->limits)),
    };
    rg_fleet_wheel_init(fleet->wheel);
    rg_fleet_service_init(fleet->service, options->seed, options->is_warm, fleet->seconds,
                          options->seconds + 1);
    fleet->service->range_count = options->is_one_prefix ? 1 : FLEET_PREFIX_COUNT;
    fleet->service->percent_503 = options->percent_503;
    fleet->service->ill_ns = options->ill_seconds * RG_NS_PER_S;
    fleet->service->flaky_per_1000 = options->flaky_per_1000;
    fleet->service->flaky_front_ends = options->flaky_front_ends;
    fleet->service->outage_ns = options->outage_from * RG_NS_PER_S;
    fleet->service->outage_end_ns = options->outage_to * RG_NS_PER_S;
    fleet->job = (struct rg_fleet_job){
        .wheel = fleet->wheel,
        .service = fleet->service,
        .control = options->control,
        .rank_count = rank_count,
        .random = ~options->seed,
        .measure_ns = options->measure_from * RG_NS_PER_S,
        .measure_end_ns = options->measure_to * RG_NS_PER_S,
        .steps = zeroed(STEPS_MAX, sizeof(double)),
        .step_size = STEPS_MAX,
    };
    fleet_start(fleet);
}

static void fleet_close(struct fleet *fleet)
{
    free(fleet->wheel);
    free(fleet->service);
    free(fleet->seconds);
    free(fleet->hosts);
    free(fleet->ranks);
    free(fleet->limits);
    free(fleet->job.steps);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void steps_tell(const struct rg_fleet_job *job, struct rg_fleet_result *result)
{
    size_t count = job->step_count;
    if (count == 0) {
        return;
    }
    qsort(job->steps, count, sizeof(double), compare);
    result->step_p50_s = job->steps[count / 2];
    result->step_p99_s = job->steps[count * 99 / 100];
    result->step_max_s = job->steps[count - 1];
}

/* Jain's index (Jain, Chiu, Hawe 1984): (sum of x)^2 / (n * sum of x^2). */
static double jain_of(const struct fleet *fleet)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < fleet->options->hosts; i++) {
        double samples = (double)fleet->hosts[i].samples;
        sum += samples;
        squares += samples * samples;
    }
    return squares > 0 ? sum * sum / (fleet->options->hosts * squares) : 0;
}

/* What the job can take if nobody refuses anything. */
static double demand_per_s(const struct fleet *fleet)
{
    double out = (double)fleet->job.rank_count * FLEET_WINDOW;
    return out * (double)RG_NS_PER_S / (double)fleet->service->latency_mean_ns;
}

static double ideal_per_s(const struct fleet *fleet, uint32_t second)
{
    return RG_MIN(demand_per_s(fleet), fleet->seconds[second].rate);
}

/* From this second to the first of several that brought nine tenths of `full` each; -1: none. */
static double seconds_until(const struct fleet *fleet, uint32_t from, double full)
{
    uint32_t good = 0;
    for (uint32_t second = from; second < fleet->options->seconds; second++) {
        good = (double)fleet->seconds[second].served >= FULL_SHARE * full ? good + 1 : 0;
        if (good == FULL_SECONDS) {
            return second + 1 - FULL_SECONDS - from;
        }
    }
    return -1;
}

static void rates_tell(const struct fleet *fleet, struct rg_fleet_result *result)
{
    const struct rg_fleet_options *options = fleet->options;
    double served = 0, asked = 0, ideal = 0;
    for (uint32_t i = options->measure_from; i < options->measure_to; i++) {
        served += (double)fleet->seconds[i].served;
        asked += (double)fleet->seconds[i].asked;
        ideal += ideal_per_s(fleet, i);
    }
    double seconds = options->measure_to - options->measure_from;
    result->served_per_s = served / seconds;
    result->asked_per_s = asked / seconds;
    result->ideal_per_s = ideal / seconds;
    double most = options->is_one_prefix ? FLEET_FULL_PER_S / FLEET_PREFIX_COUNT : FLEET_FULL_PER_S;
    result->full_s = seconds_until(fleet, 0, RG_MIN(demand_per_s(fleet), most));
}

static void outage_tell(const struct fleet *fleet, struct rg_fleet_result *result)
{
    const struct rg_fleet_options *options = fleet->options;
    double during = 0, most = 0;
    for (uint32_t i = options->outage_from; i < options->outage_to; i++) {
        during += (double)fleet->seconds[i].asked;
    }
    for (uint32_t i = options->outage_to; i < options->seconds; i++) {
        most = RG_MAX(most, (double)fleet->seconds[i].asked);
    }
    during /= options->outage_to - options->outage_from;
    result->outage_asked = during / result->asked_per_s;
    result->peak = most / result->asked_per_s;
    result->mended_s = seconds_until(fleet, options->outage_to, result->served_per_s);
}

static void counts_tell(const struct fleet *fleet, struct rg_fleet_result *result)
{
    const struct rg_fleet_counts *measured = &fleet->job.measured;
    uint64_t ended = measured->ok + measured->refused + measured->expired + measured->lost;
    result->all = fleet->job.counts;
    result->measured = *measured;
    result->waste = ended > 0 ? (double)(ended - measured->ok) / (double)ended : 0;
    for (uint32_t i = 0; i < fleet->job.rank_count; i++) {
        for (unsigned n = 0; n < FLEET_WINDOW; n++) {
            const struct rg_fleet_request *request = &fleet->ranks[i].requests[n];
            bool is_started = request->retry.policy.attempts_max != 0;
            result->open += is_started;
            result->out += is_started && request->state == RG_FLEET_OUT;
            result->out += rg_fleet_is_set(&request->second);
        }
    }
}

static void fingerprint_tell(const struct fleet *fleet, struct rg_fleet_result *result)
{
    uint64_t hash = fleet->service->random ^ fleet->job.random;
    for (uint32_t i = 0; i < fleet->options->seconds; i++) {
        hash = rg_fleet_random(&hash) ^ fleet->seconds[i].asked ^ fleet->seconds[i].served << 32;
    }
    result->fingerprint = hash;
}

void rg_fleet_run(struct rg_fleet_result *out_result, const struct rg_fleet_options *options)
{
    RG_ASSERT(options->hosts >= 1 && options->measure_from < options->measure_to);
    RG_ASSERT(options->measure_to <= options->seconds && options->outage_to <= options->seconds);
    struct fleet fleet;
    fleet_open(&fleet, options);
    rg_fleet_run_until(fleet.wheel, options->seconds * RG_NS_PER_S);
    rg_fleet_service_pass(fleet.service, options->seconds * RG_NS_PER_S);
    *out_result = (struct rg_fleet_result){.full_s = -1, .mended_s = -1};
    counts_tell(&fleet, out_result);
    rates_tell(&fleet, out_result);
    out_result->jain = jain_of(&fleet);
    steps_tell(&fleet.job, out_result);
    if (options->outage_to > options->outage_from) {
        outage_tell(&fleet, out_result);
    }
    fingerprint_tell(&fleet, out_result);
    if (options->series != NULL) {
        memcpy(options->series, fleet.seconds, options->seconds * sizeof(*fleet.seconds));
    }
    fleet_close(&fleet);
}
