/* A model of the service, on virtual time: what becomes of a request is decided when it is sent,
 * because the way there takes the same time for all.
 *
 * A range of names has a rate. A request above it waits, and is refused with 429 where it would
 * wait for longer than FLEET_QUEUE_NS. A range that has been busy for FLEET_GROWTH_NS doubles its
 * rate. Front ends fail now and then, and the whole service while an outage lasts. The parameters
 * are in parameters.h. */
#ifndef RG_TESTS_SIM_FLEET_SERVICE_H
#define RG_TESTS_SIM_FLEET_SERVICE_H

#include "runtime/base.h"

#include "tests/sim/fleet/parameters.h"

#define RG_FLEET_LATENCIES 4096
/* Longer than anybody waits. */
#define RG_FLEET_NEVER_NS (3600 * RG_NS_PER_S)

enum rg_fleet_answer { RG_FLEET_OK = 0, RG_FLEET_429, RG_FLEET_503, RG_FLEET_SILENCE };

struct rg_fleet_reply {
    enum rg_fleet_answer answer;
    uint64_t after_ns;
    uint32_t connection; /* of the process, below FLEET_WINDOW: each is to one front end */
    bool is_overload;    /* it was refused because the range has too much to do */
};

/* One second of the service's life. */
struct rg_fleet_second {
    /* What is answered or refused counts in the second in which it was asked. */
    uint64_t asked, served, refused;
    double rate; /* of all ranges, at its end */
};

struct rg_fleet_range {
    double per_s;
    uint64_t free_ns; /* when what was accepted is done */
    uint64_t busy_ns; /* for how long it has been busy */
    uint64_t asked;   /* in this second */
};

struct rg_fleet_front_end {
    uint64_t fails_ns;
    bool is_silent;
};

struct rg_fleet_service {
    uint64_t random;
    uint64_t outage_ns, outage_end_ns;
    uint32_t range_count; /* that are asked for */
    uint32_t percent_503; /* of refusals: so many are 503 instead of 429 */
    uint64_t ill_ns;      /* front ends fail for so long, all by 503; 0: as parameters.h has it */
    uint32_t flaky_per_1000; /* of the answers of the first front ends are 503 */
    uint32_t flaky_front_ends;
    struct rg_fleet_range ranges[FLEET_PREFIX_COUNT];
    struct rg_fleet_front_end front_ends[FLEET_FRONT_END_COUNT];
    uint64_t latencies[RG_FLEET_LATENCIES]; /* each as likely as the others */
    uint64_t latency_mean_ns;               /* with a body's time */
    struct rg_fleet_second *seconds;        /* the owner's */
    uint32_t second_count, second;
};

/* is_warm: every range has grown already. `seconds` is zeroed, and as long as the life will be. */
void rg_fleet_service_init(struct rg_fleet_service *service, uint64_t seed, bool is_warm,
                           struct rg_fleet_second *seconds, uint32_t second_count);
/* It is so late: seconds that are over end, although nobody asks any more. */
void rg_fleet_service_pass(struct rg_fleet_service *service, uint64_t now_ns);
/* nic_ns: until when the host's network card is busy. */
struct rg_fleet_reply rg_fleet_ask(struct rg_fleet_service *service, uint64_t *nic_ns,
                                   uint64_t now_ns);

/* SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t rg_fleet_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
