/* The table of segments in memory: one for all who name the folder, locks that end with whoever has
 * them, and files that are refused. Two openings of one process have locks of their own, as two
 * processes have. */
#include "cache/memory_table.h"

#include "tests/cache/cache_case.h"

static void table_open(struct cache_case *c, struct rg_memory_table *table)
{
    RG_CHECK_EQ(rg_memory_table_open(table, c->share, c->why, sizeof(c->why)), 0);
}

static void measured(struct cache_case *c, uint64_t want_segments, uint64_t want_bytes)
{
    uint64_t segments = 9, bytes = 9;
    RG_CHECK_EQ(rg_memory_table_measure(c->share, &segments, &bytes, c->why, sizeof(c->why)), 0);
    RG_CHECK_EQ(segments, want_segments);
    RG_CHECK_EQ(bytes, want_bytes);
}

static void test_all_who_open_it_see_the_same(void)
{
    struct cache_case c;
    struct rg_memory_table first, second, alone;
    struct rg_memory_line line = {.size = 7, .state = RG_MEMORY_SEALED, .pid = 3}, got;
    cache_case_open(&c);
    measured(&c, 0, 0);
    table_open(&c, &first);
    table_open(&c, &second);
    RG_CHECK_EQ(rg_memory_table_open(&alone, NULL, c.why, sizeof(c.why)), 0);
    RG_CHECK(first.is_shared && !alone.is_shared);
    RG_CHECK_EQ(rg_memory_table_write(&first, RG_MEMORY_LINES - 1, &line), 0);
    rg_memory_table_note(&first, RG_MEMORY_LINES - 1, 99);
    RG_CHECK_EQ(rg_memory_table_read(&second, RG_MEMORY_LINES - 1, 1, &got), 0);
    line.last_use = 99;
    RG_CHECK_MEM(&got, sizeof(got), &line, sizeof(line));
    RG_CHECK_EQ(rg_memory_table_read(&alone, RG_MEMORY_LINES - 1, 1, &got), 0);
    RG_CHECK_EQ(got.state, RG_MEMORY_FREE);
    RG_CHECK_EQ(rg_memory_table_tick(&first, 5), 5);
    RG_CHECK_EQ(rg_memory_table_tick(&second, 3), 8);
    rg_memory_table_close(&first);
    rg_memory_table_close(&second);
    rg_memory_table_close(&alone);
    measured(&c, 0, 0);
    cache_case_close(&c);
}

static void test_locks_end_with_their_holder(void)
{
    struct cache_case c;
    struct rg_memory_table first, second;
    cache_case_open(&c);
    table_open(&c, &first);
    table_open(&c, &second);
    RG_CHECK_EQ(rg_memory_table_lock(&first), 0);
    RG_CHECK_EQ(rg_memory_table_lock(&second), -EAGAIN);
    rg_memory_table_unlock(&first);
    RG_CHECK_EQ(rg_memory_table_lock(&second), 0);
    RG_CHECK_EQ(rg_memory_table_hold(&first, 8), 0);
    RG_CHECK_EQ(rg_memory_table_hold(&second, 8), 0);
    RG_CHECK_EQ(rg_memory_table_own(&first, 8), 0);
    RG_CHECK_EQ(rg_memory_table_own(&second, 8), -EAGAIN);
    RG_CHECK(rg_memory_table_is_held(&first, 8) && rg_memory_table_is_owned(&second, 8));
    struct rg_memory_line line = {.size = 100, .state = RG_MEMORY_EVICTED};
    RG_CHECK_EQ(rg_memory_table_write(&first, 8, &line), 0);
    RG_CHECK_EQ(rg_memory_table_write(&first, 9, &line), 0);
    measured(&c, 1, 100);
    RG_CHECK(!rg_memory_table_is_held(&first, 9) && !rg_memory_table_is_owned(&first, 8));
    rg_memory_table_close(&first);
    RG_CHECK(!rg_memory_table_is_held(&second, 8) && !rg_memory_table_is_owned(&second, 8));
    RG_CHECK_EQ(rg_memory_table_own(&second, 8), 0);
    rg_memory_table_let_go(&second, 8);
    table_open(&c, &first);
    RG_CHECK(!rg_memory_table_is_held(&first, 8) && !rg_memory_table_is_owned(&first, 8));
    rg_memory_table_close(&first);
    rg_memory_table_close(&second);
    cache_case_close(&c);
}

static void refused(struct cache_case *c, const char *word)
{
    struct rg_memory_table table;
    RG_CHECK(rg_memory_table_open(&table, c->share, c->why, sizeof(c->why)) < 0);
    if (strstr(c->why, word) == NULL) {
        rg_test_fail(__FILE__, __LINE__, "it says %s, and not %s", c->why, word);
    }
}

static void test_files_that_are_refused(void)
{
    struct cache_case c;
    struct rg_memory_table table;
    cache_case_open(&c);
    table_open(&c, &table);
    RG_CHECK_EQ(chmod(table.path, 0644), 0);
    refused(&c, "yours alone");
    RG_CHECK_EQ(chmod(table.path, 0600), 0);
    RG_CHECK_EQ(pwrite(table.fd, "x", 1, 0), 1);
    refused(&c, "another version");
    RG_CHECK_EQ(pwrite(table.fd, "r", 1, 0), 1);
    RG_CHECK_EQ(ftruncate(table.fd, 100), 0);
    refused(&c, "damaged");
    RG_CHECK(rg_memory_table_read(&table, 0, 1, &(struct rg_memory_line){.pid = 0}) < 0);
    RG_CHECK_EQ(unlink(table.path), 0);
    RG_CHECK_EQ(symlink("/etc/passwd", table.path), 0);
    refused(&c, "cannot be opened");
    rg_memory_table_close(&table);
    RG_CHECK(rg_memory_table_open(&table, "/tmp/there is none", c.why, sizeof(c.why)) < 0);
    cache_case_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_all_who_open_it_see_the_same),
        RG_TEST(test_locks_end_with_their_holder),
        RG_TEST(test_files_that_are_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
