/* See traffic.h. First who is admitted, then what is learned from answers, then hedges. */
#include "gcs/request/traffic.h"

#include "gcs/request/client_loop.h"
#include "gcs/request/hedge.h"
#include "gcs/request/limiter.h"
#include "gcs/request/portion.h"
#include "gcs/request/rates.h"
#include "gcs/request/request_type.h"
#include "gcs/request/stall.h"
#include "gcs/request/telling.h"
#include "http/answer.h"
#include "runtime/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The share of a new body in the mean of their sizes: 1/8. */
#define BODY_MEAN_SHIFT 3

/* Who may begin: the reads, or the writes, of a bucket. */
struct limit {
    struct rg_limiter limiter;
    struct rg_list waiting;
    uint32_t waiting_count;
    struct rg_alarm alarm; /* of the next token */
    struct rg_traffic *traffic;
    bool is_held; /* gets among those that wait are counted in rg_stages.held */
};

/* What is known of one kind of request to a bucket. */
struct kind {
    struct rg_quantile heads, arrivals;
    struct rg_stall stall;
    struct rg_hedge hedge;
    struct rg_list unanswered; /* the one that was sent first comes first */
    uint32_t sent_count;       /* out, and without a head */
    struct rg_alarm alarm;     /* when the first of them is late */
    uint64_t body_mean;
    bool informed; /* by others of the host, of what is usual */
    struct rg_traffic *traffic;
};

struct rg_traffic_bucket {
    char name[RG_BUCKET_NAME_SIZE_MAX + 1];
    uint32_t user_count;
    uint64_t used; /* rg_traffic.uses when it was looked up last; 0: free */
    struct limit reads, writes;
    struct rg_rates_bucket *rates; /* of the client; NULL: it has none */
    struct kind kinds[RG_TRAFFIC_KIND_COUNT];
    uint64_t hash;   /* what it is called among the loops of the host */
    uint32_t record; /* of rg_peers */
    uint64_t told;   /* `used` when it was told last; 0: it has changed since then */
    struct rg_portion portion;
    struct rg_tally tally;
};

struct rg_traffic_hedge {
    struct rg_exchange x;
    struct rg_request *request;
    struct rg_list node; /* in the list of free ones */
};

struct rg_traffic {
    void (*admitted)(struct rg_request *request); /* it waited, and may go on */
    struct rg_client_loop *client_loop;
    bool adapts, hedges;
    uint64_t hedge_size_max, first_byte_timeout_ns, stall_timeout_ns;
    uint32_t limit_max; /* of the reads, and of the writes, of a bucket */
    struct rg_hedge_budget budget;
    struct rg_alarm peers_alarm; /* while requests are out: others of the host are looked at */
    uint64_t uses;
    uint64_t limit_count;           /* opened so far */
    struct rg_traffic_bucket *last; /* looked up last */
    struct rg_list free_hedges;
    struct rg_traffic_hedge hedge_slots[RG_TRAFFIC_HEDGES_MAX];
    struct rg_traffic_bucket buckets[RG_TRAFFIC_BUCKETS_MAX];
};

static struct rg_loop *loop_of(const struct rg_traffic *traffic)
{
    return traffic->client_loop->loop;
}

static struct rg_peers *peers_of(const struct rg_traffic *traffic)
{
    return &traffic->client_loop->peers;
}

static struct rg_traffic *traffic_of(const struct rg_request *request)
{
    return request->client_loop->traffic;
}

static struct kind *kind_of(const struct rg_request *request)
{
    return &request->admission.bucket->kinds[request->ops->traffic];
}

static struct limit *limit_of(const struct rg_request *request)
{
    struct rg_traffic_bucket *bucket = request->admission.bucket;
    return request->ops->traffic == RG_TRAFFIC_WRITE ? &bucket->writes : &bucket->reads;
}

static struct rg_request *request_of(struct rg_list *node)
{
    return RG_CONTAINER_OF(node, struct rg_request, admission.node);
}

static void limit_alarm_fire(struct rg_alarm *alarm);
static void kind_alarm_fire(struct rg_alarm *alarm);
static void peers_meet(struct rg_traffic *traffic, struct rg_traffic_bucket *only);
static void peers_wake(struct rg_traffic *traffic);

