/* What loops have counted: one, or all of this process, those that have ended included. A program
 * that asks at its end has often closed its clients.
 *
 * The life of a loop here: enter -> it counts -> leave, and what it counted is kept. A child of
 * fork begins anew. Any thread. */
#ifndef RG_RUNTIME_CENSUS_H
#define RG_RUNTIME_CENSUS_H

#include "runtime/loop.h"

/* Once, when the loop runs. */
void rg_census_enter(struct rg_loop *loop);
/* Before it is destroyed. Harmless for a loop that never entered. */
void rg_census_leave(struct rg_loop *loop);

/* CPU time that the thread of a loop has used so far, while it runs. Any thread. */
uint64_t rg_census_loop_cpu(const struct rg_loop *loop);

/* Adds what one loop has counted, and what it has now, to `metrics`. */
void rg_census_add_loop(const struct rg_loop *loop, struct rg_metrics *metrics);
/* The same of all loops of the process. */
void rg_census_add_all(struct rg_metrics *metrics);

#endif
