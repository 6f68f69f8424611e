/* See rank.h. */
#include "tests/sim/fleet/rank.h"

#include "gcs/request/client_loop.h"
#include "gcs/request/telling.h"

#include <stdlib.h>

static uint64_t now_of(const struct rg_fleet_job *job)
{
    return job->wheel->now_ns;
}

static bool is_oracle(const struct rg_fleet_job *job)
{
    return job->control == RG_FLEET_ORACLE;
}

/* Hedges and limits of time. */
static bool adapts(const struct rg_fleet_job *job)
{
    return job->control != RG_FLEET_NONE;
}

/* What the service refuses says something to the limiter. */
static bool is_limited(const struct rg_fleet_job *job)
{
    return adapts(job) && !is_oracle(job);
}

static bool is_measured(const struct rg_fleet_job *job)
{
    return now_of(job) >= job->measure_ns && now_of(job) < job->measure_end_ns;
}

#define COUNT(job, field)                                                                          \
    do {                                                                                           \
        (job)->counts.field++;                                                                     \
        (job)->measured.field += is_measured(job) ? 1 : 0;                                         \
    } while (0)

static struct rg_fleet_request *request_of(struct rg_list *node)
{
    return RG_CONTAINER_OF(node, struct rg_fleet_request, node);
}

/* Those that wait are let in when another one leaves, or by the alarm. */
static bool limit_invariants(const struct rg_fleet_limit *limit)
{
    return rg_list_empty(&limit->waiting) || limit->limiter.in_flight > 0 ||
           rg_fleet_is_set(&limit->alarm);
}

/* Ends what is out for the attempt, and says how. */
static void attempt_end(struct rg_fleet_job *job, enum rg_fleet_answer answer)
{
    if (answer == RG_FLEET_OK) {
        COUNT(job, ok);
    } else if (answer == RG_FLEET_SILENCE) {
        COUNT(job, expired);
    } else {
        COUNT(job, refused);
    }
}

static uint64_t patience_ns(const struct rg_fleet_rank *rank)
{
    return adapts(rank->job) ? rg_stall_head_ns(&rank->stall) : RG_FIRST_BYTE_TIMEOUT_DEFAULT_NS;
}

/* Sends one exchange, the request's own or its hedge. */
static enum rg_fleet_answer ask(struct rg_fleet_rank *rank, struct rg_fleet_event *event,
                                uint32_t *out_connection)
{
    struct rg_fleet_job *job = rank->job;
    uint64_t now_ns = now_of(job), patience = patience_ns(rank);
    struct rg_fleet_reply reply = rg_fleet_ask(job->service, &rank->host->nic_ns, now_ns);
    COUNT(job, attempts);
    if (job->control == RG_FLEET_INFORMED && reply.is_overload) {
        reply.answer = RG_FLEET_429;
    }
    if (reply.after_ns > patience) {
        reply.answer = RG_FLEET_SILENCE;
        reply.after_ns = patience;
    }
    *out_connection = reply.connection;
    rg_fleet_set(job->wheel, event, now_ns + reply.after_ns);
    return reply.answer;
}

static void late_set(struct rg_fleet_rank *rank)
{
    const struct rg_fleet_request *first = request_of(rank->unanswered.next);
    rg_fleet_set(rank->job->wheel, &rank->late, first->sent_ns + rank->hedge.delay_ns);
}

static void request_send(struct rg_fleet_request *request)
{
    struct rg_fleet_rank *rank = request->rank;
    request->state = RG_FLEET_OUT;
    request->sent_ns = now_of(rank->job);
    request->in_time = rank->hedge.in_time;
    rank->sent_count++;
    rg_hedge_earn(&rank->budget);
    request->own_answer = ask(rank, &request->own, &request->own_connection);
    if (!adapts(rank->job)) {
        return;
    }
    rg_list_push_back(&rank->unanswered, &request->node);
    if (rank->hedge.delay_ns != 0 && !rg_fleet_is_set(&rank->late)) {
        late_set(rank);
    }
}

static double oracle_most(const struct rg_fleet_job *job)
{
    return FLEET_FULL_PER_S / FLEET_PREFIX_COUNT * job->service->range_count;
}

static double oracle_gap_ns(const struct rg_fleet_limit *limit)
{
    return (double)RG_NS_PER_S * limit->job->rank_count /
           (limit->oracle.per_s * FLEET_ORACLE_SHARE);
}

