/* What the thread of a memory tier does by itself: nobody calls for it here. */
#include "cache/memory_keeper.h"

#include "cache/memory_table.h"
#include "tests/cache/memory_case.h"

#define SIZE RG_MIB(64)

static void test_others_find_what_was_put_and_take_it_over(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *first = memory_case_start(&c, SIZE), *second = memory_case_start(&c, SIZE);
    RG_CHECK(memory_case_put(&c, first, 1, 5000));
    RG_AWAIT(memory_case_read(&c, second, 1, 5000) == CASE_HIT);
    rg_memory_close(first);
    /* Whoever comes now finds it by the second one, when that has noticed. */
    struct rg_memory *third = memory_case_start(&c, SIZE);
    RG_AWAIT(memory_case_read(&c, third, 1, 5000) == CASE_HIT);
    rg_memory_close(second);
    RG_CHECK_EQ(memory_case_read(&c, third, 1, 5000), CASE_HIT);
    rg_memory_close(third);
    cache_case_close(&c);
}

static void test_what_is_evicted_is_let_go_of(void)
{
    struct cache_case c;
    struct rg_memory_table table;
    struct rg_memory_line line;
    cache_case_open(&c);
    struct rg_memory *memory = memory_case_start(&c, SIZE);
    RG_CHECK(memory_case_put(&c, memory, 1, 5000));
    rg_memory_flush(memory);
    RG_CHECK_EQ(rg_memory_table_open(&table, c.share, c.why, sizeof(c.why)), 0);
    RG_CHECK_EQ(rg_memory_table_read(&table, 0, 1, &line), 0);
    RG_CHECK_EQ(line.state, RG_MEMORY_SEALED);
    RG_CHECK(rg_memory_table_is_held(&table, 0) && rg_memory_table_is_owned(&table, 0));
    line.state = RG_MEMORY_EVICTED;
    RG_CHECK_EQ(rg_memory_table_write(&table, 0, &line), 0);
    RG_AWAIT(!rg_memory_table_is_held(&table, 0));
    RG_CHECK_EQ(memory_case_read(&c, memory, 1, 5000), CASE_MISS);
    RG_AWAIT(memory_case_stats(memory).size == 0);
    rg_memory_table_close(&table);
    rg_memory_close(memory);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_others_find_what_was_put_and_take_it_over),
        RG_TEST(test_what_is_evicted_is_let_go_of),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
