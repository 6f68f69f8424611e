/* How connections come about in the simulation: who listens where, and what a connect op meets. A
 * connection is two ends (sim_end.h) that have each other as `other`. */
#ifndef RG_TESTS_SUPPORT_SIM_CONNECT_H
#define RG_TESTS_SUPPORT_SIM_CONNECT_H

#include "tests/support/sim_end.h"

/* The connect op in that slot begins; it completes by an event. */
void rg_sim_connect_start(struct rg_sim_end *end, struct rg_sim_slot *slot);

#endif
