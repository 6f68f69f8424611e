/* Threads start with all signals blocked, and the caller keeps its own mask.
 *
 * A thread inherits the mask that holds when pthread_create is called. This program has a
 * pthread_create of its own in front of the C library's, which notes that mask. */
#include "runtime/op.h"
#include "runtime/thread.h"
#include "tests/support/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

typedef int create_function(pthread_t *thread, const pthread_attr_t *attributes,
                            void *(*main)(void *context), void *context);

static _Atomic uint32_t started_count, unblocked_count;
static int create_error;

struct turns {
    cpu_set_t cpu;
    _Atomic uint32_t waited; /* threads that have seen that they waited */
    _Atomic bool over;
};

static bool usr1_is_blocked(void)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    return sigismember(&now, SIGUSR1) == 1;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                   void *(*main)(void *context), void *context)
{
    create_function *real;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    RG_ASSERT(real != NULL);
    if (create_error != 0) {
        return create_error;
    }
    started_count++;
    unblocked_count += !usr1_is_blocked();
    return real(thread, attributes, main, context);
}

/* Its context is where it notes whether each signal that can be blocked is. */
static void *note_mask(void *context)
{
    bool *all_blocked = context;
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    *all_blocked = true;
    for (int i = 1; i < NSIG; i++) {
        bool reserved = i == SIGKILL || i == SIGSTOP || (i >= 32 && i < SIGRTMIN);
        *all_blocked &= reserved || sigismember(&now, i) == 1;
    }
    return NULL;
}

static void test_a_stack_is_never_too_small(void)
{
    pthread_t thread;
    bool all_blocked = false;
    RG_CHECK_EQ(rg_thread_start(&thread, 1, note_mask, &all_blocked), 0);
    pthread_join(thread, NULL);
    RG_CHECK(all_blocked);
}

static void test_all_signals_are_blocked_in_a_thread_and_none_in_the_caller(void)
{
    pthread_t thread;
    bool all_blocked = false;
    RG_CHECK(!usr1_is_blocked());
    RG_CHECK_EQ(rg_thread_start(&thread, RG_KIB(64), note_mask, &all_blocked), 0);
    RG_CHECK(!usr1_is_blocked());
    RG_CHECK_EQ(pthread_join(thread, NULL), 0);
    RG_CHECK(all_blocked);
}

static void test_a_thread_that_cannot_be_started_leaves_all_as_it_was(void)
{
    pthread_t thread;
    memset(&thread, 0xa5, sizeof(thread));
    pthread_t before = thread;
    bool all_blocked = false;
    create_error = EAGAIN;
    RG_CHECK_EQ(rg_thread_start(&thread, 0, note_mask, &all_blocked), -EAGAIN);
    create_error = 0;
    RG_CHECK(memcmp(&thread, &before, sizeof(thread)) == 0);
    RG_CHECK(!usr1_is_blocked());
}

static void test_no_signal_is_delivered_to_the_thread_that_probes_for_a_ring(void)
{
    const char *reason = NULL;
    started_count = unblocked_count = 0;
    (void)rg_uring_probe(&reason);
    RG_CHECK_EQ(started_count, 1);
    RG_CHECK_EQ(unblocked_count, 0);
}

/* Two that want to run on one CPU: one of them always waits. */
static void *take_turns(void *context)
{
    struct turns *turns = context;
    sched_setaffinity(0, sizeof(turns->cpu), &turns->cpu);
    uint64_t before_ns = rg_thread_waited_ns();
    while (!turns->over) {
        if (rg_thread_waited_ns() > before_ns) {
            turns->waited++;
            before_ns = UINT64_MAX;
        }
        turns->over = turns->over || turns->waited == 2;
    }
    return NULL;
}

/* In a sandbox the file may be missing, and all is 0 if the kernel does not count. */
static bool kernel_tells(void)
{
    unsigned long long ran_ns = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    bool tells = file != NULL && fscanf(file, "%llu", &ran_ns) == 1 && ran_ns > 0;
    if (file != NULL) {
        fclose(file);
    }
    return tells;
}

static void test_a_thread_knows_how_long_it_waited_for_a_cpu(void)
{
    static struct turns turns;
    cpu_set_t all;
    RG_CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    for (int cpu = 0; CPU_COUNT(&turns.cpu) == 0; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &turns.cpu);
        }
    }
    turns.over = !kernel_tells();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        RG_CHECK_EQ(rg_thread_start(&threads[i], 0, take_turns, &turns), 0);
    }
    for (int i = 0; i < 2; i++) {
        RG_CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_stack_is_never_too_small),
        RG_TEST(test_a_thread_knows_how_long_it_waited_for_a_cpu),
        RG_TEST(test_all_signals_are_blocked_in_a_thread_and_none_in_the_caller),
        RG_TEST(test_a_thread_that_cannot_be_started_leaves_all_as_it_was),
        RG_TEST(test_no_signal_is_delivered_to_the_thread_that_probes_for_a_ring),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
