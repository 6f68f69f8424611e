/* See service.h. */
#include "tests/sim/fleet/service.h"

#include <math.h>

/* The normal distribution's 99th percentile. */
#define NORMAL_P99 2.3263478740408408
/* Of a process to one front end. */
#define CONNECTIONS (FLEET_WINDOW / FLEET_FRONT_END_COUNT)

static double uniform(uint64_t *random)
{
    return ((double)(rg_fleet_random(random) >> 11) + 0.5) / (double)(UINT64_C(1) << 53);
}

/* What a standard normal variable is below with that probability, by bisection. */
static double normal_quantile(double probability)
{
    double low = -8, high = 8;
    for (unsigned i = 0; i < 50; i++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < probability) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (low + high) / 2;
}

static void latencies_init(struct rg_fleet_service *service)
{
    double median = (double)FLEET_LATENCY_P50_NS;
    double sigma = log((double)FLEET_LATENCY_P99_NS / median) / NORMAL_P99;
    double sum = 0;
    for (unsigned i = 0; i < RG_FLEET_LATENCIES; i++) {
        double latency = median * exp(sigma * normal_quantile((i + 0.5) / RG_FLEET_LATENCIES));
        service->latencies[i] = (uint64_t)latency;
        sum += latency;
    }
    double body_ns = FLEET_SAMPLE_BYTES / FLEET_CONNECTION_BYTES_PER_S * (double)RG_NS_PER_S;
    service->latency_mean_ns = (uint64_t)(sum / RG_FLEET_LATENCIES + body_ns);
}

/* When it fails next: exponentially distributed, one of them each FLEET_FRONT_END_FAILS_NS. */
static void front_end_plan(struct rg_fleet_service *service, struct rg_fleet_front_end *front_end,
                           uint64_t now_ns)
{
    double mean = (double)FLEET_FRONT_END_FAILS_NS * FLEET_FRONT_END_COUNT;
    front_end->fails_ns = now_ns + (uint64_t)(-log(uniform(&service->random)) * mean);
    front_end->is_silent = rg_fleet_random(&service->random) % 2 == 0;
}

void rg_fleet_service_init(struct rg_fleet_service *service, uint64_t seed, bool is_warm,
                           struct rg_fleet_second *seconds, uint32_t second_count)
{
    *service = (struct rg_fleet_service){
        .random = seed,
        .range_count = FLEET_PREFIX_COUNT,
        .seconds = seconds,
        .second_count = second_count,
    };
    latencies_init(service);
    for (unsigned i = 0; i < FLEET_PREFIX_COUNT; i++) {
        service->ranges[i].per_s =
            (is_warm ? FLEET_FULL_PER_S : FLEET_COLD_PER_S) / FLEET_PREFIX_COUNT;
    }
    for (unsigned i = 0; i < FLEET_FRONT_END_COUNT; i++) {
        front_end_plan(service, &service->front_ends[i], 0);
    }
}

static void range_grow(struct rg_fleet_range *range)
{
    bool is_busy = (double)range->asked >= range->per_s * FLEET_GROWTH_SHARE;
    range->busy_ns = is_busy ? range->busy_ns + RG_NS_PER_S : 0;
    range->asked = 0;
    if (range->busy_ns >= FLEET_GROWTH_NS) {
        range->busy_ns = 0;
        range->per_s = RG_MIN(range->per_s * 2, FLEET_FULL_PER_S / FLEET_PREFIX_COUNT);
    }
}

static void second_end(struct rg_fleet_service *service)
{
    double rate = 0;
    for (unsigned i = 0; i < service->range_count; i++) {
        rate += service->ranges[i].per_s;
        range_grow(&service->ranges[i]);
    }
    service->seconds[service->second].rate = rate;
    service->second++;
}

static enum rg_fleet_answer front_end_answer(struct rg_fleet_service *service, uint32_t number,
                                             uint64_t now_ns)
{
    struct rg_fleet_front_end *front_end = &service->front_ends[number];
    if (number < service->flaky_front_ends &&
        rg_fleet_random(&service->random) % 1000 < service->flaky_per_1000) {
        return RG_FLEET_503;
    }
    if (now_ns < front_end->fails_ns) {
        return RG_FLEET_OK;
    }
    uint64_t down_ns = service->ill_ns > 0 ? service->ill_ns : FLEET_FRONT_END_DOWN_NS;
    if (now_ns >= front_end->fails_ns + down_ns) {
        front_end_plan(service, front_end, now_ns);
        return RG_FLEET_OK;
    }
    bool is_silent = front_end->is_silent && service->ill_ns == 0;
    return is_silent ? RG_FLEET_SILENCE : RG_FLEET_503;
}

