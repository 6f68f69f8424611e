/* Loops for tests: see loop.h. */
#include "tests/support/loop.h"

#include "tests/support/test.h"

const struct rg_backend_ops *rg_test_backend(void)
{
    const char *wanted = getenv("RINGEST_BACKEND");
    if (wanted != NULL && strcmp(wanted, "epoll") == 0) {
        return &rg_epoll_backend;
    }
    const char *reason = "";
    if (rg_uring_probe(&reason) == 0) {
        return &rg_uring_backend;
    }
    if (wanted != NULL && strcmp(wanted, "uring") == 0) {
        rg_test_skip("%s", reason);
    }
    return &rg_epoll_backend;
}

struct rg_loop *rg_test_loop_start(uint64_t memory_max)
{
    struct rg_loop_options options = {
        .backend = rg_test_backend(),
        .placement = {.node = -1, .cpu = -1},
        .memory_max = memory_max,
    };
    struct rg_loop *loop = NULL;
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    return loop;
}

static void nothing(void *context)
{
    (void)context;
}

void rg_test_loop_turn(struct rg_loop *loop)
{
    /* The first pass finds what the kernel has, the second what that has become, and the third is
     * for what was deferred. */
    for (int i = 0; i < 3; i++) {
        rg_loop_call(loop, nothing, NULL);
    }
}

void rg_test_loop_stop(struct rg_loop *loop)
{
    rg_loop_stop(loop);
    rg_loop_destroy(loop);
}
