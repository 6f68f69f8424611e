/* Times at which requests are due: see schedule.h.
 *
 * At a rate that grows, the number of requests that were due after t seconds is the integral of the
 * rate, rate * t^2 / (2 ramp) within the ramp. A request is due when that reaches its position. The
 * positions of a Poisson process have distances with the density exp(-x), at any rate. */
#include "cli/schedule.h"

#include <math.h>

/* SplitMix64, as a number in (0, 1]. */
static double random_share(struct schedule *schedule)
{
    uint64_t z = schedule->random += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return (double)((z >> 11) + 1) * 0x1p-53;
}

static double distance(struct schedule *schedule)
{
    return schedule->options.is_poisson ? -log(random_share(schedule)) : 1;
}

static void next_find(struct schedule *schedule)
{
    const struct schedule_options *options = &schedule->options;
    double in_ramp = options->rate_per_s * options->ramp_s / 2, seconds;
    if (schedule->position < in_ramp) {
        seconds = sqrt(2 * options->ramp_s * schedule->position / options->rate_per_s);
    } else {
        seconds = options->ramp_s + (schedule->position - in_ramp) / options->rate_per_s;
    }
    bool is_soon = (double)options->start_ns + seconds * 1e9 < 0x1p63;
    schedule->next_ns = is_soon ? options->start_ns + (uint64_t)round(seconds * 1e9) : UINT64_MAX;
    if (schedule->due == options->count || schedule->next_ns >= options->end_ns) {
        schedule->next_ns = UINT64_MAX;
    }
}

void schedule_begin(struct schedule *schedule, const struct schedule_options *options)
{
    schedule->options = *options;
    schedule->random = options->seed;
    schedule->position = options->is_poisson ? distance(schedule) : options->first;
    schedule->due = schedule->refused = schedule->taken = 0;
    next_find(schedule);
}

uint64_t schedule_waiting(const struct schedule *schedule)
{
    return schedule->due - schedule->refused - schedule->taken;
}

uint64_t schedule_peek(const struct schedule *schedule, uint64_t place)
{
    RG_ASSERT(place < schedule_waiting(schedule));
    return schedule->waiting[(schedule->taken + place) % SCHEDULE_WAITING_MAX];
}

void schedule_drop(struct schedule *schedule, uint64_t count)
{
    RG_ASSERT(count <= schedule_waiting(schedule));
    schedule->taken += count;
}

void schedule_advance(struct schedule *schedule, uint64_t now_ns)
{
    while (schedule->next_ns <= now_ns && schedule->next_ns != UINT64_MAX) {
        uint64_t place = schedule->due++ - schedule->refused;
        if (place - schedule->taken == SCHEDULE_WAITING_MAX) {
            schedule->refused++;
        } else {
            schedule->waiting[place % SCHEDULE_WAITING_MAX] = schedule->next_ns;
        }
        schedule->position += distance(schedule);
        next_find(schedule);
    }
}
