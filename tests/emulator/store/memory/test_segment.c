/* Memory that is charged to a budget, to the byte. */
#include "emulator/store/memory/segment.h"

#include "tests/support/test.h"

#include <errno.h>

static void test_the_budget_is_charged_by_capacity(void)
{
    struct rg_memory_budget budget = {.max = 100};
    struct rg_segment *first, *second;
    RG_CHECK_EQ(rg_segment_create(&first, &budget, 60), 0);
    RG_CHECK_EQ(rg_segment_create(&second, &budget, 41), -ENOSPC);
    RG_CHECK_EQ(rg_segment_create(&second, &budget, 40), 0);
    RG_CHECK_EQ(budget.used, 100);
    RG_CHECK_EQ(rg_segment_resize(first, 61), -ENOSPC);
    RG_CHECK_EQ(first->capacity, 60);
    RG_CHECK_EQ(rg_segment_resize(second, 10), 0);
    RG_CHECK_EQ(rg_segment_resize(first, 90), 0);
    RG_CHECK_EQ(budget.used, 100);
    rg_segment_unref(second);
    RG_CHECK_EQ(budget.used, 90);
    rg_segment_unref(first);
    RG_CHECK_EQ(budget.used, 0);
}

static void test_the_last_reference_gives_it_back(void)
{
    struct rg_memory_budget budget = {.max = 100};
    struct rg_segment *segment;
    RG_CHECK_EQ(rg_segment_create(&segment, &budget, 100), 0);
    RG_CHECK(rg_segment_ref(segment) == segment);
    rg_segment_unref(segment);
    RG_CHECK_EQ(budget.used, 100);
    rg_segment_unref(segment);
    RG_CHECK_EQ(budget.used, 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_budget_is_charged_by_capacity),
        RG_TEST(test_the_last_reference_gives_it_back),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
