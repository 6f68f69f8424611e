/* The window: against a model that is an array of samples and says by plain loops what may be asked
 * for, what is taken next, and what was released. */
#include "dataset/window.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

#define TOTAL 400
#define CHARGE 10

enum model_state {
    MODEL_NEW,
    MODEL_OUT,
    MODEL_AGAIN,
    MODEL_FOLLOWS,
    MODEL_HERE,
    MODEL_OFFERED,
    MODEL_DONE
};

/* A sample; `request` is the first sample of its request, whose charge and status are the
 * request's. */
struct model {
    enum model_state state;
    uint64_t request, last, charge, arrived;
    bool has_failed;
};

static struct model model[TOTAL];
static struct rg_window_options limits;
static uint64_t arrivals, next_new;
static bool is_held;
static bool is_offering;    /* samples leave by a queue */
static uint32_t leases_out; /* given to the window and not back */

static struct rg_lease *lease_make(void)
{
    static char token;
    leases_out++;
    return (struct rg_lease *)(void *)&token;
}

static void lease_release(struct rg_lease *lease)
{
    if (lease != NULL) {
        RG_CHECK(leases_out > 0);
        leases_out--;
    }
}

static uint64_t model_first(void)
{
    uint64_t first = 0;
    while (first < limits.total && model[first].state == MODEL_DONE) {
        first++;
    }
    return first;
}

/* The first that is still waited for. */
static uint64_t model_awaited(void)
{
    uint64_t number = 0;
    while (number < limits.total && model[number].state >= MODEL_OFFERED) {
        number++;
    }
    return number;
}

static uint32_t model_count(enum model_state state)
{
    uint32_t count = 0;
    for (uint64_t i = 0; i < limits.total; i++) {
        count += model[i].state == state;
    }
    return count;
}

/* A request is charged until its last sample is done with. */
static uint64_t model_bytes(void)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < limits.total; i++) {
        bool is_last = model[i].state != MODEL_NEW && model[i].last == i;
        bytes += is_last && model[i].state != MODEL_DONE ? model[model[i].request].charge : 0;
    }
    return bytes;
}

static bool model_has_bytes(void)
{
    return !is_held && (model_bytes() == 0 || model_bytes() < limits.bytes_max);
}

/* The next sample that nobody has asked for or taken, if it may be asked for. */
static bool model_next(const struct rg_window *window, uint64_t *out_number)
{
    uint64_t number = RG_MAX(next_new, model_first());
    while (number < limits.total && model[number].state == MODEL_DONE) {
        number++;
    }
    uint32_t asked = model_count(MODEL_OUT) + model_count(MODEL_AGAIN) +
                     model_count(MODEL_FOLLOWS) + model_count(MODEL_HERE) +
                     model_count(MODEL_OFFERED);
    *out_number = number;
    return number < limits.total && number - model_first() < window->capacity &&
           asked < limits.requests_max && model_has_bytes();
}

static bool model_ask(const struct rg_window *window, uint64_t *out_first)
{
    for (uint64_t i = 0; i < limits.total; i++) {
        if (model[i].state == MODEL_AGAIN) {
            *out_first = i;
            return i == model_awaited() || model_has_bytes();
        }
    }
    return model_next(window, out_first);
}

/* Marks all samples of a request. */
static void model_request(uint64_t first, enum model_state leader, enum model_state followers)
{
    uint64_t last = model[first].last;
    for (uint64_t i = first; i <= last; i++) {
        model[i].state = i == first ? leader : followers;
    }
}

/* Adds up to two samples to a new request, as a plan does where neighbours share one. */
static void samples_follow(struct rg_window *window, uint64_t first)
{
    uint64_t number, wanted = rg_test_random_below(3);
    for (uint64_t i = 1; i <= wanted; i++) {
        bool is_open = model_next(window, &number) && number == first + i;
        RG_CHECK_EQ(rg_window_next_is_open(window) && window->next == first + i, is_open);
        if (!is_open) {
            return;
        }
        rg_window_follow(window, first, number + 1000, 10 * i, 10);
        model[number] = (struct model){.state = MODEL_FOLLOWS, .request = first};
        model[first].last = next_new = number;
        for (uint64_t k = first; k <= number; k++) {
            model[k].last = number;
        }
        next_new++;
    }
}

