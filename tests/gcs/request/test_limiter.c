/* Limits of requests: the rules one by one, and against servers that can do so much. */
#include "tests/gcs/request/limiter_case.h"

static void test_there_is_no_rate_at_first(void)
{
    begin(10);
    /* More would wait for a connection, where nothing holds them back any more. */
    RG_CHECK_EQ(enter(100000), 10);
    RG_CHECK_EQ(rg_limiter_next_ns(&limiter, now_ns), UINT64_MAX);
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 10);
    leave(RG_LIMITER_ANSWERED, now_ns);
    RG_CHECK_EQ(enter(2), 1);
    while (limiter.in_flight > 0) {
        RG_CHECK(!leave(limiter.in_flight % 2 ? RG_LIMITER_ANSWERED : RG_LIMITER_BROKEN, now_ns));
    }
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
}

static void test_throttling_cuts_once_for_what_was_sent_before(void)
{
    begin(200);
    answer(100);
    uint64_t sent_ns = now_ns;
    RG_CHECK_EQ(enter(100), 100);
    now_ns += RG_NS_PER_MS;
    RG_CHECK(leave(RG_LIMITER_THROTTLED, sent_ns));
    /* 100 in 10 ms, less a fifth. */
    check_near(limiter.gap_ns, 100 * RG_NS_PER_US / 0.8);
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 80);
    RG_CHECK(!leave(RG_LIMITER_THROTTLED, sent_ns));
    RG_CHECK_EQ(limiter.backoffs, 1);
    while (limiter.in_flight > 0) {
        leave(RG_LIMITER_BROKEN, sent_ns);
    }
    /* Nothing was answered since: half of it, and so on. */
    check_near(refuse(RG_LIMITER_THROTTLED), 2);
    check_near(refuse(RG_LIMITER_THROTTLED), 2);
    for (unsigned i = 0; i < 100; i++) {
        (void)refuse(RG_LIMITER_THROTTLED);
    }
    check_near(limiter.gap_ns, (double)RG_LIMITER_GAP_NS_MAX);
    RG_CHECK_EQ(enter(1), 0);
    now_ns = rg_limiter_next_ns(&limiter, now_ns);
    RG_CHECK_EQ(enter(2), 1);
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 1);
}

static void test_a_cut_goes_by_the_share_of_refusals(void)
{
    static const struct {
        uint32_t answers;
        double cut;
    } cases[] = {{0, 0.5},   {1, 0.25},           {2, 0.2},
                 {300, 0.2}, {1000, 64.0 / 1001}, {100000, 64.0 / 100001}};
    for (unsigned i = 0; i < RG_ARRAY_LEN(cases); i++) {
        begin(64);
        answer(1);
        (void)refuse(RG_LIMITER_THROTTLED);
        limiter.answer_count = cases[i].answers;
        check_near(refuse(RG_LIMITER_THROTTLED), 1 / (1 - cases[i].cut));
        RG_CHECK_EQ(limiter.answer_count, 0);
    }
}

/* Paced with that gap, of which nothing more is known. */
static void pace(double gap_ns)
{
    begin(64);
    answer(1);
    (void)refuse(RG_LIMITER_THROTTLED);
    limiter.gap_ns = limiter.quick_gap_ns = gap_ns;
}

static uint64_t time_to_double(double gap_ns)
{
    pace(gap_ns);
    uint64_t begun_ns = now_ns;
    while (limiter.gap_ns > gap_ns / 2) {
        answer(1);
    }
    return now_ns - begun_ns;
}

/* Where it was refused it grows slowly, and faster the longer it is not. */
static void test_the_rate_grows_with_time(void)
{
    double seconds = (double)time_to_double((double)RG_NS_PER_S) / (double)RG_NS_PER_S;
    /* sqrt(2 ln 2 / (1 + 0.7..1.4)) of 120 s. */
    RG_CHECK(seconds > 80 && seconds < 120);
    double at_20 = (double)time_to_double(50 * RG_NS_PER_MS) / (double)RG_NS_PER_S;
    RG_CHECK(at_20 > 25 && at_20 < 45);
    pace((double)RG_NS_PER_S);
    answer(10);
    double first = (double)RG_NS_PER_S / limiter.gap_ns - 1;
    answer(10);
    double second = (double)RG_NS_PER_S / limiter.gap_ns - 1 - first;
    RG_CHECK(first > 0 && second > 2.5 * first);
    /* What is not needed does not. */
    pace((double)RG_NS_PER_MS);
    for (unsigned i = 0; i < 100; i++) {
        now_ns += 50 * RG_NS_PER_MS;
        answer(1);
    }
    RG_CHECK_EQ(limiter.gap_ns, RG_NS_PER_MS);
    /* And is gone after some time. */
    now_ns += RG_LIMITER_NEEDLESS_NS;
    answer(1);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
}

