/* The timer wheel: see timer.h for the life of a timer.
 *
 * Time is counted in ticks, and a tick is read as a number of RG_TIMER_LEVEL_COUNT digits of
 * RG_TIMER_SLOT_BITS bits. A timer lies in the level of the highest digit in which its tick differs
 * from the wheel's, in the slot that this digit names. It follows that
 *   - all slots in use lie ahead of the wheel's own digit, none wraps around;
 *   - everything in a lower level comes before everything in a higher one, so that the next slot to
 *     look at is the first one in the lowest level in use;
 *   - when the wheel reaches a slot, its timers are due or fall to a lower level: a timer moves at
 *     most once per level. */
#include "runtime/timer.h"

#include <assert.h>

#define SLOT_EXPIRED UINT16_MAX
#define SLOT_MASK ((uint64_t)RG_TIMER_SLOT_COUNT - 1)
/* The last tick that has a slot. Only the last time of all, after 584 years, is rounded down. */
#define TICK_MAX (UINT64_MAX >> RG_TIMER_TICK_SHIFT)

static_assert(RG_TIMER_LEVEL_COUNT * RG_TIMER_SLOT_BITS + RG_TIMER_TICK_SHIFT >= 64,
              "the levels cover all 64 bits of a time");
static_assert(RG_TIMER_SLOT_COUNT == 64, "a level's occupied slots fit one word");
static_assert(RG_TIMER_LEVEL_COUNT * RG_TIMER_SLOT_COUNT < SLOT_EXPIRED, "slot numbers are free");

void rg_timer_wheel_init(struct rg_timer_wheel *wheel, uint64_t now_ns)
{
    *wheel = (struct rg_timer_wheel){.tick = now_ns >> RG_TIMER_TICK_SHIFT};
    for (unsigned level = 0; level < RG_TIMER_LEVEL_COUNT; level++) {
        for (unsigned slot = 0; slot < RG_TIMER_SLOT_COUNT; slot++) {
            rg_list_init(&wheel->slots[level][slot]);
        }
    }
}

/* The first tick at which the deadline has passed: rounded up, so that nothing expires early. */
static uint64_t deadline_tick(uint64_t deadline_ns)
{
    uint64_t tick = deadline_ns >> RG_TIMER_TICK_SHIFT;
    bool is_between = (deadline_ns & (RG_TIMER_TICK_NS - 1)) != 0;
    return RG_MIN(tick + is_between, TICK_MAX);
}

static void timer_insert(struct rg_timer_wheel *wheel, struct rg_timer *timer)
{
    uint64_t tick = RG_MAX(deadline_tick(timer->deadline_ns), wheel->tick + 1);
    RG_ASSERT(tick > wheel->tick);
    unsigned level = (63 - (unsigned)__builtin_clzll(tick ^ wheel->tick)) / RG_TIMER_SLOT_BITS;
    RG_ASSERT(level < RG_TIMER_LEVEL_COUNT);
    unsigned shift = level * RG_TIMER_SLOT_BITS;
    unsigned slot = (unsigned)(tick >> shift & SLOT_MASK);
    RG_ASSERT(slot > (wheel->tick >> shift & SLOT_MASK));

    timer->wake_tick = tick >> shift << shift;
    timer->slot = (uint16_t)(level * RG_TIMER_SLOT_COUNT + slot);
    rg_list_push_back(&wheel->slots[level][slot], &timer->node);
    wheel->occupied[level] |= UINT64_C(1) << slot;
    wheel->armed_count++;
}

static void timer_remove(struct rg_timer_wheel *wheel, struct rg_timer *timer)
{
    RG_ASSERT(rg_timer_armed(timer));
    RG_ASSERT(wheel->armed_count > 0);
    unsigned level = timer->slot / RG_TIMER_SLOT_COUNT, slot = timer->slot % RG_TIMER_SLOT_COUNT;
    RG_ASSERT(level < RG_TIMER_LEVEL_COUNT);
    rg_list_remove(&timer->node);
    wheel->armed_count--;
    if (rg_list_empty(&wheel->slots[level][slot])) {
        wheel->occupied[level] &= ~(UINT64_C(1) << slot);
    }
}

void rg_timer_set(struct rg_timer_wheel *wheel, struct rg_timer *timer, uint64_t deadline_ns)
{
    if (deadline_ns == RG_TIMER_NEVER) {
        rg_timer_cancel(wheel, timer);
        return;
    }
    if (rg_timer_armed(timer) && deadline_tick(deadline_ns) >= timer->wake_tick) {
        timer->deadline_ns = deadline_ns;
        return;
    }
    rg_timer_cancel(wheel, timer);
    timer->deadline_ns = deadline_ns;
    timer_insert(wheel, timer);
    RG_ASSERT(rg_timer_armed(timer));
}

void rg_timer_cancel(struct rg_timer_wheel *wheel, struct rg_timer *timer)
{
    if (rg_timer_armed(timer)) {
        timer_remove(wheel, timer);
    } else {
        rg_list_remove(&timer->node);
    }
    RG_ASSERT(!rg_list_linked(&timer->node));
}

