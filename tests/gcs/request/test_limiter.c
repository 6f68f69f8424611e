/* Limits of concurrency: the rules one by one, and against servers that can do so much. */
#include "gcs/request/limiter.h"
#include "tests/support/test.h"

static struct rg_limiter limiter;
static uint64_t now_ns;

static void begin(uint32_t limit_max)
{
    struct rg_limiter_options options = {.limit_max = limit_max};
    now_ns = 1000 * RG_NS_PER_S;
    rg_limiter_init(&limiter, &options, now_ns);
}

static uint32_t enter(uint32_t count)
{
    uint32_t entered = 0;
    while (entered < count && rg_limiter_enter(&limiter, now_ns)) {
        entered++;
    }
    return entered;
}

static bool leave(enum rg_limiter_outcome outcome, uint64_t sent_ns)
{
    return rg_limiter_leave(&limiter, outcome, sent_ns, now_ns);
}

static void test_there_is_no_limit_at_first(void)
{
    begin(10);
    RG_CHECK_EQ(enter(100000), 100000);
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 10);
    while (limiter.in_flight > 0) {
        RG_CHECK(!leave(limiter.in_flight % 2 ? RG_LIMITER_ANSWERED : RG_LIMITER_BROKEN, now_ns));
    }
    RG_CHECK_EQ(limiter.state, RG_LIMITER_FREE);
}

static void test_throttling_cuts_once_for_what_was_sent_before(void)
{
    begin(100);
    uint64_t sent_ns = now_ns;
    RG_CHECK_EQ(enter(100), 100);
    now_ns += RG_NS_PER_MS;
    RG_CHECK(leave(RG_LIMITER_THROTTLED, sent_ns));
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 70);
    RG_CHECK(!leave(RG_LIMITER_THROTTLED, sent_ns));
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 70);
    RG_CHECK_EQ(limiter.backoffs, 1);
    RG_CHECK_EQ(enter(1), 0);
    while (limiter.in_flight >= 70) {
        leave(RG_LIMITER_BROKEN, sent_ns);
    }
    RG_CHECK_EQ(enter(100), 1);
    now_ns += RG_NS_PER_MS;
    RG_CHECK(leave(RG_LIMITER_THROTTLED, now_ns));
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 49);
    /* Down to one at a time, with a gap between them that ends. */
    for (unsigned i = 0; i < 100; i++) {
        now_ns += 2 * RG_LIMITER_GAP_NS_MAX;
        while (limiter.in_flight > 1) {
            leave(RG_LIMITER_BROKEN, now_ns);
        }
        enter(1);
        leave(RG_LIMITER_THROTTLED, now_ns);
        RG_CHECK(rg_limiter_limit(&limiter) >= 1);
    }
    RG_CHECK_EQ(limiter.state, RG_LIMITER_PACED);
    limiter.in_flight = 0;
    RG_CHECK_EQ(enter(1), 0);
    now_ns = rg_limiter_next_ns(&limiter, now_ns);
    RG_CHECK_EQ(enter(2), 1);
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 1);
}

static void test_answers_raise_it_until_it_is_gone(void)
{
    begin(20);
    RG_CHECK_EQ(enter(20), 20);
    RG_CHECK(leave(RG_LIMITER_THROTTLED, now_ns));
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 14);
    unsigned answers = 0;
    while (limiter.state != RG_LIMITER_FREE) {
        enter(20);
        leave(RG_LIMITER_ANSWERED, now_ns);
        answers++;
        RG_CHECK(answers < 1000);
    }
    /* About 14 + 15 + ... + 19. */
    RG_CHECK(answers > 70 && answers < 130);
    /* A limit that is not used is not raised. */
    begin(20);
    enter(20);
    leave(RG_LIMITER_THROTTLED, now_ns);
    while (limiter.in_flight > 0) {
        leave(RG_LIMITER_BROKEN, now_ns);
    }
    for (unsigned i = 0; i < 1000; i++) {
        enter(1);
        leave(RG_LIMITER_ANSWERED, now_ns);
    }
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 14);
}