static void test_answers_raise_it_quickly_to_what_was_known(void)
{
    const double known_ns = 20 * RG_NS_PER_MS;
    pace(known_ns);
    for (unsigned i = 0; i < 5; i++) {
        check_near(refuse(RG_LIMITER_THROTTLED), 2);
    }
    answer(4);
    RG_CHECK(limiter.gap_ns > known_ns * 1.5);
    answer(2);
    RG_CHECK(limiter.gap_ns > known_ns * 0.99 && limiter.gap_ns <= known_ns);
    /* In an outage, the first refusal was no different from the others. */
    for (unsigned i = 0; i < 20; i++) {
        (void)refuse(RG_LIMITER_THROTTLED);
    }
    answer(20);
    RG_CHECK(limiter.gap_ns > known_ns * 0.99 && limiter.gap_ns <= known_ns);
}

/* Requests that a server at virtual time serves one by one, at most so many a second; what would
 * wait for more than 50 ms is refused. */
struct bucket {
    uint64_t free_ns, interval_ns;
    enum rg_limiter_outcome refusal;
    uint64_t answered, refused;
    uint64_t of_client[8];
};

static enum rg_limiter_outcome bucket_ask(struct bucket *bucket)
{
    uint64_t begin_ns = RG_MAX(bucket->free_ns, now_ns);
    if (begin_ns - now_ns > 50 * RG_NS_PER_MS) {
        bucket->refused++;
        return bucket->refusal;
    }
    bucket->free_ns = begin_ns + bucket->interval_ns;
    bucket->answered++;
    return RG_LIMITER_ANSWERED;
}

/* Each of the clients asks whenever it may; what is answered takes 1 ms. */
static void bucket_run(struct bucket *bucket, struct rg_limiter *clients, unsigned count,
                       uint64_t duration_ns)
{
    for (uint64_t end_ns = now_ns + duration_ns; now_ns < end_ns; now_ns += RG_NS_PER_MS / 4) {
        for (unsigned i = 0; i < count; i++) {
            if (rg_limiter_enter(&clients[i], now_ns)) {
                enum rg_limiter_outcome outcome = bucket_ask(bucket);
                bucket->of_client[i] += outcome == RG_LIMITER_ANSWERED;
                (void)rg_limiter_leave(&clients[i], outcome, now_ns,
                                       now_ns + (outcome == RG_LIMITER_ANSWERED) * RG_NS_PER_MS);
            }
        }
    }
}

/* At most one of so many is refused. */
static void rate_find(enum rg_limiter_outcome refusal, unsigned each)
{
    struct bucket bucket = {.interval_ns = 5 * RG_NS_PER_MS, .refusal = refusal};
    begin(256);
    bucket_run(&bucket, &limiter, 1, 120 * RG_NS_PER_S);
    bucket.answered = bucket.refused = 0;
    bucket_run(&bucket, &limiter, 1, 300 * RG_NS_PER_S);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    RG_CHECK(bucket.answered > 300 * 200 * 85 / 100);
    RG_CHECK(bucket.refused * each < bucket.answered);
}

static void test_it_finds_the_rate_of_a_bucket(void)
{
    rate_find(RG_LIMITER_THROTTLED, 50);
    rate_find(RG_LIMITER_SUDDEN, 25);
}