bool rg_timer_armed(const struct rg_timer *timer)
{
    return rg_list_linked(&timer->node) && timer->slot != SLOT_EXPIRED;
}

/* The slot that comes up next and its tick. False when no timer is armed. */
static bool slot_next(const struct rg_timer_wheel *wheel, unsigned *out_slot, uint64_t *out_tick)
{
    for (unsigned level = 0; level < RG_TIMER_LEVEL_COUNT; level++) {
        if (wheel->occupied[level] == 0) {
            continue;
        }
        unsigned slot = (unsigned)__builtin_ctzll(wheel->occupied[level]);
        unsigned shift = level * RG_TIMER_SLOT_BITS;
        uint64_t digits = (wheel->tick >> shift & ~SLOT_MASK) | slot;
        RG_ASSERT(digits << shift > wheel->tick);
        *out_slot = level * RG_TIMER_SLOT_COUNT + slot;
        *out_tick = digits << shift;
        return true;
    }
    RG_ASSERT(wheel->armed_count == 0);
    return false;
}

uint64_t rg_timer_wheel_next_ns(const struct rg_timer_wheel *wheel)
{
    unsigned slot;
    uint64_t tick;
    return slot_next(wheel, &slot, &tick) ? tick << RG_TIMER_TICK_SHIFT : RG_TIMER_NEVER;
}

/* Empties a slot that the wheel has reached: its timers expire or move to a lower level. */
static void slot_open(struct rg_timer_wheel *wheel, unsigned slot, uint64_t now_tick,
                      struct rg_list *expired)
{
    unsigned level = slot / RG_TIMER_SLOT_COUNT;
    struct rg_list due, *node;
    rg_list_init(&due);
    rg_list_splice_back(&due, &wheel->slots[level][slot % RG_TIMER_SLOT_COUNT]);
    wheel->occupied[level] &= ~(UINT64_C(1) << slot % RG_TIMER_SLOT_COUNT);

    while ((node = rg_list_pop_front(&due)) != NULL) {
        struct rg_timer *timer = RG_CONTAINER_OF(node, struct rg_timer, node);
        RG_ASSERT(timer->slot == slot);
        RG_ASSERT(timer->wake_tick == wheel->tick);
        RG_ASSERT(wheel->armed_count > 0);
        wheel->armed_count--;
        if (deadline_tick(timer->deadline_ns) <= now_tick) {
            timer->slot = SLOT_EXPIRED;
            rg_list_push_back(expired, &timer->node);
        } else {
            timer_insert(wheel, timer);
        }
    }
}

void rg_timer_wheel_advance(struct rg_timer_wheel *wheel, uint64_t now_ns, struct rg_list *expired)
{
    uint64_t now_tick = now_ns >> RG_TIMER_TICK_SHIFT, tick;
    unsigned slot;
    while (slot_next(wheel, &slot, &tick) && tick <= now_tick) {
        wheel->tick = tick;
        slot_open(wheel, slot, now_tick, expired);
    }
    wheel->tick = RG_MAX(wheel->tick, now_tick);
    RG_VERIFY(rg_timer_wheel_valid(wheel));
}

struct rg_timer *rg_timer_pop_expired(struct rg_list *expired)
{
    struct rg_list *node = rg_list_pop_front(expired);
    if (node == NULL) {
        return NULL;
    }
    struct rg_timer *timer = RG_CONTAINER_OF(node, struct rg_timer, node);
    RG_ASSERT(timer->slot == SLOT_EXPIRED);
    return timer;
}

/* The number of timers in one slot, or UINT32_MAX if one of them does not belong there. */
static uint32_t slot_count_checked(const struct rg_timer_wheel *wheel, unsigned slot)
{
    unsigned level = slot / RG_TIMER_SLOT_COUNT, shift = level * RG_TIMER_SLOT_BITS;
    const struct rg_list *head = &wheel->slots[level][slot % RG_TIMER_SLOT_COUNT];
    uint64_t wake_tick = ((wheel->tick >> shift & ~SLOT_MASK) | slot % RG_TIMER_SLOT_COUNT)
                         << shift;
    uint32_t count = 0;
    for (const struct rg_list *node = head->next; node != head; node = node->next) {
        const struct rg_timer *timer = RG_CONTAINER_OF(node, const struct rg_timer, node);
        bool is_ahead = timer->wake_tick == wake_tick && wake_tick > wheel->tick;
        if (timer->slot != slot || node->next->prev != node || !is_ahead) {
            return UINT32_MAX;
        }
        count++;
    }
    return count;
}

bool rg_timer_wheel_valid(const struct rg_timer_wheel *wheel)
{
    uint64_t total = 0;
    for (unsigned slot = 0; slot < RG_TIMER_LEVEL_COUNT * RG_TIMER_SLOT_COUNT; slot++) {
        uint64_t occupied = wheel->occupied[slot / RG_TIMER_SLOT_COUNT];
        uint32_t count = slot_count_checked(wheel, slot);
        if ((occupied >> slot % RG_TIMER_SLOT_COUNT & 1) != (count > 0)) {
            return false;
        }
        total += count;
    }
    return total == wheel->armed_count;
}
