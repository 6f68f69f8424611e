/* See hedge.h. */
#include "gcs/request/hedge.h"

/* How often the delay is worked out. */
#define ANSWERS_PER_LOOK 32
/* The share follows the last 1 << LATE_SHARE_SHIFT answers; a quarter of them may be late. */
#define LATE_SHARE_SHIFT 4
#define LATE_SHARE_ONE (1u << 16)
#define LATE_SHARE_MAX (LATE_SHARE_ONE / 4)

/* A share is at most one, and a delay that is known is at least the smallest. */
static bool invariants(const struct rg_hedge *hedge)
{
    bool delay = hedge->delay_ns == 0 || hedge->delay_ns >= RG_HEDGE_DELAY_MIN_NS;
    return delay && hedge->late_share <= LATE_SHARE_ONE;
}

static void delay_set(struct rg_hedge *hedge, uint64_t median_ns, uint64_t late_ns)
{
    late_ns = RG_MIN(late_ns, RG_HEDGE_MEDIAN_FACTOR * median_ns);
    hedge->delay_ns = RG_MAX(late_ns, RG_HEDGE_DELAY_MIN_NS);
}

void rg_hedge_learn(struct rg_hedge *hedge, uint64_t median_ns, uint64_t late_ns)
{
    if (hedge->delay_ns == 0) {
        delay_set(hedge, median_ns, late_ns);
    }
    RG_VERIFY(invariants(hedge));
}

void rg_hedge_answer(struct rg_hedge *hedge, uint64_t elapsed_ns, const struct rg_quantile *heads)
{
    bool is_late = hedge->delay_ns != 0 && elapsed_ns > hedge->delay_ns;
    hedge->in_time += is_late ? 0 : 1;
    hedge->late_share -= hedge->late_share >> LATE_SHARE_SHIFT;
    hedge->late_share += is_late ? LATE_SHARE_ONE >> LATE_SHARE_SHIFT : 0;
    if (++hedge->answers >= ANSWERS_PER_LOOK && heads->total >= RG_HEDGE_SAMPLES_MIN) {
        hedge->answers = 0;
        delay_set(hedge, rg_quantile_at(heads, 500), rg_quantile_at(heads, 990));
    }
    RG_VERIFY(invariants(hedge));
}

bool rg_hedge_allow(const struct rg_hedge *hedge, struct rg_hedge_budget *budget,
                    uint64_t in_time_when_sent, uint32_t others)
{
    bool others_fare_better = others < RG_HEDGE_OTHERS_MIN || hedge->in_time > in_time_when_sent;
    if (budget->thousandths < 1000 || !others_fare_better || hedge->late_share > LATE_SHARE_MAX) {
        return false;
    }
    budget->thousandths -= 1000;
    RG_VERIFY(budget->thousandths <= RG_HEDGE_BURST * 1000u);
    return true;
}