/* How long until the range has served it; UINT64_MAX: refused. */
static uint64_t range_wait(struct rg_fleet_range *range, uint64_t now_ns)
{
    range->asked++;
    uint64_t begin_ns = RG_MAX(range->free_ns, now_ns);
    if (begin_ns - now_ns > FLEET_QUEUE_NS) {
        return UINT64_MAX;
    }
    range->free_ns = begin_ns + (uint64_t)((double)RG_NS_PER_S / range->per_s);
    return begin_ns - now_ns;
}

/* The sample comes through the connection, and with the others through the host's card. */
static uint64_t body_end(uint64_t *nic_ns, uint64_t head_ns)
{
    uint64_t card_ns = (uint64_t)(FLEET_SAMPLE_BYTES / FLEET_HOST_BYTES_PER_S * RG_NS_PER_S);
    uint64_t connection_ns =
        (uint64_t)(FLEET_SAMPLE_BYTES / FLEET_CONNECTION_BYTES_PER_S * RG_NS_PER_S);
    /* The card is shared in the order of asking, so what waits for latency does not hold it up. */
    *nic_ns += card_ns;
    return RG_MAX(head_ns + connection_ns, *nic_ns);
}

static struct rg_fleet_reply reply_make(struct rg_fleet_service *service, uint64_t *nic_ns,
                                        uint64_t now_ns)
{
    uint32_t number = (uint32_t)(rg_fleet_random(&service->random) % FLEET_FRONT_END_COUNT);
    enum rg_fleet_answer answer = front_end_answer(service, number, now_ns);
    uint64_t draw = rg_fleet_random(&service->random);
    uint32_t connection = number + FLEET_FRONT_END_COUNT * (uint32_t)((draw >> 56) % CONNECTIONS);
    bool is_outage = now_ns >= service->outage_ns && now_ns < service->outage_end_ns;
    if (answer == RG_FLEET_SILENCE || draw % 1000000 < FLEET_LOST_PER_MILLION) {
        return (struct rg_fleet_reply){RG_FLEET_SILENCE, RG_FLEET_NEVER_NS, connection, false};
    }
    if (answer == RG_FLEET_503 || is_outage) {
        return (struct rg_fleet_reply){RG_FLEET_503, FLEET_REFUSAL_NS, connection, false};
    }
    uint64_t wait_ns = range_wait(&service->ranges[(draw >> 32) % service->range_count], now_ns);
    if (wait_ns == UINT64_MAX) {
        bool is_503 = (draw >> 20) % 100 < service->percent_503;
        answer = is_503 ? RG_FLEET_503 : RG_FLEET_429;
        return (struct rg_fleet_reply){answer, FLEET_REFUSAL_NS, connection, true};
    }
    uint64_t latency_ns = service->latencies[(draw >> 40) % RG_FLEET_LATENCIES];
    *nic_ns = RG_MAX(*nic_ns, now_ns);
    uint64_t end_ns = body_end(nic_ns, now_ns + wait_ns + latency_ns);
    return (struct rg_fleet_reply){RG_FLEET_OK, end_ns - now_ns, connection, false};
}

void rg_fleet_service_pass(struct rg_fleet_service *service, uint64_t now_ns)
{
    while (service->second < now_ns / RG_NS_PER_S) {
        second_end(service);
    }
}

struct rg_fleet_reply rg_fleet_ask(struct rg_fleet_service *service, uint64_t *nic_ns,
                                   uint64_t now_ns)
{
    rg_fleet_service_pass(service, now_ns);
    RG_ASSERT(service->second < service->second_count);
    struct rg_fleet_second *second = &service->seconds[service->second];
    struct rg_fleet_reply reply = reply_make(service, nic_ns, now_ns);
    second->asked++;
    second->served += reply.answer == RG_FLEET_OK;
    second->refused += reply.answer == RG_FLEET_429 || reply.answer == RG_FLEET_503;
    return reply;
}
