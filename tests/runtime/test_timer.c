/* The timer wheel: directed cases, and random operations against a model that keeps every deadline
 * in a plain array. */
#include "runtime/timer.h"

#include "tests/support/test.h"

#define TICK RG_TIMER_TICK_NS
#define START_NS (UINT64_C(123456) * RG_NS_PER_S + 789)
#define MINUTE_NS (60 * RG_NS_PER_S)
#define DAY_NS (24 * 60 * MINUTE_NS)

static struct rg_timer_wheel wheel;

static unsigned expired_count(uint64_t now_ns)
{
    struct rg_list expired;
    unsigned count = 0;
    rg_list_init(&expired);
    rg_timer_wheel_advance(&wheel, now_ns, &expired);
    while (rg_timer_pop_expired(&expired) != NULL) {
        count++;
    }
    RG_CHECK(rg_timer_wheel_valid(&wheel));
    return count;
}

/* Sleeps as a loop does, from one wake-up to the next, until something expires. Returns when. */
static uint64_t run_until_expiry(unsigned *out_wakeups)
{
    for (unsigned wakeups = 1;; wakeups++) {
        uint64_t next_ns = rg_timer_wheel_next_ns(&wheel);
        RG_CHECK(next_ns != RG_TIMER_NEVER);
        if (expired_count(next_ns) > 0) {
            *out_wakeups = wakeups;
            return next_ns;
        }
    }
}

static void test_empty_wheel_never_wakes(void)
{
    rg_timer_wheel_init(&wheel, START_NS);
    RG_CHECK(rg_timer_wheel_next_ns(&wheel) == RG_TIMER_NEVER);
    RG_CHECK_EQ(expired_count(START_NS + 400 * DAY_NS), 0);
}

static void test_expiry_is_never_early_and_at_most_a_tick_late(void)
{
    static const uint64_t delays[] = {
        0,           1,           RG_NS_PER_US,     RG_NS_PER_MS, TICK - 1,
        TICK,        TICK + 1,    63 * TICK,        64 * TICK,    65 * TICK,
        4096 * TICK, RG_NS_PER_S, 30 * RG_NS_PER_S, MINUTE_NS,    DAY_NS,
        365 * DAY_NS};
    for (size_t i = 0; i < RG_ARRAY_LEN(delays); i++) {
        struct rg_timer timer = {0};
        unsigned wakeups;
        rg_timer_wheel_init(&wheel, START_NS);
        rg_timer_set(&wheel, &timer, START_NS + delays[i]);
        RG_CHECK(rg_timer_armed(&timer));
        uint64_t expired_ns = run_until_expiry(&wakeups);
        RG_CHECK(expired_ns >= START_NS + delays[i]);
        RG_CHECK(expired_ns - (START_NS + delays[i]) <= TICK);
        RG_CHECK(wakeups <= RG_TIMER_LEVEL_COUNT);
        RG_CHECK(!rg_timer_armed(&timer));
    }
}

static void test_deadline_on_a_tick_expires_exactly_there(void)
{
    struct rg_timer timer = {0};
    rg_timer_wheel_init(&wheel, 0);
    rg_timer_set(&wheel, &timer, 7 * TICK);
    RG_CHECK_EQ(expired_count(7 * TICK - 1), 0);
    RG_CHECK_EQ(expired_count(7 * TICK), 1);
}

static void test_deadline_in_the_past_expires_at_the_next_tick(void)
{
    struct rg_timer timer = {0};
    rg_timer_wheel_init(&wheel, START_NS);
    rg_timer_set(&wheel, &timer, 5);
    RG_CHECK(rg_timer_wheel_next_ns(&wheel) <= START_NS + TICK);
    RG_CHECK_EQ(expired_count(START_NS + TICK), 1);
}