/* One request begins. The gap varies, so that processes do not keep one order. */
static void oracle_begin(struct rg_fleet_limit *limit)
{
    struct rg_fleet_job *job = limit->job;
    struct rg_fleet_oracle *oracle = &limit->oracle;
    uint64_t now_ns = now_of(job), age_ns = now_ns - oracle->since_ns;
    oracle->is_probe &=
        (double)age_ns <= FLEET_ORACLE_PROBE_GAPS * oracle_gap_ns(limit) + (double)RG_NS_PER_S;
    if (age_ns >= FLEET_ORACLE_PROBE_NS && oracle->per_s < oracle_most(job)) {
        oracle->per_s *= 2;
        oracle->since_ns = now_ns;
        oracle->is_probe = true;
    }
    double part = (double)(rg_fleet_random(&job->random) >> 11) / (double)(UINT64_C(1) << 53);
    uint64_t oldest_ns = now_ns - RG_MIN(now_ns, RG_LIMITER_BURST_NS);
    oracle->next_ns =
        RG_MAX(oracle->next_ns, oldest_ns) + (uint64_t)(oracle_gap_ns(limit) * (0.75 + part / 2));
}

static void oracle_refused(struct rg_fleet_limit *limit, uint64_t sent_ns)
{
    struct rg_fleet_oracle *oracle = &limit->oracle;
    if (oracle->is_probe && sent_ns >= oracle->since_ns) {
        oracle->per_s /= 2;
        oracle->since_ns = now_of(limit->job) + FLEET_ORACLE_AGAIN_NS - FLEET_ORACLE_PROBE_NS;
        oracle->is_probe = false;
    }
}

static void oracle_start(struct rg_fleet_limit *limit)
{
    struct rg_fleet_job *job = limit->job;
    limit->oracle.per_s = job->service->ranges[0].per_s * job->service->range_count;
    limit->oracle.since_ns = now_of(job);
    double part = (double)(rg_fleet_random(&job->random) >> 11) / (double)(UINT64_C(1) << 53);
    limit->oracle.next_ns = now_of(job) + (uint64_t)(oracle_gap_ns(limit) * part);
}

static bool limit_enter(struct rg_fleet_limit *limit, uint64_t now_ns)
{
    if (!is_oracle(limit->job)) {
        return rg_limiter_enter(&limit->limiter, now_ns);
    }
    if (now_ns < limit->oracle.next_ns || !rg_limiter_enter(&limit->limiter, now_ns)) {
        return false;
    }
    oracle_begin(limit);
    return true;
}

static void alarm_set(struct rg_fleet_limit *limit)
{
    struct rg_fleet_wheel *wheel = limit->job->wheel;
    uint64_t next_ns = rg_limiter_next_ns(&limit->limiter, wheel->now_ns);
    next_ns = RG_MAX(next_ns, limit->oracle.next_ns);
    if (next_ns != UINT64_MAX) {
        rg_fleet_cancel(wheel, &limit->alarm);
        rg_fleet_set(wheel, &limit->alarm, next_ns);
    }
}

static void limit_pump(struct rg_fleet_limit *limit)
{
    uint64_t now_ns = now_of(limit->job);
    while (!rg_list_empty(&limit->waiting) && limit_enter(limit, now_ns)) {
        request_send(request_of(rg_list_pop_front(&limit->waiting)));
    }
    if (!rg_list_empty(&limit->waiting)) {
        alarm_set(limit);
    }
    RG_VERIFY(limit_invariants(limit));
}

static void alarm_fire(struct rg_fleet_event *event)
{
    limit_pump(RG_CONTAINER_OF(event, struct rg_fleet_limit, alarm));
}

static void request_enter(struct rg_fleet_request *request)
{
    struct rg_fleet_limit *limit = request->rank->limit;
    request->state = RG_FLEET_WAITING;
    if (rg_list_empty(&limit->waiting) && limit_enter(limit, now_of(limit->job))) {
        request_send(request);
        return;
    }
    if (rg_list_empty(&limit->waiting)) {
        alarm_set(limit);
    }
    rg_list_push_back(&limit->waiting, &request->node);
    RG_VERIFY(limit_invariants(limit));
}

