/* A rank of the simulated job: a process that reads samples without end, on virtual time. What
 * admits, gives up, hedges and repeats its requests are the client's own protocol cores
 * (gcs/request/), called in the order in which gcs/request/traffic.c and request.c call them.
 *
 * A request's way: WAITING, until the limits let it in -> OUT, until an answer, a refusal or the
 * end of patience -> BACKOFF -> WAITING again, or its sample has come and the next is asked for.
 *
 * What differs from the client: a head and its body arrive together, connections are always open,
 * and what was given up is asked for anew. */
#ifndef RG_TESTS_SIM_FLEET_RANK_H
#define RG_TESTS_SIM_FLEET_RANK_H

#include "gcs/request/hedge.h"
#include "gcs/request/limiter.h"
#include "gcs/request/portion.h"
#include "gcs/request/retry.h"
#include "gcs/request/stall.h"
#include "tests/sim/fleet/service.h"
#include "tests/sim/fleet/wheel.h"

enum rg_fleet_control {
    RG_FLEET_NONE = 0, /* retries alone: no limiter, no adaptive limits of time, no hedges */
    RG_FLEET_RAMP,     /* as OWN, and the documented ramp, shared out over the job's processes */
    RG_FLEET_OWN,      /* a limiter in each process, which is told nothing: sharing=False */
    RG_FLEET_TOLD,     /* the default: as OWN, and the processes of a host tell each other */
    RG_FLEET_SHARED,   /* one limiter for the processes of a host, as if they were one */
    RG_FLEET_INFORMED, /* as the default, and each 503 tells whether there is too much to do */
    RG_FLEET_ORACLE,   /* no limiter: it knows the model, and probes when the bucket may double */
    RG_FLEET_CONTROL_COUNT,
};

/* Sums over all ranks. Each attempt ends as exactly one of `ok`, `refused`, `expired` and `lost`.
 */
struct rg_fleet_counts {
    uint64_t requests, completed, given_up;
    uint64_t attempts; /* hedges too */
    uint64_t hedges;
    uint64_t ok, refused, expired;
    uint64_t lost; /* ended by us: of a hedge and its request, one */
};

/* What no client has: the bucket's first rate, how many share it, and when each range of names may
 * have doubled. It asks for FLEET_ORACLE_SHARE of its equal part, and probes whether the bucket has
 * doubled by doubling its own rate. A 429 soon after takes that back for a while. */
struct rg_fleet_oracle {
    double per_s;      /* of all of the bucket */
    uint64_t since_ns; /* since when it is believed */
    uint64_t next_ns;
    bool is_probe; /* the rate is that of a probe that has not lasted yet */
};

/* Who may begin: of a rank, or of the ranks of a host. */
struct rg_fleet_limit {
    struct rg_limiter limiter;
    struct rg_list waiting;
    struct rg_fleet_event alarm;
    struct rg_fleet_job *job;
    struct rg_limiter_options options;
    struct rg_rate rate; /* where there is a ramp */
    double ramp;         /* where it begins; 0: there is none */
    struct rg_fleet_oracle oracle;
    bool is_begun;
};

enum rg_fleet_state {
    RG_FLEET_WAITING = 0,
    RG_FLEET_OUT,
    RG_FLEET_BACKOFF,
};

struct rg_fleet_request {
    struct rg_list node;          /* of those that wait, or that no answer came to */
    struct rg_fleet_event own;    /* the end of the attempt, or of the back-off */
    struct rg_fleet_event second; /* the end of the hedge */
    struct rg_fleet_rank *rank;
    struct rg_retry retry;
    uint64_t sent_ns, in_time;
    enum rg_fleet_state state;
    enum rg_fleet_answer own_answer, second_answer;
    uint32_t own_connection, second_connection;
};

struct rg_fleet_rank {
    struct rg_fleet_job *job;
    struct rg_fleet_limit *limit;
    struct rg_fleet_host *host;
    struct rg_list unanswered; /* the one that was sent first comes first */
    struct rg_fleet_event late;
    struct rg_stall stall;
    struct rg_hedge hedge;
    struct rg_hedge_budget budget;
    struct rg_retry_budget retries;
    uint32_t sent_count;
    uint32_t good[FLEET_WINDOW]; /* of each connection: good answers in a row */
    uint32_t samples;            /* of this step */
    uint64_t step_ns;            /* when it began */
    struct rg_quantile heads;
    struct rg_fleet_event start;
    struct rg_fleet_event meeting; /* with the others of the host, as rg_traffic has it */
    uint64_t met_ns;
    struct rg_peer told;
    struct rg_fleet_request requests[FLEET_WINDOW];
};

struct rg_fleet_host {
    uint64_t nic_ns;
    uint64_t samples; /* while it is measured */
    struct rg_fleet_limit limit;
    struct rg_fleet_rank *ranks;
};

/* What ranks share in the simulation. */
struct rg_fleet_job {
    struct rg_fleet_wheel *wheel;
    struct rg_fleet_service *service;
    enum rg_fleet_control control;
    uint32_t rank_count;
    uint64_t random;
    uint64_t measure_ns, measure_end_ns;
    struct rg_fleet_counts counts, measured;
    double *steps; /* seconds of the steps that ended while it was measured */
    size_t step_count, step_size;
};

/* Of so many ranks. The limit is zeroed. */
void rg_fleet_limit_init(struct rg_fleet_limit *limit, struct rg_fleet_job *job, uint32_t ranks);
/* Begins sometime in FLEET_START_NS, and its limit with the first of its ranks. The rank is
 * zeroed. */
void rg_fleet_rank_start(struct rg_fleet_rank *rank, struct rg_fleet_job *job,
                         struct rg_fleet_host *host, struct rg_fleet_limit *limit);

#endif
