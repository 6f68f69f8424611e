/* A clock that a test sets ahead instead of sleeping until something is due. Linked with
 * -Wl,--wrap=rg_now_ns (tests/meson.build), rg_now_ns is the system's clock and what was skipped.
 */
#ifndef RG_TESTS_SUPPORT_CLOCK_H
#define RG_TESTS_SUPPORT_CLOCK_H

#include "runtime/base.h"

struct rg_loop;

/* From any thread. The loop, unless it is NULL, then sees to what has become due before this
 * returns. */
void rg_test_clock_skip(struct rg_loop *loop, uint64_t ns);

#endif
