/* What a simulation of the whole client goes through, read from a data file of `key = value` lines;
 * `#` begins a comment. Keys without a dot are the numbers below; `network.x` is the probability of
 * the fault x of the simulation (RG_SIM_FAULTS), `server.x` that of the trouble x of the server
 * (RG_SIM_GCS_TROUBLES), both in percent, with names in lower case. */
#ifndef RG_TESTS_SUPPORT_SIM_SCENARIO_H
#define RG_TESTS_SUPPORT_SIM_SCENARIO_H

#include "tests/support/sim_gcs.h"

/* XX(name, default) */
#define RG_SIM_SCENARIO_NUMBERS(XX)                                                                \
    XX(runs, 20) /* seeds, one after the other */                                                  \
    XX(loops, 1)                                                                                   \
    XX(memory_mib, 16) /* of each loop */                                                          \
    XX(connections, 8) /* at most, over all loops */                                               \
    XX(prewarm, 0)                                                                                 \
    XX(attempts, 8)                                                                                \
    XX(latency_us, 100) /* one way */                                                              \
    XX(window_kib, 256) /* of a socket */                                                          \
    XX(pause_ms, 0)     /* at most, between the pieces of a slow answer */                         \
    XX(object_kib, 64)  /* the largest object */                                                   \
    XX(requests, 40)                                                                               \
    XX(spread_ms, 100)        /* in which they are submitted; 0: all at once */                    \
    XX(gets, 4)               /* shares of the requests: whole objects, */                         \
    XX(ranges, 2)             /* parts of objects, */                                              \
    XX(puts, 2)               /* uploads, a half of them on a condition, */                        \
    XX(lists, 1)              /* and pages of a listing */                                         \
    XX(buffers_percent, 30)   /* of the reads that go into memory of the reader's */               \
    XX(cancel_percent, 0)     /* of the requests that are cancelled, */                            \
    XX(cancel_ms, 50)         /* at most so long after they were submitted */                      \
    XX(deadline_percent, 0)   /* of the requests that have a deadline, */                          \
    XX(deadline_ms, 0)        /* at most so far away */                                            \
    XX(hold_ms, 0)            /* at most, that a reader keeps what it got */                       \
    XX(close_ms, 0)           /* at most, until the client is closed; 0: when all is done */       \
    XX(addresses, 1)          /* of the server, of which the first */                              \
    XX(refusing_addresses, 0) /* refuse connections and the next */                                \
    XX(silent_addresses, 0)   /* never answer; the others work */                                  \
    XX(all_ok, 1)             /* every request that may be repeated succeeds */                    \
    XX(none_ok, 0)            /* none does */                                                      \
    XX(patient, 0)            /* what Retry-After asks for is always heard */                      \
    XX(garbled, 0)            /* bytes may be anything: contents are not checked */

struct rg_sim_scenario {
#define XX(name, standard) uint64_t name;
    RG_SIM_SCENARIO_NUMBERS(XX)
#undef XX
    uint32_t network[RG_SIM_FAULT_COUNT]; /* parts per million */
    uint32_t server[RG_SIM_GCS_TROUBLE_COUNT];
};

/* 0, or the number of the first line that is wrong, or a negative errno of reading the file. */
int rg_sim_scenario_read(struct rg_sim_scenario *out_scenario, const char *path);

#endif