/* Who has more is refused more often. */
static void test_rates_of_many_become_equal(void)
{
    enum { CLIENTS = 8 };
    static struct rg_limiter clients[CLIENTS];
    struct bucket bucket = {.interval_ns = 5 * RG_NS_PER_MS, .refusal = RG_LIMITER_THROTTLED};
    uint64_t most = 0, least = UINT64_MAX;
    for (unsigned i = 0; i < CLIENTS; i++) {
        begin(256);
        limiter.random = i;
        answer(1);
        (void)refuse(RG_LIMITER_THROTTLED);
        clients[i] = limiter;
        clients[i].gap_ns = clients[i].quick_gap_ns = (double)(5 * RG_NS_PER_MS << i);
    }
    bucket_run(&bucket, clients, CLIENTS, 600 * RG_NS_PER_S);
    memset(bucket.of_client, 0, sizeof(bucket.of_client));
    bucket_run(&bucket, clients, CLIENTS, 600 * RG_NS_PER_S);
    for (unsigned i = 0; i < CLIENTS; i++) {
        RG_CHECK_EQ(clients[i].state, RG_LIMITER_PACED);
        most = RG_MAX(most, bucket.of_client[i]);
        least = RG_MIN(least, bucket.of_client[i]);
    }
    /* They began with 128 times as much. */
    RG_CHECK(most < 4 * least);
}

static void latency_window(uint64_t elapsed_ns)
{
    for (unsigned i = 0; i < 100; i++) {
        now_ns += 11 * RG_NS_PER_MS;
        (void)rg_limiter_latency(&limiter, elapsed_ns, now_ns);
    }
}

static void test_rising_latency_cuts_too(void)
{
    begin(100);
    enter(100);
    for (unsigned i = 0; i < 10; i++) {
        latency_window(30 * RG_NS_PER_MS);
    }
    latency_window(200 * RG_NS_PER_MS); /* not slow in itself */
    latency_window(200 * RG_NS_PER_MS);
    RG_CHECK_EQ(limiter.backoffs, 0);
    latency_window(RG_NS_PER_S);
    latency_window(RG_NS_PER_S);
    RG_CHECK(limiter.backoffs > 0);
    /* At least a tenth less than 100 in the time of an answer. */
    RG_CHECK(limiter.gap_ns > (double)(250 * RG_NS_PER_MS) / 90);
    for (unsigned i = 0; i < 100; i++) {
        latency_window(RG_NS_PER_S);
    }
    RG_CHECK((double)RG_NS_PER_S / limiter.gap_ns >= RG_LIMITER_LATENCY_LIMIT_MIN);
    /* What lasts is the new usual. */
    for (unsigned i = 0; i < 400; i++) {
        latency_window(RG_NS_PER_S);
    }
    uint64_t backoffs = limiter.backoffs;
    latency_window(RG_NS_PER_S);
    RG_CHECK_EQ(limiter.backoffs, backoffs);
    /* A server that was always slow is not to blame for it. */
    begin(100);
    enter(100);
    for (unsigned i = 0; i < 100; i++) {
        latency_window(5 * RG_NS_PER_S);
    }
    RG_CHECK_EQ(limiter.backoffs, 0);
}

/* A server at virtual time, with so many slots, that answers after rtt_ns. What is above its slots,
 * and everything while it is down, is refused after refuse_ns. */
struct service {
    uint32_t slots;
    uint64_t rtt_ns, refuse_ns;
    bool is_down;
    struct {
        uint64_t sent_ns, done_ns;
        bool is_refused;
    } out[1024];
    uint32_t count, busy;
    uint64_t answered, refused;
};

static void service_fill(struct service *service)
{
    while (service->count < RG_MIN(limiter.options.limit_max, RG_ARRAY_LEN(service->out)) &&
           rg_limiter_enter(&limiter, now_ns)) {
        bool refuse = service->is_down || service->busy >= service->slots;
        service->busy += !refuse;
        service->out[service->count].sent_ns = now_ns;
        service->out[service->count].is_refused = refuse;
        service->out[service->count++].done_ns =
            now_ns + (refuse ? service->refuse_ns : service->rtt_ns);
    }
}

/* Everything that may begin does, at each answer. */
static void service_run(struct service *service, uint64_t duration_ns)
{
    uint64_t step_ns = RG_MAX(service->rtt_ns / 100, UINT64_C(1));
    for (uint64_t end_ns = now_ns + duration_ns; now_ns < end_ns; now_ns += step_ns) {
        for (uint32_t i = 0; i < service->count;) {
            if (service->out[i].done_ns > now_ns) {
                i++;
                continue;
            }
            bool is_refused = service->out[i].is_refused;
            uint64_t sent_ns = service->out[i].sent_ns;
            service->out[i] = service->out[--service->count];
            service->busy -= !is_refused;
            service->refused += is_refused;
            service->answered += !is_refused;
            leave(is_refused ? RG_LIMITER_THROTTLED : RG_LIMITER_ANSWERED, sent_ns);
            service_fill(service);
        }
        service_fill(service);
    }
}

