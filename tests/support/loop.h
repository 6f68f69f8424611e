/* A loop on a thread of its own, for tests that talk to it from the outside. */
#ifndef RG_TESTS_SUPPORT_LOOP_H
#define RG_TESTS_SUPPORT_LOOP_H

#include "runtime/loop.h"

/* The backend that RINGEST_BACKEND names; without it, io_uring where it is to be had. Skips the
 * case when io_uring was asked for and is not there. */
const struct rg_backend_ops *rg_test_backend(void);

/* A running loop with `memory_max` bytes for bodies (0: none), neither pinned nor bound. A failure
 * ends the case. */
struct rg_loop *rg_test_loop_start(uint64_t memory_max);
/* Ends the thread and frees the loop. Functions are run on it by rg_loop_call. */
void rg_test_loop_stop(struct rg_loop *loop);

/* What was there for the loop when this is called has been seen to when it returns: what the
 * sockets had, and what that led to. */
void rg_test_loop_turn(struct rg_loop *loop);

#endif
