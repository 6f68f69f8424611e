/* When requests are sent again: the rules one by one, and random histories against what must always
 * hold. */
#include "gcs/request/retry.h"

#include "tests/support/test.h"

#define NOW_NS (UINT64_C(5000) * RG_NS_PER_S)

static const struct rg_retry_policy policy = {
    .attempts_max = 8,
    .backoff_min_ns = 100 * RG_NS_PER_MS,
    .backoff_max_ns = 30 * RG_NS_PER_S,
};

static struct rg_retry retry;
static struct rg_retry_budget budget;

static void begin(const struct rg_retry_policy *of)
{
    rg_retry_init(&retry, of, rg_test_random());
    rg_retry_budget_init(&budget);
}

static struct rg_retry_event failure(enum rg_status status)
{
    return (struct rg_retry_event){
        .status = status, .idempotent = true, .sent = true, .now_ns = NOW_NS};
}

/* The delay, or 0 where it gives up. */
static uint64_t next_delay(const struct rg_retry_event *event)
{
    uint64_t at_ns = 1;
    if (!rg_retry_next(&retry, &budget, event, &at_ns)) {
        RG_CHECK_EQ(at_ns, 1);
        return 0;
    }
    RG_CHECK(at_ns > event->now_ns);
    return at_ns - event->now_ns;
}

static void test_only_retryable_statuses_are_tried_again(void)
{
    for (int status = 1; status < RG_STATUS_COUNT; status++) {
        struct rg_retry_event event = failure((enum rg_status)status);
        begin(&policy);
        RG_CHECK_EQ(next_delay(&event) > 0, rg_status_retryable((enum rg_status)status));
    }
}

static void test_what_would_fail_alike_is_not_tried_again(void)
{
    struct rg_retry_event event = failure(RG_STATUS_CONNECT);
    begin(&policy);
    RG_CHECK(next_delay(&event) > 0);
    event.final = true;
    RG_CHECK_EQ(next_delay(&event), 0);
}

static void test_attempts_are_counted(void)
{
    for (uint32_t attempts_max = 1; attempts_max < 20; attempts_max++) {
        struct rg_retry_policy own = policy;
        own.attempts_max = attempts_max;
        begin(&own);
        struct rg_retry_event event = failure(RG_STATUS_SERVER);
        for (uint32_t attempt = 1; attempt < attempts_max; attempt++) {
            RG_CHECK(next_delay(&event) > 0);
        }
        RG_CHECK_EQ(next_delay(&event), 0);
    }
}

static void test_what_may_have_taken_effect_is_not_done_twice(void)
{
    struct rg_retry_event event = failure(RG_STATUS_CONNECTION_LOST);
    event.idempotent = false;
    begin(&policy);
    RG_CHECK_EQ(next_delay(&event), 0);
    event.sent = false;
    begin(&policy);
    RG_CHECK(next_delay(&event) > 0);
}

/* Full jitter: over many draws, each window is used from its start to its end, evenly. */
static void test_windows_double_up_to_the_longest(void)
{
    enum { DRAWS = 2000, RETRIES = 12 };
    struct rg_retry_policy own = policy;
    own.attempts_max = RETRIES + 1;
    uint64_t low[RETRIES], high[RETRIES] = {0};
    double sum[RETRIES] = {0};
    memset(low, 0xff, sizeof(low));
    for (int draw = 0; draw < DRAWS; draw++) {
        begin(&own);
        struct rg_retry_event event = failure(RG_STATUS_SERVER);
        for (int i = 0; i < RETRIES; i++) {
            uint64_t delay_ns = next_delay(&event);
            low[i] = RG_MIN(low[i], delay_ns);
            high[i] = RG_MAX(high[i], delay_ns);
            sum[i] += (double)delay_ns;
        }
    }
    for (int i = 0; i < RETRIES; i++) {
        uint64_t window_ns = RG_MIN(own.backoff_min_ns << i, own.backoff_max_ns);
        double mean = sum[i] / DRAWS / (double)window_ns;
        RG_CHECK(low[i] >= 1 && low[i] < window_ns / 20);
        RG_CHECK(high[i] <= window_ns && high[i] > window_ns - window_ns / 20);
        RG_CHECK(mean > 0.45 && mean < 0.55);
    }
}

