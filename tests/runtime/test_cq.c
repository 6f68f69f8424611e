/* The completion queue: the public contract case by case. test_cq_crowd.c has publishers and takers
 * against each other. */
#include "tests/runtime/cq_case.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void reserve_and_publish(struct rg_cq *cq, uint64_t first, uint32_t count)
{
    RG_CHECK_EQ(rg_cq_reserve(cq, count), count);
    publish(cq, first, count);
}

static void check_poll(struct rg_cq *cq, uint64_t first, uint32_t count)
{
    struct rg_completion out[64];
    RG_CHECK_EQ(rg_cq_poll(cq, out, RG_ARRAY_LEN(out)), count);
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK(is_record(&out[i], first + i));
    }
}

static bool is_readable(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, 0) == 1;
}

static void test_open_refuses_what_is_out_of_range(void)
{
    struct rg_cq *cq = NULL;
    RG_CHECK_EQ(rg_cq_open(&cq, &runtime, 0), -EINVAL);
    RG_CHECK_EQ(rg_cq_open(&cq, &runtime, (1 << 20) + 1), -EINVAL);
    RG_CHECK_EQ(rg_cq_open(&cq, NULL, 1), -EINVAL);
    RG_CHECK_EQ(rg_cq_open(NULL, &runtime, 1), -EINVAL);
    struct rg_runtime of_parent = {.check_result = -EOWNERDEAD};
    RG_CHECK_EQ(rg_cq_open(&cq, &of_parent, 1), -EOWNERDEAD);
    RG_CHECK(cq == NULL);
    rg_cq_close(NULL);
}

static void test_capacity_is_rounded_up_to_a_power_of_two(void)
{
    static const uint32_t pairs[][2] = {{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {1 << 20, 1 << 20}};
    for (size_t i = 0; i < RG_ARRAY_LEN(pairs); i++) {
        struct rg_cq *cq = open_queue(pairs[i][0]);
        RG_CHECK_EQ(rg_cq_reserve(cq, UINT32_MAX), pairs[i][1]);
        RG_CHECK_EQ(rg_cq_reserve(cq, 1), 0);
        rg_cq_unreserve(cq, pairs[i][1]);
        rg_cq_close(cq);
    }
}

static void test_a_full_queue_has_room_after_taking_or_unreserving(void)
{
    struct rg_cq *cq = open_queue(4);
    RG_CHECK_EQ(rg_cq_reserve(cq, 3), 3);
    RG_CHECK_EQ(rg_cq_reserve(cq, 3), 1);
    rg_cq_unreserve(cq, 2);
    publish(cq, 0, 2);
    RG_CHECK_EQ(rg_cq_reserve(cq, 3), 2);
    RG_CHECK_EQ(rg_cq_reserve(cq, 1), 0);
    check_poll(cq, 0, 2);
    RG_CHECK_EQ(rg_cq_reserve(cq, 3), 2);
    rg_cq_unreserve(cq, 4);
    rg_cq_close(cq);
}

static void test_a_queue_is_scarce_with_a_quarter_free(void)
{
    static const uint32_t pairs[][2] = {{1, 1}, {2, 1}, {4, 3}, {16, 12}};
    for (size_t i = 0; i < RG_ARRAY_LEN(pairs); i++) {
        struct rg_cq *cq = open_queue(pairs[i][0]);
        for (uint32_t used = 0; used < pairs[i][0]; used++) {
            RG_CHECK_EQ(rg_cq_is_scarce(cq), used >= pairs[i][1]);
            RG_CHECK_EQ(rg_cq_reserve(cq, 1), 1);
        }
        RG_CHECK(rg_cq_is_scarce(cq));
        rg_cq_unreserve(cq, pairs[i][0]);
        RG_CHECK(!rg_cq_is_scarce(cq));
        rg_cq_close(cq);
    }
}

static void test_records_come_whole_and_in_order_many_times_around(void)
{
    for (uint32_t capacity = 1; capacity <= 16; capacity *= 2) {
        struct rg_cq *cq = open_queue(capacity);
        uint64_t in = 0, out = 0;
        for (int i = 0; i < 500; i++) {
            uint32_t count = (uint32_t)rg_test_random_below(capacity + 1);
            int reserved = rg_cq_reserve(cq, count);
            RG_CHECK_EQ(reserved, RG_MIN(count, capacity - (in - out)));
            publish(cq, in, (uint32_t)reserved);
            in += (uint64_t)reserved;
            struct rg_completion record;
            while (rg_test_random_below(3) != 0 && rg_cq_poll(cq, &record, 1) == 1) {
                RG_CHECK(is_record(&record, out));
                out++;
            }
        }
        check_poll(cq, out, (uint32_t)(in - out));
        rg_cq_close(cq);
    }
}

static void test_poll_with_no_room_takes_nothing(void)
{
    struct rg_cq *cq = open_queue(2);
    reserve_and_publish(cq, 5, 1);
    RG_CHECK_EQ(rg_cq_poll(cq, NULL, 0), 0);
    check_poll(cq, 5, 1);
    check_poll(cq, 0, 0);
    rg_cq_close(cq);
}

static void test_wait_checks_its_arguments(void)
{
    struct rg_cq *cq = open_queue(4);
    struct rg_completion out[8];
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 0, 0), -EINVAL);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 2, 3, 0), -EINVAL);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 5, 0), -EINVAL);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 4, 0), -ETIME);
    rg_cq_close(cq);
}