static uint64_t answers_of(struct service *service, uint64_t duration_ns)
{
    uint64_t before = service->answered;
    service_run(service, duration_ns);
    return service->answered - before;
}

static void test_all_is_out_at_once_at_first(void)
{
    struct service service = {
        .slots = 1000, .rtt_ns = 50 * RG_NS_PER_MS, .refuse_ns = RG_NS_PER_MS};
    begin(256);
    service_run(&service, RG_NS_PER_MS);
    RG_CHECK_EQ(service.count, 256);
    service_run(&service, RG_NS_PER_S);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
    RG_CHECK(service.answered >= 256 * 18);
}

/* Nothing is answered for a minute: few ask meanwhile, one at a time does at its end, and what was
 * usual before is reached in little more than two seconds. */
static void test_an_outage_ends_without_a_herd(void)
{
    struct service service = {
        .slots = 1000, .rtt_ns = 50 * RG_NS_PER_MS, .refuse_ns = RG_NS_PER_MS};
    begin(64);
    uint64_t usual = answers_of(&service, RG_NS_PER_S);
    service.is_down = true;
    service_run(&service, 5 * RG_NS_PER_S);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    uint64_t before = service.refused;
    service_run(&service, 60 * RG_NS_PER_S);
    RG_CHECK(service.refused - before >= 45 && service.refused - before <= 80);
    service.is_down = false;
    before = service.answered;
    while (service.answered == before) {
        service_run(&service, 10 * RG_NS_PER_MS);
        RG_CHECK(service.count <= 2);
    }
    RG_CHECK(answers_of(&service, RG_NS_PER_S) <= usual);
    RG_CHECK(answers_of(&service, RG_NS_PER_S) <= usual * 12 / 10);
    uint64_t third = answers_of(&service, RG_NS_PER_S);
    RG_CHECK(third <= usual * 12 / 10 && third >= usual * 8 / 10);
}

/* Many clients, refused by the same outage, do not ask in step. */
static void test_gaps_vary(void)
{
    enum { CLIENTS = 200, PARTS = 20 };
    unsigned counts[PARTS] = {0};
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct rg_limiter_options options = {.limit_max = 8, .seed = i * 7919};
        struct service service = {
            .rtt_ns = 50 * RG_NS_PER_MS, .refuse_ns = RG_NS_PER_MS, .is_down = true};
        now_ns = 1000 * RG_NS_PER_S;
        rg_limiter_init(&limiter, &options, now_ns);
        service_run(&service, 60 * RG_NS_PER_S);
        RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
        uint64_t next_ns = RG_MAX(limiter.next_ns, now_ns) - now_ns;
        RG_CHECK(next_ns < 1250 * RG_NS_PER_MS);
        counts[next_ns * PARTS / (1251 * RG_NS_PER_MS)]++;
    }
    for (unsigned i = 0; i < PARTS; i++) {
        RG_CHECK(counts[i] < CLIENTS / 4);
    }
}

/* One slot is shared with so many others that most of what one client asks, one at a time, is too
 * much: a rate far below one request at a time is found, and left when there is room again. */
static void test_less_than_one_at_a_time(void)
{
    struct service service = {.rtt_ns = 10 * RG_NS_PER_MS, .refuse_ns = 10 * RG_NS_PER_MS};
    uint64_t admitted_ns = 0, settled = 0, settled_refused = 0;
    begin(64);
    /* One in 250 ms is answered. */
    uint64_t end_ns = now_ns + 600 * RG_NS_PER_S;
    while (now_ns < end_ns) {
        if (rg_limiter_enter(&limiter, now_ns)) {
            uint64_t sent_ns = now_ns;
            bool refuse = now_ns - admitted_ns < 250 * RG_NS_PER_MS;
            admitted_ns = refuse ? admitted_ns : now_ns;
            now_ns += service.rtt_ns;
            leave(refuse ? RG_LIMITER_THROTTLED : RG_LIMITER_ANSWERED, sent_ns);
            if (end_ns - now_ns < 300 * RG_NS_PER_S) {
                settled += !refuse;
                settled_refused += refuse;
            }
        }
        now_ns += RG_NS_PER_MS;
    }
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    RG_CHECK(settled > 300 * 4 / 2);
    RG_CHECK(settled_refused * 4 < settled);
    service.slots = 1000;
    limiter.in_flight = 0;
    service_run(&service, 180 * RG_NS_PER_S);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
}

