/* See rate.h. */
#include "gcs/request/rate.h"

/* The ramp does not fall below where it began, and slots are apart. */
static bool invariants(const struct rg_rate *rate)
{
    return rate->interval_ns >= 1 && rate->ramp >= rate->options.ramp;
}

/* Rounded up: rather too few requests than too many. */
static void interval_set(struct rg_rate *rate)
{
    double interval = (double)RG_NS_PER_S / rg_rate_per_s(rate);
    uint64_t interval_ns = (uint64_t)interval;
    interval_ns += (double)interval_ns < interval;
    atomic_store_explicit(&rate->interval_ns, interval_ns, memory_order_relaxed);
}

/* The first slot that is not lost: what is kept, and the one that is due now. */
static uint64_t oldest_slot(uint64_t now_ns, uint64_t interval_ns)
{
    uint64_t kept_ns = RG_RATE_BURST_NS - RG_MIN(interval_ns, RG_RATE_BURST_NS);
    return now_ns > kept_ns ? now_ns - kept_ns : 1;
}

void rg_rate_init(struct rg_rate *rate, const struct rg_rate_options *options, uint64_t now_ns)
{
    RG_ASSERT(options->ceiling >= 0 && options->ramp >= 0);
    RG_ASSERT(options->ceiling > 0 || options->ramp > 0);
    rate->options = *options;
    atomic_init(&rate->ramp, options->ramp);
    atomic_init(&rate->step_ns, now_ns);
    atomic_init(&rate->used, 0);
    atomic_init(&rate->throttled, false);
    interval_set(rate);
    uint64_t interval_ns = rate->interval_ns;
    bool is_slow = interval_ns > RG_RATE_BURST_NS;
    atomic_init(&rate->next_ns, is_slow ? now_ns + interval_ns - RG_RATE_BURST_NS
                                        : oldest_slot(now_ns, interval_ns));
    RG_VERIFY(invariants(rate));
}

/* The end of a minute: the ramp for the next. One of the loops that find it over does it. */
static void ramp_step(struct rg_rate *rate, uint64_t now_ns)
{
    uint64_t step_ns = atomic_load_explicit(&rate->step_ns, memory_order_relaxed);
    if (rate->options.ramp == 0 || now_ns < step_ns + RG_RATE_STEP_NS ||
        !atomic_compare_exchange_strong_explicit(&rate->step_ns, &step_ns, now_ns,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        return;
    }
    double offered = rg_rate_per_s(rate) * (double)(now_ns - step_ns) / (double)RG_NS_PER_S;
    double used = (double)atomic_exchange_explicit(&rate->used, 0, memory_order_relaxed);
    bool throttled = atomic_exchange_explicit(&rate->throttled, false, memory_order_relaxed);
    double ramp = atomic_load_explicit(&rate->ramp, memory_order_relaxed);
    if (used > offered / 2 && !throttled) {
        ramp *= RG_RATE_STEP;
    } else if (used < offered / 8) {
        ramp /= RG_RATE_STEP;
    }
    atomic_store_explicit(&rate->ramp, RG_MAX(ramp, rate->options.ramp), memory_order_relaxed);
    interval_set(rate);
    RG_VERIFY(invariants(rate));
}

uint64_t rg_rate_take(struct rg_rate *rate, uint64_t now_ns)
{
    uint64_t interval_ns = atomic_load_explicit(&rate->interval_ns, memory_order_relaxed);
    uint64_t oldest_ns = oldest_slot(now_ns, interval_ns), slot_ns;
    uint64_t next_ns = atomic_load_explicit(&rate->next_ns, memory_order_relaxed);
    do {
        slot_ns = RG_MAX(next_ns, oldest_ns);
    } while (!atomic_compare_exchange_weak_explicit(&rate->next_ns, &next_ns, slot_ns + interval_ns,
                                                    memory_order_relaxed, memory_order_relaxed));
    atomic_fetch_add_explicit(&rate->used, 1, memory_order_relaxed);
    ramp_step(rate, now_ns);
    return slot_ns;
}