static void request_new(struct rg_fleet_request *request)
{
    static const struct rg_retry_policy policy = {
        .attempts_max = RG_ATTEMPTS_DEFAULT,
        .backoff_min_ns = RG_BACKOFF_MIN_DEFAULT_NS,
        .backoff_max_ns = RG_BACKOFF_MAX_DEFAULT_NS,
    };
    struct rg_fleet_job *job = request->rank->job;
    COUNT(job, requests);
    rg_retry_init(&request->retry, &policy, rg_fleet_random(&job->random));
    request_enter(request);
}

static void step_note(struct rg_fleet_rank *rank)
{
    struct rg_fleet_job *job = rank->job;
    rank->samples++;
    rank->host->samples += is_measured(job) ? 1 : 0;
    if (rank->samples < FLEET_BATCH) {
        return;
    }
    double seconds = (double)(now_of(job) - rank->step_ns) / (double)RG_NS_PER_S;
    rank->samples = 0;
    rank->step_ns = now_of(job);
    if (is_measured(job) && job->step_count < job->step_size) {
        job->steps[job->step_count++] = seconds;
    }
}

static void hedge_end(struct rg_fleet_request *request)
{
    struct rg_fleet_job *job = request->rank->job;
    if (rg_fleet_is_set(&request->second)) {
        rg_fleet_cancel(job->wheel, &request->second);
        COUNT(job, lost);
    }
}

/* A head came, whatever it says: rg_traffic_answered. */
static void request_answered(struct rg_fleet_request *request)
{
    struct rg_fleet_rank *rank = request->rank;
    uint64_t now_ns = now_of(rank->job), elapsed_ns = now_ns - request->sent_ns;
    hedge_end(request);
    rg_list_remove(&request->node);
    rank->sent_count--;
    if (adapts(rank->job)) {
        rg_quantile_add(&rank->heads, elapsed_ns);
        rg_stall_head(&rank->stall, elapsed_ns, &rank->heads);
        rg_hedge_answer(&rank->hedge, elapsed_ns, &rank->heads);
    }
    if (is_limited(rank->job)) {
        (void)rg_limiter_latency(&rank->limit->limiter, elapsed_ns, now_ns);
    }
}

static void request_expired(struct rg_fleet_request *request)
{
    hedge_end(request);
    rg_list_remove(&request->node);
    request->rank->sent_count--;
    rg_stall_expired(&request->rank->stall);
}

/* What an answer is to the limiter. What fell silent is closed: its next answer is its first. */
static enum rg_limiter_outcome outcome_of(struct rg_fleet_rank *rank, enum rg_fleet_answer answer,
                                          uint32_t connection)
{
    uint32_t good_before = rank->good[connection];
    bool is_informed = rank->job->control == RG_FLEET_INFORMED;
    rank->good[connection] = answer == RG_FLEET_OK ? good_before + 1 : 0;
    switch (answer) {
    case RG_FLEET_OK:
        return RG_LIMITER_ANSWERED;
    case RG_FLEET_429:
        return RG_LIMITER_THROTTLED;
    case RG_FLEET_503:
        return rg_limiter_unavailable(is_informed ? RG_MIN(good_before, 1u) : good_before);
    case RG_FLEET_SILENCE:
        break;
    }
    return RG_LIMITER_BROKEN;
}

/* rg_traffic_leave, and what request.c does with the outcome. */
static void request_leave(struct rg_fleet_request *request, enum rg_fleet_answer answer)
{
    struct rg_fleet_limit *limit = request->rank->limit;
    enum rg_limiter_outcome outcome = outcome_of(request->rank, answer, request->own_connection);
    if (answer != RG_FLEET_OK && !is_limited(limit->job)) {
        outcome = RG_LIMITER_BROKEN;
    }
    if (answer != RG_FLEET_SILENCE && answer != RG_FLEET_OK && is_oracle(limit->job)) {
        oracle_refused(limit, request->sent_ns);
    }
    (void)rg_limiter_leave(&limit->limiter, outcome, request->sent_ns, now_of(limit->job));
    if (!rg_list_empty(&limit->waiting)) {
        limit_pump(limit);
    }
}

static void attempt_failed(struct rg_fleet_request *request, enum rg_fleet_answer answer)
{
    struct rg_fleet_rank *rank = request->rank;
    struct rg_fleet_job *job = rank->job;
    struct rg_retry_event event = {
        .status = answer == RG_FLEET_SILENCE ? RG_STATUS_STALLED : RG_STATUS_THROTTLED,
        .idempotent = true,
        .sent = true,
        .now_ns = now_of(job),
    };
    uint64_t at_ns;
    if (!rg_retry_next(&request->retry, &rank->retries, &event, &at_ns)) {
        COUNT(job, given_up);
        request_new(request);
        return;
    }
    request->state = RG_FLEET_BACKOFF;
    rg_fleet_set(job->wheel, &request->own, at_ns);
}