/* One answer in 250 ms is what a client among thousands gets. Nothing is answered for a minute, and
 * then everything is: it asks as seldom as before, not one after the other. */
static void test_an_outage_ends_at_the_rate_that_was_usual(void)
{
    const uint64_t rtt_ns = 10 * RG_NS_PER_MS;
    uint64_t begun_ns, admitted_ns = 0;
    uint32_t asked[3] = {0}; /* ten seconds before, ten of the outage, and five after it */
    begin(64);
    begun_ns = now_ns;
    while (now_ns < begun_ns + 365 * RG_NS_PER_S) {
        if (rg_limiter_enter(&limiter, now_ns)) {
            uint64_t sent_ns = now_ns, life_ns = now_ns - begun_ns;
            bool is_down = life_ns >= 300 * RG_NS_PER_S && life_ns < 360 * RG_NS_PER_S;
            bool is_early =
                life_ns < 300 * RG_NS_PER_S && now_ns - admitted_ns < 250 * RG_NS_PER_MS;
            bool refuse = is_down || is_early;
            asked[0] += life_ns >= 290 * RG_NS_PER_S && life_ns < 300 * RG_NS_PER_S;
            asked[1] += life_ns >= 350 * RG_NS_PER_S && life_ns < 360 * RG_NS_PER_S;
            asked[2] += life_ns >= 360 * RG_NS_PER_S;
            admitted_ns = refuse ? admitted_ns : now_ns;
            now_ns += rtt_ns;
            leave(refuse ? RG_LIMITER_THROTTLED : RG_LIMITER_ANSWERED, sent_ns);
        }
        now_ns += RG_NS_PER_MS;
    }
    RG_CHECK(asked[0] >= 20 && asked[0] <= 80);
    RG_CHECK(asked[1] >= 7 && asked[1] <= 15);
    RG_CHECK(asked[2] <= asked[0]);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
}

/* One failure of one request, while it is alone, does not slow a crowd down for long. */
static void test_a_refusal_of_few_says_little_about_many(void)
{
    struct service service = {
        .slots = 1000, .rtt_ns = 50 * RG_NS_PER_MS, .refuse_ns = RG_NS_PER_MS};
    begin(256);
    for (unsigned i = 0; i < 3; i++) {
        now_ns += RG_NS_PER_MS;
        RG_CHECK_EQ(enter(1), 1);
        leave(RG_LIMITER_THROTTLED, now_ns);
    }
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 1);
    service_run(&service, RG_NS_PER_S);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
}

static void test_what_was_learned_is_forgotten_when_idle(void)
{
    pace((double)(100 * RG_NS_PER_MS));
    now_ns += RG_NS_PER_S;
    RG_CHECK_EQ(enter(100), 1);
    now_ns += 2 * RG_LIMITER_IDLE_NS;
    /* One is out for long. */
    RG_CHECK_EQ(enter(100), 1);
    leave(RG_LIMITER_BROKEN, now_ns);
    leave(RG_LIMITER_BROKEN, now_ns);
    now_ns += RG_LIMITER_IDLE_NS - 1;
    RG_CHECK_EQ(enter(100), 1);
    leave(RG_LIMITER_BROKEN, now_ns);
    now_ns += RG_LIMITER_IDLE_NS;
    RG_CHECK_EQ(enter(200), 64);
}

static void begin_in_job(uint32_t processes)
{
    const struct rg_limiter_options options = {
        .limit_max = 256,
        .job_gap_ns = rg_limiter_job_gap_ns(processes, 1, RG_RATE_RAMP_READS_PER_S),
    };
    now_ns = 1000 * RG_NS_PER_S;
    rg_limiter_init(&limiter, &options, now_ns);
}

/* As fast as it may, with answers after 10 ms. Returns how many began. */
static uint32_t ask_for(uint64_t ns)
{
    const uint64_t until_ns = now_ns + ns;
    uint32_t count = 0;
    for (; now_ns < until_ns; now_ns += 10 * RG_NS_PER_MS) {
        uint32_t begun = enter(UINT32_MAX);
        count += begun;
        uint64_t sent_ns = now_ns;
        for (; begun > 0; begun--) {
            (void)rg_limiter_leave(&limiter, RG_LIMITER_ANSWERED, sent_ns,
                                   sent_ns + 10 * RG_NS_PER_MS);
        }
    }
    return count;
}