static void test_cancelled_timer_does_not_expire(void)
{
    struct rg_timer timer = {0};
    rg_timer_wheel_init(&wheel, START_NS);
    rg_timer_cancel(&wheel, &timer);
    rg_timer_set(&wheel, &timer, START_NS + RG_NS_PER_S);
    rg_timer_cancel(&wheel, &timer);
    RG_CHECK(!rg_timer_armed(&timer));
    RG_CHECK(rg_timer_wheel_next_ns(&wheel) == RG_TIMER_NEVER);
    RG_CHECK_EQ(expired_count(START_NS + DAY_NS), 0);
}

static void test_setting_never_cancels(void)
{
    struct rg_timer timer = {0};
    rg_timer_wheel_init(&wheel, START_NS);
    rg_timer_set(&wheel, &timer, START_NS + RG_NS_PER_S);
    rg_timer_set(&wheel, &timer, RG_TIMER_NEVER);
    RG_CHECK(!rg_timer_armed(&timer));
    RG_CHECK(rg_timer_wheel_next_ns(&wheel) == RG_TIMER_NEVER);
}

static void test_moving_a_deadline_later_leaves_the_lists_alone(void)
{
    struct rg_timer timer = {0};
    unsigned wakeups;
    rg_timer_wheel_init(&wheel, START_NS);
    rg_timer_set(&wheel, &timer, START_NS + 30 * RG_NS_PER_S);
    const uint64_t next_ns = rg_timer_wheel_next_ns(&wheel);
    const uint16_t slot = timer.slot;
    for (uint64_t s = 1; s <= 20; s++) {
        rg_timer_set(&wheel, &timer, START_NS + (30 + s) * RG_NS_PER_S);
        RG_CHECK_EQ(timer.slot, slot);
    }
    RG_CHECK(rg_timer_wheel_next_ns(&wheel) == next_ns);
    uint64_t expired_ns = run_until_expiry(&wakeups);
    RG_CHECK(expired_ns >= START_NS + 50 * RG_NS_PER_S);
    RG_CHECK(expired_ns <= START_NS + 50 * RG_NS_PER_S + TICK);
}

static void test_moving_a_deadline_earlier_takes_effect(void)
{
    struct rg_timer timer = {0};
    unsigned wakeups;
    rg_timer_wheel_init(&wheel, START_NS);
    rg_timer_set(&wheel, &timer, START_NS + DAY_NS);
    rg_timer_set(&wheel, &timer, START_NS + RG_NS_PER_MS);
    uint64_t expired_ns = run_until_expiry(&wakeups);
    RG_CHECK(expired_ns <= START_NS + RG_NS_PER_MS + TICK);
    RG_CHECK(rg_timer_wheel_next_ns(&wheel) == RG_TIMER_NEVER);
}

static void test_cancel_takes_a_timer_off_the_expired_list(void)
{
    struct rg_timer timers[3] = {0};
    struct rg_list expired;
    rg_list_init(&expired);
    rg_timer_wheel_init(&wheel, START_NS);
    for (int i = 0; i < 3; i++) {
        rg_timer_set(&wheel, &timers[i], START_NS + RG_NS_PER_MS);
    }
    rg_timer_wheel_advance(&wheel, START_NS + RG_NS_PER_S, &expired);
    RG_CHECK(!rg_timer_armed(&timers[1]));
    rg_timer_cancel(&wheel, &timers[1]);
    RG_CHECK(rg_timer_pop_expired(&expired) == &timers[0]);
    RG_CHECK(rg_timer_pop_expired(&expired) == &timers[2]);
    RG_CHECK(rg_timer_pop_expired(&expired) == NULL);
    RG_CHECK(rg_timer_wheel_valid(&wheel));
}

static void test_an_expired_timer_can_be_set_again_before_it_is_taken_off(void)
{
    struct rg_timer timer = {0};
    struct rg_list expired;
    rg_list_init(&expired);
    rg_timer_wheel_init(&wheel, START_NS);
    rg_timer_set(&wheel, &timer, START_NS);
    rg_timer_wheel_advance(&wheel, START_NS + RG_NS_PER_S, &expired);
    rg_timer_set(&wheel, &timer, START_NS + 2 * RG_NS_PER_S);
    RG_CHECK(rg_list_empty(&expired));
    RG_CHECK(rg_timer_armed(&timer));
    RG_CHECK_EQ(expired_count(START_NS + 3 * RG_NS_PER_S), 1);
}

