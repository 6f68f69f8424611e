/* See window.h. */
#include "dataset/window.h"

#include <errno.h>
#include <stdlib.h>

/* One bit for each state that may follow a state. */
#define TO(state) (1u << RG_SLOT_##state)
static const unsigned changes[RG_SLOT_STATE_COUNT] = {
    [RG_SLOT_FREE] = TO(OUT) | TO(FOLLOWS),
    [RG_SLOT_OUT] = TO(AGAIN) | TO(HERE) | TO(FREE),
    [RG_SLOT_AGAIN] = TO(OUT),
    [RG_SLOT_FOLLOWS] = TO(HERE) | TO(FREE),
    [RG_SLOT_HERE] = TO(AGAIN) | TO(FOLLOWS) | TO(OFFERED) | TO(FREE),
    [RG_SLOT_OFFERED] = TO(FREE),
};

/* The only place that changes the state of a slot. */
static void slot_become(struct rg_window *window, struct rg_slot *slot, enum rg_slot_state state)
{
    RG_ASSERT((changes[slot->state] & (1u << state)) != 0);
    window->counts[slot->state]--;
    window->counts[state]++;
    slot->state = state;
}

static void queue_push(struct rg_window *window, uint64_t number)
{
    struct rg_window_queue *queue = &window->arrived;
    RG_ASSERT(queue->count < window->capacity);
    queue->numbers[(queue->head + queue->count++) & (window->capacity - 1)] = number;
}

static uint64_t queue_pop(struct rg_window *window)
{
    struct rg_window_queue *queue = &window->arrived;
    RG_ASSERT(queue->count > 0);
    uint64_t number = queue->numbers[queue->head];
    queue->head = (queue->head + 1) & (window->capacity - 1);
    queue->count--;
    return number;
}

/* The last sample of a request, which bears its charge. */
static struct rg_slot *last_of(const struct rg_window *window, uint64_t first)
{
    return rg_window_slot(window, first + rg_window_slot(window, first)->followers);
}

static void slot_discharge(struct rg_window *window, struct rg_slot *slot)
{
    RG_ASSERT(window->bytes >= slot->charge);
    window->bytes -= slot->charge;
    slot->charge = 0;
}

static uint32_t used_count(const struct rg_window *window)
{
    return window->capacity - window->counts[RG_SLOT_FREE];
}

static bool has_had_turn(const struct rg_window *window, uint64_t number)
{
    enum rg_slot_state state = rg_window_slot(window, number)->state;
    return state == RG_SLOT_OFFERED || state == RG_SLOT_FREE;
}

static void turn_advance(struct rg_window *window)
{
    uint64_t turn = RG_MAX(window->turn, window->handed.first);
    while (turn < window->next && has_had_turn(window, turn)) {
        turn++;
    }
    window->is_held = window->is_held && turn == window->turn;
    window->turn = turn;
}

/* The samples that follow a first one that is OUT or AGAIN wait with it, and what is AGAIN is
 * charged nothing. */
static bool request_is_whole(const struct rg_window *window, uint64_t first)
{
    const struct rg_slot *slot = rg_window_slot(window, first);
    for (uint64_t i = 1; i <= slot->followers; i++) {
        if (rg_window_slot(window, first + i)->state != RG_SLOT_FOLLOWS) {
            return false;
        }
    }
    return first + slot->followers < window->next &&
           (slot->state != RG_SLOT_AGAIN || last_of(window, first)->charge == 0);
}

/* The invariant in window.h. O(what is asked for): for RG_VERIFY. */
static bool invariants(const struct rg_window *window)
{
    const struct rg_progress *handed = &window->handed;
    uint32_t counts[RG_SLOT_STATE_COUNT] = {0};
    uint64_t bytes = 0, follows = 0;
    for (uint64_t number = handed->first; number < window->next; number++) {
        const struct rg_slot *slot = rg_window_slot(window, number);
        bool is_request = slot->state == RG_SLOT_OUT || slot->state == RG_SLOT_AGAIN;
        if ((slot->state == RG_SLOT_FREE) != rg_progress_has(handed, number) ||
            (slot->state == RG_SLOT_AGAIN && number < window->again_first) ||
            (number < window->turn && !has_had_turn(window, number)) ||
            (is_request && !request_is_whole(window, number))) {
            return false;
        }
        follows += is_request ? slot->followers : 0;
        counts[slot->state]++;
        bytes += slot->charge;
    }
    uint64_t span = window->next - handed->first;
    counts[RG_SLOT_FREE] += (uint32_t)(window->capacity - span);
    for (int state = 0; state < RG_SLOT_STATE_COUNT; state++) {
        if (counts[state] != window->counts[state]) {
            return false;
        }
    }
    return span <= window->capacity && window->next <= window->options.total &&
           bytes == window->bytes && follows == counts[RG_SLOT_FOLLOWS] &&
           used_count(window) <= window->options.requests_max && window->turn >= handed->first &&
           (!window->is_held || window->turn < window->next) &&
           (!window->options.unordered || window->arrived.count == counts[RG_SLOT_HERE]);
}