static void attempt_done(struct rg_fleet_request *request, enum rg_fleet_answer answer)
{
    struct rg_fleet_rank *rank = request->rank;
    attempt_end(rank->job, answer);
    if (answer == RG_FLEET_SILENCE) {
        request_expired(request);
    } else {
        request_answered(request);
    }
    request_leave(request, answer);
    if (answer != RG_FLEET_OK) {
        attempt_failed(request, answer);
        return;
    }
    rg_retry_budget_success(&rank->retries);
    COUNT(rank->job, completed);
    step_note(rank);
    request_new(request);
}

/* The request's own exchange was given up, and its hedge goes on in its place. */
static void hedge_takes_over(struct rg_fleet_request *request)
{
    struct rg_fleet_rank *rank = request->rank;
    uint64_t at_ns = request->second.tick << RG_FLEET_TICK_BITS;
    attempt_end(rank->job, RG_FLEET_SILENCE);
    rg_stall_expired(&rank->stall);
    rg_fleet_cancel(rank->job->wheel, &request->second);
    rg_fleet_set(rank->job->wheel, &request->own, at_ns);
    request->own_answer = request->second_answer;
    request->own_connection = request->second_connection;
}

static void own_fire(struct rg_fleet_event *event)
{
    struct rg_fleet_request *request = RG_CONTAINER_OF(event, struct rg_fleet_request, own);
    if (request->state == RG_FLEET_BACKOFF) {
        request_enter(request);
    } else if (request->own_answer == RG_FLEET_SILENCE && rg_fleet_is_set(&request->second)) {
        hedge_takes_over(request);
    } else {
        attempt_done(request, request->own_answer);
    }
}

static void second_fire(struct rg_fleet_event *event)
{
    struct rg_fleet_request *request = RG_CONTAINER_OF(event, struct rg_fleet_request, second);
    struct rg_fleet_job *job = request->rank->job;
    if (request->second_answer != RG_FLEET_OK) {
        attempt_end(job, request->second_answer);
        (void)outcome_of(request->rank, request->second_answer, request->second_connection);
        return;
    }
    rg_fleet_cancel(job->wheel, &request->own);
    request->own_connection = request->second_connection;
    COUNT(job, lost);
    attempt_done(request, RG_FLEET_OK);
}

static void request_is_late(struct rg_fleet_request *request)
{
    struct rg_fleet_rank *rank = request->rank;
    if (rank->limit->limiter.state != RG_LIMITER_FREE || is_oracle(rank->job) ||
        request->retry.failures + 1 >= request->retry.policy.attempts_max ||
        !rg_hedge_allow(&rank->hedge, &rank->budget, request->in_time, rank->sent_count - 1)) {
        return;
    }
    request->retry.failures++;
    COUNT(rank->job, hedges);
    request->second_answer = ask(rank, &request->second, &request->second_connection);
}

static void late_fire(struct rg_fleet_event *event)
{
    struct rg_fleet_rank *rank = RG_CONTAINER_OF(event, struct rg_fleet_rank, late);
    while (!rg_list_empty(&rank->unanswered)) {
        struct rg_fleet_request *request = request_of(rank->unanswered.next);
        if (request->sent_ns + rank->hedge.delay_ns > now_of(rank->job)) {
            late_set(rank);
            return;
        }
        rg_list_remove(&request->node);
        request_is_late(request);
    }
}

/* Those that have not told anything yet are no records. */
static void others_add(const struct rg_fleet_rank *rank, struct rg_portion *portion)
{
    for (unsigned i = 0; i < FLEET_RANKS_PER_HOST; i++) {
        const struct rg_fleet_rank *other = &rank->host->ranks[i];
        if (other != rank && other->told.told_ns != 0) {
            rg_portion_add(portion, &other->told);
        }
    }
}

