/* The baton: work that is due is done, by one thread at a time, and nobody waits for it. */
#include "runtime/baton.h"
#include "tests/support/test.h"

#include <pthread.h>

#define THREADS 4
#define PASSES_EACH 20000

struct scene {
    struct rg_baton baton;
    _Atomic uint64_t asked; /* for work, before the baton was passed */
    uint64_t done;          /* guarded by the baton: how much of it the work has seen */
    uint32_t runs;
    _Atomic bool is_inside;
    bool passes_again; /* once, from within */
};

static void work(void *context)
{
    struct scene *scene = context;
    RG_CHECK(!atomic_exchange(&scene->is_inside, true));
    scene->done = atomic_load(&scene->asked);
    scene->runs++;
    if (scene->passes_again) {
        scene->passes_again = false;
        rg_baton_pass(&scene->baton);
    }
    atomic_store(&scene->is_inside, false);
}

static void test_passing_does_the_work(void)
{
    struct scene scene = {0};
    rg_baton_init(&scene.baton, work, &scene);
    rg_baton_pass(&scene.baton);
    rg_baton_pass(&scene.baton);
    RG_CHECK_EQ(scene.runs, 2);
    rg_baton_fini(&scene.baton);
}

static void test_work_may_ask_for_more_of_it(void)
{
    struct scene scene = {.passes_again = true};
    rg_baton_init(&scene.baton, work, &scene);
    rg_baton_pass(&scene.baton);
    RG_CHECK_EQ(scene.runs, 2);
    rg_baton_fini(&scene.baton);
}

static void *pass_once(void *context)
{
    struct scene *scene = context;
    rg_baton_pass(&scene->baton);
    return NULL;
}

/* Joining the thread shows that it did not wait. */
static void test_who_finds_it_taken_leaves_word(void)
{
    struct scene scene = {0};
    rg_baton_init(&scene.baton, work, &scene);
    rg_baton_take(&scene.baton);
    pthread_t thread;
    RG_CHECK_EQ(pthread_create(&thread, NULL, pass_once, &scene), 0);
    pthread_join(thread, NULL);
    RG_CHECK_EQ(scene.runs, 0);
    rg_baton_give(&scene.baton);
    RG_CHECK_EQ(scene.runs, 1);
    rg_baton_take(&scene.baton);
    rg_baton_give(&scene.baton);
    RG_CHECK_EQ(scene.runs, 1);
    rg_baton_fini(&scene.baton);
}

static void *pass_often(void *context)
{
    struct scene *scene = context;
    for (int i = 0; i < PASSES_EACH; i++) {
        atomic_fetch_add(&scene->asked, 1);
        if (i % 16 == 0) {
            rg_baton_take(&scene->baton);
            rg_baton_give(&scene->baton);
        }
        rg_baton_pass(&scene->baton);
    }
    return NULL;
}

static void test_no_work_is_left_when_all_have_gone(void)
{
    struct scene scene = {0};
    pthread_t threads[THREADS];
    rg_baton_init(&scene.baton, work, &scene);
    for (int i = 0; i < THREADS; i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, pass_often, &scene), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    RG_CHECK_EQ(scene.done, THREADS * PASSES_EACH);
    rg_baton_fini(&scene.baton);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_passing_does_the_work),
        RG_TEST(test_work_may_ask_for_more_of_it),
        RG_TEST(test_who_finds_it_taken_leaves_word),
        RG_TEST(test_no_work_is_left_when_all_have_gone),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