/* A server that refuses what is above its capacity, 10 ms a request. */
static void test_it_finds_the_capacity_of_a_server(void)
{
    enum { CAPACITY = 40, ROUNDS = 20000 };
    begin(256);
    uint64_t sent[512];
    uint32_t out = 0, refused = 0, answered = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        now_ns += RG_NS_PER_MS;
        uint32_t due = 0;
        while (due < out && sent[due] + 10 * RG_NS_PER_MS <= now_ns) {
            due++;
        }
        for (uint32_t i = 0; i < due; i++) {
            bool over = out - i > CAPACITY;
            leave(over ? RG_LIMITER_THROTTLED : RG_LIMITER_ANSWERED, sent[i]);
            refused += over && round > ROUNDS / 2;
            answered += !over && round > ROUNDS / 2;
        }
        memmove(sent, sent + due, (out - due) * sizeof(sent[0]));
        out -= due;
        for (uint32_t more = enter(256 - out); more > 0; more--) {
            sent[out++] = now_ns;
        }
        if (round > ROUNDS / 2) {
            RG_CHECK(rg_limiter_limit(&limiter) >= CAPACITY / 2);
            RG_CHECK(rg_limiter_limit(&limiter) <= CAPACITY * 3 / 2);
        }
    }
    RG_CHECK(refused * 20 < answered);
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
    RG_CHECK(rg_limiter_limit(&limiter) <= 90);
    for (unsigned i = 0; i < 100; i++) {
        latency_window(RG_NS_PER_S);
    }
    RG_CHECK(rg_limiter_limit(&limiter) >= RG_LIMITER_LATENCY_LIMIT_MIN);
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
 * usual before is reached in little more than a second. */
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
    uint64_t first = answers_of(&service, RG_NS_PER_S);
    RG_CHECK(first <= usual && first >= usual / 4);
    uint64_t second = answers_of(&service, RG_NS_PER_S);
    RG_CHECK(second <= usual * 12 / 10 && second >= usual * 8 / 10);
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
    service_run(&service, 60 * RG_NS_PER_S);
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
    RG_CHECK_EQ(limiter.state, RG_LIMITER_LIMITED);
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 1);
    service_run(&service, RG_NS_PER_S);
    RG_CHECK(rg_limiter_limit(&limiter) > 150);
}

static void test_what_was_learned_is_forgotten_when_idle(void)
{
    begin(100);
    enter(100);
    leave(RG_LIMITER_THROTTLED, now_ns);
    while (limiter.in_flight > 0) {
        leave(RG_LIMITER_BROKEN, now_ns);
    }
    now_ns += RG_LIMITER_IDLE_NS - 1;
    RG_CHECK_EQ(enter(100), 70);
    limiter.in_flight = 1;
    now_ns += 2 * RG_LIMITER_IDLE_NS;
    /* One is out for long. */
    RG_CHECK_EQ(enter(100), 69);
    limiter.in_flight = 0;
    now_ns += RG_LIMITER_IDLE_NS;
    RG_CHECK_EQ(enter(200), 200);
}

static void test_a_rate_is_kept_too(void)
{
    static struct rg_rate rate;
    struct rg_limiter_options options = {.limit_max = 100, .rate = &rate};
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

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_there_is_no_limit_at_first),
        RG_TEST(test_throttling_cuts_once_for_what_was_sent_before),
        RG_TEST(test_answers_raise_it_until_it_is_gone),
        RG_TEST(test_it_finds_the_capacity_of_a_server),
        RG_TEST(test_rising_latency_cuts_too),
        RG_TEST(test_all_is_out_at_once_at_first),
        RG_TEST(test_an_outage_ends_without_a_herd),
        RG_TEST(test_gaps_vary),
        RG_TEST(test_less_than_one_at_a_time),
        RG_TEST(test_an_outage_ends_at_the_rate_that_was_usual),
        RG_TEST(test_a_refusal_of_few_says_little_about_many),
        RG_TEST(test_what_was_learned_is_forgotten_when_idle),
        RG_TEST(test_a_rate_is_kept_too),
        RG_TEST(test_loops_share_one_rate),
        RG_TEST(test_loops_that_wait_get_their_turns),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