/* As bucket_meet in gcs/request/traffic.c does, for the reads. */
static void meet(struct rg_fleet_rank *rank)
{
    struct rg_fleet_limit *limit = rank->limit;
    uint64_t now_ns = now_of(rank->job);
    struct rg_portion portion;
    rg_portion_begin(&portion, rank->told.process);
    others_add(rank, &portion);
    struct rg_peer_side *own = &rank->told.sides[RG_PEER_READS];
    *own = rg_telling_side(&limit->limiter, !rg_list_empty(&limit->waiting), rank->met_ns);
    const struct rg_limiter_lesson lesson = rg_portion_lesson(&portion, RG_PEER_READS, own);
    (void)rg_limiter_learn(&limit->limiter, &lesson, now_ns);
    *own = rg_telling_side(&limit->limiter, !rg_list_empty(&limit->waiting), rank->met_ns);
    rank->told.told_ns = now_ns;
    rank->met_ns = now_ns;
    rank->budget.processes = FLEET_RANKS_PER_HOST;
}

static void meeting_fire(struct rg_fleet_event *event)
{
    struct rg_fleet_rank *rank = RG_CONTAINER_OF(event, struct rg_fleet_rank, meeting);
    meet(rank);
    rg_fleet_set(rank->job->wheel, &rank->meeting, now_of(rank->job) + RG_PEERS_INTERVAL_NS);
    limit_pump(rank->limit);
}

static void start_fire(struct rg_fleet_event *event)
{
    struct rg_fleet_rank *rank = RG_CONTAINER_OF(event, struct rg_fleet_rank, start);
    struct rg_fleet_limit *limit = rank->limit;
    rank->step_ns = now_of(rank->job);
    if (!limit->is_begun) {
        limit->is_begun = true;
        if (limit->ramp > 0) {
            const struct rg_rate_options options = {.ramp = limit->ramp};
            rg_rate_init(&limit->rate, &options, now_of(rank->job));
            limit->options.rate = &limit->rate;
        }
        rg_limiter_init(&limit->limiter, &limit->options, now_of(rank->job));
        if (is_oracle(rank->job)) {
            oracle_start(limit);
        }
    }
    if (rank->job->control == RG_FLEET_TOLD || rank->job->control == RG_FLEET_INFORMED) {
        meeting_fire(&rank->meeting);
    }
    for (unsigned i = 0; i < FLEET_WINDOW; i++) {
        request_new(&rank->requests[i]);
    }
}

void rg_fleet_limit_init(struct rg_fleet_limit *limit, struct rg_fleet_job *job, uint32_t ranks)
{
    limit->options.limit_max = FLEET_CONNECTIONS * ranks;
    limit->options.seed = rg_fleet_random(&job->random);
    uint32_t processes = is_limited(job) ? job->rank_count / ranks : 0;
    limit->options.job_gap_ns = rg_limiter_job_gap_ns(processes, 1, RG_RATE_RAMP_READS_PER_S);
    if (job->control == RG_FLEET_RAMP) {
        limit->ramp = (double)RG_RATE_RAMP_READS_PER_S * ranks / job->rank_count;
    }
    limit->job = job;
    limit->alarm.fire = alarm_fire;
    rg_list_init(&limit->waiting);
}

static void rank_init(struct rg_fleet_rank *rank)
{
    const struct rg_stall_options stall = {
        .p = RG_STALL_P,
        .rate = RG_STALL_RATE,
        .initial_ns = RG_STALL_INITIAL_NS,
        .min_ns = RG_STALL_MIN_NS,
        .max_ns = RG_FIRST_BYTE_TIMEOUT_DEFAULT_NS,
    };
    rg_stall_init(&rank->stall, &stall, RG_STALL_TIMEOUT_DEFAULT_NS);
    rg_retry_budget_init(&rank->retries);
    rg_list_init(&rank->unanswered);
    rank->budget.per_1000 = RG_HEDGE_PER_1000_DEFAULT;
    rank->late.fire = late_fire;
    rank->start.fire = start_fire;
    rank->meeting.fire = meeting_fire;
    for (unsigned i = 0; i < FLEET_WINDOW; i++) {
        rank->requests[i].rank = rank;
        rank->requests[i].own.fire = own_fire;
        rank->requests[i].second.fire = second_fire;
    }
}

void rg_fleet_rank_start(struct rg_fleet_rank *rank, struct rg_fleet_job *job,
                         struct rg_fleet_host *host, struct rg_fleet_limit *limit)
{
    rank->job = job;
    rank->host = host;
    rank->limit = limit;
    rank->told.process = (uintptr_t)rank;
    rank_init(rank);
    rg_fleet_set(job->wheel, &rank->start, rg_fleet_random(&job->random) % FLEET_START_NS);
}
