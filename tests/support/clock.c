/* A clock that is set ahead: see clock.h. */
#include "tests/support/clock.h"

#include "tests/support/loop.h"

#include <stdatomic.h>

static _Atomic uint64_t skipped_ns;

uint64_t __real_rg_now_ns(void);
uint64_t __wrap_rg_now_ns(void);

uint64_t __wrap_rg_now_ns(void)
{
    return __real_rg_now_ns() + atomic_load_explicit(&skipped_ns, memory_order_relaxed);
}

void rg_test_clock_skip(struct rg_loop *loop, uint64_t ns)
{
    atomic_fetch_add(&skipped_ns, ns);
    if (loop != NULL) {
        rg_test_loop_turn(loop);
    }
}
