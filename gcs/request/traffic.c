/* See traffic.h. The gate comes first, then what is learned from answers, then hedges. */
#include "gcs/request/traffic.h"

#include "gcs/request/hedge.h"
#include "gcs/request/limiter.h"
#include "gcs/request/request.h"
#include "gcs/request/stall.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The share of a new body in the mean of their sizes: 1/8. */
#define BODY_MEAN_SHIFT 3

struct gate {
    struct rg_limiter limiter;
    struct rg_list waiting;
    struct rg_alarm alarm; /* of the next token */
    struct rg_traffic *traffic;
};

struct lane {
    struct rg_quantile heads, arrivals;
    struct rg_stall stall;
    struct rg_hedge hedge;
    struct rg_list unanswered; /* the one that was sent first comes first */
    uint32_t sent_count;       /* out, and without a head */
    struct rg_alarm alarm;     /* when the first of them is late */
    uint64_t body_mean;
    struct rg_traffic *traffic;
};

struct rg_traffic_bucket {
    char name[RG_BUCKET_NAME_SIZE_MAX + 1];
    uint32_t user_count;
    uint64_t used; /* rg_traffic.uses when it was looked up last; 0: free */
    struct gate reads, writes;
    struct lane lanes[RG_TRAFFIC_KIND_COUNT];
};

struct rg_traffic_leg {
    struct rg_exchange x;
    struct rg_request *request;
    struct rg_list node; /* in the list of free ones */
};

struct rg_traffic {
    struct rg_client_loop *client_loop;
    bool adapts, hedges;
    uint64_t hedge_size_max, first_byte_timeout_ns, stall_timeout_ns;
    struct rg_limiter_options reads, writes;
    struct rg_hedge_budget budget;
    uint64_t uses;
    struct rg_traffic_bucket *last; /* looked up last */
    struct rg_list free_legs;
    struct rg_traffic_leg legs[RG_TRAFFIC_LEGS_MAX];
    struct rg_traffic_bucket buckets[RG_TRAFFIC_BUCKETS_MAX];
};

static struct rg_loop *loop_of(const struct rg_traffic *traffic)
{
    return traffic->client_loop->loop;
}

static struct rg_traffic *traffic_of(const struct rg_request *request)
{
    return request->client_loop->traffic;
}

static struct lane *lane_of(const struct rg_request *request)
{
    return &request->passage.bucket->lanes[request->ops->traffic];
}

static struct gate *gate_of(const struct rg_request *request)
{
    struct rg_traffic_bucket *bucket = request->passage.bucket;
    return request->ops->traffic == RG_TRAFFIC_WRITE ? &bucket->writes : &bucket->reads;
}

static struct rg_request *request_of(struct rg_list *node)
{
    return RG_CONTAINER_OF(node, struct rg_request, passage.node);
}

static void gate_alarm_fire(struct rg_alarm *alarm);
static void lane_alarm_fire(struct rg_alarm *alarm);

static void gate_open(struct rg_traffic *traffic, struct gate *gate,
                      const struct rg_limiter_options *options)
{
    gate->traffic = traffic;
    rg_limiter_init(&gate->limiter, options, loop_of(traffic)->now_ns);
    rg_list_init(&gate->waiting);
    rg_alarm_init(&gate->alarm, gate_alarm_fire);
}

static void lane_open(struct rg_traffic *traffic, struct lane *lane)
{
    const struct rg_stall_options options = {
        .p = RG_STALL_P,
        .rate = RG_STALL_RATE,
        .initial_ns = RG_STALL_INITIAL_NS,
        .min_ns = RG_STALL_MIN_NS,
        .max_ns = traffic->first_byte_timeout_ns,
    };
    *lane = (struct lane){.traffic = traffic};
    rg_stall_init(&lane->stall, &options, traffic->stall_timeout_ns);
    rg_list_init(&lane->unanswered);
    rg_alarm_init(&lane->alarm, lane_alarm_fire);
}

static void bucket_close(struct rg_traffic *traffic, struct rg_traffic_bucket *bucket)
{
    if (bucket->used == 0) {
        return;
    }
    rg_loop_cancel_alarm(loop_of(traffic), &bucket->reads.alarm);
    rg_loop_cancel_alarm(loop_of(traffic), &bucket->writes.alarm);
    for (unsigned kind = 0; kind < RG_TRAFFIC_KIND_COUNT; kind++) {
        rg_loop_cancel_alarm(loop_of(traffic), &bucket->lanes[kind].alarm);
    }
}

