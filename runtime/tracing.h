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

/* The same without a copy, for what there are most of: a zeroed event to be written, but for at_ns,
 * and then published; NULL: there is no room. */
struct rg_trace_event *rg_tracing_claim(void);
/* may_change: rg_tracing_latest may give it. */
void rg_tracing_publish(struct rg_trace_event *event, uint64_t at_ns, bool may_change);
/* What this thread has published last, if that is of this request and moment: `what` and
 * `connection` may be changed by rg_tracing_change. Else NULL. */
struct rg_trace_event *rg_tracing_latest(uint64_t request, uint64_t at_ns);
void rg_tracing_change(struct rg_trace_event *event, const char *what, uint64_t connection);
/* A thread has slept for samples. */
__attribute__((cold)) void rg_tracing_sleep(uint64_t began_ns, uint64_t ended_ns);

#endif
