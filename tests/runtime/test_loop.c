/* The event loop itself, with both of its real backends: passes, alarms, tasks, mail and calls of
 * other threads, memory that is waited for, and completions. */
#include "tests/runtime/loop_case.h"
#include "tests/support/loop.h"

#include <pthread.h>

struct alarm_probe {
    struct rg_alarm alarm;
    uint64_t fired_ns;
    unsigned count, again;
};

static void alarm_fire(struct rg_alarm *alarm)
{
    struct alarm_probe *probe = RG_CONTAINER_OF(alarm, struct alarm_probe, alarm);
    probe->fired_ns = loop->now_ns;
    probe->count++;
    if (probe->again > 0) {
        probe->again--;
        rg_loop_set_alarm(loop, alarm, loop->now_ns + 5 * RG_NS_PER_MS);
    }
}

static void test_alarms_fire_in_turn_and_not_early(void)
{
    setup();
    static const uint64_t delays_ms[] = {40, 10, 25};
    struct alarm_probe probes[3] = {0}, cancelled = {0};
    uint64_t begin_ns = rg_now_ns();
    for (int i = 0; i < 3; i++) {
        rg_alarm_init(&probes[i].alarm, alarm_fire);
        rg_loop_set_alarm(loop, &probes[i].alarm, begin_ns + delays_ms[i] * RG_NS_PER_MS);
    }
    rg_alarm_init(&cancelled.alarm, alarm_fire);
    rg_loop_set_alarm(loop, &cancelled.alarm, begin_ns + 15 * RG_NS_PER_MS);
    rg_loop_cancel_alarm(loop, &cancelled.alarm);
    /* The loop wakes by itself for each: no deadline is given. */
    while (probes[0].count == 0) {
        rg_loop_pass(loop, UINT64_MAX);
    }
    for (int i = 0; i < 3; i++) {
        RG_CHECK_EQ(probes[i].count, 1);
        RG_CHECK(probes[i].fired_ns >= begin_ns + delays_ms[i] * RG_NS_PER_MS);
    }
    /* Those that fire in one pass, as on a busy machine, do so in any order. */
    RG_CHECK(probes[1].fired_ns <= probes[2].fired_ns && probes[2].fired_ns <= probes[0].fired_ns);
    RG_CHECK_EQ(cancelled.count, 0);
    teardown();
}

static void test_an_alarm_may_be_set_again_while_it_fires(void)
{
    setup();
    struct alarm_probe probe = {.again = 4};
    rg_alarm_init(&probe.alarm, alarm_fire);
    uint64_t begin_ns = rg_now_ns();
    rg_loop_set_alarm(loop, &probe.alarm, begin_ns + 5 * RG_NS_PER_MS);
    while (probe.count < 5) {
        rg_loop_pass(loop, UINT64_MAX);
    }
    RG_CHECK(rg_now_ns() - begin_ns >= 25 * RG_NS_PER_MS);
    rg_loop_pass(loop, rg_now_ns() + 20 * RG_NS_PER_MS);
    RG_CHECK_EQ(probe.count, 5);
    teardown();
}

static void test_an_idle_pass_ends_at_its_deadline(void)
{
    setup();
    rg_loop_pass(loop, 0);
    uint64_t deadline_ns = rg_now_ns() + 30 * RG_NS_PER_MS;
    rg_loop_pass(loop, deadline_ns);
    RG_CHECK(rg_now_ns() >= deadline_ns);
    uint64_t past_ns = rg_now_ns() - RG_NS_PER_S;
    rg_loop_pass(loop, past_ns);
    RG_CHECK(rg_now_ns() < past_ns + RG_NS_PER_S + 10 * RG_NS_PER_S);
    teardown();
}

struct task_probe {
    struct rg_task task;
    unsigned count;
    unsigned again;
    struct rg_task *undefers;
};

static void task_run(struct rg_task *task)
{
    struct task_probe *probe = RG_CONTAINER_OF(task, struct task_probe, task);
    probe->count++;
    if (probe->undefers != NULL) {
        rg_loop_undefer(probe->undefers);
    }
    if (probe->again > 0) {
        probe->again--;
        rg_loop_defer(loop, task);
    }
}

static void test_tasks_deferred_by_tasks_run_in_the_next_pass(void)
{
    setup();
    struct task_probe again = {.task.run = task_run, .again = 3};
    struct task_probe never = {.task.run = task_run};
    struct task_probe undefers = {.task.run = task_run, .undefers = &never.task};
    rg_loop_defer(loop, &again.task);
    rg_loop_defer(loop, &again.task);
    rg_loop_defer(loop, &undefers.task);
    rg_loop_defer(loop, &never.task);
    for (unsigned pass = 1; pass <= 4; pass++) {
        /* Not a second of waiting: a loop with tasks is busy. */
        rg_loop_pass(loop, rg_now_ns() + PATIENCE_NS);
        RG_CHECK_EQ(again.count, pass);
    }
    RG_CHECK_EQ(undefers.count, 1);
    RG_CHECK_EQ(never.count, 0);
    rg_loop_undefer(&never.task);
    teardown();
}

