/* Generations: the time where that is new, and one more where it is not. */
#include "emulator/store/model/clock.h"

#include "tests/support/test.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 10000 };

static void test_a_generation_is_the_time(void)
{
    _Atomic int64_t last = 0;
    int64_t before = rg_store_now_us();
    int64_t generation = rg_store_next_generation(&last);
    RG_CHECK(generation >= before && generation <= rg_store_now_us());
    RG_CHECK_EQ(atomic_load(&last), generation);
}

static void test_generations_grow_when_the_clock_goes_back(void)
{
    _Atomic int64_t last = rg_store_now_us() + 1000 * 1000 * 1000;
    int64_t start = atomic_load(&last);
    for (int i = 1; i < 10; i++) {
        RG_CHECK_EQ(rg_store_next_generation(&last), start + i);
    }
}

static _Atomic int64_t shared;

static void *take_many(void *argument)
{
    int64_t *sum = argument, before = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t generation = rg_store_next_generation(&shared);
        *sum += generation > before;
        before = generation;
    }
    return NULL;
}

static void test_threads_never_share_a_generation(void)
{
    pthread_t threads[THREADS];
    int64_t grew[THREADS] = {0};
    /* So far ahead that only the counter decides: it counts each generation once. */
    int64_t start = rg_store_now_us() * 2;
    atomic_store(&shared, start);
    for (int i = 0; i < THREADS; i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, take_many, &grew[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        RG_CHECK_EQ(grew[i], ROUNDS);
    }
    RG_CHECK_EQ(atomic_load(&shared), start + THREADS * ROUNDS);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_generation_is_the_time),
        RG_TEST(test_generations_grow_when_the_clock_goes_back),
        RG_TEST(test_threads_never_share_a_generation),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