static void test_wait_ends_at_the_deadline(void)
{
    struct rg_cq *cq = open_queue(4);
    struct rg_completion out[4];
    uint64_t deadline_ns = rg_now_ns() + 20 * RG_NS_PER_MS;
    RG_CHECK_EQ(rg_cq_wait(cq, out, 4, 1, deadline_ns), -ETIME);
    RG_CHECK(rg_now_ns() >= deadline_ns);
    reserve_and_publish(cq, 1, 2);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 4, 3, rg_now_ns() + RG_NS_PER_MS), 2);
    RG_CHECK(is_record(&out[1], 2));
    RG_CHECK_EQ(rg_cq_wait(cq, out, 4, 1, 0), -ETIME);
    rg_cq_close(cq);
}

static void test_wait_takes_all_that_is_there(void)
{
    struct rg_cq *cq = open_queue(8);
    reserve_and_publish(cq, 1, 5);
    struct rg_completion out[8];
    RG_CHECK_EQ(rg_cq_wait(cq, out, 3, 1, RG_FOREVER), 3);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 1, RG_FOREVER), 2);
    RG_CHECK(is_record(&out[0], 4));
    rg_cq_close(cq);
}

struct waiter {
    pthread_t thread;
    struct rg_cq *cq;
    uint32_t min;
    uint64_t deadline_ns;
    _Atomic pid_t tid; /* 0: not started yet */
    int result;
    long sleeps;
};

static void *wait_once(void *context)
{
    struct waiter *waiter = context;
    struct rg_completion out[64];
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    atomic_store(&waiter->tid, gettid());
    waiter->result = rg_cq_wait(waiter->cq, out, 64, waiter->min, waiter->deadline_ns);
    getrusage(RUSAGE_THREAD, &after);
    waiter->sleeps = after.ru_nvcsw - before.ru_nvcsw;
    return NULL;
}

static void start_waiter(struct waiter *waiter)
{
    RG_CHECK_EQ(pthread_create(&waiter->thread, NULL, wait_once, waiter), 0);
    RG_AWAIT(atomic_load(&waiter->tid) != 0);
    rg_test_await_asleep(waiter->tid);
}

static void test_publishing_wakes_a_waiter(void)
{
    struct rg_cq *cq = open_queue(64);
    struct waiter waiter = {.cq = cq, .min = 1, .deadline_ns = rg_now_ns() + LOST_NS};
    start_waiter(&waiter);
    reserve_and_publish(cq, 0, 1);
    pthread_join(waiter.thread, NULL);
    RG_CHECK_EQ(waiter.result, 1);
    rg_cq_close(cq);
}

static void test_a_waiter_for_many_is_not_woken_for_each(void)
{
    struct rg_cq *cq = open_queue(64);
    struct waiter waiter = {.cq = cq, .min = 50, .deadline_ns = rg_now_ns() + LOST_NS};
    start_waiter(&waiter);
    for (uint64_t i = 0; i < 50; i++) {
        reserve_and_publish(cq, i, 1);
        if (i < 49) {
            rg_test_await_asleep(waiter.tid);
        }
    }
    pthread_join(waiter.thread, NULL);
    RG_CHECK_EQ(waiter.result, 50);
    RG_CHECK(waiter.sleeps <= 25);
    rg_cq_close(cq);
}