enum { POSTERS = 4, POSTS = 5000 };

struct post {
    struct rg_mail mail;
    unsigned poster, number;
};

static struct post posts[POSTERS][POSTS];
static unsigned post_next[POSTERS];
static bool post_order_broken;

static void post_run(struct rg_mail *mail)
{
    struct post *post = RG_CONTAINER_OF(mail, struct post, mail);
    post_order_broken |= post->number != post_next[post->poster];
    post_next[post->poster] = post->number + 1;
}

static void *poster_thread(void *context)
{
    struct post *mine = context;
    for (unsigned i = 0; i < POSTS; i++) {
        mine[i].mail.run = post_run;
        mine[i].number = i;
        if (i % 64 == 0) {
            sched_yield();
        }
        rg_loop_post(loop, &mine[i].mail);
    }
    return NULL;
}

static void read_posts(void *context)
{
    unsigned *total = context;
    *total = 0;
    for (int i = 0; i < POSTERS; i++) {
        *total += post_next[i];
    }
}

static void test_mail_of_many_threads_arrives_in_each_ones_order(void)
{
    setup_with_memory(0);
    memset(post_next, 0, sizeof(post_next));
    post_order_broken = false;
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    pthread_t threads[POSTERS];
    for (unsigned i = 0; i < POSTERS; i++) {
        for (unsigned k = 0; k < POSTS; k++) {
            posts[i][k].poster = i;
        }
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, poster_thread, posts[i]), 0);
    }
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(threads[i], NULL);
    }
    unsigned total;
    rg_loop_call(loop, read_posts, &total);
    RG_CHECK_EQ(total, POSTERS * POSTS);
    rg_loop_stop(loop);
    RG_CHECK(!post_order_broken);
    teardown();
}

struct call_probe {
    pthread_t thread;
    unsigned count;
};

static void call_function(void *context)
{
    struct call_probe *probe = context;
    probe->thread = pthread_self();
    probe->count++;
}

static void test_calls_run_on_the_loops_thread_and_are_waited_for(void)
{
    setup_with_memory(0);
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    struct call_probe probe = {0};
    for (unsigned i = 1; i <= 200; i++) {
        rg_loop_call(loop, call_function, &probe);
        RG_CHECK_EQ(probe.count, i);
    }
    RG_CHECK(!pthread_equal(probe.thread, pthread_self()));
    rg_loop_stop(loop);
    rg_loop_stop(loop);
    teardown();
}

static void *wake_thread(void *context)
{
    rg_test_await_asleep(*(pid_t *)context);
    rg_loop_wake(loop);
    return NULL;
}

static void test_another_thread_wakes_a_sleeping_loop(void)
{
    setup();
    rg_loop_pass(loop, 0);
    pid_t self = gettid();
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        uint64_t begin_ns = rg_now_ns();
        RG_CHECK_EQ(pthread_create(&thread, NULL, wake_thread, &self), 0);
        rg_loop_pass(loop, begin_ns + PATIENCE_NS);
        RG_CHECK(rg_now_ns() < begin_ns + PATIENCE_NS / 2);
        pthread_join(thread, NULL);
    }
    teardown();
}

enum { SLABS = 64, SLAB_SIZE = 128 * 1024 };

static struct {
    struct rg_task waiter;
    struct rg_lease *leases[SLABS], *late;
    unsigned count, tries;
} slabs;

static void slab_waiter_run(struct rg_task *task)
{
    slabs.tries++;
    slabs.late = rg_loop_take_slab(loop, SLAB_SIZE, task);
}

static void take_all_slabs(void *context)
{
    RG_ASSERT(context == NULL);
    while (slabs.late == NULL) {
        struct rg_lease *lease = rg_loop_take_slab(loop, SLAB_SIZE, NULL);
        if (lease == NULL) {
            break;
        }
        RG_ASSERT(slabs.count < SLABS);
        slabs.leases[slabs.count++] = lease;
    }
    slabs.waiter.run = slab_waiter_run;
    struct rg_lease *lease = rg_loop_take_slab(loop, SLAB_SIZE, &slabs.waiter);
    RG_ASSERT(lease == NULL);
}

static void read_late(void *context)
{
    *(struct rg_lease **)context = slabs.late;
}

