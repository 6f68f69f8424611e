/* Bytes in the making: appended, shared, and given back. */
#include "emulator/store/memory/writer.h"

#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>

static struct rg_memory_budget budget;

static struct rg_version *finish(struct rg_memory_writer *writer, uint64_t size)
{
    struct rg_store_object_info info = {.size = size, .generation = 1};
    struct rg_version *version = rg_memory_writer_finish(writer, &info);
    RG_CHECK(version != NULL);
    return version;
}

static void test_a_version_takes_what_was_written_and_no_more(void)
{
    struct rg_memory_writer *writer;
    char data[1000];
    memset(data, 'x', sizeof(data));
    for (uint64_t hint = 0; hint < 30000; hint += 29999) {
        budget = (struct rg_memory_budget){.max = RG_MIB(1)};
        RG_CHECK_EQ(rg_memory_writer_create(&writer, &budget, hint), 0);
        for (int i = 0; i < 10; i++) {
            RG_CHECK_EQ(rg_memory_writer_append(writer, data, sizeof(data)), 0);
        }
        RG_CHECK(budget.used > 10000);
        struct rg_version *version = finish(writer, 10000);
        RG_CHECK_EQ(budget.used, 10000);
        RG_CHECK_EQ(version->piece_count, 1);
        rg_version_unref(version);
        RG_CHECK_EQ(budget.used, 0);
    }
}

static void test_an_empty_version(void)
{
    struct rg_memory_writer *writer;
    budget = (struct rg_memory_budget){.max = RG_MIB(1)};
    RG_CHECK_EQ(rg_memory_writer_create(&writer, &budget, 100), 0);
    struct rg_version *version = finish(writer, 0);
    RG_CHECK_EQ(version->piece_count, 0);
    RG_CHECK_EQ(budget.used, 0);
    rg_version_unref(version);
}

static void test_shared_bytes_are_charged_once(void)
{
    struct rg_memory_writer *writer;
    budget = (struct rg_memory_budget){.max = RG_MIB(1)};
    RG_CHECK_EQ(rg_memory_writer_create(&writer, &budget, 4), 0);
    RG_CHECK_EQ(rg_memory_writer_append(writer, "abcd", 4), 0);
    struct rg_version *source = finish(writer, 4);
    RG_CHECK_EQ(rg_memory_writer_create(&writer, &budget, 1), 0);
    RG_CHECK_EQ(rg_memory_writer_append(writer, "-", 1), 0);
    RG_CHECK_EQ(rg_memory_writer_append_version(writer, source), 0);
    RG_CHECK_EQ(rg_memory_writer_append_version(writer, source), 0);
    struct rg_version *joined = finish(writer, 9);
    RG_CHECK_EQ(budget.used, 5);
    rg_version_unref(source);
    RG_CHECK_EQ(budget.used, 5);
    rg_version_unref(joined);
    RG_CHECK_EQ(budget.used, 0);
}

static void test_what_is_beyond_the_budget_is_refused(void)
{
    struct rg_memory_writer *writer;
    char *data = calloc(1, RG_KIB(100));
    budget = (struct rg_memory_budget){.max = RG_KIB(100)};
    RG_CHECK_EQ(rg_memory_writer_create(&writer, &budget, RG_KIB(100) + 1), -ENOSPC);
    RG_CHECK_EQ(rg_memory_writer_create(&writer, &budget, 0), 0);
    RG_CHECK_EQ(rg_memory_writer_append(writer, data, RG_KIB(100)), 0);
    RG_CHECK_EQ(rg_memory_writer_append(writer, data, 1), -ENOSPC);
    rg_memory_writer_destroy(writer);
    RG_CHECK_EQ(budget.used, 0);
    free(data);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_version_takes_what_was_written_and_no_more),
        RG_TEST(test_an_empty_version),
        RG_TEST(test_shared_bytes_are_charged_once),
        RG_TEST(test_what_is_beyond_the_budget_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