static void *wait_twice(void *context)
{
    struct waiter *waiter = context;
    struct rg_completion out[64];
    atomic_store(&waiter->tid, gettid());
    for (int i = 0; i < 2; i++) {
        waiter->result = rg_cq_wait(waiter->cq, out, 64, waiter->min, waiter->deadline_ns);
    }
    return NULL;
}

static void test_a_wait_leaves_nothing_that_wakes_the_next_one_early(void)
{
    struct rg_cq *cq = open_queue(64);
    struct waiter waiter = {.cq = cq, .min = 2, .deadline_ns = rg_now_ns() + LOST_NS};
    uint64_t before = waits;
    RG_CHECK_EQ(pthread_create(&waiter.thread, NULL, wait_twice, &waiter), 0);
    RG_AWAIT(atomic_load(&waiter.tid) != 0);
    rg_test_await_asleep(waiter.tid);
    reserve_and_publish(cq, 0, 2);
    RG_AWAIT(waits == before + 1);
    rg_test_await_asleep(waiter.tid);
    reserve_and_publish(cq, 2, 1);
    rg_test_await_asleep(waiter.tid);
    RG_CHECK_EQ(waits, before + 1);
    reserve_and_publish(cq, 3, 1);
    pthread_join(waiter.thread, NULL);
    RG_CHECK_EQ(waiter.result, 2);
    RG_CHECK_EQ(waits, before + 2);
    rg_cq_close(cq);
}

static void test_waiters_for_few_and_many_all_get_theirs(void)
{
    struct rg_cq *cq = open_queue(64);
    struct waiter waiters[3];
    for (uint32_t i = 0; i < 3; i++) {
        waiters[i] =
            (struct waiter){.cq = cq, .min = 1 + i * 3, .deadline_ns = rg_now_ns() + LOST_NS};
        start_waiter(&waiters[i]);
    }
    /* A waiter may take more than its minimum, so records go on until all are content. */
    uint64_t number = 0;
    for (int ended = 0; ended < 3;) {
        if (rg_cq_reserve(cq, 1) == 1) {
            publish(cq, number++, 1);
        }
        sched_yield();
        ended += pthread_tryjoin_np(waiters[ended].thread, NULL) == 0;
    }
    for (uint32_t i = 0; i < 3; i++) {
        RG_CHECK(waiters[i].result >= (int)waiters[i].min);
    }
    struct rg_completion out[64];
    RG_CHECK(rg_cq_poll(cq, out, 64) >= 0);
    rg_cq_close(cq);
}

static void ignore_signal(int number)
{
    (void)number;
}

/* The signal is sent again and again, because the first may come before the wait began. */
static int wait_interrupted(struct rg_cq *cq, int flags, uint64_t deadline_ns)
{
    struct sigaction action = {.sa_handler = ignore_signal, .sa_flags = flags};
    sigaction(SIGUSR1, &action, NULL);
    struct waiter waiter = {.cq = cq, .min = 2, .deadline_ns = deadline_ns};
    start_waiter(&waiter);
    RG_AWAIT((pthread_kill(waiter.thread, SIGUSR1), pthread_tryjoin_np(waiter.thread, NULL) == 0));
    return waiter.result;
}

static void test_a_signal_handler_ends_a_wait(void)
{
    struct rg_cq *cq = open_queue(4);
    RG_CHECK_EQ(wait_interrupted(cq, 0, rg_now_ns() + LOST_NS), -EINTR);
    RG_CHECK_EQ(wait_interrupted(cq, 0, RG_FOREVER), -EINTR);
    RG_CHECK_EQ(wait_interrupted(cq, SA_RESTART, RG_FOREVER), -EINTR);
    reserve_and_publish(cq, 0, 1);
    RG_CHECK_EQ(wait_interrupted(cq, 0, RG_FOREVER), 1);
    rg_cq_close(cq);
}

