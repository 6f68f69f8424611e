/* Events of virtual time, in the order in which they are due: a wheel of slots of 131 us, over 17
 * s. Those of one slot fire in the order in which they were set; what is due later than a turn
 * waits in its slot for the turn that it belongs to. So setting, cancelling and firing take a few
 * instructions each, however many there are, and the same calls always have the same order.
 *
 * An event is its owner's, zeroed at first: rg_fleet_set -> `fire`, or rg_fleet_cancel. */
#ifndef RG_TESTS_SIM_FLEET_WHEEL_H
#define RG_TESTS_SIM_FLEET_WHEEL_H

#include "runtime/base.h"

#define RG_FLEET_TICK_BITS 17
#define RG_FLEET_SLOT_BITS 17

struct rg_fleet_event {
    struct rg_list node;
    uint64_t tick;
    void (*fire)(struct rg_fleet_event *event);
};

struct rg_fleet_wheel {
    uint64_t now_ns, tick;
    uint64_t count; /* set and not fired */
    struct rg_list slots[1 << RG_FLEET_SLOT_BITS];
};

void rg_fleet_wheel_init(struct rg_fleet_wheel *wheel);
/* Not before the next slot. The event is not set yet. */
void rg_fleet_set(struct rg_fleet_wheel *wheel, struct rg_fleet_event *event, uint64_t at_ns);
/* The event may be set or not. */
void rg_fleet_cancel(struct rg_fleet_wheel *wheel, struct rg_fleet_event *event);
/* Fires what is due until then. */
void rg_fleet_run_until(struct rg_fleet_wheel *wheel, uint64_t end_ns);

static inline bool rg_fleet_is_set(const struct rg_fleet_event *event)
{
    return rg_list_linked(&event->node);
}

#endif
