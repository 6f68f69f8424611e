/* See growth.h. */
#include "http/growth.h"

/* What a longer answer counts; a shorter one counts at once. */
#define WEIGHT 64
#define UNPAID_MAX (64 * RG_GROWTH_EXCHANGES)

static bool invariants(const struct rg_growth *growth)
{
    return (growth->answer_ns == 0 || growth->handshake_ns > 0) && growth->unpaid <= UNPAID_MAX;
}

static void shorten(uint64_t *shortest_ns, uint64_t ns)
{
    if (*shortest_ns == 0 || ns < *shortest_ns) {
        *shortest_ns = RG_MAX(ns, UINT64_C(1));
    }
}

void rg_growth_connected(struct rg_growth *growth, uint64_t connect_ns, uint64_t handshake_ns)
{
    shorten(&growth->connect_ns, connect_ns);
    shorten(&growth->handshake_ns, handshake_ns);
    RG_VERIFY(invariants(growth));
}

void rg_growth_answered(struct rg_growth *growth, uint64_t took_ns)
{
    uint64_t ns = growth->answer_ns;
    bool is_shorter = ns == 0 || took_ns < ns;
    growth->answer_ns = RG_MAX(is_shorter ? took_ns : ns + (took_ns - ns) / WEIGHT, UINT64_C(1));
    growth->unpaid = RG_MIN(growth->unpaid + 1, (uint32_t)UNPAID_MAX);
    RG_VERIFY(invariants(growth));
}

/* From which time on an answer is slow. */
static uint64_t slow_from(const struct rg_growth *growth)
{
    uint64_t round_trip_ns = RG_MIN(growth->connect_ns, growth->handshake_ns);
    uint64_t handshakes_ns = RG_GROWTH_HANDSHAKES * (growth->handshake_ns - round_trip_ns);
    return round_trip_ns + RG_MAX(handshakes_ns, (uint64_t)RG_GROWTH_QUICK_NS);
}

uint64_t rg_growth_age(const struct rg_growth *growth)
{
    if (growth->handshake_ns == 0) {
        return UINT64_MAX;
    }
    return growth->answer_ns == 0 ? slow_from(growth)
                                  : RG_MAX(slow_from(growth), (uint64_t)RG_GROWTH_PATIENCE_NS);
}

static bool is_slow(const struct rg_growth *growth, const struct rg_growth_now *now)
{
    uint64_t ns = growth->answer_ns != 0 ? growth->answer_ns : now->oldest_ns;
    return growth->handshake_ns != 0 && ns - ns / 100 * now->crowd > slow_from(growth);
}

/* What answers have paid for, and one more for an exchange that takes long. */
static uint32_t worth(const struct rg_growth *growth, const struct rg_growth_now *now)
{
    if (now->crowd >= RG_GROWTH_CROWD_PERCENT) {
        return 0;
    }
    uint32_t one = now->connecting == 0 && now->oldest_ns > RG_GROWTH_PATIENCE_NS ? 1 : 0;
    return RG_MAX(growth->unpaid / RG_GROWTH_EXCHANGES, one);
}

/* Of the connections that the host's processes open at once. */
static uint32_t fair_share(const struct rg_growth_now *now)
{
    RG_ASSERT(now->processes > 0);
    return now->processes <= RG_GROWTH_PROCESSES
               ? now->max
               : (uint32_t)(RG_GROWTH_PROCESSES * (uint64_t)now->max / now->processes);
}

uint32_t rg_growth_allowed(const struct rg_growth *growth, const struct rg_growth_now *now)
{
    if (now->open < RG_GROWTH_FIRST) {
        return RG_GROWTH_FIRST - now->open;
    }
    uint32_t paid = worth(growth, now);
    if (!is_slow(growth, now)) {
        return paid;
    }
    uint32_t at_once = RG_MAX(now->open - now->connecting, (uint32_t)RG_GROWTH_FIRST);
    uint32_t doubled = at_once > now->connecting ? at_once - now->connecting : 0;
    uint32_t fair = fair_share(now);
    return RG_MAX(RG_MIN(doubled, fair > now->open ? fair - now->open : 0), paid);
}

void rg_growth_begun(struct rg_growth *growth, uint32_t open)
{
    if (open >= RG_GROWTH_FIRST) {
        growth->unpaid -= RG_MIN(growth->unpaid, (uint32_t)RG_GROWTH_EXCHANGES);
    }
}
