/* The completion queue: the public contract case by case, then publishers and takers against each
 * other. */
#include "runtime/cq.h"

#include "runtime/clock.h"
#include "tests/support/test.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Far beyond what a loaded machine takes; only a lost wake-up lasts as long. */
#define LOST_NS RG_TEST_PATIENCE_NS
#define LOST_MS 20000

/* Queues ask nothing of their runtime but which process it belongs to. */
struct rg_runtime {
    int check_result;
};

static struct rg_runtime runtime;

int rg_runtime_check(const struct rg_runtime *asked)
{
    return asked->check_result;
}

void rg_runtime_waited(struct rg_runtime *told, uint64_t ns)
{
    RG_CHECK(told == &runtime && ns <= INT64_MAX);
}

static struct rg_cq *open_queue(uint32_t capacity)
{
    struct rg_cq *cq;
    RG_CHECK_EQ(rg_cq_open(&cq, &runtime, capacity), 0);
    return cq;
}

/* Every field differs from the others and follows from the number. */
static struct rg_completion make_record(uint64_t number)
{
    return (struct rg_completion){
        .user_data = number,
        .status = (enum rg_status)(number % RG_STATUS_COUNT),
        .http_status = (uint16_t)(number + 1),
        .crc32c = (uint32_t)(number * 3),
        .data = (const void *)(uintptr_t)(number * 5),
        .size = number * 7,
        .finished_ns = number * 11,
        .sample_index = number * 13,
        .sample_number = number * 17,
    };
}

/* Field by field, because the padding between them is not copied everywhere. */
static bool is_record(const struct rg_completion *record, uint64_t number)
{
    struct rg_completion want = make_record(number);
    return record->user_data == want.user_data && record->status == want.status &&
           record->http_status == want.http_status && record->crc32c == want.crc32c &&
           record->data == want.data && record->size == want.size &&
           record->finished_ns == want.finished_ns && record->sample_index == want.sample_index &&
           record->sample_number == want.sample_number;
}

static void publish(struct rg_cq *cq, uint64_t first, uint32_t count)
{
    struct rg_completion records[64];
    RG_ASSERT(count <= RG_ARRAY_LEN(records));
    for (uint32_t i = 0; i < count; i++) {
        records[i] = make_record(first + i);
    }
    rg_cq_publish(cq, records, count);
}

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

