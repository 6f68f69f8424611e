/* Lends that are told of: in order, once each, with room for as many as there are. */
#include "gcs/upload/lends.h"
#include "tests/support/test.h"

#include <ringest/runtime.h>

#define COUNT 100

static struct rg_runtime *runtime;
static struct rg_cq *cq;

static void push(struct rg_lends *lends, uint64_t number)
{
    RG_CHECK_EQ(rg_cq_reserve(cq, 1), 1);
    RG_CHECK_EQ(rg_lends_reserve(lends), 0);
    rg_lends_push(lends, &(struct rg_lend){.cq = cq,
                                           .user_data = number,
                                           .data = lends,
                                           .size = 10,
                                           .end = 10 * (number + 1),
                                           .crc = 7});
}

static void check_next(uint64_t number, enum rg_status status)
{
    struct rg_completion done;
    RG_CHECK_EQ(rg_cq_poll(cq, &done, 1), 1);
    RG_CHECK_EQ(done.user_data, number);
    RG_CHECK_EQ(done.status, status);
    RG_CHECK_EQ(done.size, 10);
    RG_CHECK_EQ(done.crc32c, 7);
    RG_CHECK((done.detail != NULL) == (status != RG_STATUS_OK));
}

static void test_told_in_order(void)
{
    struct rg_lends lends = {0};
    struct rg_completion done;
    uint64_t told = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        push(&lends, i);
        /* One byte too few for it, and enough for half of those before. */
        rg_lends_settle(&lends, 5 * i + 9, RG_STATUS_OK, NULL);
        for (; 10 * (told + 1) <= 5 * i + 9; told++) {
            check_next(told, RG_STATUS_OK);
        }
        RG_CHECK_EQ(rg_cq_poll(cq, &done, 1), 0);
    }
    RG_CHECK(lends.capacity <= 2 * COUNT);
    rg_lends_settle(&lends, UINT64_MAX, RG_STATUS_PERMISSION, "why");
    for (; told < COUNT; told++) {
        check_next(told, RG_STATUS_PERMISSION);
    }
    rg_lends_settle(&lends, UINT64_MAX, RG_STATUS_PERMISSION, "why");
    RG_CHECK_EQ(rg_cq_poll(cq, &done, 1), 0);
    rg_lends_fini(&lends);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {RG_TEST(test_told_in_order)};
    RG_CHECK_EQ(
        rg_runtime_open(
            &runtime, &(struct rg_runtime_options){.struct_size = sizeof(struct rg_runtime_options),
                                                   .threads = 1,
                                                   .backend = RG_BACKEND_EPOLL}),
        0);
    RG_CHECK_EQ(rg_cq_open(&cq, runtime, COUNT), 0);
    int status = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_cq_close(cq);
    rg_runtime_close(runtime);
    return status;
}
