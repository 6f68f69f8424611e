/* When a second request is sent beside a slow first one: a protocol core without clock or I/O.
 *
 * A read is late when its head has not come after the p99 of like requests, or after
 * RG_HEDGE_MEDIAN_FACTOR times their median where that is less (a slow server among several is in
 * the p99 of them all), and never before RG_HEDGE_DELAY_MIN_NS. A second one is then sent if
 *
 *   - the budget of the event loop has a token: each request brings a small part of one, so that at
 *     most that share of all requests is doubled, whatever happens;
 *   - others fare better: since it was sent, an answer to another one came in time, or there are
 *     too few others to tell; and most answers came in time lately. Where all are slow alike,
 *     the server is, and more requests are the last thing that it needs;
 *   - its body is not expected to be large: bytes of a loser on the way count against the quota.
 *
 * The head that comes first wins, and the other request is ended before a byte of its body is kept.
 */
#ifndef RG_GCS_REQUEST_HEDGE_H
#define RG_GCS_REQUEST_HEDGE_H

#include "gcs/request/quantile.h"

/* Less is no time to a server that is far away, and to one that is near it is the scheduler's: a
 * loser's connection costs more than that to replace. */
#define RG_HEDGE_DELAY_MIN_NS (50 * RG_NS_PER_MS)
#define RG_HEDGE_MEDIAN_FACTOR 4
/* Answers before anything is known. */
#define RG_HEDGE_SAMPLES_MIN 32
/* With so few others out, silence says nothing about them. */
#define RG_HEDGE_OTHERS_MIN 4
/* Defaults of the options. */
#define RG_HEDGE_PER_1000_DEFAULT 20
#define RG_HEDGE_SIZE_MAX_DEFAULT RG_MIB(1)
/* Tokens that are kept by all processes of a host together, and at least one by each loop. */
#define RG_HEDGE_BURST 16

/* What one event loop may spend on second requests. */
struct rg_hedge_budget {
    uint32_t per_1000;
    uint32_t thousandths; /* of tokens; at most RG_HEDGE_BURST tokens */
    uint32_t processes;   /* of the host, which share that many; 0: this is the only one */
};

/* What is known of one bucket and kind of request. Zeroed is empty. */
struct rg_hedge {
    uint64_t delay_ns;   /* 0: not known yet */
    uint64_t in_time;    /* answers in all */
    uint32_t late_share; /* of the last answers, in 1/65536 */
    uint32_t answers;    /* since the delay was worked out */
};

/* Thousandths of tokens that are kept. */
static inline uint32_t rg_hedge_kept(const struct rg_hedge_budget *budget)
{
    return RG_MAX(RG_HEDGE_BURST * 1000u / RG_MAX(budget->processes, 1u), 1000u);
}

/* For each request that is sent. */
static inline void rg_hedge_earn(struct rg_hedge_budget *budget)
{
    budget->thousandths = RG_MIN(budget->thousandths + budget->per_1000, rg_hedge_kept(budget));
}

/* An answer came after `elapsed_ns`; `heads` has it already. */
void rg_hedge_answer(struct rg_hedge *hedge, uint64_t elapsed_ns, const struct rg_quantile *heads);

/* What is usual elsewhere on the host, until enough answers came here. */
void rg_hedge_learn(struct rg_hedge *hedge, uint64_t median_ns, uint64_t late_ns);

/* in_time_when_sent: hedge->in_time at that moment. others: requests of the kind that are out
 * beside this one. True: a token was taken, and the second request may be sent. */
bool rg_hedge_allow(const struct rg_hedge *hedge, struct rg_hedge_budget *budget,
                    uint64_t in_time_when_sent, uint32_t others);

#endif