static void test_a_wait_is_interrupted_by_another_thread(void)
{
    struct rg_cq *cq = open_queue(4);
    for (int i = 0; i < 200; i++) {
        struct waiter waiter = {.cq = cq, .min = 2, .deadline_ns = rg_now_ns() + LOST_NS};
        start_waiter(&waiter);
        rg_cq_interrupt(cq); /* sometimes before the wait has begun */
        RG_CHECK_EQ(pthread_join(waiter.thread, NULL), 0);
        RG_CHECK_EQ(waiter.result, -EINTR);
    }
    struct rg_completion out[2];
    RG_CHECK_EQ(rg_cq_wait(cq, out, 2, 1, rg_now_ns()), -ETIME);
    rg_cq_close(cq);
}

static void test_each_interruption_ends_one_wait(void)
{
    struct rg_cq *cq = open_queue(4);
    struct rg_completion out[2];
    for (int i = 0; i < 3; i++) {
        rg_cq_interrupt(cq);
    }
    for (int i = 0; i < 3; i++) {
        RG_CHECK_EQ(rg_cq_wait(cq, out, 2, 1, rg_now_ns()), -EINTR);
    }
    RG_CHECK_EQ(rg_cq_wait(cq, out, 2, 1, rg_now_ns()), -ETIME);
    struct waiter waiters[4];
    for (size_t i = 0; i < RG_ARRAY_LEN(waiters); i++) {
        waiters[i] = (struct waiter){.cq = cq, .min = 1, .deadline_ns = rg_now_ns() + LOST_NS};
        start_waiter(&waiters[i]);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(waiters); i++) {
        rg_cq_interrupt(cq);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(waiters); i++) {
        RG_CHECK_EQ(pthread_join(waiters[i].thread, NULL), 0);
        RG_CHECK_EQ(waiters[i].result, -EINTR);
    }
    RG_CHECK_EQ(rg_cq_wait(cq, out, 2, 1, rg_now_ns()), -ETIME);
    rg_cq_close(cq);
}

static void test_what_is_at_hand_comes_before_an_interruption(void)
{
    struct rg_cq *cq = open_queue(4);
    struct rg_completion out[4];
    rg_cq_interrupt(cq);
    reserve_and_publish(cq, 0, 1);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 4, 1, RG_FOREVER), 1);
    reserve_and_publish(cq, 1, 1);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 4, 2, RG_FOREVER), 1);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 4, 1, rg_now_ns()), -ETIME);
    rg_cq_close(cq);
}

static void test_the_fd_is_written_when_the_queue_was_empty_only(void)
{
    struct rg_cq *cq = open_queue(16);
    int fd = rg_cq_fd(cq);
    RG_CHECK(fd >= 0);
    RG_CHECK_EQ(rg_cq_fd(cq), fd);
    RG_CHECK(!is_readable(fd));
    for (uint64_t round = 0; round < 3; round++) {
        reserve_and_publish(cq, 3 * round, 2);
        reserve_and_publish(cq, 3 * round + 2, 1);
        RG_CHECK_EQ(reset_fd(fd), 1);
        check_poll(cq, 3 * round, 3);
        check_poll(cq, 0, 0);
        RG_CHECK(!is_readable(fd));
    }
    rg_cq_close(cq);
}

static void test_the_fd_is_readable_at_once_if_records_wait(void)
{
    struct rg_cq *cq = open_queue(2);
    reserve_and_publish(cq, 0, 1);
    RG_CHECK(is_readable(rg_cq_fd(cq)));
    check_poll(cq, 0, 1);
    rg_cq_close(cq);
}

static void test_the_fd_is_readable_when_as_many_are_there_as_are_expected(void)
{
    struct rg_cq *cq = open_queue(16);
    int fd = rg_cq_fd(cq);
    reserve_and_publish(cq, 0, 1);
    RG_CHECK_EQ(reset_fd(fd), 1);
    RG_CHECK(!rg_cq_is_awaited(cq));
    rg_cq_expect(cq, 4);
    check_poll(cq, 0, 1);
    check_poll(cq, 0, 0);
    reserve_and_publish(cq, 1, 2);
    RG_CHECK(!is_readable(fd));
    RG_CHECK(rg_cq_is_awaited(cq));
    reserve_and_publish(cq, 3, 1);
    RG_CHECK_EQ(reset_fd(fd), 1);
    check_poll(cq, 1, 3);
    check_poll(cq, 0, 0);
    reserve_and_publish(cq, 4, 1); /* once */
    RG_CHECK(is_readable(fd));
    check_poll(cq, 4, 1);
    rg_cq_close(cq);
}

