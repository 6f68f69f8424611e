/* What every part of the simulation (sim.h) stands on: its time, the events to come, chance and the
 * faults that chance decides, and the trace of what happened.
 *
 * An event runs once, at its time, and events of one time run in the order in which they were
 * added. Whatever it points at lives until the simulation is destroyed, so that no event needs to
 * know whether its target is gone. */
#ifndef RG_TESTS_SUPPORT_SIM_WORLD_H
#define RG_TESTS_SUPPORT_SIM_WORLD_H

#include "tests/support/sim.h"

#define RG_SIM_TRACE_LEN 256
#define RG_SIM_LISTENERS_MAX 64

struct rg_sim_event {
    uint64_t at_ns, order;
    void (*run)(struct rg_sim *sim, const struct rg_sim_event *event);
    void *target;
    uint64_t tag;
    void (*function)(void *context);
    uint8_t *owned;
    size_t size;
};

struct rg_sim_trace_entry {
    uint64_t at_ns;
    const char *what;
    uint32_t id;
    int64_t value;
};

/* What is at an address: a service, a listening socket, or nothing. */
struct rg_sim_listener {
    struct sockaddr_storage address;
    const struct rg_sim_service *service;
    void *context;
    struct rg_sim_end *socket;
    uint64_t delay_ns;
};

struct rg_sim {
    struct rg_sim_options options;
    struct rg_list node; /* of all simulations */
    uint64_t now_ns, random_state, serial;
    struct rg_list ends, loops;
    uint32_t end_count, socket_count;
    struct rg_sim_listener listeners[RG_SIM_LISTENERS_MAX];
    uint32_t listener_count;
    struct rg_sim_event *events; /* a binary heap */
    size_t event_count, event_room;
    uint64_t event_order;
    uint64_t fault_counts[RG_SIM_FAULT_COUNT];
    struct rg_sim_trace_entry trace[RG_SIM_TRACE_LEN];
    uint64_t trace_count, hash;
};

/* FNV-1a. */
uint64_t rg_sim_hash_bytes(uint64_t hash, const void *data, size_t size);
/* `what` is kept, and is a literal. */
void rg_sim_trace(struct rg_sim *sim, const char *what, uint32_t id, int64_t value);
/* Whether a fault happens now; then it is counted and in the trace. */
bool rg_sim_strikes(struct rg_sim *sim, enum rg_sim_fault fault);

/* Takes event.owned, which is freed when the event has run. */
void rg_sim_event_add(struct rg_sim *sim, struct rg_sim_event event);
/* The first one, of which there must be one. Its `owned` is the caller's. */
struct rg_sim_event rg_sim_event_take(struct rg_sim *sim);

/* What is left of a simulation without ends and loops. */
void rg_sim_world_free(struct rg_sim *sim);

#endif
