/* A resolver for the simulation. Names are looked up by a thread, which knows nothing of virtual
 * time. So the only one there is was looked up before anything begins, and never grows old. */
#ifndef RG_TESTS_SUPPORT_SIM_RESOLVER_H
#define RG_TESTS_SUPPORT_SIM_RESOLVER_H

#include "http/resolver.h"
#include "tests/support/sim.h"

#include <netinet/in.h>

/* One at a time. It knows the host, at port 80, by these addresses; the loop takes the mail of the
 * look-up. */
struct rg_resolver *rg_sim_resolver_create(struct rg_sim *sim, struct rg_loop *loop,
                                           const char *host, const struct sockaddr_in *addresses,
                                           uint32_t count);

#endif
