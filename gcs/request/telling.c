/* See telling.h. */
#include "gcs/request/telling.h"

#include "gcs/request/portion.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

struct rg_peer_side rg_telling_side(const struct rg_limiter *limiter, bool waits, uint64_t since_ns)
{
    bool is_used = limiter->in_flight > 0 || limiter->begun_ns > since_ns;
    struct rg_peer_side side = {
        .gap_ns = (uint64_t)rg_limiter_gap_ns(limiter),
        .refused_ns = limiter->cut_ns,
        .in_flight = is_used ? RG_MAX(limiter->in_flight, 1u) : 0,
        .waiting = waits,
        .answers = limiter->count.answers,
        .sudden = limiter->count.sudden,
        .restraint = limiter->follows ? RG_PEER_FOLLOWS : RG_PEER_REFUSED,
    };
    if (limiter->state != RG_LIMITER_PACED) {
        side.restraint = RG_PEER_FREE;
    }
    return side;
}

struct rg_bucket_side rg_telling_stats(const struct rg_limiter *limiter, uint32_t waiting,
                                       uint64_t now_ns)
{
    bool is_paced = rg_limiter_is_paced(limiter, now_ns);
    return (struct rg_bucket_side){
        .limit = is_paced ? rg_limiter_limit(limiter) : 0,
        .in_flight = limiter->in_flight,
        .rate_per_s = is_paced ? (double)RG_NS_PER_S / limiter->gap_ns : 0,
        .backoffs = limiter->backoffs,
        .waiting = is_paced || limiter->options.rate != NULL ? waiting : 0,
    };
}

struct rg_peer_kind rg_telling_kind(const struct rg_quantile *heads,
                                    const struct rg_quantile *arrivals)
{
    struct rg_peer_kind told = {0};
    if (heads->total >= RG_PORTION_HEADS_MIN) {
        told.count = heads->total;
        told.median_us = (uint32_t)(rg_quantile_at(heads, 500) / RG_NS_PER_US);
        told.late_us = (uint32_t)(rg_quantile_at(heads, 990) / RG_NS_PER_US);
    }
    if (arrivals->total >= RG_PORTION_HEADS_MIN) {
        told.silence_us = (uint32_t)(rg_quantile_at(arrivals, 990) / RG_NS_PER_US);
    }
    return told;
}

void rg_telling_account(struct rg_account *account, const char *bucket,
                        const struct rg_tally *tally, uint64_t now_ns)
{
    account->told_ns = now_ns;
    account->since_ns = tally->since_ns;
    account->requests = tally->requests;
    account->bytes = tally->bytes;
    account->retries = tally->retries;
    account->pid = (uint32_t)getpid();
    snprintf(account->command, sizeof(account->command), "%.*s", (int)sizeof(account->command) - 1,
             program_invocation_short_name);
    snprintf(account->bucket, sizeof(account->bucket), "%s", bucket);
}

void rg_telling_limits(struct rg_account *account, const struct rg_limiter *const *limiters,
                       uint32_t count)
{
    double rate_mhz = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct rg_limiter *limiter = limiters[i];
        account->in_flight += limiter->in_flight;
        if (rg_limiter_is_paced(limiter, account->told_ns) && limiter->gap_ns > 0) {
            rate_mhz += 1000.0 * (double)RG_NS_PER_S / limiter->gap_ns;
        }
    }
    account->rate_mhz = (uint64_t)rate_mhz;
}

void rg_telling_heads(struct rg_account *account, const struct rg_quantile *heads)
{
    account->p50_us = (uint32_t)(rg_quantile_at(heads, 500) / RG_NS_PER_US);
    account->p99_us = (uint32_t)(rg_quantile_at(heads, 990) / RG_NS_PER_US);
}