static void bucket_open(struct rg_traffic *traffic, struct rg_traffic_bucket *bucket,
                        const char *name)
{
    bucket_close(traffic, bucket);
    strcpy(bucket->name, name);
    gate_open(traffic, &bucket->reads, &traffic->reads);
    gate_open(traffic, &bucket->writes, &traffic->writes);
    for (unsigned kind = 0; kind < RG_TRAFFIC_KIND_COUNT; kind++) {
        lane_open(traffic, &bucket->lanes[kind]);
    }
}

/* The one of that name; else a free one, or that which nobody uses and was used the longest time
 * ago, or, where there is none, any. */
static struct rg_traffic_bucket *bucket_find(struct rg_traffic *traffic, const char *name)
{
    struct rg_traffic_bucket *oldest = NULL;
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        struct rg_traffic_bucket *bucket = &traffic->buckets[i];
        if (bucket->used != 0 && strcmp(bucket->name, name) == 0) {
            return bucket;
        }
        if (bucket->user_count == 0 && (oldest == NULL || bucket->used < oldest->used)) {
            oldest = bucket;
        }
    }
    if (oldest == NULL) {
        return &traffic->buckets[0];
    }
    bucket_open(traffic, oldest, name);
    return oldest;
}

static void bucket_join(struct rg_request *request)
{
    struct rg_traffic *traffic = traffic_of(request);
    struct rg_traffic_bucket *bucket = traffic->last;
    if (bucket == NULL || strcmp(bucket->name, request->bucket) != 0) {
        bucket = bucket_find(traffic, request->bucket);
        traffic->last = bucket;
    }
    bucket->used = ++traffic->uses;
    bucket->user_count++;
    request->passage.bucket = bucket;
}

void rg_traffic_forget(struct rg_request *request)
{
    struct rg_passage *passage = &request->passage;
    RG_ASSERT(request->state == RG_REQUEST_DONE && passage->leg == NULL);
    if (passage->bucket != NULL) {
        RG_ASSERT(passage->bucket->user_count > 0);
        passage->bucket->user_count--;
        passage->bucket = NULL;
    }
}

/* The tightest limit in force, for the metrics; 0: none. */
static void limit_publish(struct rg_traffic *traffic)
{
    uint32_t tightest = 0;
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        const struct rg_traffic_bucket *bucket = &traffic->buckets[i];
        const struct gate *gates[] = {&bucket->reads, &bucket->writes};
        for (unsigned n = 0; n < RG_ARRAY_LEN(gates) && bucket->used != 0; n++) {
            uint32_t limit = rg_limiter_limit(&gates[n]->limiter);
            if (gates[n]->limiter.limited && (tightest == 0 || limit < tightest)) {
                tightest = limit;
            }
        }
    }
    rg_metric_store(&loop_of(traffic)->metrics.concurrency_limit, tightest);
}

static void limit_cut(struct rg_traffic *traffic)
{
    rg_metric_add(&loop_of(traffic)->metrics.backoffs, 1);
    limit_publish(traffic);
}

/* The request has been counted by its limiter. */
static void admit(struct rg_request *request)
{
    const struct rg_traffic *traffic = traffic_of(request);
    rg_metric_add(&request->client_loop->loop->metrics.in_flight, 1);
    request->x.head_timeout_ns = 0;
    request->x.stall_timeout_ns = 0;
    if (traffic->adapts && request->ops->traffic != RG_TRAFFIC_WRITE && request->idempotent) {
        const struct rg_stall *stall = &lane_of(request)->stall;
        request->x.head_timeout_ns = rg_stall_head_ns(stall);
        request->x.stall_timeout_ns = rg_stall_silence_ns(stall);
    }
}

/* The first that waits is tried again when there is a token for it, or when another one leaves. */
static void gate_alarm_set(struct gate *gate)
{
    uint64_t next_ns = rg_limiter_next_ns(&gate->limiter, loop_of(gate->traffic)->now_ns);
    if (next_ns != UINT64_MAX) {
        rg_loop_set_alarm(loop_of(gate->traffic), &gate->alarm, next_ns);
    }
}

static void gate_pump(struct gate *gate)
{
    uint64_t now_ns = loop_of(gate->traffic)->now_ns;
    while (!rg_list_empty(&gate->waiting) && rg_limiter_enter(&gate->limiter, now_ns)) {
        struct rg_request *request = request_of(rg_list_pop_front(&gate->waiting));
        admit(request);
        rg_request_admitted(request);
    }
    if (!rg_list_empty(&gate->waiting)) {
        gate_alarm_set(gate);
    }
}