static void step_ask(struct rg_window *window)
{
    uint64_t first, expected;
    bool may = model_ask(window, &expected);
    RG_CHECK_EQ(rg_window_ask(window, &first), may);
    if (!may) {
        return;
    }
    RG_CHECK_EQ(first, expected);
    bool is_new = model[first].state != MODEL_AGAIN;
    RG_CHECK_EQ(rg_window_slot(window, first)->kind == RG_SLOT_UNPLANNED, is_new);
    if (is_new) {
        model[first] = (struct model){.request = first, .last = first};
        next_new = first + 1;
        rg_window_slot(window, first)->index = first + 1000;
        rg_window_slot(window, first)->kind = RG_SLOT_RANGE;
        rg_window_slot(window, first)->size = 10;
        model[first].state = MODEL_OUT;
        samples_follow(window, first);
    }
    model[first].state = MODEL_OUT;
    RG_CHECK_EQ(rg_window_body_size(window, first), (model[first].last - first + 1) * 10);
    model[first].charge = rg_test_random_below(3 * CHARGE) + 1;
    rg_window_charge(window, first, model[first].charge);
}

/* A request that is out, at random. */
static bool some_request(uint64_t *out_first)
{
    uint32_t count = model_count(MODEL_OUT);
    uint64_t chosen = count > 0 ? rg_test_random_below(count) : 0;
    for (uint64_t i = 0; i < limits.total; i++) {
        if (model[i].state == MODEL_OUT && chosen-- == 0) {
            *out_first = i;
            return true;
        }
    }
    return false;
}

static void step_arrive(struct rg_window *window)
{
    static const char body[64];
    uint64_t first;
    if (!some_request(&first)) {
        return;
    }
    bool has_failed = rg_test_random_below(5) == 0;
    struct rg_completion completion = {
        .status = has_failed ? RG_STATUS_NOT_FOUND : RG_STATUS_OK,
        .data = has_failed ? NULL : body,
        .size = has_failed ? 0 : (model[first].last - first + 1) * 10,
        .user_data = first,
        .crc32c = 5,
    };
    for (uint64_t i = first; i <= model[first].last; i++) {
        completion.lease = lease_make();
        model[i].arrived = ++arrivals;
        model[i].has_failed = has_failed;
    }
    model_request(first, MODEL_HERE, MODEL_HERE);
    rg_window_arrive(window, first, &completion);
}

static void step_postpone_or_skip(struct rg_window *window)
{
    uint64_t first;
    if (!some_request(&first)) {
        return;
    }
    uint64_t begin = model_awaited(), count = model[first].last - first + 1;
    if (rg_test_random_below(2) == 0) {
        model[first].charge = 0;
        model[first].state = MODEL_AGAIN;
        rg_window_postpone(window, first);
    } else {
        model_request(first, MODEL_DONE, MODEL_DONE);
        is_held = is_held && model_awaited() == begin;
        RG_CHECK_EQ(rg_window_skip(window, first), count);
    }
}

/* The sample whose turn it is, or the total. */
static uint64_t model_turn(void)
{
    uint64_t turn = limits.total;
    if (!limits.unordered) {
        uint64_t first = model_awaited();
        return first < limits.total && model[first].state == MODEL_HERE ? first : turn;
    }
    for (uint64_t i = 0; i < limits.total; i++) {
        bool is_before = turn == limits.total || model[i].arrived < model[turn].arrived;
        turn = model[i].state == MODEL_HERE && is_before ? i : turn;
    }
    return turn;
}

static void sample_check(const struct rg_sample *sample)
{
    uint64_t number = sample->number, place = number - model[number].request;
    RG_CHECK_EQ(sample->index, number + 1000);
    RG_CHECK_EQ(sample->completion.user_data, number);
    RG_CHECK_EQ(sample->completion.status == RG_STATUS_OK, !model[number].has_failed);
    if (!model[number].has_failed) {
        RG_CHECK_EQ(sample->completion.size, 10);
        bool is_alone = model[number].last == model[number].request;
        RG_CHECK_EQ(sample->completion.crc32c, is_alone ? 5 : 0);
        RG_CHECK(place <= 2);
    }
    lease_release(sample->completion.lease);
}

