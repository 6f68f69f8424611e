/* Segments of a memory tier and their budget: how many may be made, and when their lines are free.
 */
#include "cache/memory_tier.h"

#include "tests/cache/memory_case.h"

/* Makes segments until there is no room, as if each were full. */
static unsigned fill(struct rg_memory *memory)
{
    unsigned made = 0;
    pthread_mutex_lock(&memory->lock);
    memory->retry_ns = 0;
    while (rg_memory_entry_make_locked(memory) != NULL) {
        made++;
    }
    RG_CHECK(memory->retry_ns > 0);
    pthread_mutex_unlock(&memory->lock);
    return made;
}

static void test_segments_fill_the_budget_of_all(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *first = memory_case_start(&c, RG_MIB(17));
    struct rg_memory *second = memory_case_start(&c, RG_MIB(17));
    RG_CHECK_EQ(first->segment_size, RG_MIB(2));
    RG_CHECK_EQ(fill(first), 8);
    RG_CHECK_EQ(fill(second), 0);
    RG_CHECK_EQ(memory_case_stats(second).size, RG_MIB(16));
    RG_CHECK_EQ(memory_case_stats(second).segments, 8);
    /* They go with their process. */
    rg_memory_close(first);
    RG_CHECK_EQ(fill(second), 8);
    rg_memory_close(second);
    cache_case_close(&c);
}

static void test_an_entry_ends_with_its_last_reader(void)
{
    struct cache_case c;
    cache_case_open(&c);
    struct rg_memory *memory = memory_case_start(&c, RG_MIB(16));
    RG_CHECK(memory_case_put(&c, memory, 1, 1000));
    struct rg_lease *lease = memory_case_lease(memory, 1);
    pthread_mutex_lock(&memory->lock);
    struct rg_memory_entry *entry = memory->filling;
    RG_CHECK(entry != NULL && entry->refs == 2 && memory->users == 2);
    RG_CHECK(memory->entries[entry->line] == entry && entry->is_owned);
    pthread_mutex_unlock(&memory->lock);
    rg_lease_release(lease);
    RG_CHECK_EQ(entry->refs, 1);
    rg_memory_close(memory);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_segments_fill_the_budget_of_all),
        RG_TEST(test_an_entry_ends_with_its_last_reader),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