static void test_the_fd_needs_a_free_descriptor(void)
{
    struct rg_cq *cq = open_queue(2);
    struct rlimit before, none = {0};
    getrlimit(RLIMIT_NOFILE, &before);
    none.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_NOFILE, &none);
    int fd = rg_cq_fd(cq);
    setrlimit(RLIMIT_NOFILE, &before);
    RG_CHECK_EQ(fd, -EMFILE);
    RG_CHECK(rg_cq_fd(cq) >= 0);
    rg_cq_close(cq);
}

static int check_all_dead(struct rg_cq *cq, int fd)
{
    struct rg_completion out[2];
    bool dead = rg_cq_poll(cq, out, 2) == -EOWNERDEAD && rg_cq_fd(cq) == -EOWNERDEAD &&
                rg_cq_wait(cq, out, 2, 1, RG_FOREVER) == -EOWNERDEAD &&
                rg_cq_reserve(cq, 1) == -EOWNERDEAD;
    if (!dead || eventfd_write(fd, 1) == 0) {
        return 1;
    }
    rg_cq_close(cq);
    return 0;
}

static void test_a_child_can_only_close(void)
{
    struct rg_cq *cq = open_queue(2);
    int fd = rg_cq_fd(cq);
    RG_CHECK_EQ(rg_cq_reserve(cq, 1), 1); /* in flight at the fork: closing must not wait for it */
    pid_t pid = fork();
    if (pid == 0) {
        _exit(check_all_dead(cq, fd));
    }
    int status = -1;
    RG_CHECK_EQ(waitpid(pid, &status, 0), pid);
    RG_CHECK_EQ(status, 0);
    publish(cq, 1, 1);
    RG_CHECK_EQ(reset_fd(fd), 1);
    check_poll(cq, 1, 1);
    rg_cq_close(cq);
}

static void *publish_reserved(void *context)
{
    publish(context, 1, 1);
    return NULL;
}

static void test_close_right_after_the_last_record_was_taken(void)
{
    for (int i = 0; i < 1000; i++) {
        struct rg_cq *cq = open_queue(1);
        RG_CHECK(i % 2 == 0 || rg_cq_fd(cq) >= 0);
        RG_CHECK_EQ(rg_cq_reserve(cq, 1), 1);
        pthread_t publisher;
        RG_CHECK_EQ(pthread_create(&publisher, NULL, publish_reserved, cq), 0);
        struct rg_completion out;
        RG_CHECK_EQ(rg_cq_wait(cq, &out, 1, 1, rg_now_ns() + LOST_NS), 1);
        rg_cq_close(cq);
        pthread_join(publisher, NULL);
    }
}

/* A source that records what it is told. */
struct scripted_source {
    struct rg_cq_source source;
    struct rg_cq *cq;
    uint32_t took, rooms;
};

static void script_took(struct rg_cq_source *source, struct rg_completion *records, uint32_t count)
{
    struct scripted_source *script = RG_CONTAINER_OF(source, struct scripted_source, source);
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK_EQ(records[i].sample_number, records[i].user_data);
        records[i].sample_index = 0;
    }
    script->took += count;
}

static void script_has_room(struct rg_cq_source *source)
{
    RG_CONTAINER_OF(source, struct scripted_source, source)->rooms++;
}

static void script_attach(struct scripted_source *script, struct rg_cq *cq)
{
    *script = (struct scripted_source){
        .source.took = script_took, .source.has_room = script_has_room, .cq = cq};
    rg_cq_attach(cq, &script->source);
}

static void script_detach(struct scripted_source *script)
{
    rg_cq_source_become(script->cq, &script->source, RG_CQ_SOURCE_AWAY);
    rg_cq_detach(script->cq, &script->source);
}

static void script_publish(struct scripted_source *script, uint64_t number)
{
    struct rg_completion record = {
        .user_data = number, .sample_index = (uintptr_t)&script->source, .sample_number = number};
    rg_cq_publish(script->cq, &record, 1);
}