static void test_a_large_job_begins_with_what_a_bucket_takes(void)
{
    begin_in_job(RG_LIMITER_SMALL_JOB_MAX);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
    /* The first at once, and the next when it has doubled often enough. */
    begin_in_job(32768);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_RISING);
    RG_CHECK_EQ(enter(2), 1);
    uint64_t wait_ns = rg_limiter_next_ns(&limiter, now_ns) - now_ns;
    RG_CHECK(wait_ns > RG_NS_PER_S && wait_ns < 5 * RG_NS_PER_S / 2);
    leave(RG_LIMITER_BROKEN, now_ns);
    /* One process alone has all that it wants in a few seconds. */
    RG_CHECK(ask_for(4 * RG_NS_PER_S) < 100);
    (void)ask_for(8 * RG_NS_PER_S);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
}

/* Nothing is in the way of a process that is not in a large job. */
static void test_a_process_alone_is_fast_in_its_first_second(void)
{
    begin(512);
    RG_CHECK(ask_for(RG_NS_PER_S) >= 50000);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
}

static void test_a_large_job_in_an_outage_asks_as_often_as_at_first(void)
{
    begin_in_job(4992);
    (void)ask_for(4 * RG_NS_PER_S);
    for (unsigned i = 0; i < 100; i++) {
        (void)refuse(RG_LIMITER_UNAVAILABLE);
    }
    check_near(limiter.gap_ns, limiter.options.job_gap_ns);
    /* What is too much even then is said by 429. */
    for (unsigned i = 0; i < 100; i++) {
        (void)refuse(RG_LIMITER_THROTTLED);
    }
    check_near(limiter.gap_ns, RG_LIMITER_JOB_GAPS_MAX * limiter.options.job_gap_ns);
    (void)refuse(RG_LIMITER_UNAVAILABLE);
    check_near(limiter.gap_ns, RG_LIMITER_JOB_GAPS_MAX * limiter.options.job_gap_ns);
}

/* 512 processes read one range of a new bucket's names: 312 requests a second are to be had. */
static void test_a_large_job_that_is_refused_asks_for_less_than_one_range_has(void)
{
    for (uint32_t processes = 512; processes <= 4096; processes *= 2) {
        begin_in_job(processes);
        (void)ask_for(4 * RG_NS_PER_S);
        for (unsigned i = 0; i < 100; i++) {
            (void)refuse(RG_LIMITER_THROTTLED);
        }
        double per_s = processes * (double)RG_NS_PER_S / limiter.gap_ns;
        RG_CHECK(per_s <= RG_RATE_RAMP_READS_PER_S / 16.0 * 1.01);
    }
}

static void test_a_large_job_rises_only_while_it_asks(void)
{
    begin_in_job(4096);
    for (unsigned i = 0; i < 100; i++) {
        now_ns += 5 * RG_NS_PER_S;
        RG_CHECK_EQ(enter(2), 1);
        leave(RG_LIMITER_ANSWERED, now_ns);
    }
    RG_CHECK_EQ(limiter.state, RG_LIMITER_RISING);
    check_near(limiter.gap_ns, limiter.options.job_gap_ns);
    /* Many begin again after a pause, too. */
    (void)ask_for(10 * RG_NS_PER_S);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
    now_ns += RG_LIMITER_IDLE_NS;
    RG_CHECK_EQ(enter(2), 1);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_RISING);
}

static void test_a_refusal_ends_the_rise(void)
{
    begin_in_job(4096);
    (void)ask_for(2 * RG_NS_PER_S);
    double before_ns = limiter.gap_ns;
    (void)refuse(RG_LIMITER_THROTTLED);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    RG_CHECK(limiter.gap_ns > before_ns / 2 && limiter.quick_gap_ns > 0);
    /* Down to a part of the job's rate that is less than one a second. */
    for (unsigned i = 0; i < 100; i++) {
        (void)refuse(RG_LIMITER_THROTTLED);
    }
    check_near(limiter.gap_ns, RG_LIMITER_JOB_GAPS_MAX * limiter.options.job_gap_ns);
    /* And with the first answer at once to what others have. */
    now_ns = rg_limiter_next_ns(&limiter, now_ns);
    RG_CHECK_EQ(enter(1), 1);
    now_ns += 10 * RG_NS_PER_MS;
    leave(RG_LIMITER_ANSWERED, now_ns - 10 * RG_NS_PER_MS);
    RG_CHECK(rg_limiter_next_ns(&limiter, now_ns) - now_ns <= 2 * RG_LIMITER_GAP_NS_MAX);
}