static int memory_alloc(struct rg_window *window)
{
    window->slots = calloc(window->capacity, sizeof(*window->slots));
    window->arrived.numbers =
        window->options.unordered ? calloc(window->capacity, sizeof(uint64_t)) : NULL;
    if (window->slots == NULL || (window->options.unordered && window->arrived.numbers == NULL)) {
        return -ENOMEM;
    }
    return rg_progress_init(&window->handed, window->capacity);
}

int rg_window_init(struct rg_window *window, const struct rg_window_options *options,
                   uint64_t first, const uint8_t *bits, uint32_t bit_count)
{
    RG_ASSERT(options->requests_max >= 1);
    uint64_t wanted = RG_MIN((uint64_t)options->requests_max, RG_MAX(options->total, UINT64_C(1)));
    wanted = RG_MAX(wanted, (uint64_t)bit_count);
    *window = (struct rg_window){.options = *options, .capacity = 1};
    while (window->capacity < wanted) {
        window->capacity *= 2;
    }
    window->counts[RG_SLOT_FREE] = window->capacity;
    if (memory_alloc(window) < 0) {
        return -ENOMEM;
    }
    rg_progress_begin(&window->handed, first, bits, bit_count);
    window->next = window->turn = window->handed.first;
    if (rg_progress_end(&window->handed) > options->total) {
        return -EINVAL;
    }
    RG_VERIFY(invariants(window));
    return 0;
}

void rg_window_fini(struct rg_window *window, void (*release)(struct rg_lease *lease))
{
    bool has_leases = release != NULL && window->slots != NULL;
    for (uint32_t i = 0; has_leases && i < window->capacity; i++) {
        if (window->slots[i].state == RG_SLOT_HERE) {
            release(window->slots[i].completion.lease);
        }
    }
    free(window->slots);
    free(window->arrived.numbers);
    rg_progress_fini(&window->handed);
    *window = (struct rg_window){0};
}

static bool has_room_for_bytes(const struct rg_window *window)
{
    return !window->is_held && (window->bytes == 0 || window->bytes < window->options.bytes_max);
}

static bool has_room(const struct rg_window *window)
{
    return window->next < window->options.total &&
           window->next - window->handed.first < window->capacity &&
           used_count(window) < window->options.requests_max && has_room_for_bytes(window);
}

bool rg_window_next_is_open(const struct rg_window *window)
{
    return has_room(window) && !rg_progress_has(&window->handed, window->next);
}

bool rg_window_is_ending(const struct rg_window *window)
{
    return window->next == window->options.total &&
           used_count(window) <= window->options.requests_max / 2 &&
           window->bytes <= window->options.bytes_max / 2;
}

/* Takes the first request that is AGAIN: in order, so that the sample whose turn it is, for which
 * there is always room, does not wait behind others. */
static bool again_ask(struct rg_window *window, uint64_t *out_first)
{
    uint64_t number = RG_MAX(window->again_first, window->turn);
    while (rg_window_slot(window, number)->state != RG_SLOT_AGAIN) {
        number++;
        RG_ASSERT(number < window->next);
    }
    window->again_first = number;
    if (number > window->turn && !has_room_for_bytes(window)) {
        return false;
    }
    slot_become(window, rg_window_slot(window, number), RG_SLOT_OUT);
    *out_first = number;
    return true;
}

