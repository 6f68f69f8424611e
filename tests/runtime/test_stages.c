/* The time of gets at each stage: of one loop's counts, without a loop. */
#include "runtime/stages.h"

#include "tests/support/test.h"

#include <string.h>

static struct rg_stages stages;
static struct rg_metrics metrics;
static uint64_t now_ns;

static void begin(void)
{
    memset(&stages, 0, sizeof(stages));
    memset(&metrics, 0, sizeof(metrics));
    now_ns = 1000;
    rg_stages_pass(&stages, &metrics, now_ns, false);
}

static void pass(uint64_t elapsed_ns, bool is_short)
{
    now_ns += elapsed_ns;
    rg_stages_pass(&stages, &metrics, now_ns, is_short);
}

static uint64_t spent(enum rg_stage stage)
{
    return rg_metric_load(&metrics.stages[stage]);
}

static void test_the_time_of_gets_adds_up(void)
{
    begin();
    pass(500, false);
    rg_stages_move(&stages, RG_STAGE_NONE, RG_STAGE_QUEUE);
    rg_stages_move(&stages, RG_STAGE_NONE, RG_STAGE_FIRST_BYTE);
    pass(10, false);
    rg_stages_move(&stages, RG_STAGE_QUEUE, RG_STAGE_FIRST_BYTE);
    pass(5, false);
    rg_stages_move(&stages, RG_STAGE_FIRST_BYTE, RG_STAGE_BODY);
    rg_stages_move(&stages, RG_STAGE_FIRST_BYTE, RG_STAGE_NONE);
    pass(3, false);
    rg_stages_move(&stages, RG_STAGE_BODY, RG_STAGE_NONE);
    pass(1000, false);
    RG_CHECK_EQ(spent(RG_STAGE_QUEUE), 10);
    RG_CHECK_EQ(spent(RG_STAGE_FIRST_BYTE), 10 + 2 * 5);
    RG_CHECK_EQ(spent(RG_STAGE_BODY), 3);
    RG_CHECK_EQ(spent(RG_STAGE_NONE), 0);
}

static void test_who_waits_for_a_connection_waits_for_those_that_open(void)
{
    begin();
    for (int i = 0; i < 8; i++) {
        rg_stages_move(&stages, RG_STAGE_NONE, RG_STAGE_QUEUE);
    }
    stages.opening[RG_OPENING_DNS] = 1;
    pass(100, false);
    RG_CHECK_EQ(spent(RG_STAGE_DNS), 800);
    stages.opening[RG_OPENING_DNS] = 0;
    stages.opening[RG_OPENING_CONNECT] = 1;
    stages.opening[RG_OPENING_TLS] = 3;
    pass(100, false);
    RG_CHECK_EQ(spent(RG_STAGE_CONNECT), 200);
    RG_CHECK_EQ(spent(RG_STAGE_TLS), 600);
    RG_CHECK_EQ(spent(RG_STAGE_QUEUE), 0);
}

static void test_without_memory_nothing_else_is_waited_for(void)
{
    begin();
    rg_stages_move(&stages, RG_STAGE_NONE, RG_STAGE_QUEUE);
    stages.opening[RG_OPENING_TLS] = 1;
    pass(7, true);
    RG_CHECK_EQ(spent(RG_STAGE_MEMORY), 7);
    RG_CHECK_EQ(spent(RG_STAGE_TLS), 0);
}

static void test_limits_hold_back_or_there_are_enough_inside(void)
{
    begin();
    rg_stages_move(&stages, RG_STAGE_NONE, RG_STAGES_ADMISSION);
    rg_stages_move(&stages, RG_STAGE_NONE, RG_STAGES_ADMISSION);
    pass(10, false);
    RG_CHECK_EQ(spent(RG_STAGE_QUEUE), 20);
    stages.held = 2;
    pass(3, false);
    RG_CHECK_EQ(spent(RG_STAGE_THROTTLED), 6);
    RG_CHECK_EQ(spent(RG_STAGE_QUEUE), 20);
}

static void test_stages_have_names(void)
{
    RG_CHECK_STR(rg_stage_name(RG_STAGE_NONE), "none");
    RG_CHECK_STR(rg_stage_name(RG_STAGE_FIRST_BYTE), "first_byte");
    RG_CHECK_STR(rg_stage_name(RG_STAGE_COUNT), "unknown");
    for (unsigned i = 0; i < RG_STAGE_COUNT; i++) {
        RG_CHECK(rg_stage_name((enum rg_stage)i) != NULL);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_time_of_gets_adds_up),
        RG_TEST(test_who_waits_for_a_connection_waits_for_those_that_open),
        RG_TEST(test_without_memory_nothing_else_is_waited_for),
        RG_TEST(test_limits_hold_back_or_there_are_enough_inside),
        RG_TEST(test_stages_have_names),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
