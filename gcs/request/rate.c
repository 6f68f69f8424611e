/* See rate.h. */
#include "gcs/request/rate.h"

/* Tokens are never owed, and the ramp does not fall below where it began. */
static bool invariants(const struct rg_rate *rate)
{
    return rate->tokens >= 0 && rate->used >= 0 && rate->ramp >= rate->options.ramp;
}

void rg_rate_init(struct rg_rate *rate, const struct rg_rate_options *options, uint64_t now_ns)
{
    RG_ASSERT(options->ceiling >= 0 && options->ramp >= 0);
    *rate = (struct rg_rate){
        .options = *options, .ramp = options->ramp, .filled_ns = now_ns, .step_ns = now_ns};
    rate->tokens = rg_rate_per_s(rate) * RG_RATE_BURST_S;
}

/* The end of a minute: the ramp for the next. */
static void ramp_step(struct rg_rate *rate, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - rate->step_ns;
    if (rate->options.ramp == 0 || elapsed_ns < RG_RATE_STEP_NS) {
        return;
    }
    double offered = rg_rate_per_s(rate) * (double)elapsed_ns / (double)RG_NS_PER_S;
    double ramp = rate->ramp;
    if (rate->used > offered / 2 && !rate->throttled) {
        ramp *= RG_RATE_STEP;
    } else if (rate->used < offered / 8) {
        ramp /= RG_RATE_STEP;
    }
    rate->ramp = RG_MAX(ramp, rate->options.ramp);
    rate->used = 0;
    rate->throttled = false;
    rate->step_ns = now_ns;
}

bool rg_rate_take(struct rg_rate *rate, uint64_t now_ns)
{
    double per_s = rg_rate_per_s(rate);
    if (per_s == 0) {
        return true;
    }
    double room = RG_MAX(per_s * RG_RATE_BURST_S, 1.0);
    double gained = per_s * (double)(now_ns - rate->filled_ns) / (double)RG_NS_PER_S;
    rate->tokens = RG_MIN(rate->tokens + gained, room);
    rate->filled_ns = now_ns;
    if (rate->tokens < 1) {
        return false;
    }
    rate->tokens -= 1;
    rate->used += 1;
    ramp_step(rate, now_ns);
    RG_VERIFY(invariants(rate));
    return true;
}

uint64_t rg_rate_next_ns(const struct rg_rate *rate, uint64_t now_ns)
{
    double per_s = rg_rate_per_s(rate);
    if (per_s == 0 || rate->tokens >= 1) {
        return now_ns;
    }
    return now_ns + (uint64_t)((1 - rate->tokens) / per_s * (double)RG_NS_PER_S) + 1;
}
