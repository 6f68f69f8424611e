/* Whether and when a request is sent again: a protocol core without clock, memory or I/O.
 *
 * One `rg_retry` belongs to one submitted request and lives as long as that. Each attempt that
 * fails is put before it, and it answers "again, at this time" or "give up":
 *
 * - Only statuses that the table in <ringest/error.h> calls retryable are tried again, and not
 *   where the failure is final: a refused certificate, or a proxy that wants a password.
 * - A request that is not idempotent is not sent again once a byte of it may have reached a server,
 *   whatever the answer was: the first one may have taken effect.
 * - Delays are capped exponential back-off with full jitter: uniform in (0, min(max, min * 2^n)].
 *   What a server asked for in Retry-After comes before the delay, so that those who were turned
 *   away together do not come back together.
 * - Progress (bytes of the body arrived) resets n, because the server is well; it does not reset
 * the number of attempts, so that a server that sends a byte at a time cannot hold a request for
 * ever.
 * - A delay that reaches the deadline is not waited for: giving up at once tells the caller the
 *   cause instead of the deadline.
 *
 * One `rg_retry_budget` belongs to all requests of one event loop to one endpoint. Each retry takes
 * a token, each success gives a tenth back. While it is empty, most of what the endpoint is sent
 * fails, and quick retries would only multiply its load: retries then wait for between half and all
 * of the longest delay. They are not refused, since an outage should cost a reader time, not data.
 */
#ifndef RG_GCS_REQUEST_RETRY_H
#define RG_GCS_REQUEST_RETRY_H

#include "runtime/base.h"

#include <ringest/error.h>

#define RG_RETRY_AFTER_NS_MAX (120 * RG_NS_PER_S) /* a longer Retry-After is cut to this */
#define RG_RETRY_BACKOFF_NS_MAX (3600 * RG_NS_PER_S)

/* The budget, in tenths of a token: what a retry takes, what a success gives, and what a full
 * budget holds: four quick retries for each of 256 connections. */
#define RG_RETRY_BUDGET_COST 10
#define RG_RETRY_BUDGET_REFUND 1
#define RG_RETRY_BUDGET_MAX (1024 * RG_RETRY_BUDGET_COST)

struct rg_retry_budget {
    uint32_t tenths; /* left, at most RG_RETRY_BUDGET_MAX */
};

/* Full. */
void rg_retry_budget_init(struct rg_retry_budget *budget);
/* For each request that succeeds. */
void rg_retry_budget_success(struct rg_retry_budget *budget);

struct rg_retry_policy {
    uint32_t attempts_max;   /* at least 1, which means: never retry */
    uint64_t backoff_min_ns; /* at least 1; any value above the next one counts as that */
    uint64_t backoff_max_ns; /* at least 1; RG_RETRY_BACKOFF_NS_MAX and more count as that */
};

struct rg_retry {
    struct rg_retry_policy policy;
    uint64_t random_state;
    /* What the last answer's Retry-After asked for, 0 without; the owner sets it when a head
     * arrives. The next decision uses it up, so that it does not outlive the answer. */
    uint64_t retry_after_ns;
    uint32_t failures;         /* tries that failed; a hedge counts from its start */
    uint32_t backoff_exponent; /* retries since the last progress */
};

void rg_retry_init(struct rg_retry *retry, const struct rg_retry_policy *policy, uint64_t seed);

/* The end of an attempt that did not succeed. */
struct rg_retry_event {
    enum rg_status status;
    bool idempotent;
    bool final;    /* every further attempt would fail alike, whatever the status says */
    bool sent;     /* a byte of the request may have reached a server */
    bool progress; /* bytes of the body arrived */
    uint64_t now_ns;
    uint64_t deadline_ns; /* 0: none */
};

/* True: the next attempt begins at *out_at_ns, after now and before the deadline. False: give up.
 */
bool rg_retry_next(struct rg_retry *retry, struct rg_retry_budget *budget,
                   const struct rg_retry_event *event, uint64_t *out_at_ns);

#endif