/* per_s: what a new bucket takes. */
static void limit_open(struct rg_traffic *traffic, struct limit *limit, struct rg_rate *rate,
                       double per_s)
{
    const struct rg_client *client = traffic->client_loop->client;
    uint32_t processes = traffic->adapts ? client->options.job_processes : 0;
    const struct rg_limiter_options options = {
        .limit_max = traffic->limit_max,
        .rate = rate,
        .job_gap_ns = rg_limiter_job_gap_ns(processes, client->loop_count, per_s),
        /* Unlike those of other processes by the time, which a simulation repeats. */
        .seed = loop_of(traffic)->now_ns ^ ((uint64_t)loop_of(traffic)->index << 56) ^
                (++traffic->limit_count << 48),
    };
    limit->traffic = traffic;
    rg_limiter_init(&limit->limiter, &options, loop_of(traffic)->now_ns);
    rg_list_init(&limit->waiting);
    rg_alarm_init(&limit->alarm, limit_alarm_fire);
}

static void kind_open(struct rg_traffic *traffic, struct kind *kind)
{
    const struct rg_stall_options options = {
        .p = RG_STALL_P,
        .rate = RG_STALL_RATE,
        .initial_ns = RG_STALL_INITIAL_NS,
        .min_ns = RG_STALL_MIN_NS,
        .max_ns = traffic->first_byte_timeout_ns,
    };
    *kind = (struct kind){.traffic = traffic};
    rg_stall_init(&kind->stall, &options, traffic->stall_timeout_ns);
    rg_list_init(&kind->unanswered);
    rg_alarm_init(&kind->alarm, kind_alarm_fire);
}

static void bucket_close(struct rg_traffic *traffic, struct rg_traffic_bucket *bucket)
{
    if (bucket->used == 0) {
        return;
    }
    rg_loop_cancel_alarm(loop_of(traffic), &bucket->reads.alarm);
    rg_loop_cancel_alarm(loop_of(traffic), &bucket->writes.alarm);
    for (unsigned kind = 0; kind < RG_TRAFFIC_KIND_COUNT; kind++) {
        rg_loop_cancel_alarm(loop_of(traffic), &bucket->kinds[kind].alarm);
    }
    rg_peers_release(peers_of(traffic), bucket->record);
}

static void bucket_open(struct rg_traffic *traffic, struct rg_traffic_bucket *bucket,
                        const char *name)
{
    struct rg_rates *rates = traffic->client_loop->client->rates;
    bucket_close(traffic, bucket);
    strcpy(bucket->name, name);
    if (bucket->rates != NULL) {
        rg_rates_leave(rates, bucket->rates);
    }
    bucket->rates = rates != NULL ? rg_rates_join(rates, name, loop_of(traffic)->now_ns) : NULL;
    limit_open(traffic, &bucket->reads, rates != NULL ? rg_rates_reads(bucket->rates) : NULL,
               RG_RATE_RAMP_READS_PER_S);
    limit_open(traffic, &bucket->writes, rates != NULL ? rg_rates_writes(bucket->rates) : NULL,
               RG_RATE_RAMP_WRITES_PER_S);
    for (unsigned kind = 0; kind < RG_TRAFFIC_KIND_COUNT; kind++) {
        kind_open(traffic, &bucket->kinds[kind]);
    }
    bucket->hash = rg_peers_hash(peers_of(traffic), name);
    bucket->record = RG_PEER_NONE;
    bucket->tally = (struct rg_tally){.since_ns = loop_of(traffic)->now_ns};
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
    oldest->used = ++traffic->uses;
    peers_meet(traffic, oldest);
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
    if (bucket->user_count++ == 0) {
        peers_wake(traffic);
    }
    request->admission.bucket = bucket;
}

void rg_traffic_forget(struct rg_request *request)
{
    struct rg_admission *admission = &request->admission;
    RG_ASSERT(request->state == RG_REQUEST_DONE && admission->hedge == NULL);
    if (admission->bucket != NULL) {
        RG_ASSERT(admission->bucket->user_count > 0);
        if (--admission->bucket->user_count == 0) {
            /* That nothing is out any more is told once, when the alarm fires. */
            admission->bucket->told = 0;
        }
        admission->bucket = NULL;
    }
}

/* Whoever waits is let in sometime: when another one leaves, or by the alarm of the next token,
 * which may have expired and be behind the alarm that runs. */
static bool limit_invariants(const struct limit *limit)
{
    bool waits = !rg_list_empty(&limit->waiting);
    return waits == (limit->waiting_count > 0) &&
           (!waits || limit->limiter.in_flight > 0 || rg_list_linked(&limit->alarm.timer.node));
}

/* Those whose head is awaited were sent, in this order, and are counted. Each may have a hedge. */
static bool kind_invariants(const struct kind *kind)
{
    uint32_t count = 0;
    uint64_t before_ns = 0;
    for (struct rg_list *node = kind->unanswered.next; node != &kind->unanswered;
         node = node->next) {
        const struct rg_admission *admission = &request_of(node)->admission;
        if (admission->sent_ns < before_ns || admission->arrived_ns != 0 ||
            admission->hedge != NULL) {
            return false;
        }
        before_ns = admission->sent_ns;
        count++;
    }
    return count <= kind->sent_count;
}