/* Who may not be slowed down to a part is not raised to it either: else the sum would grow. */
static void test_lessons_are_the_same_up_and_down(void)
{
    const struct rg_limiter_lesson small = {.gap_ns = 400e6, .is_held = true};
    const struct rg_limiter_lesson part = {.gap_ns = 200e6, .is_held = true};
    static const double gaps_ns[] = {100e6, 300e6, 900e6};
    for (unsigned i = 0; i < RG_ARRAY_LEN(gaps_ns); i++) {
        pace(gaps_ns[i]);
        rg_limiter_learn(&limiter, &small, now_ns);
        check_near(limiter.gap_ns, gaps_ns[i]);
        rg_limiter_learn(&limiter, &part, now_ns);
        check_near(1 / limiter.gap_ns, 0.75 / gaps_ns[i] + 0.25 / part.gap_ns);
    }
    /* On the way back from an outage it does not take others' rates for what it had itself. */
    pace(100e6);
    limiter.gap_ns = 900e6;
    rg_limiter_learn(&limiter, &part, now_ns);
    check_near(limiter.quick_gap_ns, 100e6);
    RG_CHECK(rg_limiter_next_ns(&limiter, now_ns) - now_ns <= (uint64_t)(2 * limiter.gap_ns));
}

static void test_a_rate_is_kept_too(void)
{
    static struct rg_rate rate;
    struct rg_limiter_options options = {.limit_max = 1000, .rate = &rate};
    now_ns = 1000 * RG_NS_PER_S;
    rg_rate_init(&rate, &(struct rg_rate_options){.ceiling = 1000}, now_ns);
    rg_limiter_init(&limiter, &options, now_ns);
    RG_CHECK_EQ(enter(100000), 250);
    uint64_t next_ns = rg_limiter_next_ns(&limiter, now_ns);
    RG_CHECK(next_ns > now_ns && next_ns <= now_ns + RG_NS_PER_MS + 1);
    now_ns = next_ns;
    RG_CHECK_EQ(enter(100), 1);
    /* What does not ask, and what is sent twice, takes slots that others wait for longer. */
    rg_limiter_enter_always(&limiter, now_ns);
    rg_limiter_twice(&limiter, now_ns);
    now_ns = rg_limiter_next_ns(&limiter, now_ns);
    RG_CHECK_EQ(enter(100), 1);
    RG_CHECK_EQ(rg_limiter_next_ns(&limiter, now_ns), now_ns + 3 * RG_NS_PER_MS);
    /* A slot that came long ago is lost. */
    now_ns += RG_NS_PER_S;
    RG_CHECK_EQ(enter(100000), 250);
}

/* Eight loops, of which one has all requests, or which have one request each in turn: together they
 * have the whole rate, and no more. */
static void test_loops_share_one_rate(void)
{
    enum { LOOPS = 8, RATE = 100, SECONDS = 10 };
    static struct rg_limiter loops[LOOPS];
    static struct rg_rate rate;
    for (unsigned spread = 1; spread <= LOOPS; spread += LOOPS - 1) {
        now_ns = 1000 * RG_NS_PER_S;
        rg_rate_init(&rate, &(struct rg_rate_options){.ceiling = RATE}, now_ns);
        for (unsigned i = 0; i < LOOPS; i++) {
            rg_limiter_init(&loops[i],
                            &(struct rg_limiter_options){.limit_max = 1000, .rate = &rate}, now_ns);
        }
        uint64_t end_ns = now_ns + SECONDS * RG_NS_PER_S;
        unsigned begun = 0;
        while (now_ns < end_ns) {
            struct rg_limiter *loop = &loops[begun % spread];
            begun += rg_limiter_enter(loop, now_ns);
            loop = &loops[begun % spread];
            now_ns = RG_MAX(now_ns, rg_limiter_next_ns(loop, now_ns));
        }
        RG_CHECK(begun >= SECONDS * RATE && begun <= SECONDS * RATE + RATE / 4 + 1);
    }
}