static void gate_alarm_fire(struct rg_alarm *alarm)
{
    gate_pump(RG_CONTAINER_OF(alarm, struct gate, alarm));
}

bool rg_traffic_enter(struct rg_request *request)
{
    struct rg_passage *passage = &request->passage;
    struct rg_traffic *traffic = traffic_of(request);
    RG_ASSERT(!rg_list_linked(&passage->node) && passage->leg == NULL);
    if (passage->bucket == NULL) {
        bucket_join(request);
    }
    passage->sent_ns = 0;
    struct gate *gate = gate_of(request);
    if (request->x.holds_memory) {
        /* Others may wait for that memory, those inside too. */
        rg_limiter_enter_always(&gate->limiter);
        admit(request);
        return true;
    }
    if (rg_list_empty(&gate->waiting) &&
        rg_limiter_enter(&gate->limiter, loop_of(traffic)->now_ns)) {
        admit(request);
        return true;
    }
    rg_metric_add(&loop_of(traffic)->metrics.limited, 1);
    if (rg_list_empty(&gate->waiting)) {
        gate_alarm_set(gate);
    }
    rg_list_push_back(&gate->waiting, &passage->node);
    return false;
}

void rg_traffic_withdraw(struct rg_request *request)
{
    RG_ASSERT(request->state == RG_REQUEST_ADMISSION);
    rg_list_remove(&request->passage.node);
}

/* It is no longer among those that a head is awaited for. */
static void unanswered_end(struct rg_request *request)
{
    struct rg_passage *passage = &request->passage;
    rg_list_remove(&passage->node);
}

static void body_note(struct lane *lane, uint64_t size)
{
    lane->body_mean -= lane->body_mean >> BODY_MEAN_SHIFT;
    lane->body_mean += size >> BODY_MEAN_SHIFT;
}

void rg_traffic_leave(struct rg_request *request)
{
    struct rg_passage *passage = &request->passage;
    const struct rg_exchange *x = &request->x;
    struct gate *gate = gate_of(request);
    RG_ASSERT(request->state == RG_REQUEST_POOL || request->state == RG_REQUEST_OUT);
    rg_traffic_unhedge(request);
    if (passage->sent_ns != 0 && passage->arrived_ns == 0) {
        unanswered_end(request);
        lane_of(request)->sent_count--;
        if (x->status == RG_STATUS_STALLED) {
            rg_stall_expired(&lane_of(request)->stall);
        }
    }
    enum rg_limiter_outcome outcome =
        x->status == RG_STATUS_OK ? RG_LIMITER_ANSWERED : RG_LIMITER_BROKEN;
    if (x->http_status == 429 || x->http_status == 503) {
        outcome = RG_LIMITER_THROTTLED;
    } else if (outcome == RG_LIMITER_ANSWERED) {
        body_note(lane_of(request), x->body_size);
    }
    rg_metric_add(&request->client_loop->loop->metrics.in_flight, UINT64_MAX);
    bool was_limited = gate->limiter.limited;
    if (!gate->traffic->adapts && outcome == RG_LIMITER_THROTTLED) {
        outcome = RG_LIMITER_BROKEN;
    }
    if (rg_limiter_leave(&gate->limiter, outcome, passage->sent_ns,
                         loop_of(gate->traffic)->now_ns)) {
        limit_cut(gate->traffic);
    } else if (was_limited) {
        limit_publish(gate->traffic);
    }
    if (!rg_list_empty(&gate->waiting)) {
        gate_pump(gate);
    }
}

void rg_traffic_sent(struct rg_request *request)
{
    struct rg_passage *passage = &request->passage;
    struct rg_traffic *traffic = traffic_of(request);
    struct lane *lane = lane_of(request);
    passage->sent_ns = loop_of(traffic)->now_ns;
    passage->arrived_ns = 0;
    passage->in_time = lane->hedge.in_time;
    lane->sent_count++;
    rg_hedge_earn(&traffic->budget);
    if (!traffic->hedges || request->ops->traffic != RG_TRAFFIC_MEDIA) {
        return;
    }
    rg_list_push_back(&lane->unanswered, &passage->node);
    if (lane->hedge.delay_ns != 0 && !rg_timer_armed(&lane->alarm.timer)) {
        const struct rg_request *first = request_of(lane->unanswered.next);
        rg_loop_set_alarm(loop_of(traffic), &lane->alarm,
                          first->passage.sent_ns + lane->hedge.delay_ns);
    }
}

