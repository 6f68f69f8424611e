/* See retry.h. */
#include "gcs/request/retry.h"

void rg_retry_budget_init(struct rg_retry_budget *budget)
{
    budget->tenths = RG_RETRY_BUDGET_MAX;
}

void rg_retry_budget_success(struct rg_retry_budget *budget)
{
    RG_ASSERT(budget->tenths <= RG_RETRY_BUDGET_MAX);
    budget->tenths = RG_MIN(budget->tenths + RG_RETRY_BUDGET_REFUND, RG_RETRY_BUDGET_MAX);
}

static bool budget_has_token(const struct rg_retry_budget *budget)
{
    RG_ASSERT(budget->tenths <= RG_RETRY_BUDGET_MAX);
    return budget->tenths >= RG_RETRY_BUDGET_COST;
}

void rg_retry_init(struct rg_retry *retry, const struct rg_retry_policy *policy, uint64_t seed)
{
    RG_ASSERT(policy->attempts_max >= 1);
    RG_ASSERT(policy->backoff_min_ns >= 1 && policy->backoff_max_ns >= 1);
    *retry = (struct rg_retry){.policy = *policy, .random_state = seed};
    uint64_t max_ns = RG_MIN(policy->backoff_max_ns, RG_RETRY_BACKOFF_NS_MAX);
    retry->policy.backoff_max_ns = max_ns;
    retry->policy.backoff_min_ns = RG_MIN(policy->backoff_min_ns, max_ns);
}

/* Uniform in [1, bound], by SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t random_up_to(struct rg_retry *retry, uint64_t bound)
{
    RG_ASSERT(bound >= 1);
    uint64_t z = (retry->random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return 1 + (z ^ (z >> 31)) % bound;
}

/* min(max, min * 2^exponent), without overflow. */
static uint64_t backoff_window(const struct rg_retry *retry)
{
    const struct rg_retry_policy *policy = &retry->policy;
    uint32_t exponent = retry->backoff_exponent;
    if (exponent >= 64 || policy->backoff_min_ns > policy->backoff_max_ns >> exponent) {
        return policy->backoff_max_ns;
    }
    return policy->backoff_min_ns << exponent;
}

static uint64_t next_delay(struct rg_retry *retry, bool quick, uint64_t retry_after_ns)
{
    uint64_t floor_ns = RG_MIN(retry_after_ns, RG_RETRY_AFTER_NS_MAX);
    uint64_t window_ns = backoff_window(retry);
    if (!quick) {
        uint64_t half_ns = retry->policy.backoff_max_ns / 2;
        floor_ns = RG_MAX(floor_ns, half_ns);
        window_ns = retry->policy.backoff_max_ns - half_ns;
    }
    return floor_ns + random_up_to(retry, window_ns);
}

bool rg_retry_next(struct rg_retry *retry, struct rg_retry_budget *budget,
                   const struct rg_retry_event *event, uint64_t *out_at_ns)
{
    RG_ASSERT(event->status != RG_STATUS_OK);
    uint64_t retry_after_ns = retry->retry_after_ns;
    uint64_t deadline_ns = event->deadline_ns == 0 ? UINT64_MAX : event->deadline_ns;
    retry->retry_after_ns = 0;
    retry->failures++;
    if (!rg_status_retryable(event->status) || event->final ||
        (event->sent && !event->idempotent) || retry->failures >= retry->policy.attempts_max ||
        event->now_ns >= deadline_ns) {
        return false;
    }
    if (event->progress) {
        retry->backoff_exponent = 0;
    }
    bool quick = budget_has_token(budget);
    uint64_t delay_ns = next_delay(retry, quick, retry_after_ns);
    if (delay_ns >= deadline_ns - event->now_ns) {
        return false;
    }
    budget->tenths -= quick ? RG_RETRY_BUDGET_COST : 0;
    retry->backoff_exponent++;
    *out_at_ns = event->now_ns + delay_ns;
    RG_VERIFY(*out_at_ns > event->now_ns && *out_at_ns < deadline_ns);
    return true;
}
