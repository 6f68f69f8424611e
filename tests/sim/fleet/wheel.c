/* See wheel.h. */
#include "tests/sim/fleet/wheel.h"

#define SLOT_MASK ((UINT64_C(1) << RG_FLEET_SLOT_BITS) - 1)

void rg_fleet_wheel_init(struct rg_fleet_wheel *wheel)
{
    wheel->now_ns = wheel->tick = wheel->count = 0;
    for (size_t i = 0; i < RG_ARRAY_LEN(wheel->slots); i++) {
        rg_list_init(&wheel->slots[i]);
    }
}

void rg_fleet_set(struct rg_fleet_wheel *wheel, struct rg_fleet_event *event, uint64_t at_ns)
{
    RG_ASSERT(!rg_fleet_is_set(event) && event->fire != NULL);
    uint64_t tick = (at_ns + (UINT64_C(1) << RG_FLEET_TICK_BITS) - 1) >> RG_FLEET_TICK_BITS;
    event->tick = RG_MAX(tick, wheel->tick + 1);
    rg_list_push_back(&wheel->slots[event->tick & SLOT_MASK], &event->node);
    wheel->count++;
}

void rg_fleet_cancel(struct rg_fleet_wheel *wheel, struct rg_fleet_event *event)
{
    if (rg_fleet_is_set(event)) {
        rg_list_remove(&event->node);
        wheel->count--;
    }
}

/* What belongs to a later turn goes back to the end; nothing is added to the slot meanwhile but
 * that. */
static void slot_fire(struct rg_fleet_wheel *wheel, struct rg_list *slot)
{
    struct rg_list later;
    rg_list_init(&later);
    while (!rg_list_empty(slot)) {
        struct rg_list *node = rg_list_pop_front(slot);
        struct rg_fleet_event *event = RG_CONTAINER_OF(node, struct rg_fleet_event, node);
        RG_ASSERT(event->tick >= wheel->tick);
        if (event->tick > wheel->tick) {
            rg_list_push_back(&later, node);
            continue;
        }
        wheel->count--;
        event->fire(event);
    }
    while (!rg_list_empty(&later)) {
        rg_list_push_back(slot, rg_list_pop_front(&later));
    }
}

void rg_fleet_run_until(struct rg_fleet_wheel *wheel, uint64_t end_ns)
{
    while (wheel->tick < end_ns >> RG_FLEET_TICK_BITS) {
        wheel->tick++;
        wheel->now_ns = wheel->tick << RG_FLEET_TICK_BITS;
        struct rg_list *slot = &wheel->slots[wheel->tick & SLOT_MASK];
        if (!rg_list_empty(slot)) {
            slot_fire(wheel, slot);
        }
    }
}