void rg_traffic_answered(struct rg_request *request)
{
    struct rg_passage *passage = &request->passage;
    struct rg_traffic *traffic = traffic_of(request);
    struct lane *lane = lane_of(request);
    uint64_t now_ns = loop_of(traffic)->now_ns;
    uint64_t elapsed_ns = now_ns - passage->sent_ns;
    rg_traffic_unhedge(request);
    unanswered_end(request);
    lane->sent_count--;
    passage->arrived_ns = now_ns;
    rg_quantile_add(&lane->heads, elapsed_ns);
    rg_stall_head(&lane->stall, elapsed_ns, &lane->heads);
    rg_hedge_answer(&lane->hedge, elapsed_ns, &lane->heads);
    if (traffic->adapts && rg_limiter_latency(&gate_of(request)->limiter, elapsed_ns, now_ns)) {
        limit_cut(traffic);
    }
}

void rg_traffic_arrived(struct rg_request *request)
{
    struct rg_passage *passage = &request->passage;
    uint64_t now_ns = request->client_loop->loop->now_ns;
    uint64_t silence_ns = now_ns - passage->arrived_ns;
    if (silence_ns == 0 || request->ops->traffic != RG_TRAFFIC_MEDIA) {
        return;
    }
    struct lane *lane = lane_of(request);
    passage->arrived_ns = now_ns;
    rg_quantile_add(&lane->arrivals, silence_ns);
    rg_stall_arrival(&lane->stall, &lane->arrivals);
}

static void leg_free(struct rg_traffic_leg *leg)
{
    leg->request->passage.leg = NULL;
    rg_list_push_front(&traffic_of(leg->request)->free_legs, &leg->node);
}

static struct rg_traffic_leg *leg_of(struct rg_exchange *x)
{
    return RG_CONTAINER_OF(x, struct rg_traffic_leg, x);
}

static int leg_encode(struct rg_exchange *x, struct rg_h1_encoder *encoder)
{
    struct rg_request *request = leg_of(x)->request;
    return request->ops->encode(request, encoder);
}

/* The request's own exchange goes on with the leg's connection, and the leg with its. */
static void legs_trade(struct rg_request *request)
{
    if (request->started_ns == 0) {
        request->started_ns = request->x.started_ns;
    }
    rg_exchange_trade(&request->x, &request->passage.leg->x);
}

static enum rg_body_action leg_head(struct rg_exchange *x, const struct rg_h1_head *head)
{
    struct rg_request *request = leg_of(x)->request;
    if (head->status < 200 || head->status >= 300) {
        /* The first request may yet do better. */
        x->body_max = RG_ERROR_BODY_SIZE_MAX;
        return RG_BODY_DISCARD;
    }
    legs_trade(request);
    rg_metric_add(&request->client_loop->loop->metrics.hedge_wins, 1);
    return request->x.ops->head(&request->x, head);
}

static void leg_done(struct rg_exchange *x)
{
    struct rg_traffic_leg *leg = leg_of(x);
    leg->request->attempts += x->started_ns != 0 ? 1 : 0;
    rg_lease_release(x->lease);
    leg_free(leg);
}

static const struct rg_exchange_ops leg_ops = {
    .encode = leg_encode,
    .head = leg_head,
    .done = leg_done,
};

static uint64_t body_expected(const struct rg_request *request)
{
    bool is_range = request->ops == &rg_get_ops && request->get.length != RG_WHOLE;
    return is_range ? request->get.length - request->get.received : lane_of(request)->body_mean;
}

static void leg_start(struct rg_request *request, struct rg_traffic_leg *leg)
{
    struct rg_traffic *traffic = traffic_of(request);
    leg->request = request;
    leg->x = (struct rg_exchange){
        .ops = &leg_ops,
        .urgent = true,
        .avoid = request->x.conn,
        .head_timeout_ns = request->x.head_timeout_ns,
        .stall_timeout_ns = request->x.stall_timeout_ns,
    };
    request->passage.leg = leg;
    request->retry.failures++;
    rg_metric_add(&loop_of(traffic)->metrics.hedges, 1);
    rg_pool_submit(request->client_loop->pool, &leg->x);
}