static void test_many_attempts_do_not_overflow_the_window(void)
{
    struct rg_retry_policy own = {
        .attempts_max = 1000, .backoff_min_ns = UINT64_MAX, .backoff_max_ns = UINT64_MAX};
    begin(&own);
    struct rg_retry_event event = failure(RG_STATUS_SERVER);
    for (int i = 1; i < 1000; i++) {
        uint64_t delay_ns = next_delay(&event);
        RG_CHECK(delay_ns > 0 && delay_ns <= RG_RETRY_BACKOFF_NS_MAX);
    }
}

static void test_progress_resets_the_window_but_not_the_attempts(void)
{
    struct rg_retry_event event = failure(RG_STATUS_TRUNCATED);
    event.progress = true;
    for (int round = 0; round < 200; round++) {
        begin(&policy);
        for (uint32_t attempt = 1; attempt < policy.attempts_max; attempt++) {
            uint64_t delay_ns = next_delay(&event);
            RG_CHECK(delay_ns > 0 && delay_ns <= policy.backoff_min_ns);
        }
        RG_CHECK_EQ(next_delay(&event), 0);
    }
}

static void test_retry_after_comes_before_the_delay_and_is_used_once(void)
{
    struct rg_retry_event event = failure(RG_STATUS_THROTTLED);
    for (int round = 0; round < 200; round++) {
        begin(&policy);
        retry.retry_after_ns = 3 * RG_NS_PER_S;
        uint64_t delay_ns = next_delay(&event);
        RG_CHECK(delay_ns > 3 * RG_NS_PER_S);
        RG_CHECK(delay_ns <= 3 * RG_NS_PER_S + policy.backoff_min_ns);
        RG_CHECK(next_delay(&event) <= 2 * policy.backoff_min_ns);
    }
    begin(&policy);
    retry.retry_after_ns = UINT64_MAX;
    RG_CHECK(next_delay(&event) <= RG_RETRY_AFTER_NS_MAX + policy.backoff_min_ns);
}

static void test_retry_after_does_not_make_an_answer_retryable(void)
{
    struct rg_retry_event event = failure(RG_STATUS_NOT_FOUND);
    begin(&policy);
    retry.retry_after_ns = RG_NS_PER_S;
    RG_CHECK_EQ(next_delay(&event), 0);
}

static void test_a_delay_that_reaches_the_deadline_is_not_waited_for(void)
{
    struct rg_retry_event event = failure(RG_STATUS_SERVER);
    begin(&policy);
    event.deadline_ns = NOW_NS + 2 * RG_NS_PER_S;
    retry.retry_after_ns = 2 * RG_NS_PER_S;
    RG_CHECK_EQ(next_delay(&event), 0);
    event.deadline_ns = NOW_NS;
    RG_CHECK_EQ(next_delay(&event), 0);
    event.deadline_ns = NOW_NS - 1;
    RG_CHECK_EQ(next_delay(&event), 0);
    event.deadline_ns = NOW_NS + RG_NS_PER_S;
    RG_CHECK(next_delay(&event) > 0);
}

static void test_an_empty_budget_slows_retries_down(void)
{
    struct rg_retry_event event = failure(RG_STATUS_SERVER);
    int quick = 0;
    begin(&policy);
    for (int i = 0; i < 2000; i++) {
        rg_retry_init(&retry, &policy, rg_test_random());
        uint64_t delay_ns = next_delay(&event);
        if (delay_ns <= policy.backoff_min_ns) {
            RG_CHECK_EQ(quick, i);
            quick++;
        } else {
            RG_CHECK(delay_ns > policy.backoff_max_ns / 2 && delay_ns <= policy.backoff_max_ns);
        }
    }
    RG_CHECK_EQ(quick, RG_RETRY_BUDGET_MAX / RG_RETRY_BUDGET_COST);
}