/* Checks the parts of traffic that this request takes part in. */
static bool invariants(const struct rg_request *request)
{
    const struct rg_traffic_bucket *bucket = request->admission.bucket;
    const struct rg_traffic_hedge *hedge = request->admission.hedge;
    return bucket->used != 0 && bucket->user_count > 0 && limit_invariants(limit_of(request)) &&
           kind_invariants(kind_of(request)) && (hedge == NULL || hedge->request == request);
}

/* The tightest limit in force, for the metrics; 0: none. */
static void limit_publish(struct rg_traffic *traffic)
{
    uint32_t tightest = 0;
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        const struct rg_traffic_bucket *bucket = &traffic->buckets[i];
        const struct limit *limits[] = {&bucket->reads, &bucket->writes};
        for (unsigned n = 0; n < RG_ARRAY_LEN(limits) && bucket->used != 0; n++) {
            uint32_t limit = rg_limiter_limit(&limits[n]->limiter);
            if (rg_limiter_is_paced(&limits[n]->limiter, loop_of(traffic)->now_ns) &&
                (tightest == 0 || limit < tightest)) {
                tightest = limit;
            }
        }
    }
    rg_metric_store(&loop_of(traffic)->metrics.concurrency_limit, tightest);
}

static void limit_cut(struct rg_traffic_bucket *bucket, struct limit *limit, const char *cause)
{
    struct rg_loop *loop = loop_of(limit->traffic);
    rg_metric_add(&loop->metrics.backoffs, 1);
    limit_publish(limit->traffic);
    rg_log_some(RG_LOG_WARN, "gs://%s: %s of loop %u are slowed down to %.1f a second: %s",
                bucket->name, limit == &bucket->writes ? "writes" : "reads", loop->index,
                (double)RG_NS_PER_S / rg_limiter_gap_ns(&limit->limiter), cause);
}

/* A rate that is needed grows again until it is gone. */
static void limit_raised(const struct rg_request *request)
{
    const struct rg_limiter *limiter = &limit_of(request)->limiter;
    limit_publish(traffic_of(request));
    if (limiter->state == RG_LIMITER_FREE) {
        rg_log_some(RG_LOG_INFO, "gs://%s: loop %u is no longer slowed down", request->bucket,
                    request->client_loop->loop->index);
    }
}

/* The request has been counted by its limiter. */
static void admit(struct rg_request *request)
{
    const struct rg_traffic *traffic = traffic_of(request);
    rg_metric_add(&request->client_loop->loop->metrics.in_flight, 1);
    request->x.head_timeout_ns = 0;
    request->x.stall_timeout_ns = 0;
    if (traffic->adapts && request->ops->traffic != RG_TRAFFIC_WRITE && request->idempotent) {
        const struct rg_stall *stall = &kind_of(request)->stall;
        request->x.head_timeout_ns = rg_stall_head_ns(stall);
        request->x.stall_timeout_ns = rg_stall_silence_ns(stall);
    }
}

/* The first that waits is tried again when there is a token for it, or when another one leaves. */
static void limit_alarm_set(struct limit *limit)
{
    uint64_t next_ns = rg_limiter_next_ns(&limit->limiter, loop_of(limit->traffic)->now_ns);
    if (next_ns != UINT64_MAX) {
        rg_loop_set_alarm(loop_of(limit->traffic), &limit->alarm, next_ns);
    }
}

/* One that waits is counted, or no more. */
static void held_add(const struct limit *limit, const struct rg_request *request, int number)
{
    if (limit->is_held && request->ops->operation == RG_VERB_GET) {
        loop_of(limit->traffic)->stages.held += (uint32_t)number;
    }
}

/* Whether they wait for a rate may have changed; if not, they wait for others to end. */
static void held_judge(struct limit *limit)
{
    bool is_held = limit->limiter.state == RG_LIMITER_PACED || limit->limiter.slot_ns != 0;
    struct rg_list *node = is_held != limit->is_held ? limit->waiting.next : &limit->waiting;
    for (limit->is_held = true; node != &limit->waiting; node = node->next) {
        held_add(limit, request_of(node), is_held ? 1 : -1);
    }
    limit->is_held = is_held;
}

static void limit_pump(struct limit *limit)
{
    uint64_t now_ns = loop_of(limit->traffic)->now_ns;
    while (!rg_list_empty(&limit->waiting) && rg_limiter_enter(&limit->limiter, now_ns)) {
        struct rg_request *request = request_of(rg_list_pop_front(&limit->waiting));
        limit->waiting_count--;
        held_add(limit, request, -1);
        admit(request);
        limit->traffic->admitted(request);
    }
    held_judge(limit);
    if (!rg_list_empty(&limit->waiting)) {
        limit_alarm_set(limit);
    }
}