/* The request is late. */
static void hedge(struct rg_request *request)
{
    struct rg_traffic *traffic = traffic_of(request);
    struct lane *lane = lane_of(request);
    RG_ASSERT(request->x.conn != NULL && request->passage.leg == NULL);
    uint32_t attempts = request->retry.failures + 1;
    if (body_expected(request) > traffic->hedge_size_max || rg_list_empty(&traffic->free_legs) ||
        attempts >= request->retry.policy.attempts_max || request->x.holds_memory ||
        request->client_loop->closing ||
        !rg_hedge_allow(&lane->hedge, &traffic->budget, request->passage.in_time,
                        lane->sent_count - 1)) {
        return;
    }
    struct rg_list *node = rg_list_pop_front(&traffic->free_legs);
    leg_start(request, RG_CONTAINER_OF(node, struct rg_traffic_leg, node));
}

static void lane_alarm_fire(struct rg_alarm *alarm)
{
    struct lane *lane = RG_CONTAINER_OF(alarm, struct lane, alarm);
    struct rg_loop *loop = loop_of(lane->traffic);
    while (!rg_list_empty(&lane->unanswered)) {
        struct rg_request *request = request_of(lane->unanswered.next);
        uint64_t late_ns = request->passage.sent_ns + lane->hedge.delay_ns;
        if (late_ns > loop->now_ns) {
            rg_loop_set_alarm(loop, alarm, late_ns);
            return;
        }
        rg_list_remove(&request->passage.node);
        hedge(request);
    }
}

void rg_traffic_unhedge(struct rg_request *request)
{
    struct rg_traffic_leg *leg = request->passage.leg;
    if (leg != NULL) {
        rg_pool_cancel(request->client_loop->pool, &leg->x, RG_STATUS_CANCELLED);
        RG_ASSERT(request->passage.leg == NULL);
    }
}

bool rg_traffic_goes_on(struct rg_request *request)
{
    struct rg_traffic_leg *leg = request->passage.leg;
    enum rg_status status = request->x.status;
    if (leg == NULL || leg->x.conn == NULL || leg->x.http_status != 0 ||
        (status != RG_STATUS_CONNECTION_LOST && status != RG_STATUS_STALLED)) {
        return false;
    }
    if (status == RG_STATUS_STALLED) {
        rg_stall_expired(&lane_of(request)->stall);
    }
    request->attempts++;
    legs_trade(request);
    leg_free(leg);
    return true;
}

static void rates_set(struct rg_traffic *traffic)
{
    const struct rg_client *client = traffic->client_loop->client;
    const struct rg_client_options *options = &client->options;
    const struct rg_endpoint *endpoint = &client->endpoint;
    bool is_service =
        !endpoint->is_emulator && strcasecmp(endpoint->host, RG_ENDPOINT_SERVICE_HOST) == 0;
    double reads = is_service ? RG_LIMITER_READS_PER_S : 0;
    double writes = is_service ? RG_LIMITER_WRITES_PER_S : 0;
    reads = options->reads_per_s != 0 ? options->reads_per_s : reads;
    writes = options->writes_per_s != 0 ? options->writes_per_s : writes;
    if (!options->no_rate_ceiling) {
        traffic->reads.rate = reads / client->loop_count;
        traffic->writes.rate = writes / client->loop_count;
    }
}

int rg_traffic_create(struct rg_traffic **out_traffic, struct rg_client_loop *client_loop)
{
    struct rg_traffic *traffic = calloc(1, sizeof(*traffic));
    if (traffic == NULL) {
        return -ENOMEM;
    }
    const struct rg_client_options *options = &client_loop->client->options;
    uint32_t loop_count = client_loop->client->loop_count;
    uint32_t connections = (options->connections_max + loop_count - 1) / loop_count;
    traffic->client_loop = client_loop;
    traffic->adapts = !options->no_adapting;
    traffic->budget.per_1000 = options->hedges_per_1000;
    traffic->hedges = !options->no_hedging;
    traffic->hedge_size_max = options->hedge_size_max;
    traffic->first_byte_timeout_ns = options->first_byte_timeout_ns;
    traffic->stall_timeout_ns = options->stall_timeout_ns;
    traffic->reads.limit_max = traffic->writes.limit_max = connections;
    rates_set(traffic);
    rg_list_init(&traffic->free_legs);
    for (unsigned i = 0; i < RG_TRAFFIC_LEGS_MAX; i++) {
        rg_list_push_back(&traffic->free_legs, &traffic->legs[i].node);
    }
    *out_traffic = traffic;
    return 0;
}

void rg_traffic_close(struct rg_traffic *traffic)
{
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        bucket_close(traffic, &traffic->buckets[i]);
    }
}

void rg_traffic_destroy(struct rg_traffic *traffic)
{
    free(traffic);
}
