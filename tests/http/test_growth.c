/* How many connections a pool opens, by times that the test makes up. */
#include "http/growth.h"

#include "tests/support/test.h"

#define MS RG_NS_PER_MS

static uint32_t allowed(const struct rg_growth *growth, uint32_t open, uint32_t connecting,
                        uint64_t oldest_ns)
{
    struct rg_growth_now now = {
        .max = 256, .processes = 1, .open = open, .connecting = connecting, .oldest_ns = oldest_ns};
    return rg_growth_allowed(growth, &now);
}

static void test_a_few_when_nothing_is_known(void)
{
    struct rg_growth growth = {0};
    RG_CHECK_EQ(allowed(&growth, 0, 0, 0), RG_GROWTH_FIRST);
    RG_CHECK_EQ(allowed(&growth, 3, 3, 0), RG_GROWTH_FIRST - 3);
    RG_CHECK_EQ(allowed(&growth, RG_GROWTH_FIRST, 0, MS), 0);
    RG_CHECK_EQ(rg_growth_age(&growth), UINT64_MAX);
}

static void test_a_slow_service_doubles_them(void)
{
    struct rg_growth growth = {0};
    rg_growth_connected(&growth, 1 * MS, 3 * MS);
    rg_growth_answered(&growth, 30 * MS);
    RG_CHECK_EQ(allowed(&growth, 8, 0, 0), 8);
    RG_CHECK_EQ(allowed(&growth, 16, 8, 0), 0);
    RG_CHECK_EQ(allowed(&growth, 16, 1, 0), 14);
    RG_CHECK_EQ(allowed(&growth, 100, 0, 0), 100);
}

/* A server far away: the round trip makes handshakes and answers alike. */
static void test_the_way_is_taken_off(void)
{
    struct rg_growth growth = {0};
    rg_growth_connected(&growth, 100 * MS, 102 * MS);
    rg_growth_answered(&growth, 130 * MS);
    RG_CHECK_EQ(allowed(&growth, 8, 0, 0), 8);
    struct rg_growth near = {0};
    rg_growth_connected(&near, MS, 102 * MS);
    rg_growth_answered(&near, 130 * MS);
    RG_CHECK_EQ(allowed(&near, 8, 0, 0), 0);
}

static void test_an_answer_that_does_not_come(void)
{
    struct rg_growth growth = {0};
    rg_growth_connected(&growth, 1 * MS, 4 * MS);
    uint64_t age_ns = rg_growth_age(&growth);
    RG_CHECK_EQ(age_ns, 7 * MS);
    RG_CHECK_EQ(allowed(&growth, 8, 0, age_ns), 0);
    RG_CHECK_EQ(allowed(&growth, 8, 0, age_ns + 1), 8);
    rg_growth_answered(&growth, 1 * MS);
    RG_CHECK_EQ(allowed(&growth, 8, 0, age_ns + 1), 0);
    RG_CHECK_EQ(rg_growth_age(&growth), RG_GROWTH_PATIENCE_NS);
    RG_CHECK_EQ(allowed(&growth, 8, 0, rg_growth_age(&growth) + 1), 1);
    RG_CHECK_EQ(allowed(&growth, 9, 1, rg_growth_age(&growth) + 1), 0);
}

static void test_quick_answers_pay(void)
{
    struct rg_growth growth = {0};
    rg_growth_connected(&growth, MS / 10, 2 * MS);
    for (uint32_t i = 1; i <= 3 * RG_GROWTH_EXCHANGES; i++) {
        rg_growth_answered(&growth, MS);
        RG_CHECK_EQ(allowed(&growth, 8, 0, 0), i / RG_GROWTH_EXCHANGES);
    }
    rg_growth_begun(&growth, 3);
    RG_CHECK_EQ(allowed(&growth, 8, 0, 0), 3);
    rg_growth_begun(&growth, 8);
    RG_CHECK_EQ(allowed(&growth, 9, 1, 0), 2);
}

/* Answers become slow, and quick again. */
static void test_averages_follow(void)
{
    struct rg_growth growth = {0};
    rg_growth_connected(&growth, MS / 10, 2 * MS);
    rg_growth_answered(&growth, MS);
    for (int i = 0; i < 64; i++) {
        rg_growth_answered(&growth, 30 * MS);
    }
    RG_CHECK_EQ(allowed(&growth, 64, 0, 0), 64);
    for (int i = 0; i < 64; i++) {
        rg_growth_answered(&growth, MS);
    }
    RG_CHECK_EQ(allowed(&growth, 64, 0, 0), growth.unpaid / RG_GROWTH_EXCHANGES);
}

static void test_many_processes_share_what_is_opened_at_once(void)
{
    struct rg_growth growth = {0};
    rg_growth_connected(&growth, MS / 10, 2 * MS);
    rg_growth_answered(&growth, 30 * MS);
    struct rg_growth_now now = {.max = 256, .processes = 2, .open = 128};
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 128);
    now.processes = 3;
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 170 - 128);
    now.open = 170;
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 0);
    now.oldest_ns = RG_GROWTH_PATIENCE_NS + 1;
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 1);
    now.oldest_ns = 0;
    for (uint32_t i = 1; i < RG_GROWTH_EXCHANGES; i++) {
        rg_growth_answered(&growth, 30 * MS);
    }
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 1);
    now = (struct rg_growth_now){.max = 256, .processes = 1000, .open = 3};
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), RG_GROWTH_FIRST - 3);
}

/* Half of the time is waited for a CPU: answers of 10 ms are such of 5 ms, and 5 ms is not slow. */
static void test_a_loop_that_is_short_of_cpu(void)
{
    struct rg_growth growth = {0};
    rg_growth_connected(&growth, MS / 10, 3 * MS);
    rg_growth_answered(&growth, 10 * MS);
    struct rg_growth_now now = {.max = 256, .processes = 1, .open = 8};
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 8);
    now.crowd = 50;
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 0);
    now.oldest_ns = RG_GROWTH_PATIENCE_NS + 1;
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 0);
    for (uint32_t i = 1; i < RG_GROWTH_EXCHANGES; i++) {
        rg_growth_answered(&growth, 10 * MS);
    }
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 0);
    now.crowd = RG_GROWTH_CROWD_PERCENT - 1;
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 8);
    for (uint32_t i = 0; i < 64; i++) {
        rg_growth_answered(&growth, 100 * MS);
    }
    now.crowd = 50;
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 8);
    now.crowd = 100;
    RG_CHECK_EQ(rg_growth_allowed(&growth, &now), 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_loop_that_is_short_of_cpu),
        RG_TEST(test_a_few_when_nothing_is_known),
        RG_TEST(test_a_slow_service_doubles_them),
        RG_TEST(test_the_way_is_taken_off),
        RG_TEST(test_an_answer_that_does_not_come),
        RG_TEST(test_quick_answers_pay),
        RG_TEST(test_averages_follow),
        RG_TEST(test_many_processes_share_what_is_opened_at_once),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