static void test_a_clock_that_goes_back_is_ignored(void)
{
    struct rg_timer timer = {0};
    rg_timer_wheel_init(&wheel, START_NS);
    RG_CHECK_EQ(expired_count(START_NS + 100 * TICK), 0);
    RG_CHECK_EQ(expired_count(START_NS), 0);
    rg_timer_set(&wheel, &timer, START_NS + 50 * TICK);
    RG_CHECK(rg_timer_wheel_next_ns(&wheel) > START_NS + 99 * TICK);
    RG_CHECK_EQ(expired_count(START_NS), 0);
    RG_CHECK_EQ(expired_count(START_NS + 101 * TICK), 1);
}

static void test_the_far_end_of_time_has_slots(void)
{
    struct rg_timer last = {0}, middle = {0};
    rg_timer_wheel_init(&wheel, 0);
    rg_timer_set(&wheel, &last, UINT64_MAX - 1);
    rg_timer_set(&wheel, &middle, UINT64_MAX / 2);
    RG_CHECK(rg_timer_wheel_valid(&wheel));
    RG_CHECK_EQ(expired_count(UINT64_MAX / 2 - 1), 0);
    RG_CHECK_EQ(expired_count(UINT64_MAX / 2 + TICK), 1);
    RG_CHECK_EQ(expired_count(UINT64_MAX), 1);
}

static void test_twenty_thousand_timers_expire_each_once(void)
{
    enum { COUNT = 20000 };
    struct rg_timer *timers = calloc(COUNT, sizeof(*timers));
    rg_timer_wheel_init(&wheel, START_NS);
    for (unsigned i = 0; i < COUNT; i++) {
        rg_timer_set(&wheel, &timers[i], START_NS + rg_test_random_below(2 * RG_NS_PER_S));
    }
    unsigned expired = 0;
    uint64_t next_ns;
    while ((next_ns = rg_timer_wheel_next_ns(&wheel)) != RG_TIMER_NEVER) {
        struct rg_list list;
        rg_list_init(&list);
        rg_timer_wheel_advance(&wheel, next_ns, &list);
        struct rg_timer *timer;
        while ((timer = rg_timer_pop_expired(&list)) != NULL) {
            RG_CHECK(timer->deadline_ns <= next_ns && next_ns - timer->deadline_ns <= TICK);
            expired++;
        }
    }
    RG_CHECK_EQ(expired, COUNT);
    free(timers);
}

/* The model: what the wheel must do, without any structure. Tick for tick the same rule. */
enum { MODEL_COUNT = 300, MODEL_STEPS = 10000 };
static struct {
    struct rg_timer timer;
    bool is_armed;
    uint64_t deadline_ns, set_ns;
} model[MODEL_COUNT];

static uint64_t random_delay(void)
{
    static const uint64_t scales[] = {RG_NS_PER_MS,     20 * RG_NS_PER_MS, RG_NS_PER_S,
                                      60 * RG_NS_PER_S, 60 * MINUTE_NS,    10 * DAY_NS};
    return rg_test_random_below(scales[rg_test_random_below(RG_ARRAY_LEN(scales))]);
}

static uint64_t model_due_tick(unsigned i)
{
    uint64_t tick = (model[i].deadline_ns + TICK - 1) / TICK;
    return RG_MAX(tick, model[i].set_ns / TICK + 1);
}

