/* When requests are due that come at a rate of their own, whether or not those before are answered:
 * at equal distances, or as a Poisson process. A ramp lets the rate grow linearly from 0.
 *
 *   begin -> (advance -> peek, drop)*
 *
 * What is due and could not be sent yet waits in a queue that is bounded: what is due while it is
 * full is never sent, and counted. All times are in nanoseconds on one clock. */
#ifndef RG_CLI_SCHEDULE_H
#define RG_CLI_SCHEDULE_H

#include "runtime/base.h"

/* Requests that are due and wait. */
#define SCHEDULE_WAITING_MAX 65536

struct schedule_options {
    double rate_per_s, ramp_s;
    double first; /* of equal distances: how many of them pass before the first request */
    bool is_poisson;
    uint64_t seed;            /* of the Poisson process */
    uint64_t start_ns, count; /* how many are due in all; RG_FOREVER (UINT64_MAX): no end */
    uint64_t end_ns;          /* from when on none is due; UINT64_MAX: no end */
};

struct schedule {
    struct schedule_options options;
    double position; /* of the next request, in requests at the full rate */
    uint64_t random; /* state */
    uint64_t
        next_ns; /* when the next one is due that does not wait yet; UINT64_MAX: none will be */
    uint64_t due, refused; /* all so far; of them: found the queue full */
    uint64_t taken;        /* of those that waited */
    uint64_t waiting[SCHEDULE_WAITING_MAX];
};

void schedule_begin(struct schedule *schedule, const struct schedule_options *options);
/* What is due by then waits from here on. */
void schedule_advance(struct schedule *schedule, uint64_t now_ns);
/* How many wait. */
uint64_t schedule_waiting(const struct schedule *schedule);
/* When the one was due that waits at that place, from 0. */
uint64_t schedule_peek(const struct schedule *schedule, uint64_t place);
/* The first so many do not wait any longer. */
void schedule_drop(struct schedule *schedule, uint64_t count);

#endif