static uint64_t reset_fd(int fd)
{
    eventfd_t value = 0;
    RG_CHECK_EQ(eventfd_read(fd, &value), 0);
    return value;
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

static void listener_call(struct rg_cq_listener *listener)
{
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
    check_poll(cq, 1, 4);
    rg_cq_close(cq);
}

/* A crowd: publishers reserve and publish numbered records, takers take them in various ways. */

#define PUBLISHERS 2
#define TAKERS_MAX 2
#define RECORDS_EACH 40000
#define STOP_NUMBER (PUBLISHERS * RECORDS_EACH)

struct crowd {
    struct rg_cq *cq;
    uint32_t capacity;
    int fd;                /* -1: takers wait instead */
    _Atomic uint64_t left; /* records that nobody has taken yet */
    _Atomic uint32_t failures;
    _Atomic uint8_t seen[STOP_NUMBER];
};

struct member {
    pthread_t thread;
    struct crowd *crowd;
    uint64_t index, random;
};

static uint32_t dice(struct member *member, uint32_t bound)
{
    member->random = member->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(member->random >> 40) % bound;
}

static void *publish_numbers(void *context)
{
    struct member *member = context;
    struct rg_cq *cq = member->crowd->cq;
    uint64_t next = member->index * RECORDS_EACH, end = next + RECORDS_EACH;
    while (next < end) {
        uint32_t want = 1 + dice(member, 16);
        int reserved = rg_cq_reserve(cq, (uint32_t)RG_MIN(want, end - next));
        if (reserved == 0) {
            sched_yield();
            continue;
        }
        uint32_t spare = dice(member, (uint32_t)reserved);
        rg_cq_unreserve(cq, spare);
        publish(cq, next, (uint32_t)reserved - spare);
        next += (uint32_t)reserved - spare;
        if (dice(member, 64) == 0) {
            for (uint32_t i = dice(member, 60); i > 0; i--) {
                sched_yield(); /* lets takers fall asleep */
            }
        }
    }
    return NULL;
}

/* When all is taken, as many records as fit end the waits of the other takers, whatever their
 * minimum. */
static void stop_takers(struct crowd *crowd)
{
    uint32_t count = (uint32_t)rg_cq_reserve(crowd->cq, crowd->capacity);
    for (uint32_t i = 0; i < count; i++) {
        publish(crowd->cq, STOP_NUMBER, 1);
    }
}

/* Each record once, whole, and those of a publisher in order. */
static void note_taken(struct crowd *crowd, const struct rg_completion *records, int count,
                       uint64_t *next_number)
{
    uint64_t taken = 0;
    for (int i = 0; i < count; i++) {
        uint64_t number = records[i].user_data;
        if (number == STOP_NUMBER) {
            continue;
        }
        taken++;
        bool good = number < STOP_NUMBER && is_record(&records[i], number) &&
                    number >= next_number[number / RECORDS_EACH] &&
                    atomic_fetch_add(&crowd->seen[number], 1) == 0;
        if (!good) {
            atomic_fetch_add(&crowd->failures, 1);
            continue;
        }
        next_number[number / RECORDS_EACH] = number + 1;
    }
    if (taken > 0 && atomic_fetch_sub(&crowd->left, taken) == taken) {
        stop_takers(crowd);
    }
}

static int take_by_fd(struct member *member, struct rg_completion *out, uint32_t max)
{
    struct crowd *crowd = member->crowd;
    int count = rg_cq_poll(crowd->cq, out, max);
    if (count == 0) {
        struct pollfd entry = {.fd = crowd->fd, .events = POLLIN};
        if (poll(&entry, 1, LOST_MS) == 1) {
            reset_fd(crowd->fd);
        } else {
            count = -ETIME;
        }
    }
    return count;
}

/* The first taker asks for many at a time, the others for one. */
static int take_by_wait(struct member *member, struct rg_completion *out, uint32_t max)
{
    struct crowd *crowd = member->crowd;
    uint32_t min = member->index > 0 ? 1 : 1 + dice(member, RG_MIN(max, crowd->capacity));
    return rg_cq_wait(crowd->cq, out, max, min, rg_now_ns() + LOST_NS);
}

static void *take_numbers(void *context)
{
    struct member *member = context;
    struct crowd *crowd = member->crowd;
    uint64_t next_number[PUBLISHERS] = {0};
    struct rg_completion out[24];
    while (atomic_load(&crowd->left) > 0) {
        uint32_t max = 1 + dice(member, 24);
        int count = crowd->fd >= 0 ? take_by_fd(member, out, max) : take_by_wait(member, out, max);
        if (count < 0) {
            atomic_fetch_add(&crowd->failures, 1);
            return NULL;
        }
        note_taken(crowd, out, count, next_number);
    }
    return NULL;
}

static void run_crowd(uint32_t capacity, unsigned taker_count, bool by_fd)
{
    static struct crowd crowd;
    memset(&crowd, 0, sizeof(crowd));
    crowd.cq = open_queue(capacity);
    crowd.capacity = capacity;
    crowd.fd = by_fd ? rg_cq_fd(crowd.cq) : -1;
    crowd.left = STOP_NUMBER;
    struct member members[PUBLISHERS + TAKERS_MAX];
    for (unsigned i = 0; i < PUBLISHERS + taker_count; i++) {
        bool publishes = i < PUBLISHERS;
        members[i] = (struct member){
            .crowd = &crowd, .index = publishes ? i : i - PUBLISHERS, .random = rg_test_random()};
        RG_CHECK_EQ(pthread_create(&members[i].thread, NULL,
                                   publishes ? publish_numbers : take_numbers, &members[i]),
                    0);
    }
    for (unsigned i = 0; i < PUBLISHERS + taker_count; i++) {
        pthread_join(members[i].thread, NULL);
    }
    RG_CHECK_EQ(crowd.failures, 0);
    RG_CHECK_EQ(crowd.left, 0);
    struct rg_completion out[64];
    while (rg_cq_poll(crowd.cq, out, RG_ARRAY_LEN(out)) > 0) {
    }
    rg_cq_close(crowd.cq);
}

static void test_each_record_is_taken_once_by_one_of_many(void)
{
    run_crowd(64, 2, false);
    run_crowd(2, 2, false);
}

static void test_no_wake_up_of_the_fd_is_lost(void)
{
    run_crowd(256, 1, true);
    run_crowd(4, 1, true);
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
        RG_TEST(test_waiters_for_few_and_many_all_get_theirs),
        RG_TEST(test_a_signal_handler_ends_a_wait),
        RG_TEST(test_a_wait_is_interrupted_by_another_thread),
        RG_TEST(test_each_interruption_ends_one_wait),
        RG_TEST(test_what_is_at_hand_comes_before_an_interruption),
        RG_TEST(test_the_fd_is_written_when_the_queue_was_empty_only),
        RG_TEST(test_the_fd_is_readable_at_once_if_records_wait),
        RG_TEST(test_the_fd_needs_a_free_descriptor),
        RG_TEST(test_a_child_can_only_close),
        RG_TEST(test_close_right_after_the_last_record_was_taken),
        RG_TEST(test_sources_are_told_of_their_records_only),
        RG_TEST(test_sources_are_told_of_room_when_one_has_wanted_it),
        RG_TEST(test_a_wait_ends_when_all_sources_rest_and_no_request_is_out),
        RG_TEST(test_a_wait_ends_when_the_last_source_goes),
        RG_TEST(test_sources_leave_slots_to_requests),
        RG_TEST(test_a_listener_hears_of_what_is_published),
        RG_TEST(test_each_record_is_taken_once_by_one_of_many),
        RG_TEST(test_no_wake_up_of_the_fd_is_lost),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