static void limit_alarm_fire(struct rg_alarm *alarm)
{
    limit_pump(RG_CONTAINER_OF(alarm, struct limit, alarm));
}

static struct rg_peer_side side_tell(const struct limit *limit, uint64_t since_ns)
{
    return rg_telling_side(&limit->limiter, !rg_list_empty(&limit->waiting), since_ns);
}

static void side_learn(struct rg_traffic_bucket *bucket, unsigned side, uint64_t since_ns)
{
    struct limit *limit = side == RG_PEER_WRITES ? &bucket->writes : &bucket->reads;
    const struct rg_peer_side own = side_tell(limit, since_ns);
    bool was_paced = limit->limiter.state == RG_LIMITER_PACED;
    struct rg_limiter_lesson lesson = rg_portion_lesson(&bucket->portion, side, &own);
    if (rg_limiter_learn(&limit->limiter, &lesson, loop_of(limit->traffic)->now_ns)) {
        limit_cut(bucket, limit, "HTTP 503 to several processes of this host");
    } else if (!was_paced && limit->limiter.state == RG_LIMITER_PACED) {
        rg_log_some(RG_LOG_INFO,
                    "gs://%s: loop %u keeps to %.1f requests a second: others of the %u processes "
                    "of this host that use the bucket are slowed down",
                    bucket->name, loop_of(limit->traffic)->index,
                    (double)RG_NS_PER_S / rg_limiter_gap_ns(&limit->limiter),
                    rg_portion_processes(&bucket->portion));
    }
}

/* Once, while nothing is known here. */
static void kind_learn(struct rg_traffic_bucket *bucket, unsigned number)
{
    struct kind *kind = &bucket->kinds[number];
    uint64_t median_ns, late_ns, silence_ns;
    if (kind->informed || kind->heads.total >= RG_PORTION_HEADS_MIN ||
        !rg_portion_latency(&bucket->portion, number, &median_ns, &late_ns, &silence_ns)) {
        return;
    }
    kind->informed = true;
    rg_hedge_learn(&kind->hedge, median_ns, late_ns);
    rg_stall_learn(&kind->stall, late_ns, silence_ns);
}

static void bucket_tell(struct rg_traffic_bucket *bucket, uint64_t since_ns)
{
    struct rg_traffic *traffic = bucket->reads.traffic;
    struct rg_peer peer = {.bucket = bucket->hash};
    peer.sides[RG_PEER_READS] = side_tell(&bucket->reads, since_ns);
    peer.sides[RG_PEER_WRITES] = side_tell(&bucket->writes, since_ns);
    for (unsigned side = 0; side < RG_PEER_SIDE_COUNT; side++) {
        peer.sides[side].loops = rg_portion_loops(&bucket->portion, side);
    }
    for (unsigned kind = 0; kind < RG_TRAFFIC_KIND_COUNT; kind++) {
        peer.kinds[kind] =
            rg_telling_kind(&bucket->kinds[kind].heads, &bucket->kinds[kind].arrivals);
    }
    bucket->record =
        rg_peers_tell(peers_of(traffic), bucket->record, &peer, loop_of(traffic)->now_ns);
}

/* People are told, too. */
static void bucket_account(struct rg_traffic_bucket *bucket)
{
    struct rg_traffic *traffic = bucket->reads.traffic;
    const struct rg_limiter *limiters[] = {&bucket->reads.limiter, &bucket->writes.limiter};
    const struct rg_quantile *media = &bucket->kinds[RG_TRAFFIC_MEDIA].heads;
    const struct rg_quantile *meta = &bucket->kinds[RG_TRAFFIC_META].heads;
    struct rg_account account = {
        .loop = loop_of(traffic)->index,
        .waiting = bucket->reads.waiting_count + bucket->writes.waiting_count,
    };
    rg_telling_account(&account, bucket->name, &bucket->tally, loop_of(traffic)->now_ns);
    rg_telling_limits(&account, limiters, RG_ARRAY_LEN(limiters));
    rg_telling_heads(&account, media->total > 0 ? media : meta);
    rg_peers_account(peers_of(traffic), bucket->record, &account);
}

static void bucket_meet(struct rg_traffic_bucket *bucket, uint64_t since_ns)
{
    if (bucket->reads.traffic->adapts) {
        side_learn(bucket, RG_PEER_READS, since_ns);
        side_learn(bucket, RG_PEER_WRITES, since_ns);
    }
    for (unsigned kind = 0; kind < RG_TRAFFIC_KIND_COUNT; kind++) {
        kind_learn(bucket, kind);
    }
    bucket_tell(bucket, since_ns);
    bucket_account(bucket);
    bucket->told = bucket->used;
}