/* Takes the next number's slot for a sample. */
static struct rg_slot *next_join(struct rg_window *window, enum rg_slot_state state)
{
    struct rg_slot *slot = rg_window_slot(window, window->next++);
    slot_become(window, slot, state);
    slot->kind = RG_SLOT_UNPLANNED;
    slot->followers = 0;
    slot->index = slot->charge = slot->place = slot->size = 0;
    return slot;
}

bool rg_window_ask(struct rg_window *window, uint64_t *out_first)
{
    if (window->counts[RG_SLOT_AGAIN] > 0) {
        return again_ask(window, out_first);
    }
    /* Some were taken early, by the reader whose state this one began with. */
    while (has_room(window) && rg_progress_has(&window->handed, window->next)) {
        window->next++;
    }
    turn_advance(window);
    if (!has_room(window)) {
        return false;
    }
    *out_first = window->next;
    (void)next_join(window, RG_SLOT_OUT);
    RG_VERIFY(invariants(window));
    return true;
}

void rg_window_follow(struct rg_window *window, uint64_t first, uint64_t index, uint64_t place,
                      uint64_t size)
{
    struct rg_slot *leader = rg_window_slot(window, first);
    RG_ASSERT(rg_window_next_is_open(window));
    RG_ASSERT(leader->state == RG_SLOT_OUT && first + leader->followers + 1 == window->next);
    RG_ASSERT(last_of(window, first)->charge == 0);
    struct rg_slot *slot = next_join(window, RG_SLOT_FOLLOWS);
    slot->index = index;
    slot->place = place;
    slot->size = size;
    leader->followers++;
    RG_VERIFY(invariants(window));
}

uint64_t rg_window_body_size(const struct rg_window *window, uint64_t first)
{
    uint64_t size = 0;
    uint64_t last = first + rg_window_slot(window, first)->followers;
    for (uint64_t number = first; number <= last; number++) {
        const struct rg_slot *slot = rg_window_slot(window, number);
        size = RG_MAX(size, slot->place + slot->size);
    }
    return size;
}

void rg_window_charge(struct rg_window *window, uint64_t first, uint64_t bytes)
{
    struct rg_slot *slot = last_of(window, first);
    RG_ASSERT(rg_window_slot(window, first)->state == RG_SLOT_OUT && slot->charge == 0);
    slot->charge = bytes;
    window->bytes += bytes;
}

static void request_again(struct rg_window *window, uint64_t first)
{
    slot_discharge(window, last_of(window, first));
    slot_become(window, rg_window_slot(window, first), RG_SLOT_AGAIN);
    window->again_first = RG_MIN(window->again_first, first);
}

void rg_window_postpone(struct rg_window *window, uint64_t first)
{
    RG_ASSERT(rg_window_slot(window, first)->state == RG_SLOT_OUT);
    request_again(window, first);
    RG_VERIFY(invariants(window));
}

/* A sample's part of the body of its request. */
static struct rg_completion completion_cut(const struct rg_slot *slot,
                                           const struct rg_completion *completion)
{
    struct rg_completion cut = *completion;
    uint64_t begin = RG_MIN(slot->place, completion->size);
    cut.data = (const uint8_t *)completion->data + begin;
    cut.size = RG_MIN(slot->size, completion->size - begin);
    cut.crc32c = cut.size == completion->size ? completion->crc32c : 0;
    return cut;
}

void rg_window_arrive(struct rg_window *window, uint64_t first,
                      const struct rg_completion *completion)
{
    const struct rg_slot *leader = rg_window_slot(window, first);
    RG_ASSERT(leader->state == RG_SLOT_OUT);
    bool is_cut = completion->status == RG_STATUS_OK &&
                  (leader->kind == RG_SLOT_RANGE || leader->kind == RG_SLOT_PIECES);
    uint64_t last = first + leader->followers;
    for (uint64_t number = first; number <= last; number++) {
        struct rg_slot *slot = rg_window_slot(window, number);
        slot->completion = is_cut ? completion_cut(slot, completion) : *completion;
        slot->completion.user_data = number;
        slot_become(window, slot, RG_SLOT_HERE);
        if (window->options.unordered) {
            queue_push(window, number);
        }
    }
    RG_VERIFY(invariants(window));
}

/* A sample was taken or skipped. */
static void sample_end(struct rg_window *window, uint64_t number)
{
    struct rg_slot *slot = rg_window_slot(window, number);
    slot_discharge(window, slot);
    slot_become(window, slot, RG_SLOT_FREE);
    rg_progress_add(&window->handed, number);
    window->next = RG_MAX(window->next, window->handed.first);
    turn_advance(window);
}

