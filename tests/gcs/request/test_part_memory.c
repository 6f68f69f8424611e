/* Memory for parts: what is bounded, what waits, and what is kept. */
#include "gcs/request/part_memory.h"
#include "tests/support/loop.h"
#include "tests/support/test.h"

struct waiter {
    struct rg_task task;
    unsigned runs;
};

static void waiter_run(struct rg_task *task)
{
    struct waiter *waiter = RG_CONTAINER_OF(task, struct waiter, task);
    waiter->runs++;
}

static struct rg_loop *loop_make(void)
{
    struct rg_loop_options options = {
        .backend = rg_test_backend(),
        .placement = {.node = -1, .cpu = -1},
    };
    struct rg_loop *loop = NULL;
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    return loop;
}

static void test_memory_is_used_again(void)
{
    struct rg_loop *loop = loop_make();
    struct rg_part_memory memory;
    struct waiter waiter = {.task.run = waiter_run};
    rg_part_memory_init(&memory, loop);
    rg_part_memory_enter(&memory);
    uint8_t *first = rg_part_memory_take(&memory, 100000, &waiter.task);
    RG_CHECK(first != NULL && ((uintptr_t)first & 4095) == 0);
    memset(first, 1, 100000);
    rg_part_memory_give(&memory, first, 100000);
    RG_CHECK(rg_part_memory_take(&memory, 120000, &waiter.task) == first);
    rg_part_memory_give(&memory, first, 120000);
    RG_CHECK_EQ(memory.out_bytes, 0);
    RG_CHECK_EQ(memory.out_bytes_max, RG_KIB(128));
    rg_part_memory_leave(&memory);
    rg_part_memory_fini(&memory);
    rg_loop_destroy(loop);
}

static void test_who_finds_none_waits(void)
{
    struct rg_loop *loop = loop_make();
    struct rg_part_memory memory;
    struct waiter waiters[2] = {{.task.run = waiter_run}, {.task.run = waiter_run}};
    rg_part_memory_init(&memory, loop);
    rg_part_memory_enter(&memory);
    uint8_t *all = rg_part_memory_take(&memory, RG_PART_MEMORY_MAX, &waiters[0].task);
    RG_CHECK(all != NULL);
    for (unsigned i = 0; i < 2; i++) {
        RG_CHECK(rg_part_memory_take(&memory, 1, &waiters[i].task) == NULL);
        RG_CHECK(rg_list_linked(&waiters[i].task.node));
    }
    rg_loop_undefer(&waiters[1].task);
    rg_part_memory_give(&memory, all, RG_PART_MEMORY_MAX);
    rg_loop_pass(loop, 0);
    RG_CHECK_EQ(waiters[0].runs, 1);
    RG_CHECK_EQ(waiters[1].runs, 0);
    rg_part_memory_leave(&memory);
    RG_CHECK(memory.kept_bytes <= RG_PART_MEMORY_KEPT);
    rg_part_memory_fini(&memory);
    rg_loop_destroy(loop);
}

/* A part that is larger than all there may be is sent alone. */
static void test_one_large_part(void)
{
    struct rg_loop *loop = loop_make();
    struct rg_part_memory memory;
    struct waiter waiter = {.task.run = waiter_run};
    rg_part_memory_init(&memory, loop);
    rg_part_memory_enter(&memory);
    uint8_t *small = rg_part_memory_take(&memory, 1, &waiter.task);
    RG_CHECK(rg_part_memory_take(&memory, 2 * RG_PART_MEMORY_MAX, &waiter.task) == NULL);
    rg_part_memory_give(&memory, small, 1);
    uint8_t *large = rg_part_memory_take(&memory, 2 * RG_PART_MEMORY_MAX, &waiter.task);
    RG_CHECK(large != NULL);
    rg_loop_undefer(&waiter.task);
    rg_part_memory_give(&memory, large, 2 * RG_PART_MEMORY_MAX);
    rg_part_memory_leave(&memory);
    rg_part_memory_fini(&memory);
    rg_loop_destroy(loop);
}

/* What is kept of one size must not keep another from being made, nor add to the bound. */
static void test_kept_memory_counts(void)
{
    struct rg_loop *loop = loop_make();
    struct rg_part_memory memory;
    struct waiter waiter = {.task.run = waiter_run};
    rg_part_memory_init(&memory, loop);
    rg_part_memory_enter(&memory);
    uint8_t *half = rg_part_memory_take(&memory, RG_PART_MEMORY_MAX / 2, &waiter.task);
    rg_part_memory_give(&memory, half, RG_PART_MEMORY_MAX / 2);
    uint8_t *all = rg_part_memory_take(&memory, RG_PART_MEMORY_MAX, &waiter.task);
    RG_CHECK(all != NULL);
    RG_CHECK_EQ(memory.kept_bytes, 0);
    rg_part_memory_give(&memory, all, RG_PART_MEMORY_MAX);
    rg_part_memory_leave(&memory);
    rg_part_memory_fini(&memory);
    rg_loop_destroy(loop);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_memory_is_used_again),
        RG_TEST(test_who_finds_none_waits),
        RG_TEST(test_one_large_part),
        RG_TEST(test_kept_memory_counts),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