static void test_successes_refill_the_budget_slowly(void)
{
    struct rg_retry_event event = failure(RG_STATUS_SERVER);
    begin(&policy);
    budget.tenths = 0;
    for (int i = 0; i < 9; i++) {
        rg_retry_budget_success(&budget);
    }
    RG_CHECK(next_delay(&event) > policy.backoff_min_ns);
    rg_retry_budget_success(&budget);
    rg_retry_init(&retry, &policy, rg_test_random());
    RG_CHECK(next_delay(&event) <= policy.backoff_min_ns);
    RG_CHECK_EQ(budget.tenths, 0);
    for (int i = 0; i < 3 * RG_RETRY_BUDGET_MAX; i++) {
        rg_retry_budget_success(&budget);
    }
    RG_CHECK_EQ(budget.tenths, RG_RETRY_BUDGET_MAX);
}

static void test_giving_up_takes_nothing_from_the_budget(void)
{
    struct rg_retry_event event = failure(RG_STATUS_NOT_FOUND);
    begin(&policy);
    RG_CHECK_EQ(next_delay(&event), 0);
    event = failure(RG_STATUS_SERVER);
    event.deadline_ns = NOW_NS + 1;
    RG_CHECK_EQ(next_delay(&event), 0);
    RG_CHECK_EQ(budget.tenths, RG_RETRY_BUDGET_MAX);
}

static void test_the_same_seed_gives_the_same_delays(void)
{
    struct rg_retry_event event = failure(RG_STATUS_SERVER);
    uint64_t first[7];
    for (int round = 0; round < 2; round++) {
        rg_retry_init(&retry, &policy, 42);
        for (size_t i = 0; i < RG_ARRAY_LEN(first); i++) {
            uint64_t delay_ns = next_delay(&event);
            RG_CHECK(round == 0 || delay_ns == first[i]);
            first[i] = delay_ns;
        }
    }
}

static void test_random_histories_stay_within_the_rules(void)
{
    rg_retry_budget_init(&budget);
    for (int round = 0; round < 5000; round++) {
        struct rg_retry_policy own = {
            .attempts_max = 1 + (uint32_t)rg_test_random_below(20),
            .backoff_min_ns = 1 + rg_test_random_below(RG_NS_PER_S),
            .backoff_max_ns = 1 + rg_test_random_below(RG_NS_PER_S * 60),
        };
        rg_retry_init(&retry, &own, rg_test_random());
        uint64_t now_ns = rg_test_random_below(UINT64_C(1) << 60), delay_ns;
        struct rg_retry_event event;
        uint32_t attempts = 0;
        do {
            event = (struct rg_retry_event){
                .status = (enum rg_status)(1 + rg_test_random_below(RG_STATUS_COUNT - 1)),
                .idempotent = rg_test_random_below(8) > 0,
                .sent = rg_test_random_below(8) > 0,
                .progress = rg_test_random_below(2) > 0,
                .now_ns = now_ns,
                .deadline_ns =
                    rg_test_random_below(2) ? 0 : now_ns + rg_test_random_below(1u << 30),
            };
            retry.retry_after_ns = rg_test_random_below(4) ? 0 : rg_test_random();
            delay_ns = next_delay(&event);
            now_ns += delay_ns;
            attempts++;
            RG_CHECK(delay_ns == 0 || event.deadline_ns == 0 || now_ns < event.deadline_ns);
            RG_CHECK(delay_ns <= RG_RETRY_AFTER_NS_MAX + own.backoff_max_ns);
        } while (delay_ns > 0);
        RG_CHECK(attempts <= own.attempts_max);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_only_retryable_statuses_are_tried_again),
        RG_TEST(test_what_would_fail_alike_is_not_tried_again),
        RG_TEST(test_attempts_are_counted),
        RG_TEST(test_what_may_have_taken_effect_is_not_done_twice),
        RG_TEST(test_windows_double_up_to_the_longest),
        RG_TEST(test_many_attempts_do_not_overflow_the_window),
        RG_TEST(test_progress_resets_the_window_but_not_the_attempts),
        RG_TEST(test_retry_after_comes_before_the_delay_and_is_used_once),
        RG_TEST(test_retry_after_does_not_make_an_answer_retryable),
        RG_TEST(test_a_delay_that_reaches_the_deadline_is_not_waited_for),
        RG_TEST(test_an_empty_budget_slows_retries_down),
        RG_TEST(test_successes_refill_the_budget_slowly),
        RG_TEST(test_giving_up_takes_nothing_from_the_budget),
        RG_TEST(test_the_same_seed_gives_the_same_delays),
        RG_TEST(test_random_histories_stay_within_the_rules),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