static void peer_found(void *context, const struct rg_peer *peer)
{
    struct rg_traffic *traffic = context;
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        struct rg_traffic_bucket *bucket = &traffic->buckets[i];
        if (bucket->used != 0 && bucket->hash == peer->bucket) {
            rg_portion_add(&bucket->portion, peer);
        }
    }
}

/* Others are looked at, and told what is known here: of one bucket when it is new, else of all. */
static void peers_meet(struct rg_traffic *traffic, struct rg_traffic_bucket *only)
{
    struct rg_peers *peers = peers_of(traffic);
    uint64_t since_ns = peers->looked_ns, now_ns = loop_of(traffic)->now_ns;
    if (peers->folder == NULL) {
        return;
    }
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        rg_portion_begin(&traffic->buckets[i].portion, peers->process);
    }
    rg_peers_look(peers, now_ns, peer_found, traffic);
    traffic->budget.processes = rg_peers_processes(peers);
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        struct rg_traffic_bucket *bucket = &traffic->buckets[i];
        bool is_used = bucket->user_count > 0 || bucket->used != bucket->told;
        if (bucket->used != 0 && (only != NULL ? bucket == only : is_used)) {
            bucket_meet(bucket, since_ns);
        }
    }
    limit_publish(traffic);
}

/* The loop has requests again. */
static void peers_wake(struct rg_traffic *traffic)
{
    const struct rg_peers *peers = peers_of(traffic);
    if (peers->folder != NULL && !rg_timer_armed(&traffic->peers_alarm.timer)) {
        uint64_t due_ns = peers->looked_ns + RG_PEERS_INTERVAL_NS;
        rg_loop_set_alarm(loop_of(traffic), &traffic->peers_alarm,
                          RG_MAX(due_ns, loop_of(traffic)->now_ns));
    }
}

static void peers_alarm_fire(struct rg_alarm *alarm)
{
    struct rg_traffic *traffic = RG_CONTAINER_OF(alarm, struct rg_traffic, peers_alarm);
    bool goes_on = false;
    peers_meet(traffic, NULL);
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        struct rg_traffic_bucket *bucket = &traffic->buckets[i];
        goes_on |= bucket->user_count > 0;
    }
    if (goes_on) {
        rg_loop_set_alarm(loop_of(traffic), alarm, loop_of(traffic)->now_ns + RG_PEERS_INTERVAL_NS);
    }
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        struct rg_traffic_bucket *bucket = &traffic->buckets[i];
        if (bucket->used != 0) {
            limit_pump(&bucket->reads);
            limit_pump(&bucket->writes);
        }
    }
}

/* What waits does so for a rate, and not only until another one leaves. */
static bool is_for_rate(const struct limit *limit)
{
    uint64_t now_ns = loop_of(limit->traffic)->now_ns;
    return limit->limiter.state != RG_LIMITER_FREE ||
           rg_limiter_next_ns(&limit->limiter, now_ns) != UINT64_MAX;
}

bool rg_traffic_enter(struct rg_request *request)
{
    struct rg_admission *admission = &request->admission;
    struct rg_traffic *traffic = traffic_of(request);
    RG_ASSERT(!rg_list_linked(&admission->node) && admission->hedge == NULL);
    if (admission->bucket == NULL) {
        bucket_join(request);
    } else {
        admission->bucket->tally.retries++;
    }
    admission->sent_ns = 0;
    struct limit *limit = limit_of(request);
    if (request->x.holds_memory) {
        /* Others may wait for that memory, those inside too. */
        rg_limiter_enter_always(&limit->limiter, loop_of(traffic)->now_ns);
        admit(request);
        return true;
    }
    if (rg_list_empty(&limit->waiting) &&
        rg_limiter_enter(&limit->limiter, loop_of(traffic)->now_ns)) {
        admit(request);
        return true;
    }
    if (is_for_rate(limit)) {
        rg_metric_add(&loop_of(traffic)->metrics.limited, 1);
    }
    if (rg_list_empty(&limit->waiting)) {
        limit_alarm_set(limit);
    }
    rg_list_push_back(&limit->waiting, &admission->node);
    limit->waiting_count++;
    held_add(limit, request, 1);
    held_judge(limit);
    RG_VERIFY(invariants(request));
    return false;
}

void rg_traffic_withdraw(struct rg_request *request)
{
    RG_ASSERT(request->state == RG_REQUEST_ADMISSION);
    struct limit *limit = limit_of(request);
    rg_list_remove(&request->admission.node);
    limit->waiting_count--;
    held_add(limit, request, -1);
}

