/* The trace that <ringest/trace.h> begins: memory that loops and sleeping threads write events to.
 *
 *   OFF --begin--> ON --end--> ENDED --free, or begin--> OFF, ON
 *
 * A child of fork() begins at OFF where its parent is at ON.
 *
 * Who writes takes places in groups, so that threads do not share a counter at each event, and an
 * event counts when its time is there, which is written last. A thread that is late may still write
 * after the end: so the memory stays mapped for good, and only its pages are given back.
 *
 * Callers look at rg_tracing_is_on first: when it is off, nothing is called. */
#ifndef RG_RUNTIME_TRACING_H
#define RG_RUNTIME_TRACING_H

#include "runtime/base.h"

#include <ringest/trace.h>

#include <stdatomic.h>

extern _Atomic bool rg_tracing_on;

static inline bool rg_tracing_is_on(void)
{
    return RG_UNLIKELY(atomic_load_explicit(&rg_tracing_on, memory_order_relaxed));
}

/* Copies the event, at_ns included. Any thread. */
__attribute__((cold)) void rg_tracing_add(const struct rg_trace_event *event);
/* A thread has slept for samples. */
__attribute__((cold)) void rg_tracing_sleep(uint64_t began_ns, uint64_t ended_ns);

#endif
