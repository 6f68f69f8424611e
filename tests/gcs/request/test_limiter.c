/* Limits of concurrency and rate: the rules one by one, and against servers that can do so much. */
#include "gcs/request/limiter.h"
#include "tests/support/test.h"

static struct rg_limiter limiter;
static uint64_t now_ns;

static void begin(uint32_t limit_max, double rate)
{
    struct rg_limiter_options options = {.limit_max = limit_max, .rate = rate};
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
    begin(10, 0);
    RG_CHECK_EQ(enter(100000), 100000);
    RG_CHECK_EQ(rg_limiter_next_ns(&limiter, now_ns), UINT64_MAX);
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 10);
    while (limiter.in_flight > 0) {
        RG_CHECK(!leave(limiter.in_flight % 2 ? RG_LIMITER_ANSWERED : RG_LIMITER_BROKEN, now_ns));
    }
    RG_CHECK(!limiter.limited);
}

static void test_throttling_cuts_once_for_what_was_sent_before(void)
{
    begin(100, 0);
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
    /* Down to one, and not further. */
    for (unsigned i = 0; i < 100; i++) {
        now_ns += RG_NS_PER_MS;
        while (limiter.in_flight > 1) {
            leave(RG_LIMITER_BROKEN, now_ns);
        }
        enter(1);
        leave(RG_LIMITER_THROTTLED, now_ns);
        RG_CHECK(rg_limiter_limit(&limiter) >= 1);
    }
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 1);
}

static void test_answers_raise_it_until_it_is_gone(void)
{
    begin(20, 0);
    RG_CHECK_EQ(enter(20), 20);
    RG_CHECK(leave(RG_LIMITER_THROTTLED, now_ns));
    RG_CHECK_EQ(rg_limiter_limit(&limiter), 14);
    unsigned answers = 0;
    while (limiter.limited) {
        enter(20);
        leave(RG_LIMITER_ANSWERED, now_ns);
        answers++;
        RG_CHECK(answers < 1000);
    }
    /* About 14 + 15 + ... + 19. */
    RG_CHECK(answers > 70 && answers < 130);
    /* A limit that is not used is not raised. */
    begin(20, 0);
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
    begin(256, 0);
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
    begin(100, 0);
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
    begin(100, 0);
    enter(100);
    for (unsigned i = 0; i < 100; i++) {
        latency_window(5 * RG_NS_PER_S);
    }
    RG_CHECK_EQ(limiter.backoffs, 0);
}

/* Takes all there is for so long; how many began. */
static uint64_t use_for(uint64_t duration_ns)
{
    uint64_t begun = 0;
    for (uint64_t end_ns = now_ns + duration_ns; now_ns < end_ns;) {
        uint32_t entered = enter(100000);
        begun += entered;
        limiter.in_flight = 0;
        uint64_t next_ns = rg_limiter_next_ns(&limiter, now_ns);
        RG_CHECK(next_ns > now_ns && next_ns != UINT64_MAX);
        now_ns = RG_MAX(next_ns, now_ns + RG_NS_PER_MS);
    }
    return begun;
}

static void test_the_rate_is_a_ceiling(void)
{
    begin(100, 1000);
    RG_CHECK_EQ(enter(100000), 250);
    limiter.in_flight = 0;
    uint64_t begun = use_for(10 * RG_NS_PER_S);
    RG_CHECK(begun > 9900 && begun <= 10001);
    /* Far less than one a second. */
    begin(100, 0.01);
    RG_CHECK_EQ(enter(1), 0);
    now_ns = rg_limiter_next_ns(&limiter, now_ns);
    RG_CHECK_EQ(enter(2), 1);
}

static void test_the_rate_doubles_in_20_minutes_of_use(void)
{
    begin(100, 100);
    (void)use_for(20 * 60 * RG_NS_PER_S);
    RG_CHECK(limiter.ramp.rate > 180 && limiter.ramp.rate < 201);
    (void)use_for(20 * 60 * RG_NS_PER_S);
    RG_CHECK(limiter.ramp.rate > 350 && limiter.ramp.rate < 401);
    /* A minute with a 429 in it does not count, and little use lowers it again. */
    double before = limiter.ramp.rate;
    for (unsigned i = 0; i < 10; i++) {
        limiter.ramp.throttled = true;
        (void)use_for(60 * RG_NS_PER_S);
    }
    RG_CHECK(limiter.ramp.rate <= before * 1.04);
    for (unsigned i = 0; i < 3000; i++) {
        now_ns += 10 * RG_NS_PER_S;
        enter(1);
    }
    RG_CHECK(limiter.ramp.rate >= 100 && limiter.ramp.rate < 101);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_there_is_no_limit_at_first),
        RG_TEST(test_throttling_cuts_once_for_what_was_sent_before),
        RG_TEST(test_answers_raise_it_until_it_is_gone),
        RG_TEST(test_it_finds_the_capacity_of_a_server),
        RG_TEST(test_rising_latency_cuts_too),
        RG_TEST(test_the_rate_is_a_ceiling),
        RG_TEST(test_the_rate_doubles_in_20_minutes_of_use),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