static void body_note(struct kind *kind, uint64_t size)
{
    kind->body_mean -= kind->body_mean >> BODY_MEAN_SHIFT;
    kind->body_mean += size >> BODY_MEAN_SHIFT;
}

void rg_traffic_leave(struct rg_request *request)
{
    struct rg_admission *admission = &request->admission;
    const struct rg_exchange *x = &request->x;
    struct limit *limit = limit_of(request);
    RG_ASSERT(request->state == RG_REQUEST_POOL || request->state == RG_REQUEST_OUT);
    rg_traffic_unhedge(request);
    if (admission->sent_ns != 0 && admission->arrived_ns == 0) {
        rg_list_remove(&request->admission.node);
        kind_of(request)->sent_count--;
        if (x->status == RG_STATUS_STALLED) {
            rg_stall_expired(&kind_of(request)->stall);
        }
    }
    enum rg_limiter_outcome outcome =
        x->status == RG_STATUS_OK ? RG_LIMITER_ANSWERED : RG_LIMITER_BROKEN;
    bool is_refused = rg_answer_throttles(x->http_status);
    if (is_refused && limit->traffic->adapts) {
        outcome =
            x->http_status == 429 ? RG_LIMITER_THROTTLED : rg_limiter_unavailable(x->good_before);
    } else if (outcome == RG_LIMITER_ANSWERED) {
        body_note(kind_of(request), x->body_size);
    }
    rg_metric_add(&request->client_loop->loop->metrics.in_flight, UINT64_MAX);
    admission->bucket->tally.requests++;
    admission->bucket->tally.bytes +=
        x->body_size + (x->request_whole ? rg_exchange_body_size(x) : 0);
    bool was_limited = limit->limiter.state != RG_LIMITER_FREE;
    if (rg_limiter_leave(&limit->limiter, outcome, admission->sent_ns,
                         loop_of(limit->traffic)->now_ns)) {
        limit_cut(admission->bucket, limit, x->http_status == 429 ? "HTTP 429" : "HTTP 503");
    } else if (was_limited) {
        limit_raised(request);
    }
    if (!rg_list_empty(&limit->waiting)) {
        limit_pump(limit);
    }
    RG_VERIFY(invariants(request));
}

void rg_traffic_sent(struct rg_request *request)
{
    struct rg_admission *admission = &request->admission;
    struct rg_traffic *traffic = traffic_of(request);
    struct kind *kind = kind_of(request);
    admission->sent_ns = loop_of(traffic)->now_ns;
    admission->arrived_ns = 0;
    admission->in_time = kind->hedge.in_time;
    kind->sent_count++;
    rg_hedge_earn(&traffic->budget);
    if (!traffic->hedges || request->ops->traffic != RG_TRAFFIC_MEDIA) {
        return;
    }
    rg_list_push_back(&kind->unanswered, &admission->node);
    if (kind->hedge.delay_ns != 0 && !rg_timer_armed(&kind->alarm.timer)) {
        const struct rg_request *first = request_of(kind->unanswered.next);
        rg_loop_set_alarm(loop_of(traffic), &kind->alarm,
                          first->admission.sent_ns + kind->hedge.delay_ns);
    }
    RG_VERIFY(invariants(request));
}

void rg_traffic_answered(struct rg_request *request)
{
    struct rg_admission *admission = &request->admission;
    struct rg_traffic *traffic = traffic_of(request);
    struct kind *kind = kind_of(request);
    uint64_t now_ns = loop_of(traffic)->now_ns;
    uint64_t elapsed_ns = now_ns - admission->sent_ns;
    rg_traffic_unhedge(request);
    rg_list_remove(&request->admission.node);
    kind->sent_count--;
    admission->arrived_ns = now_ns;
    rg_quantile_add(&kind->heads, elapsed_ns);
    rg_stall_head(&kind->stall, elapsed_ns, &kind->heads);
    rg_hedge_answer(&kind->hedge, elapsed_ns, &kind->heads);
    /* One that is held back takes as long as we want. */
    if (traffic->adapts && !request->x.was_held &&
        rg_limiter_latency(&limit_of(request)->limiter, elapsed_ns, now_ns)) {
        limit_cut(request->admission.bucket, limit_of(request), "answers take much longer");
    }
    RG_VERIFY(invariants(request));
}

void rg_traffic_arrived(struct rg_request *request)
{
    struct rg_admission *admission = &request->admission;
    uint64_t now_ns = request->client_loop->loop->now_ns;
    uint64_t silence_ns = now_ns - admission->arrived_ns;
    if (silence_ns == 0 || request->ops->traffic != RG_TRAFFIC_MEDIA) {
        return;
    }
    struct kind *kind = kind_of(request);
    admission->arrived_ns = now_ns;
    rg_quantile_add(&kind->arrivals, silence_ns);
    rg_stall_arrival(&kind->stall, &kind->arrivals);
}

