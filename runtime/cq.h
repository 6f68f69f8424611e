/* The inner side of a completion queue (the outer side is in <ringest/runtime.h>).
 *
 * A submit function reserves a slot before it accepts a request; the event loop that finishes the
 * request publishes its record into that slot. So publishing always finds room and never waits. */
#ifndef RG_RUNTIME_CQ_H
#define RG_RUNTIME_CQ_H

#include "runtime/base.h"

#include <ringest/runtime.h>

/* 0, or -EOWNERDEAD in a child of the process that opened the runtime. Defined where runtimes are.
 */
int rg_runtime_check(const struct rg_runtime *runtime);

/* Reserves up to `count` slots; each is to be published into or unreserved. Returns how many:
 * fewer, possibly 0, when the queue is full; -EOWNERDEAD in a forked child. Any thread. */
int rg_cq_reserve(struct rg_cq *cq, uint32_t count);
void rg_cq_unreserve(struct rg_cq *cq, uint32_t count);

/* Copies the records into reserved slots, one after the other, and wakes who waits. The queue may
 * be closed as soon as the last of them has been taken off, even before this returns. Any thread.
 */
void rg_cq_publish(struct rg_cq *cq, const struct rg_completion *records, uint32_t count);

#endif