static void test_who_waits_for_a_slab_gets_one_that_another_thread_released(void)
{
    memset(&slabs, 0, sizeof(slabs));
    setup_with_memory(RG_MIB(4));
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    rg_loop_call(loop, take_all_slabs, NULL);
    RG_CHECK(slabs.count > 0);
    rg_test_loop_turn(loop);
    struct rg_lease *late = NULL;
    rg_loop_call(loop, read_late, &late);
    RG_CHECK(late == NULL);
    rg_lease_release(slabs.leases[0]);
    RG_AWAIT((rg_loop_call(loop, read_late, &late), late != NULL));
    RG_CHECK(late->capacity >= SLAB_SIZE);
    rg_loop_stop(loop);
    RG_CHECK_EQ(slabs.tries, 1);
    RG_CHECK_EQ(rg_metric_load(&loop->metrics.lease_waits), 1);
    rg_lease_release(late);
    for (unsigned i = 1; i < slabs.count; i++) {
        rg_lease_release(slabs.leases[i]);
    }
    teardown();
}

static void start_idle_ops(void *context)
{
    struct probe *probes = context;
    static uint8_t into[4096];
    probe_recv(&probes[0], 100);
    rg_op_accept(loop, &probes[1].op, &probes[1].socket);
    rg_op_recv_into(loop, &probes[2].op, &probes[2].socket, into, sizeof(into));
}

static void test_a_loop_can_stop_with_ops_in_flight(void)
{
    setup_with_memory(0);
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    int a[2], b[2];
    make_pair(a);
    make_tcp_pair(b);
    struct sockaddr_in address;
    static struct probe probes[3];
    probe_adopt(&probes[0], a[0]);
    probe_adopt(&probes[1], listen_loopback(1, &address));
    probe_adopt(&probes[2], b[0]);
    rg_loop_call(loop, start_idle_ops, probes);
    rg_test_loop_turn(loop);
    rg_loop_stop(loop);
    teardown();
    RG_CHECK_EQ(probes[0].done_count + probes[1].done_count + probes[2].done_count, 0);
    for (int i = 0; i < 3; i++) {
        close(probes[i].socket.fd);
    }
    close(a[1]);
    close(b[1]);
}

static void take_completions(struct rg_cq *cq, uint32_t count)
{
    uint64_t expected = 0;
    while (expected < count) {
        struct rg_completion taken[50];
        int got = rg_cq_wait(cq, taken, 50, 1, rg_now_ns() + PATIENCE_NS);
        RG_CHECK(got > 0);
        for (int i = 0; i < got; i++) {
            RG_CHECK_EQ(taken[i].user_data, expected++);
        }
    }
}

static void test_completions_of_a_pass_arrive_in_order(void)
{
    enum { COUNT = 2 * RG_LOOP_COMPLETIONS_MAX + 7 };
    struct rg_runtime *runtime;
    struct rg_cq *first, *second;
    RG_CHECK_EQ(rg_runtime_open(&runtime, NULL), 0);
    RG_CHECK_EQ(rg_cq_open(&first, runtime, 1024), 0);
    RG_CHECK_EQ(rg_cq_open(&second, runtime, 1024), 0);
    setup();
    RG_CHECK_EQ(rg_cq_reserve(first, COUNT), COUNT);
    RG_CHECK_EQ(rg_cq_reserve(second, COUNT), COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        const struct rg_completion record = {.user_data = i};
        rg_loop_complete(loop, i % 3 == 0 ? first : second, &record);
        rg_loop_complete(loop, i % 3 == 0 ? second : first, &record);
    }
    rg_loop_pass(loop, 0);
    take_completions(first, COUNT);
    take_completions(second, COUNT);
    teardown();
    rg_cq_close(first);
    rg_cq_close(second);
    rg_runtime_close(runtime);
}

#define TESTS(XX)                                                                                  \
    XX(test_alarms_fire_in_turn_and_not_early)                                                     \
    XX(test_an_alarm_may_be_set_again_while_it_fires)                                              \
    XX(test_an_idle_pass_ends_at_its_deadline)                                                     \
    XX(test_tasks_deferred_by_tasks_run_in_the_next_pass)                                          \
    XX(test_mail_of_many_threads_arrives_in_each_ones_order)                                       \
    XX(test_calls_run_on_the_loops_thread_and_are_waited_for)                                      \
    XX(test_another_thread_wakes_a_sleeping_loop)                                                  \
    XX(test_who_waits_for_a_slab_gets_one_that_another_thread_released)                            \
    XX(test_a_loop_can_stop_with_ops_in_flight)                                                    \
    XX(test_completions_of_a_pass_arrive_in_order)

TESTS(LOOP_CASE)

int main(int argc, char **argv)
{
    static const struct rg_test epoll_tests[] = {TESTS(LOOP_CASE_EPOLL)};
    static const struct rg_test uring_tests[] = {TESTS(LOOP_CASE_URING)};
    return loop_case_main(argc, argv, epoll_tests, uring_tests, RG_ARRAY_LEN(epoll_tests));
}