static void hedge_free(struct rg_traffic_hedge *hedge)
{
    hedge->request->admission.hedge = NULL;
    rg_list_push_front(&traffic_of(hedge->request)->free_hedges, &hedge->node);
}

static struct rg_traffic_hedge *hedge_of(struct rg_exchange *x)
{
    return RG_CONTAINER_OF(x, struct rg_traffic_hedge, x);
}

static int hedge_encode(struct rg_exchange *x, struct rg_h1_encoder *encoder)
{
    struct rg_request *request = hedge_of(x)->request;
    return request->ops->encode(request, encoder);
}

/* The request's own exchange goes on with the hedge's connection, and the hedge with its. */
static void connections_trade(struct rg_request *request)
{
    if (request->started_ns == 0) {
        request->started_ns = request->x.started_ns;
    }
    rg_exchange_trade(&request->x, &request->admission.hedge->x);
}

static enum rg_body_action hedge_head(struct rg_exchange *x, const struct rg_h1_head *head)
{
    struct rg_request *request = hedge_of(x)->request;
    if (head->status < 200 || head->status >= 300) {
        /* The first request may yet do better. */
        rg_metrics_refusal(&request->client_loop->loop->metrics, head->status);
        x->body_max = RG_ERROR_BODY_SIZE_MAX;
        return RG_BODY_DISCARD;
    }
    connections_trade(request);
    rg_metric_add(&request->client_loop->loop->metrics.hedge_wins, 1);
    rg_log(RG_LOG_DEBUG, "%s gs://%s/%s: the hedge answered first", request->ops->verb,
           request->bucket, request->object);
    return request->x.ops->head(&request->x, head);
}

static void hedge_done(struct rg_exchange *x)
{
    struct rg_traffic_hedge *hedge = hedge_of(x);
    hedge->request->attempts += x->started_ns != 0 ? 1 : 0;
    rg_lease_release(x->lease);
    hedge_free(hedge);
}

static const struct rg_exchange_ops hedge_ops = {
    .encode = hedge_encode,
    .head = hedge_head,
    .done = hedge_done,
};

static uint64_t body_expected(const struct rg_request *request)
{
    bool is_range = request->ops == &rg_get_ops && request->get.length != RG_WHOLE;
    return is_range ? request->get.length - request->get.received : kind_of(request)->body_mean;
}

static void hedge_start(struct rg_request *request, struct rg_traffic_hedge *hedge)
{
    struct rg_traffic *traffic = traffic_of(request);
    hedge->request = request;
    hedge->x = (struct rg_exchange){
        .ops = &hedge_ops,
        .urgent = true,
        .avoid = request->x.conn,
        .head_timeout_ns = request->x.head_timeout_ns,
        .stall_timeout_ns = request->x.stall_timeout_ns,
    };
    request->admission.hedge = hedge;
    request->retry.failures++;
    rg_limiter_twice(&limit_of(request)->limiter, loop_of(traffic)->now_ns);
    rg_metric_add(&loop_of(traffic)->metrics.hedges, 1);
    rg_log(RG_LOG_DEBUG, "%s gs://%s/%s: no answer for %.3f s, a hedge is sent", request->ops->verb,
           request->bucket, request->object,
           (double)(loop_of(traffic)->now_ns - request->admission.sent_ns) / (double)RG_NS_PER_S);
    rg_pool_submit(request->client_loop->pool, &hedge->x);
}

static void request_is_late(struct rg_request *request)
{
    struct rg_traffic *traffic = traffic_of(request);
    struct kind *kind = kind_of(request);
    RG_ASSERT(request->x.conn != NULL && request->admission.hedge == NULL);
    uint32_t attempts = request->retry.failures + 1;
    /* Who is asked for less is not asked twice. */
    if (limit_of(request)->limiter.state != RG_LIMITER_FREE ||
        body_expected(request) > traffic->hedge_size_max || rg_list_empty(&traffic->free_hedges) ||
        attempts >= request->retry.policy.attempts_max || request->x.holds_memory ||
        rg_client_loop_is_closing(request->client_loop) || request->verify.asking ||
        !rg_hedge_allow(&kind->hedge, &traffic->budget, request->admission.in_time,
                        kind->sent_count - 1)) {
        return;
    }
    struct rg_list *node = rg_list_pop_front(&traffic->free_hedges);
    hedge_start(request, RG_CONTAINER_OF(node, struct rg_traffic_hedge, node));
}