static void test_sources_are_told_of_their_records_only(void)
{
    struct rg_cq *cq = open_queue(8);
    struct scripted_source first, second;
    struct rg_completion out[8];
    script_attach(&first, cq);
    script_attach(&second, cq);
    RG_CHECK_EQ(rg_cq_source_reserve(cq, 8), 6); /* a quarter is left to requests */
    for (uint64_t i = 0; i < 6; i++) {
        struct rg_completion record = {.user_data = i};
        if (i % 3 == 2) {
            rg_cq_publish(cq, &record, 1);
        } else {
            script_publish(i < 3 ? &first : &second, i);
        }
    }
    RG_CHECK_EQ(rg_cq_poll(cq, out, 8), 6);
    RG_CHECK_EQ(first.took, 2);
    RG_CHECK_EQ(second.took, 2);
    for (uint64_t i = 0; i < 6; i++) {
        RG_CHECK_EQ(out[i].user_data, i);
        RG_CHECK_EQ(out[i].sample_index, 0);
    }
    script_detach(&first);
    script_detach(&second);
    rg_cq_close(cq);
}

static void test_sources_are_told_of_room_when_one_has_wanted_it(void)
{
    struct rg_cq *cq = open_queue(4);
    struct scripted_source script;
    struct rg_completion out[4];
    script_attach(&script, cq);
    RG_CHECK_EQ(rg_cq_reserve(cq, 4), 4);
    rg_cq_unreserve(cq, 1);
    RG_CHECK_EQ(script.rooms, 0);
    RG_CHECK_EQ(rg_cq_source_reserve(cq, 1), 0);
    rg_cq_unreserve(cq, 1);
    RG_CHECK_EQ(script.rooms, 1);
    RG_CHECK_EQ(rg_cq_source_reserve(cq, 1), 1);
    RG_CHECK_EQ(rg_cq_source_reserve(cq, 1), 0);
    for (uint64_t i = 0; i < 3; i++) {
        script_publish(&script, i);
    }
    RG_CHECK_EQ(rg_cq_poll(cq, out, 1), 1);
    RG_CHECK_EQ(script.rooms, 2);
    RG_CHECK_EQ(rg_cq_poll(cq, out, 4), 2);
    RG_CHECK_EQ(script.rooms, 2); /* nobody has wanted any since */
    script_detach(&script);
    rg_cq_close(cq);
}

static void test_a_source_keeps_what_ends_no_wait(void)
{
    struct rg_cq *cq = open_queue(8);
    struct scripted_source script;
    struct rg_completion out[8];
    (void)rg_cq_fd(cq);
    script_attach(&script, cq);
    RG_CHECK(!rg_cq_source_keeps(cq, 1)); /* whoever looks next finds nothing */
    rg_cq_expect(cq, 3);
    RG_CHECK_EQ(rg_cq_source_reserve(cq, 3), 3);
    script_publish(&script, 1);
    RG_CHECK(rg_cq_source_keeps(cq, 1));
    RG_CHECK(!rg_cq_source_keeps(cq, 2));
    script_publish(&script, 2);
    script_publish(&script, 3);
    RG_CHECK(rg_cq_source_keeps(cq, 100));
    RG_CHECK_EQ(rg_cq_poll(cq, out, 8), 3);
    RG_CHECK(!rg_cq_source_keeps(cq, 1));
    script_detach(&script);
    rg_cq_close(cq);
}

/* Something comes for it right after it was asked to deliver. */
static void keeper_has_room(struct rg_cq_source *source)
{
    struct scripted_source *script = RG_CONTAINER_OF(source, struct scripted_source, source);
    if (script->rooms++ > 0 || !rg_cq_source_keeps(script->cq, 1)) {
        script_publish(script, 2);
    }
}

/* Two are wanted. One is there, and the other comes when nothing says yet that it is wanted. */
static void test_nothing_is_kept_from_who_goes_to_sleep(void)
{
    struct rg_cq *cq = open_queue(8);
    struct scripted_source script;
    struct rg_completion out[8];
    script_attach(&script, cq);
    script.source.has_room = keeper_has_room;
    RG_CHECK_EQ(rg_cq_source_reserve(cq, 2), 2);
    script_publish(&script, 1);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 2, rg_now_ns() + LOST_NS), 2);
    RG_CHECK_EQ(script.rooms, 2);
    script_detach(&script);
    rg_cq_close(cq);
}

