/* Deadlines of one event loop: a hierarchical timer wheel without a clock.
 *
 * The caller says what time it is. Times are nanoseconds of one monotonic clock (rg_now_ns). A
 * timer is embedded in its owner and lives through: idle (zeroed, or cancelled) -> armed
 * (rg_timer_set) -> expired (rg_timer_wheel_advance put it on the caller's list) -> idle (taken off
 * that list). It may be set again or cancelled in every one of these states; idle is the only one
 * to free it in.
 *
 * Precision. A timer never expires before its deadline, and at most one tick after it, or after it
 * was set where the deadline had passed by then. One advance promises no order. */
#ifndef RG_RUNTIME_TIMER_H
#define RG_RUNTIME_TIMER_H

#include "runtime/base.h"

/* About 1 ms; a power of two, so that times become ticks by a shift. */
#define RG_TIMER_TICK_SHIFT 20
#define RG_TIMER_TICK_NS (UINT64_C(1) << RG_TIMER_TICK_SHIFT)

/* A deadline that never passes; setting it cancels. The value of RG_FOREVER. */
#define RG_TIMER_NEVER UINT64_MAX

/* The time `delay_ns` after `from_ns`; RG_TIMER_NEVER where that lies beyond all times, as it does
 * for a delay of RG_FOREVER. Whatever adds a delay that others chose to a time does it here. */
static inline uint64_t rg_time_after(uint64_t from_ns, uint64_t delay_ns)
{
    uint64_t sum_ns;
    return rg_add_overflow(from_ns, delay_ns, &sum_ns) ? RG_TIMER_NEVER : sum_ns;
}

/* How long after `from_ns` `to_ns` is; 0 where it is not after it. This is for two times of which
 * one is a loop's, read once per pass, and the other is of another thread, within that pass. */
static inline uint64_t rg_time_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns - RG_MIN(from_ns, to_ns);
}

#define RG_TIMER_SLOT_BITS 6
#define RG_TIMER_SLOT_COUNT (1 << RG_TIMER_SLOT_BITS)
/* Enough levels for every 64-bit time, so no deadline is too far away to have a slot of its own. */
#define RG_TIMER_LEVEL_COUNT                                                                       \
    ((64 - RG_TIMER_TICK_SHIFT + RG_TIMER_SLOT_BITS - 1) / RG_TIMER_SLOT_BITS)

struct rg_timer {
    struct rg_list node;  /* in a slot of the wheel or in a list of expired timers */
    uint64_t deadline_ns; /* valid while armed or expired */
    uint64_t wake_tick;   /* while armed: when its slot is looked at */
    uint16_t slot;        /* level * RG_TIMER_SLOT_COUNT + slot; UINT16_MAX once expired */
};

/* Must not move once initialized: its lists point at themselves. */
struct rg_timer_wheel {
    uint64_t tick;                           /* all slots up to this one have been looked at */
    uint32_t armed_count;                    /* timers in slots */
    uint64_t occupied[RG_TIMER_LEVEL_COUNT]; /* bit s: slot s of the level has timers */
    struct rg_list slots[RG_TIMER_LEVEL_COUNT][RG_TIMER_SLOT_COUNT];
};

void rg_timer_wheel_init(struct rg_timer_wheel *wheel, uint64_t now_ns);

/* (Re-)arms the timer; RG_TIMER_NEVER cancels it. Moving the deadline of an armed timer to a later
 * time only stores the time: the wheel finds out when it comes by. */
void rg_timer_set(struct rg_timer_wheel *wheel, struct rg_timer *timer, uint64_t deadline_ns);

/* Makes the timer idle, whatever it was. Also takes it off a list of expired timers. */
void rg_timer_cancel(struct rg_timer_wheel *wheel, struct rg_timer *timer);

/* True between set and expiry or cancellation. */
bool rg_timer_armed(const struct rg_timer *timer);

/* When to call advance at the latest, RG_TIMER_NEVER if nothing is armed. May be earlier than the
 * next deadline (a timer has to be moved, or was moved to a later time): then nothing expires. */
uint64_t rg_timer_wheel_next_ns(const struct rg_timer_wheel *wheel);

/* Appends every timer whose deadline has passed to `expired`. A clock that went back is ignored. */
void rg_timer_wheel_advance(struct rg_timer_wheel *wheel, uint64_t now_ns, struct rg_list *expired);

/* Takes the first timer off a list that advance filled; NULL when the list is empty. An owner that
 * is called for it may set and cancel any timer, those still on the list included. */
struct rg_timer *rg_timer_pop_expired(struct rg_list *expired);

/* True if every invariant holds; O(timers). For RG_VERIFY and tests. */
bool rg_timer_wheel_valid(const struct rg_timer_wheel *wheel);

#endif