/* Some owners cancel or set other timers, also ones that are on the list. */
static void model_check_expired(struct rg_list *expired, uint64_t now_ns)
{
    struct rg_timer *timer;
    while ((timer = rg_timer_pop_expired(expired)) != NULL) {
        unsigned i = (unsigned)(((char *)timer - (char *)model) / sizeof(model[0]));
        RG_CHECK(model[i].is_armed);
        RG_CHECK(model[i].deadline_ns <= now_ns);
        model[i].is_armed = false;
        unsigned other = (unsigned)rg_test_random_below(MODEL_COUNT);
        if (rg_test_random_below(8) == 0) {
            rg_timer_cancel(&wheel, &model[other].timer);
            model[other].is_armed = false;
        }
    }
    uint64_t next_ns = rg_timer_wheel_next_ns(&wheel);
    for (unsigned i = 0; i < MODEL_COUNT; i++) {
        RG_CHECK_EQ(rg_timer_armed(&model[i].timer), model[i].is_armed);
        RG_CHECK(!model[i].is_armed || model_due_tick(i) > now_ns / TICK);
        RG_CHECK(!model[i].is_armed || next_ns <= model_due_tick(i) * TICK);
    }
}

static void test_random_operations_agree_with_a_plain_array(void)
{
    uint64_t now_ns = START_NS;
    memset(model, 0, sizeof(model));
    rg_timer_wheel_init(&wheel, now_ns);
    for (unsigned step = 0; step < MODEL_STEPS; step++) {
        unsigned i = (unsigned)rg_test_random_below(MODEL_COUNT);
        uint64_t choice = rg_test_random_below(10);
        if (choice < 6) {
            model[i].deadline_ns = now_ns + random_delay();
            model[i].set_ns = now_ns;
            model[i].is_armed = true;
            rg_timer_set(&wheel, &model[i].timer, model[i].deadline_ns);
        } else if (choice < 8) {
            rg_timer_cancel(&wheel, &model[i].timer);
            model[i].is_armed = false;
        } else {
            struct rg_list expired;
            rg_list_init(&expired);
            uint64_t next_ns = rg_timer_wheel_next_ns(&wheel);
            bool is_to_next = choice == 8 && next_ns != RG_TIMER_NEVER;
            now_ns = is_to_next ? RG_MAX(next_ns, now_ns) : now_ns + random_delay();
            rg_timer_wheel_advance(&wheel, now_ns, &expired);
            RG_CHECK(rg_timer_wheel_valid(&wheel));
            model_check_expired(&expired, now_ns);
        }
    }
}

static void test_no_delay_leads_to_the_past(void)
{
    RG_CHECK(rg_time_after(START_NS, 5) == START_NS + 5);
    RG_CHECK(rg_time_after(START_NS, UINT64_MAX) == RG_TIMER_NEVER);
    RG_CHECK(rg_time_after(START_NS, UINT64_MAX - START_NS) == RG_TIMER_NEVER);
    RG_CHECK(rg_time_after(START_NS, UINT64_MAX - START_NS - 1) == UINT64_MAX - 1);
    RG_CHECK(rg_time_after(RG_TIMER_NEVER, 1) == RG_TIMER_NEVER);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_no_delay_leads_to_the_past),
        RG_TEST(test_empty_wheel_never_wakes),
        RG_TEST(test_expiry_is_never_early_and_at_most_a_tick_late),
        RG_TEST(test_deadline_on_a_tick_expires_exactly_there),
        RG_TEST(test_deadline_in_the_past_expires_at_the_next_tick),
        RG_TEST(test_cancelled_timer_does_not_expire),
        RG_TEST(test_setting_never_cancels),
        RG_TEST(test_moving_a_deadline_later_leaves_the_lists_alone),
        RG_TEST(test_moving_a_deadline_earlier_takes_effect),
        RG_TEST(test_cancel_takes_a_timer_off_the_expired_list),
        RG_TEST(test_an_expired_timer_can_be_set_again_before_it_is_taken_off),
        RG_TEST(test_a_clock_that_goes_back_is_ignored),
        RG_TEST(test_the_far_end_of_time_has_slots),
        RG_TEST(test_twenty_thousand_timers_expire_each_once),
        RG_TEST(test_random_operations_agree_with_a_plain_array),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