/* Each of many loops that always have something to send gets its turn. */
static void test_loops_that_wait_get_their_turns(void)
{
    enum { LOOPS = 4, TURNS = 50 };
    static struct rg_limiter loops[LOOPS];
    static struct rg_rate rate;
    unsigned begun[LOOPS] = {0};
    now_ns = 1000 * RG_NS_PER_S;
    rg_rate_init(&rate, &(struct rg_rate_options){.ceiling = 4}, now_ns);
    for (unsigned i = 0; i < LOOPS; i++) {
        rg_limiter_init(&loops[i], &(struct rg_limiter_options){.limit_max = 1000, .rate = &rate},
                        now_ns);
    }
    for (unsigned turn = 0; turn < TURNS * LOOPS; turn++) {
        uint64_t next_ns = UINT64_MAX;
        for (unsigned i = 0; i < LOOPS; i++) {
            begun[i] += rg_limiter_enter(&loops[i], now_ns);
            next_ns = RG_MIN(next_ns, rg_limiter_next_ns(&loops[i], now_ns));
        }
        now_ns = RG_MAX(next_ns, now_ns + 1);
    }
    for (unsigned i = 0; i < LOOPS; i++) {
        RG_CHECK(begun[i] + 2 >= begun[0] && begun[i] <= begun[0] + 2);
        RG_CHECK(begun[i] > 1);
    }
}

/* A client has connections for 16, and more requests than that hold memory: these wait for one. */
static void test_what_waits_for_a_connection_is_not_out(void)
{
    const uint64_t answer_ns = 10 * RG_NS_PER_MS;
    const struct rg_limiter_options options = {.limit_max = 16, .seed = 1};
    now_ns = 1000 * RG_NS_PER_S;
    rg_limiter_init(&limiter, &options, now_ns);
    for (unsigned i = 0; i < 1000; i++) {
        rg_limiter_enter_always(&limiter, now_ns);
    }
    now_ns += answer_ns;
    rg_limiter_leave(&limiter, RG_LIMITER_ANSWERED, now_ns - answer_ns, now_ns);
    double gap_ns = (double)answer_ns / 16;
    RG_CHECK(rg_limiter_gap_ns(&limiter) == gap_ns);
    RG_CHECK(rg_limiter_leave(&limiter, RG_LIMITER_THROTTLED, now_ns - answer_ns, now_ns));
    RG_CHECK(limiter.gap_ns > gap_ns);
    /* And it lasts. */
    now_ns += answer_ns + 1;
    rg_limiter_leave(&limiter, RG_LIMITER_ANSWERED, now_ns - answer_ns, now_ns);
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    RG_CHECK(rg_limiter_limit(&limiter) < 16);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_there_is_no_rate_at_first),
        RG_TEST(test_throttling_cuts_once_for_what_was_sent_before),
        RG_TEST(test_a_cut_goes_by_the_share_of_refusals),
        RG_TEST(test_the_rate_grows_with_time),
        RG_TEST(test_answers_raise_it_quickly_to_what_was_known),
        RG_TEST(test_it_finds_the_rate_of_a_bucket),
        RG_TEST(test_rates_of_many_become_equal),
        RG_TEST(test_rising_latency_cuts_too),
        RG_TEST(test_all_is_out_at_once_at_first),
        RG_TEST(test_an_outage_ends_without_a_herd),
        RG_TEST(test_gaps_vary),
        RG_TEST(test_less_than_one_at_a_time),
        RG_TEST(test_an_outage_ends_at_the_rate_that_was_usual),
        RG_TEST(test_a_refusal_of_few_says_little_about_many),
        RG_TEST(test_what_was_learned_is_forgotten_when_idle),
        RG_TEST(test_a_large_job_begins_with_what_a_bucket_takes),
        RG_TEST(test_a_process_alone_is_fast_in_its_first_second),
        RG_TEST(test_a_large_job_in_an_outage_asks_as_often_as_at_first),
        RG_TEST(test_a_large_job_that_is_refused_asks_for_less_than_one_range_has),
        RG_TEST(test_a_large_job_rises_only_while_it_asks),
        RG_TEST(test_a_refusal_ends_the_rise),
        RG_TEST(test_lessons_are_the_same_up_and_down),
        RG_TEST(test_a_rate_is_kept_too),
        RG_TEST(test_loops_share_one_rate),
        RG_TEST(test_loops_that_wait_get_their_turns),
        RG_TEST(test_what_waits_for_a_connection_is_not_out),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