uint32_t rg_window_skip(struct rg_window *window, uint64_t first)
{
    RG_ASSERT(rg_window_slot(window, first)->state == RG_SLOT_OUT);
    uint32_t count = rg_window_slot(window, first)->followers + 1;
    for (uint32_t i = 0; i < count; i++) {
        sample_end(window, first + i);
    }
    RG_VERIFY(invariants(window));
    return count;
}

bool rg_window_can_take(const struct rg_window *window)
{
    return window->options.unordered ? window->arrived.count > 0
                                     : rg_window_slot(window, window->turn)->state == RG_SLOT_HERE;
}

/* The sample whose turn it is. False: it is not here. */
static bool turn_take(struct rg_window *window, struct rg_sample *out_sample)
{
    if (!rg_window_can_take(window)) {
        return false;
    }
    uint64_t number = window->options.unordered ? queue_pop(window) : window->turn;
    const struct rg_slot *slot = rg_window_slot(window, number);
    RG_ASSERT(slot->state == RG_SLOT_HERE);
    out_sample->index = slot->index;
    out_sample->number = number;
    out_sample->completion = slot->completion;
    return true;
}

bool rg_window_take(struct rg_window *window, struct rg_sample *out_sample)
{
    if (!turn_take(window, out_sample)) {
        return false;
    }
    sample_end(window, out_sample->number);
    RG_VERIFY(invariants(window));
    return true;
}

uint32_t rg_window_offerable(const struct rg_window *window, uint32_t max)
{
    uint32_t count = 0;
    if (window->options.unordered) {
        return RG_MIN(window->arrived.count, max);
    }
    for (uint64_t number = window->turn; number < window->next && count < max; number++) {
        enum rg_slot_state state = rg_window_slot(window, number)->state;
        if (state != RG_SLOT_HERE && state != RG_SLOT_FREE) {
            break;
        }
        count += state == RG_SLOT_HERE;
    }
    return count;
}

bool rg_window_offer(struct rg_window *window, struct rg_sample *out_sample)
{
    if (!turn_take(window, out_sample)) {
        return false;
    }
    slot_become(window, rg_window_slot(window, out_sample->number), RG_SLOT_OFFERED);
    turn_advance(window);
    RG_VERIFY(invariants(window));
    return true;
}

void rg_window_taken(struct rg_window *window, uint64_t number)
{
    RG_ASSERT(rg_window_slot(window, number)->state == RG_SLOT_OFFERED);
    sample_end(window, number);
    RG_VERIFY(invariants(window));
}

bool rg_window_is_offered(const struct rg_window *window)
{
    return RG_MAX(window->next, window->handed.first) == window->options.total &&
           used_count(window) == window->counts[RG_SLOT_OFFERED];
}

/* Lets go of the samples of one request. All of them are here: none was taken, since in order the
 * first sample would have been taken before. */
static void request_let_go(struct rg_window *window, uint64_t first,
                           void (*release)(struct rg_lease *lease))
{
    uint64_t last = first + rg_window_slot(window, first)->followers;
    release(rg_window_slot(window, first)->completion.lease);
    request_again(window, first);
    for (uint64_t number = first + 1; number <= last; number++) {
        struct rg_slot *slot = rg_window_slot(window, number);
        release(slot->completion.lease);
        slot_become(window, slot, RG_SLOT_FOLLOWS);
    }
}

void rg_window_let_go(struct rg_window *window, void (*release)(struct rg_lease *lease))
{
    RG_ASSERT(!rg_window_can_take(window) && window->counts[RG_SLOT_HERE] > 0);
    uint64_t bytes_max = RG_MIN(window->bytes, window->options.bytes_max) / 2;
    window->options.bytes_max = RG_MAX(bytes_max, UINT64_C(1));
    window->is_held = true;
    for (uint64_t number = window->handed.first; number < window->next; number++) {
        const struct rg_slot *slot = rg_window_slot(window, number);
        if (slot->state == RG_SLOT_HERE && slot->completion.status == RG_STATUS_OK) {
            uint32_t followers = slot->followers;
            request_let_go(window, number, release);
            number += followers;
        }
    }
    RG_VERIFY(invariants(window));
}
