/* See stall.h. */
#include "gcs/request/stall.h"

#include <math.h>

/* How often the quantile of the arrivals is looked at. */
#define ARRIVALS_PER_LOOK 64

/* What is waited for lies between the least and the most, in the head and in the body. */
static bool invariants(const struct rg_stall *stall)
{
    bool head = stall->value_ns >= stall->min_ns && stall->value_ns <= stall->max_ns;
    return head && stall->silence_ns > 0 && stall->silence_ns <= stall->silence_max_ns;
}

void rg_stall_init(struct rg_stall *stall, const struct rg_stall_options *options,
                   uint64_t silence_max_ns)
{
    RG_ASSERT(options->p > 0 && options->p < 1 && options->rate > 0);
    RG_ASSERT(options->max_ns > 0 && silence_max_ns > 0);
    /* RG_FOREVER has no double that becomes a time again. */
    uint64_t max_ns = RG_MIN(options->max_ns, (uint64_t)INT64_MAX);
    double increase = fmax(1.001, exp(log(2) / options->rate));
    double decrease = exp(-log(increase) * (1 - options->p) / options->p);
    *stall = (struct rg_stall){
        .value_ns = (double)RG_MIN(options->initial_ns, max_ns),
        .min_ns = (double)RG_MIN(options->min_ns, max_ns),
        .max_ns = (double)max_ns,
        .increase = increase,
        .decrease = fmin(0.9999, decrease),
        .silence_ns = silence_max_ns,
        .silence_max_ns = silence_max_ns,
    };
    stall->value_ns = fmax(stall->value_ns, stall->min_ns);
}

static void value_raise(struct rg_stall *stall)
{
    double raised = stall->value_ns * stall->increase;
    stall->value_ns = raised < stall->max_ns ? raised : stall->max_ns;
}

/* From where it began to where experience says. */
static void value_start(struct rg_stall *stall, const struct rg_quantile *heads)
{
    double start = (double)RG_STALL_MARGIN * (double)rg_quantile_at(heads, 990);
    stall->started = true;
    stall->value_ns = fmin(stall->value_ns, fmax(start, stall->min_ns));
}

void rg_stall_head(struct rg_stall *stall, uint64_t elapsed_ns, const struct rg_quantile *heads)
{
    if ((double)elapsed_ns > stall->value_ns) {
        value_raise(stall);
    } else {
        double lowered = stall->value_ns * stall->decrease;
        stall->value_ns = lowered > stall->min_ns ? lowered : stall->min_ns;
    }
    if (!stall->started && ++stall->head_count >= RG_STALL_SAMPLES_MIN) {
        value_start(stall, heads);
    }
    RG_VERIFY(invariants(stall));
}

void rg_stall_expired(struct rg_stall *stall)
{
    value_raise(stall);
    RG_VERIFY(invariants(stall));
}

void rg_stall_arrival(struct rg_stall *stall, const struct rg_quantile *arrivals)
{
    if (++stall->arrival_count < RG_STALL_SAMPLES_MIN) {
        return;
    }
    stall->arrival_count -= ARRIVALS_PER_LOOK;
    uint64_t wanted = RG_STALL_MARGIN * rg_quantile_at(arrivals, 990);
    stall->silence_ns = RG_MIN(RG_MAX(wanted, RG_STALL_SILENCE_MIN_NS), stall->silence_max_ns);
    RG_VERIFY(invariants(stall));
}

void rg_stall_learn(struct rg_stall *stall, uint64_t late_ns, uint64_t silence_ns)
{
    double late = (double)RG_STALL_MARGIN * (double)late_ns;
    if (!stall->started && late_ns > 0) {
        late = fmin(fmax(late, RG_STALL_LEARNED * stall->min_ns), stall->max_ns);
        stall->value_ns = fmin(stall->value_ns, late);
    }
    if (stall->silence_ns == stall->silence_max_ns && silence_ns > 0) {
        uint64_t least_ns = RG_STALL_LEARNED * RG_STALL_SILENCE_MIN_NS;
        uint64_t wanted_ns = RG_MAX(RG_STALL_MARGIN * silence_ns, least_ns);
        stall->silence_ns = RG_MIN(wanted_ns, stall->silence_max_ns);
    }
    RG_VERIFY(invariants(stall));
}