static void test_the_fd_is_readable_when_all_sources_rest_before_that(void)
{
    struct rg_cq *cq = open_queue(8);
    struct scripted_source script;
    struct rg_completion out[8];
    int fd = rg_cq_fd(cq);
    script_attach(&script, cq);
    rg_cq_expect(cq, 3);
    check_poll(cq, 0, 0);
    RG_CHECK_EQ(rg_cq_source_reserve(cq, 1), 1);
    script_publish(&script, 0);
    RG_CHECK(!is_readable(fd));
    rg_cq_source_become(cq, &script.source, RG_CQ_SOURCE_RESTING);
    RG_CHECK_EQ(reset_fd(fd), 1);
    RG_CHECK_EQ(rg_cq_poll(cq, out, 8), 1);
    check_poll(cq, 0, 0);
    RG_CHECK_EQ(rg_cq_reserve(cq, 1), 1); /* of a request, which then counts alone */
    rg_cq_expect(cq, 3);
    rg_cq_publish(cq, &(struct rg_completion){0}, 1);
    RG_CHECK(is_readable(fd));
    RG_CHECK_EQ(rg_cq_poll(cq, out, 8), 1);
    script_detach(&script);
    rg_cq_close(cq);
}

/* Three are wanted, and one is there. */
static void *rest(void *context)
{
    struct scripted_source *script = context;
    rg_cq_source_become(script->cq, &script->source, RG_CQ_SOURCE_RESTING);
    return NULL;
}

static void test_a_wait_ends_when_all_sources_rest_and_no_request_is_out(void)
{
    struct rg_cq *cq = open_queue(8);
    struct scripted_source script;
    struct rg_completion out[8];
    pthread_t thread;
    script_attach(&script, cq);
    RG_CHECK_EQ(rg_cq_reserve(cq, 3), 3);
    script_publish(&script, 1);
    RG_CHECK_EQ(pthread_create(&thread, NULL, rest, &script), 0);
    pthread_join(thread, NULL);
    /* Two requests are out. */
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 4, 0), 1);
    script_publish(&script, 2);
    rg_cq_unreserve(cq, 1);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 4, RG_FOREVER), 1);
    rg_cq_source_become(cq, &script.source, RG_CQ_SOURCE_FLOWING);
    RG_CHECK_EQ(rg_cq_reserve(cq, 1), 1);
    script_publish(&script, 3);
    RG_CHECK_EQ(pthread_create(&thread, NULL, rest, &script), 0);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 4, RG_FOREVER), 1);
    pthread_join(thread, NULL);
    script_detach(&script);
    rg_cq_close(cq);
}

/* The last of two sources goes while it flows, as a reader that is closed does. */
static void test_a_wait_ends_when_the_last_source_goes(void)
{
    struct rg_cq *cq = open_queue(8);
    struct scripted_source first, last;
    struct rg_completion out[8];
    script_attach(&first, cq);
    script_attach(&last, cq);
    script_detach(&first);
    RG_CHECK_EQ(rg_cq_source_reserve(cq, 2), 2);
    script_publish(&last, 1);
    script_publish(&last, 2);
    struct waiter waiter = {.cq = cq, .min = 3, .deadline_ns = RG_FOREVER};
    start_waiter(&waiter);
    script_detach(&last);
    RG_CHECK_EQ(pthread_join(waiter.thread, NULL), 0);
    RG_CHECK_EQ(waiter.result, 2);
    RG_CHECK_EQ(last.took, 2);
    /* And one that begins to wait afterwards, or waits beside requests, which it gets. */
    waiter = (struct waiter){.cq = cq, .min = 3, .deadline_ns = RG_FOREVER};
    RG_CHECK_EQ(rg_cq_reserve(cq, 2), 2);
    struct rg_completion answer = {0};
    rg_cq_publish(cq, &answer, 1);
    start_waiter(&waiter);
    rg_cq_publish(cq, &answer, 1);
    RG_CHECK_EQ(pthread_join(waiter.thread, NULL), 0);
    RG_CHECK_EQ(waiter.result, 2);
    RG_CHECK_EQ(rg_cq_wait(cq, out, 8, 3, rg_now_ns()), -ETIME);
    rg_cq_close(cq);
}