static void step_take(struct rg_window *window)
{
    struct rg_sample sample;
    uint64_t turn = model_turn();
    RG_CHECK_EQ(rg_window_can_take(window), turn < limits.total);
    bool is_taken =
        is_offering ? rg_window_offer(window, &sample) : rg_window_take(window, &sample);
    RG_CHECK_EQ(is_taken, turn < limits.total);
    if (turn < limits.total) {
        RG_CHECK_EQ(sample.number, turn);
        sample_check(&sample);
        uint64_t begin = model_awaited();
        model[turn].state = is_offering ? MODEL_OFFERED : MODEL_DONE;
        is_held = is_held && model_awaited() == begin;
    }
}

/* One of those that are offered is taken, at random. */
static void step_taken(struct rg_window *window)
{
    uint32_t count = model_count(MODEL_OFFERED);
    uint64_t chosen = count > 0 ? rg_test_random_below(count) : 0;
    for (uint64_t i = 0; i < limits.total && count > 0; i++) {
        if (model[i].state == MODEL_OFFERED && chosen-- == 0) {
            model[i].state = MODEL_DONE;
            rg_window_taken(window, i);
            return;
        }
    }
}

/* How many come one after the other. */
static void offerable_check(const struct rg_window *window)
{
    uint32_t count = 0;
    for (uint64_t i = model_awaited(); i < limits.total && !limits.unordered; i++) {
        if (model[i].state != MODEL_HERE && model[i].state != MODEL_DONE) {
            break;
        }
        count += model[i].state == MODEL_HERE;
    }
    count = limits.unordered ? model_count(MODEL_HERE) : count;
    RG_CHECK_EQ(rg_window_offerable(window, TOTAL), count);
    RG_CHECK_EQ(rg_window_offerable(window, 2), RG_MIN(count, 2u));
}

static void step_let_go(struct rg_window *window)
{
    if (model_turn() < limits.total || model_count(MODEL_HERE) == 0) {
        return;
    }
    limits.bytes_max = RG_MAX(RG_MIN(model_bytes(), limits.bytes_max) / 2, UINT64_C(1));
    is_held = true;
    for (uint64_t i = 0; i < limits.total; i++) {
        if (model[i].state == MODEL_HERE && !model[i].has_failed) {
            uint64_t last = model[i].last;
            model[i].charge = 0;
            model_request(i, MODEL_AGAIN, MODEL_FOLLOWS);
            i = last;
        }
    }
    rg_window_let_go(window, lease_release);
}

static void check_same(const struct rg_window *window)
{
    static const enum rg_slot_state states[] = {RG_SLOT_OUT, RG_SLOT_AGAIN, RG_SLOT_FOLLOWS,
                                                RG_SLOT_HERE, RG_SLOT_OFFERED};
    for (int state = MODEL_OUT; state <= MODEL_OFFERED; state++) {
        RG_CHECK_EQ(window->counts[states[state - MODEL_OUT]],
                    model_count((enum model_state)state));
    }
    RG_CHECK_EQ(window->handed.first, model_first());
    RG_CHECK_EQ(rg_progress_count(&window->handed), model_count(MODEL_DONE));
    RG_CHECK_EQ(window->bytes, model_bytes());
    RG_CHECK_EQ(window->options.bytes_max, limits.bytes_max);
    RG_CHECK_EQ(window->is_held, is_held);
    RG_CHECK_EQ(leases_out, model_count(MODEL_HERE));
    offerable_check(window);
}

static void step(struct rg_window *window)
{
    uint64_t kind = rg_test_random_below(100);
    if (kind < 40) {
        step_ask(window);
    } else if (kind < 65) {
        step_arrive(window);
    } else if (kind < 73) {
        step_postpone_or_skip(window);
    } else if (kind < 98 && is_offering && kind % 2 == 0) {
        step_taken(window);
    } else if (kind < 98) {
        step_take(window);
    } else {
        step_let_go(window);
    }
    check_same(window);
}

