/* Offers: each sample that was taken is collected once, wherever it was marked. */
#include "dataset/offers.h"
#include "dataset/window.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <sched.h>

#define THREADS 3
#define CAPACITY 64
#define EACH 10000

/* As if that thread had taken these places off a queue. */
static void take(struct rg_offers *offers, uint64_t place, uint32_t count)
{
    struct rg_completion records[CAPACITY] = {0};
    for (uint32_t i = 0; i < count; i++) {
        records[i].sample_number = place + i;
    }
    rg_offers_take(offers, records, count);
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK_EQ(records[i].sample_index, records[i].sample_number * 3);
    }
}

static void check_collect(struct rg_offers *offers, uint64_t first, uint32_t count)
{
    uint64_t numbers[CAPACITY];
    RG_CHECK_EQ(rg_offers_collect(offers, numbers, CAPACITY), count);
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK_EQ(numbers[i], first + i);
    }
}

static void test_what_was_taken_is_collected_once(void)
{
    struct rg_offers offers;
    RG_CHECK_EQ(rg_offers_init(&offers, 4), 0);
    check_collect(&offers, 0, 0);
    for (uint64_t number = 0; number < 20; number += 4) {
        for (uint64_t i = number; i < number + 4; i++) {
            RG_CHECK_EQ(rg_offers_add(&offers, i * 3, i), i);
        }
        check_collect(&offers, 0, 0);
        take(&offers, number, 1);
        check_collect(&offers, number, 1);
        take(&offers, number + 1, 3);
        check_collect(&offers, number + 1, 3);
        check_collect(&offers, 0, 0);
    }
    rg_offers_fini(&offers);
}

static void test_a_place_in_the_middle_is_not_held_up(void)
{
    struct rg_offers offers;
    RG_CHECK_EQ(rg_offers_init(&offers, 8), 0);
    for (uint64_t i = 0; i < 8; i++) {
        (void)rg_offers_add(&offers, i * 3, i);
    }
    take(&offers, 2, 3);
    check_collect(&offers, 2, 3);
    take(&offers, 7, 1);
    check_collect(&offers, 7, 1);
    take(&offers, 0, 2);
    check_collect(&offers, 0, 2);
    RG_CHECK_EQ(offers.head, 5);
    rg_offers_fini(&offers);
}

/* All requests that may be made come, the last one first. */
static void window_fill(struct rg_window *window)
{
    uint64_t asked[CAPACITY], count = 0;
    while (rg_window_ask(window, &asked[count])) {
        rg_window_slot(window, asked[count])->index = asked[count] * 3;
        count++;
    }
    while (count > 0) {
        struct rg_completion done = {.status = RG_STATUS_OK};
        rg_window_arrive(window, asked[--count], &done);
    }
}

/* Offers what there is room for. */
static uint32_t window_offer(struct rg_window *window, struct rg_offers *offers)
{
    uint32_t count = rg_window_offerable(window, rg_offers_room(offers));
    for (uint32_t i = 0; i < count; i++) {
        struct rg_sample sample;
        RG_CHECK(rg_window_offer(window, &sample));
        (void)rg_offers_add(offers, sample.index, sample.number);
    }
    return count;
}

static void window_note(struct rg_window *window, struct rg_offers *offers, uint32_t expected)
{
    uint64_t numbers[CAPACITY];
    RG_CHECK_EQ(rg_offers_collect(offers, numbers, CAPACITY), expected);
    for (uint32_t i = 0; i < expected; i++) {
        rg_window_taken(window, numbers[i]);
    }
}

/* An unordered window goes on beside a sample that was taken and is not marked: the samples behind
 * that one's place are more than the window. Those without a place wait until it is marked. */
static void test_an_unordered_window_waits_for_a_place_that_is_not_marked(void)
{
    struct rg_window_options options = {
        .total = 12, .requests_max = 4, .bytes_max = UINT64_MAX, .unordered = true};
    struct rg_window window;
    struct rg_offers offers;
    RG_CHECK_EQ(rg_window_init(&window, &options, 0, NULL, 0), 0);
    RG_CHECK_EQ(rg_offers_init(&offers, window.capacity), 0);
    for (uint64_t first = 0; first < options.total; first += 4) {
        window_fill(&window);
        RG_CHECK_EQ(window_offer(&window, &offers), 4);
        take(&offers, first + 1, 3); /* and the thread that has taken first + 0 is suspended */
        window_note(&window, &offers, 3);
        window_fill(&window);
        RG_CHECK_EQ(window_offer(&window, &offers), 0);
        RG_CHECK_EQ(rg_window_can_take(&window), first + 4 < options.total);
        take(&offers, first, 1);
        window_note(&window, &offers, 1);
        RG_CHECK_EQ(rg_offers_room(&offers), 4);
    }
    RG_CHECK(rg_window_is_done(&window));
    rg_offers_fini(&offers);
    rg_window_fini(&window, NULL);
}

struct scene {
    struct rg_offers offers;
    _Atomic uint64_t offered; /* places below are offered */
    _Atomic uint64_t claimed; /* places below have a taker */
};

static void *take_all(void *context)
{
    struct scene *scene = context;
    uint64_t place = atomic_load(&scene->claimed);
    while (place < EACH) {
        if (place < atomic_load(&scene->offered) &&
            atomic_compare_exchange_weak(&scene->claimed, &place, place + 1)) {
            take(&scene->offers, place, 1);
        } else {
            sched_yield();
        }
        place = atomic_load(&scene->claimed);
    }
    return NULL;
}

static void test_threads_take_while_others_are_offered(void)
{
    static uint8_t seen[EACH];
    static struct scene scene;
    pthread_t threads[THREADS];
    RG_CHECK_EQ(rg_offers_init(&scene.offers, CAPACITY), 0);
    for (int i = 0; i < THREADS; i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, take_all, &scene), 0);
    }
    for (uint64_t collected = 0, next = 0; collected < EACH;) {
        while (next < EACH && rg_offers_room(&scene.offers) > 0) {
            (void)rg_offers_add(&scene.offers, next * 3, next);
            atomic_store(&scene.offered, ++next);
        }
        uint64_t numbers[5];
        uint32_t count = rg_offers_collect(&scene.offers, numbers, RG_ARRAY_LEN(numbers));
        for (uint32_t i = 0; i < count; i++) {
            RG_CHECK_EQ(seen[numbers[i]]++, 0);
        }
        collected += count;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    RG_CHECK_EQ(atomic_load(&scene.offers.fresh), 0);
    rg_offers_fini(&scene.offers);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_was_taken_is_collected_once),
        RG_TEST(test_a_place_in_the_middle_is_not_held_up),
        RG_TEST(test_an_unordered_window_waits_for_a_place_that_is_not_marked),
        RG_TEST(test_threads_take_while_others_are_offered),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