static void kind_alarm_fire(struct rg_alarm *alarm)
{
    struct kind *kind = RG_CONTAINER_OF(alarm, struct kind, alarm);
    struct rg_loop *loop = loop_of(kind->traffic);
    while (!rg_list_empty(&kind->unanswered)) {
        struct rg_request *request = request_of(kind->unanswered.next);
        uint64_t late_ns = request->admission.sent_ns + kind->hedge.delay_ns;
        if (late_ns > loop->now_ns) {
            rg_loop_set_alarm(loop, alarm, late_ns);
            return;
        }
        rg_list_remove(&request->admission.node);
        request_is_late(request);
    }
}

void rg_traffic_unhedge(struct rg_request *request)
{
    struct rg_traffic_hedge *hedge = request->admission.hedge;
    if (hedge != NULL) {
        rg_pool_cancel(request->client_loop->pool, &hedge->x, RG_STATUS_CANCELLED);
        RG_ASSERT(request->admission.hedge == NULL);
    }
}

bool rg_traffic_goes_on(struct rg_request *request)
{
    struct rg_traffic_hedge *hedge = request->admission.hedge;
    if (hedge == NULL || hedge->x.conn == NULL || hedge->x.http_status != 0 ||
        !rg_exchange_may_mend(&request->x)) {
        return false;
    }
    if (request->x.status == RG_STATUS_STALLED) {
        rg_stall_expired(&kind_of(request)->stall);
    }
    request->attempts++;
    connections_trade(request);
    hedge_free(hedge);
    return true;
}

static double ceiling_of(const struct limit *limit)
{
    const struct rg_rate *rate = limit->limiter.options.rate;
    return rate != NULL ? rg_rate_per_s(rate) : 0;
}

static struct rg_bucket_side side_describe(const struct limit *limit)
{
    return rg_telling_stats(&limit->limiter, limit->waiting_count, loop_of(limit->traffic)->now_ns);
}

uint32_t rg_traffic_buckets(const struct rg_traffic *traffic, struct rg_traffic_bucket_stats *out)
{
    bool is_shared = peers_of(traffic)->region.fd >= 0;
    uint32_t count = 0;
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        const struct rg_traffic_bucket *bucket = &traffic->buckets[i];
        if (bucket->used != 0) {
            struct rg_traffic_bucket_stats *one = &out[count++];
            struct rg_bucket_stats *stats = &one->stats;
            one->reads_ceiling = ceiling_of(&bucket->reads);
            one->writes_ceiling = ceiling_of(&bucket->writes);
            strcpy(stats->name, bucket->name);
            stats->reads = side_describe(&bucket->reads);
            stats->writes = side_describe(&bucket->writes);
            stats->processes = is_shared ? rg_portion_processes(&bucket->portion) : 0;
        }
    }
    return count;
}

int rg_traffic_create(struct rg_traffic **out_traffic, struct rg_client_loop *client_loop,
                      void (*admitted)(struct rg_request *request))
{
    struct rg_traffic *traffic = calloc(1, sizeof(*traffic));
    if (traffic == NULL) {
        return -ENOMEM;
    }
    const struct rg_client_options *options = &client_loop->client->options;
    uint32_t loop_count = client_loop->client->loop_count;
    uint32_t connections = (options->connections_max + loop_count - 1) / loop_count;
    traffic->client_loop = client_loop;
    traffic->admitted = admitted;
    traffic->adapts = options->adapting != RG_SWITCH_OFF;
    traffic->budget.per_1000 = options->hedges_per_1000;
    traffic->hedges = options->hedging != RG_SWITCH_OFF;
    traffic->hedge_size_max = options->hedge_size_max;
    traffic->first_byte_timeout_ns = options->first_byte_timeout_ns;
    traffic->stall_timeout_ns = options->stall_timeout_ns;
    traffic->limit_max = connections;
    rg_alarm_init(&traffic->peers_alarm, peers_alarm_fire);
    rg_list_init(&traffic->free_hedges);
    for (unsigned i = 0; i < RG_TRAFFIC_HEDGES_MAX; i++) {
        rg_list_push_back(&traffic->free_hedges, &traffic->hedge_slots[i].node);
    }
    *out_traffic = traffic;
    return 0;
}

void rg_traffic_close(struct rg_traffic *traffic)
{
    for (unsigned i = 0; i < RG_TRAFFIC_BUCKETS_MAX; i++) {
        bucket_close(traffic, &traffic->buckets[i]);
    }
    rg_loop_cancel_alarm(loop_of(traffic), &traffic->peers_alarm);
    rg_peers_close(peers_of(traffic));
}

void rg_traffic_destroy(struct rg_traffic *traffic)
{
    free(traffic);
}