/* A quarter, and at least one where there are two. */
static void test_sources_leave_slots_to_requests(void)
{
    static const uint32_t given[][2] = {{1, 1}, {2, 1}, {4, 3}, {8, 6}};
    for (size_t i = 0; i < RG_ARRAY_LEN(given); i++) {
        struct rg_cq *cq = open_queue(given[i][0]);
        RG_CHECK_EQ(rg_cq_source_reserve(cq, 8), given[i][1]);
        RG_CHECK_EQ(rg_cq_source_reserve(cq, 8), 0);
        rg_cq_unreserve(cq, given[i][1]);
        rg_cq_close(cq);
    }
}

struct scripted_listener {
    struct rg_cq_listener listener;
    uint32_t calls;
};

static void listener_call(struct rg_cq_listener *listener, uint64_t count)
{
    RG_CHECK_EQ(count, 4);
    RG_CONTAINER_OF(listener, struct scripted_listener, listener)->calls++;
}

static void test_a_listener_hears_of_what_is_published(void)
{
    struct rg_cq *cq = open_queue(4);
    struct scripted_listener script = {.listener.published = listener_call};
    RG_CHECK_EQ(rg_cq_reserve(cq, 4), 4);
    publish(cq, 1, 1);
    rg_cq_listen(cq, &script.listener);
    publish(cq, 2, 3);
    RG_CHECK_EQ(script.calls, 1);
    RG_CHECK_EQ(rg_cq_published(cq), 4);
    check_poll(cq, 1, 4);
    rg_cq_close(cq);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_open_refuses_what_is_out_of_range),
        RG_TEST(test_capacity_is_rounded_up_to_a_power_of_two),
        RG_TEST(test_a_full_queue_has_room_after_taking_or_unreserving),
        RG_TEST(test_a_queue_is_scarce_with_a_quarter_free),
        RG_TEST(test_records_come_whole_and_in_order_many_times_around),
        RG_TEST(test_poll_with_no_room_takes_nothing),
        RG_TEST(test_wait_checks_its_arguments),
        RG_TEST(test_wait_ends_at_the_deadline),
        RG_TEST(test_wait_takes_all_that_is_there),
        RG_TEST(test_publishing_wakes_a_waiter),
        RG_TEST(test_a_waiter_for_many_is_not_woken_for_each),
        RG_TEST(test_a_wait_leaves_nothing_that_wakes_the_next_one_early),
        RG_TEST(test_waiters_for_few_and_many_all_get_theirs),
        RG_TEST(test_a_signal_handler_ends_a_wait),
        RG_TEST(test_a_wait_is_interrupted_by_another_thread),
        RG_TEST(test_each_interruption_ends_one_wait),
        RG_TEST(test_what_is_at_hand_comes_before_an_interruption),
        RG_TEST(test_the_fd_is_written_when_the_queue_was_empty_only),
        RG_TEST(test_the_fd_is_readable_at_once_if_records_wait),
        RG_TEST(test_the_fd_is_readable_when_as_many_are_there_as_are_expected),
        RG_TEST(test_the_fd_needs_a_free_descriptor),
        RG_TEST(test_a_child_can_only_close),
        RG_TEST(test_close_right_after_the_last_record_was_taken),
        RG_TEST(test_sources_are_told_of_their_records_only),
        RG_TEST(test_sources_are_told_of_room_when_one_has_wanted_it),
        RG_TEST(test_a_source_keeps_what_ends_no_wait),
        RG_TEST(test_nothing_is_kept_from_who_goes_to_sleep),
        RG_TEST(test_the_fd_is_readable_when_all_sources_rest_before_that),
        RG_TEST(test_a_wait_ends_when_all_sources_rest_and_no_request_is_out),
        RG_TEST(test_a_wait_ends_when_the_last_source_goes),
        RG_TEST(test_sources_leave_slots_to_requests),
        RG_TEST(test_a_listener_hears_of_what_is_published),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
