/* See limiter.h. */
#include "gcs/request/limiter.h"

/* A limit that is in force lets at least one through; tokens are never
 * owed; the rate does not fall below where it began. */
static bool invariants(const struct rg_limiter *limiter)
{
    bool limit = !limiter->limited || limiter->limit >= 1;
    bool tokens = limiter->ramp.tokens >= 0 && limiter->ramp.used >= 0;
    bool window = limiter->window.count > 0 || limiter->window.sum_ns == 0;
    return limit && tokens && window && limiter->ramp.rate >= limiter->options.rate;
}

void rg_limiter_init(struct rg_limiter *limiter, const struct rg_limiter_options *options,
                     uint64_t now_ns)
{
    RG_ASSERT(options->limit_max >= 1 && options->rate >= 0);
    *limiter = (struct rg_limiter){.options = *options};
    limiter->window.since_ns = now_ns;
    limiter->ramp.rate = options->rate;
    limiter->ramp.tokens = options->rate * RG_LIMITER_BURST_S;
    limiter->ramp.filled_ns = limiter->ramp.step_ns = now_ns;
}

uint32_t rg_limiter_limit(const struct rg_limiter *limiter)
{
    return limiter->limited ? (uint32_t)limiter->limit : limiter->options.limit_max;
}

/* The end of a minute: the rate for the next. */
static void ramp_step(struct rg_limiter *limiter, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - limiter->ramp.step_ns;
    if (elapsed_ns < RG_LIMITER_RATE_STEP_NS) {
        return;
    }
    double offered = limiter->ramp.rate * (double)elapsed_ns / (double)RG_NS_PER_S;
    double rate = limiter->ramp.rate;
    if (limiter->ramp.used > offered / 2 && !limiter->ramp.throttled) {
        rate *= RG_LIMITER_RATE_STEP;
    } else if (limiter->ramp.used < offered / 8) {
        rate /= RG_LIMITER_RATE_STEP;
    }
    limiter->ramp.rate = RG_MAX(rate, limiter->options.rate);
    limiter->ramp.used = 0;
    limiter->ramp.throttled = false;
    limiter->ramp.step_ns = now_ns;
}

static bool ramp_take(struct rg_limiter *limiter, uint64_t now_ns)
{
    double rate = limiter->ramp.rate;
    double room = RG_MAX(rate * RG_LIMITER_BURST_S, 1.0);
    double gained = rate * (double)(now_ns - limiter->ramp.filled_ns) / (double)RG_NS_PER_S;
    limiter->ramp.tokens = RG_MIN(limiter->ramp.tokens + gained, room);
    limiter->ramp.filled_ns = now_ns;
    if (limiter->ramp.tokens < 1) {
        return false;
    }
    limiter->ramp.tokens -= 1;
    limiter->ramp.used += 1;
    ramp_step(limiter, now_ns);
    return true;
}

bool rg_limiter_enter(struct rg_limiter *limiter, uint64_t now_ns)
{
    if (limiter->limited && limiter->in_flight >= (uint32_t)limiter->limit) {
        return false;
    }
    if (limiter->options.rate > 0 && !ramp_take(limiter, now_ns)) {
        return false;
    }
    limiter->in_flight++;
    RG_VERIFY(invariants(limiter));
    return true;
}

void rg_limiter_enter_always(struct rg_limiter *limiter)
{
    limiter->in_flight++;
}

uint64_t rg_limiter_next_ns(const struct rg_limiter *limiter, uint64_t now_ns)
{
    bool full = limiter->limited && limiter->in_flight >= (uint32_t)limiter->limit;
    if (full || limiter->options.rate <= 0) {
        return UINT64_MAX;
    }
    double missing = RG_MAX(1 - limiter->ramp.tokens, 0.0);
    return now_ns + (uint64_t)(missing / limiter->ramp.rate * (double)RG_NS_PER_S) + 1;
}

static void cut(struct rg_limiter *limiter, double factor, uint32_t least, uint64_t now_ns)
{
    double out = (double)RG_MIN(limiter->in_flight, rg_limiter_limit(limiter));
    limiter->limit = RG_MAX(out * factor, (double)least);
    limiter->limited = true;
    limiter->cut_ns = now_ns;
    limiter->backoffs++;
}

static void raise(struct rg_limiter *limiter)
{
    limiter->limit += 1 / limiter->limit;
    if (limiter->limit >= limiter->options.limit_max) {
        limiter->limited = false;
    }
}

bool rg_limiter_leave(struct rg_limiter *limiter, enum rg_limiter_outcome outcome, uint64_t sent_ns,
                      uint64_t now_ns)
{
    RG_ASSERT(limiter->in_flight > 0);
    bool is_cut = false;
    if (outcome == RG_LIMITER_THROTTLED) {
        limiter->ramp.throttled = true;
        is_cut = sent_ns > limiter->cut_ns;
        if (is_cut) {
            cut(limiter, RG_LIMITER_CUT, 1, now_ns);
        }
    } else if (outcome == RG_LIMITER_ANSWERED && limiter->limited &&
               limiter->in_flight >= (uint32_t)limiter->limit) {
        raise(limiter);
    }
    limiter->in_flight--;
    RG_VERIFY(invariants(limiter));
    return is_cut;
}

bool rg_limiter_latency(struct rg_limiter *limiter, uint64_t elapsed_ns, uint64_t now_ns)
{
    limiter->window.sum_ns += elapsed_ns;
    limiter->window.count++;
    if (now_ns - limiter->window.since_ns < RG_LIMITER_WINDOW_NS ||
        limiter->window.count < RG_LIMITER_WINDOW_SAMPLES_MIN) {
        return false;
    }
    double mean = (double)limiter->window.sum_ns / limiter->window.count;
    double baseline = limiter->window.baseline_ns;
    limiter->window.since_ns = now_ns;
    limiter->window.sum_ns = 0;
    limiter->window.count = 0;
    limiter->window.baseline_ns =
        baseline == 0 ? mean : RG_MIN(mean, baseline * RG_LIMITER_BASELINE_RISE);
    bool is_slow = baseline > 0 && mean > RG_LIMITER_LATENCY_FACTOR * baseline &&
                   mean > (double)RG_LIMITER_LATENCY_MIN_NS;
    if (is_slow && rg_limiter_limit(limiter) > RG_LIMITER_LATENCY_LIMIT_MIN) {
        cut(limiter, RG_LIMITER_LATENCY_CUT, RG_LIMITER_LATENCY_LIMIT_MIN, now_ns);
        return true;
    }
    return false;
}