/* An epoch, of which some samples were taken before by another reader. */
static void epoch_run(bool unordered, bool to_the_end)
{
    static const uint8_t bits[] = {0x56, 0x81};
    struct rg_window window;
    memset(model, 0, sizeof(model));
    limits = (struct rg_window_options){
        .total = 30 + rg_test_random_below(TOTAL - 30),
        .requests_max = 1 + (uint32_t)rg_test_random_below(40),
        .bytes_max = 1 + rg_test_random_below(60 * CHARGE),
        .unordered = unordered,
    };
    arrivals = 0;
    is_held = false;
    uint64_t first = rg_test_random_below(10);
    for (uint64_t i = 0; i < first + 16; i++) {
        bool is_done = i < first || (bits[(i - first) / 8] >> ((i - first) % 8) & 1) != 0;
        model[i].state = is_done ? MODEL_DONE : MODEL_NEW;
        model[i].last = TOTAL; /* nothing is charged for it */
    }
    next_new = model_first();
    RG_CHECK_EQ(rg_window_init(&window, &limits, first, bits, 16), 0);
    for (int i = 0; i < 500 || (to_the_end && !rg_window_is_done(&window)); i++) {
        step(&window);
    }
    RG_CHECK(!to_the_end || rg_window_is_offered(&window));
    rg_window_fini(&window, lease_release);
    RG_CHECK_EQ(leases_out, 0);
    rg_window_fini(&window, lease_release);
}

static void test_each_sample_is_taken_once_in_its_turn(void)
{
    for (int round = 0; round < 20; round++) {
        epoch_run(false, true);
    }
}

static void test_unordered_samples_are_taken_as_they_arrive(void)
{
    for (int round = 0; round < 20; round++) {
        epoch_run(true, true);
    }
}

static void test_samples_leave_by_a_queue_in_their_turn(void)
{
    is_offering = true;
    for (int round = 0; round < 40; round++) {
        epoch_run(round % 2 == 0, round % 8 != 0);
    }
    is_offering = false;
}

static void test_ending_in_the_middle_releases_what_is_here(void)
{
    for (int round = 0; round < 20; round++) {
        epoch_run(round % 2 == 0, false);
    }
}

static void test_nothing_is_released_where_it_is_not_ours(void)
{
    struct rg_window window;
    uint64_t first;
    limits = (struct rg_window_options){.total = 1, .requests_max = 1, .bytes_max = 1};
    RG_CHECK_EQ(rg_window_init(&window, &limits, 0, NULL, 0), 0);
    RG_CHECK(rg_window_ask(&window, &first));
    struct rg_completion completion = {.status = RG_STATUS_OK, .lease = lease_make()};
    rg_window_arrive(&window, first, &completion);
    rg_window_fini(&window, NULL);
    RG_CHECK_EQ(leases_out, 1);
    lease_release(completion.lease);
}

static void test_a_beginning_beyond_the_end_is_refused(void)
{
    static const uint8_t bits[] = {0x00, 0x02};
    struct rg_window window;
    limits = (struct rg_window_options){.total = 10, .requests_max = 4, .bytes_max = 1};
    for (uint64_t first = 0; first < 12; first++) {
        bool is_inside = first + 10 <= limits.total;
        RG_CHECK_EQ(rg_window_init(&window, &limits, first, bits, 16), is_inside ? 0 : -EINVAL);
        rg_window_fini(&window, NULL);
        RG_CHECK_EQ(rg_window_init(&window, &limits, first, NULL, 0), first <= 10 ? 0 : -EINVAL);
        RG_CHECK_EQ(first == 10, first <= 10 && rg_window_is_done(&window));
        rg_window_fini(&window, NULL);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_each_sample_is_taken_once_in_its_turn),
        RG_TEST(test_unordered_samples_are_taken_as_they_arrive),
        RG_TEST(test_samples_leave_by_a_queue_in_their_turn),
        RG_TEST(test_ending_in_the_middle_releases_what_is_here),
        RG_TEST(test_nothing_is_released_where_it_is_not_ours),
        RG_TEST(test_a_beginning_beyond_the_end_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
