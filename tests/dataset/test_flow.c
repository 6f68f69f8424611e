/* Readers that deliver into a queue of the caller's, against an emulator: each sample once, by any
 * number of threads, beside other requests; the window is kept full; states are exact; nothing is
 * lost where the queue is full, or where reader or client are closed in the middle. */
#include "dataset/flow.h"
#include "gcs/request/client.h"
#include "runtime/cq.h"
#include "tests/dataset/reader_case.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLES 7 /* user_data of readers */
#define PATIENCE_NS (90 * RG_NS_PER_S)

static struct rg_cq *cq;
static _Atomic uint32_t times_seen[COUNT];

static void world_open_on(uint32_t threads, uint64_t memory_max, uint32_t capacity)
{
    reader_world_open(threads, memory_max);
    RG_CHECK_EQ(rg_cq_open(&cq, runtime, capacity), 0);
    for (int i = 0; i < COUNT; i++) {
        atomic_store(&times_seen[i], 0);
    }
}

static void world_open(uint32_t capacity)
{
    world_open_on(2, 0, capacity);
}

static void world_close(void)
{
    rg_cq_close(cq);
    reader_world_close();
}

static struct rg_reader *reader_start(const struct rg_reader_options *options)
{
    struct rg_reader *reader = reader_open(options);
    RG_CHECK_EQ(rg_reader_start(reader, cq, SAMPLES), 0);
    return reader;
}

/* Counts a sample, and gives its memory back. */
static void sample_note(const struct rg_completion *sample)
{
    RG_CHECK_EQ(sample->user_data, SAMPLES);
    RG_CHECK(sample->sample_index < COUNT);
    RG_CHECK(sample->status != RG_STATUS_OK || sample->size == objects[sample->sample_index].size);
    atomic_fetch_add(&times_seen[sample->sample_index], 1);
    rg_lease_release(sample->lease);
}

/* Takes `count` samples, in odd portions, or fewer up to the end, which it then takes, too. */
static uint64_t samples_take(uint64_t count)
{
    uint64_t taken = 0;
    while (taken < count) {
        struct rg_completion records[7];
        uint32_t want = (uint32_t)RG_MIN(count - taken, RG_ARRAY_LEN(records));
        uint32_t min = 1 + (uint32_t)taken % want;
        int got = rg_cq_wait(cq, records, want, min, rg_now_ns() + PATIENCE_NS);
        RG_CHECK(got > 0);
        for (int i = 0; i < got; i++, taken++) {
            if (records[i].status == RG_STATUS_END) {
                RG_CHECK_EQ(i, got - 1);
                RG_CHECK_EQ(records[i].user_data, SAMPLES);
                RG_CHECK_EQ(records[i].sample_index, 0);
                return taken;
            }
            sample_note(&records[i]);
        }
    }
    return taken;
}

/* What a closed reader has left. */
static uint64_t queue_drain(void)
{
    struct rg_completion record;
    uint64_t count = 0;
    for (; rg_cq_poll(cq, &record, 1) == 1; count++) {
        RG_CHECK(record.status == RG_STATUS_END || record.sample_index < COUNT);
        RG_CHECK_EQ(record.user_data, SAMPLES);
        rg_lease_release(record.lease);
    }
    return count;
}

static void check_each_seen_once(void)
{
    for (int i = 0; i < COUNT; i++) {
        RG_CHECK_EQ(atomic_load(&times_seen[i]), 1);
    }
}

static void test_an_epoch_comes_through_a_queue(void)
{
    static const uint32_t capacities[] = {1, 2, 4, 16, 1024};
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(capacities); i++) {
        world_open(capacities[i / 2]);
        struct rg_reader_options options = reader_options();
        options.unordered = i % 2 == 1;
        struct rg_reader *reader = reader_start(&options);
        struct rg_completion record;
        struct rg_sample sample;
        RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, RG_FOREVER), -EINVAL);
        RG_CHECK_EQ(rg_reader_start(reader, cq, SAMPLES), -EINVAL);
        uint64_t taken = 0;
        while (taken < COUNT) {
            RG_CHECK_EQ(rg_cq_wait(cq, &record, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
            RG_CHECK_EQ(record.status, RG_STATUS_OK);
            RG_CHECK(options.unordered || record.sample_number == taken);
            sample_note(&record);
            RG_CHECK_EQ(rg_reader_taken(reader), ++taken);
        }
        RG_CHECK_EQ(samples_take(UINT64_MAX), 0);
        RG_CHECK_EQ(rg_cq_poll(cq, &record, 1), 0);
        check_each_seen_once();
        rg_reader_close(reader);
        world_close();
    }
}

/* Until all that loops have completed so far is in the queue: each of them may have left the last
 * word to another. */
static void loops_await(void)
{
    for (uint32_t i = 0; i < 2 * client->loop_count; i++) {
        rg_client_await_completions(&client->loops[i % client->loop_count]);
    }
}

/* Whether so many requests are over, whatever attempts they took. */
static bool have_come(uint64_t requests)
{
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    RG_CHECK(stats.total.count <= requests);
    return stats.total.count == requests;
}

/* The consumer takes a window, does nothing until the next one has come, and finds it there. */
static void test_loops_keep_the_window_full(void)
{
    world_open(2 * WINDOW);
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_start(&options);
    struct rg_completion records[WINDOW];
    for (uint64_t taken = 0; taken + WINDOW <= COUNT; taken += WINDOW) {
        RG_AWAIT(have_come(RG_MIN(taken + WINDOW, COUNT)));
        loops_await();
        RG_CHECK_EQ(rg_cq_wait(cq, records, WINDOW, WINDOW, 0), WINDOW);
        for (int i = 0; i < WINDOW; i++) {
            sample_note(&records[i]);
        }
    }
    (void)samples_take(UINT64_MAX);
    check_each_seen_once();
    rg_reader_close(reader);
    world_close();
}

static void test_a_wait_ends_with_what_the_window_has(void)
{
    world_open(8 * WINDOW);
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_start(&options);
    struct rg_completion records[4 * WINDOW];
    uint64_t taken = 0;
    bool is_over = false;
    while (!is_over) {
        int count = rg_cq_wait(cq, records, 4 * WINDOW, 4 * WINDOW, rg_now_ns() + PATIENCE_NS);
        RG_CHECK(count > 0 && count <= WINDOW + 1);
        is_over = records[count - 1].status == RG_STATUS_END;
        count -= is_over;
        for (int i = 0; i < count; i++) {
            sample_note(&records[i]);
        }
        taken += (uint64_t)count;
        RG_CHECK(is_over || taken % WINDOW == 0);
    }
    check_each_seen_once();
    rg_reader_close(reader);
    world_close();
}

/* The descriptor is readable for as many as are expected, or for what the window has. */
static void test_a_descriptor_says_when_as_many_have_come(void)
{
    static const uint32_t expected[] = {WINDOW / 2, 2 * WINDOW};
    for (size_t i = 0; i < RG_ARRAY_LEN(expected); i++) {
        world_open(8 * WINDOW);
        struct pollfd entry = {.fd = rg_cq_fd(cq), .events = POLLIN};
        struct rg_reader_options options = reader_options();
        struct rg_reader *reader = reader_open(&options);
        rg_cq_expect(cq, expected[i]);
        RG_CHECK_EQ(rg_reader_start(reader, cq, SAMPLES), 0);
        uint32_t before = 0;
        for (bool is_over = false; !is_over;) {
            RG_CHECK_EQ(poll(&entry, 1, (int)(PATIENCE_NS / RG_NS_PER_MS)), 1);
            eventfd_t value;
            RG_CHECK_EQ(eventfd_read(entry.fd, &value), 0);
            rg_cq_expect(cq, expected[i]);
            struct rg_completion record;
            uint32_t count = 0;
            for (; rg_cq_poll(cq, &record, 1) == 1; count++) {
                is_over = is_over || record.status == RG_STATUS_END;
                if (record.status != RG_STATUS_END) {
                    sample_note(&record);
                }
            }
            RG_CHECK(is_over || before + count >= RG_MIN(expected[i], (uint32_t)WINDOW));
            before = count;
        }
        check_each_seen_once();
        rg_reader_close(reader);
        world_close();
    }
}

/* Stopped after every few samples, others being in the queue, in flight and between the two. */
static void test_a_state_is_what_was_taken(void)
{
    for (int unordered = 0; unordered < 2; unordered++) {
        static uint8_t state[RG_READER_STATE_MAX];
        size_t state_size = 0;
        uint64_t taken = 0;
        world_open(16);
        for (uint64_t portion = 0; taken < COUNT; portion++) {
            struct rg_reader_options options = reader_options();
            options.unordered = unordered == 1;
            options.state = portion > 0 ? state : NULL;
            options.state_size = state_size;
            struct rg_reader *reader = reader_start(&options);
            taken += samples_take(1 + portion * 13 % 40);
            RG_CHECK_EQ(rg_reader_taken(reader), taken);
            state_size = rg_reader_state(reader, state, sizeof(state));
            rg_reader_close(reader);
            (void)queue_drain();
        }
        check_each_seen_once();
        world_close();
    }
}

static void test_what_was_not_consumed_comes_again(void)
{
    static uint8_t state[RG_READER_STATE_MAX];
    world_open(64);
    struct rg_reader_options options = reader_options();
    options.consume_later = true;
    struct rg_reader *reader = reader_start(&options);
    RG_CHECK_EQ(samples_take(100), 100);
    rg_reader_consume(reader);
    struct rg_completion lost;
    for (int i = 0; i < 30; i++) {
        RG_CHECK_EQ(rg_cq_wait(cq, &lost, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
        rg_lease_release(lost.lease);
    }
    options.state_size = rg_reader_state(reader, state, sizeof(state));
    options.state = state;
    rg_reader_close(reader);
    (void)queue_drain();
    reader = reader_start(&options);
    RG_CHECK_EQ(samples_take(UINT64_MAX), COUNT - 100);
    check_each_seen_once();
    rg_reader_close(reader);
    world_close();
}

/* Samples that are in the queue when the reader is closed are whole, and nobody else's. */
static void test_a_closed_reader_leaves_what_it_delivered(void)
{
    world_open(64);
    uint64_t left = 0;
    for (uint64_t count = 1; count < 80; count += 7) {
        struct rg_reader_options options = reader_options();
        struct rg_reader *reader = reader_start(&options);
        (void)samples_take(count);
        if (count % 2 == 0) {
            loops_await();
        }
        rg_reader_close(reader);
        left += queue_drain();
    }
    RG_CHECK(left > 0);
    world_close();
}

static void *drain_until_closed(void *is_closed)
{
    while (!atomic_load((_Atomic bool *)is_closed)) {
        (void)queue_drain();
    }
    return NULL;
}

static void test_a_reader_is_closed_while_others_take(void)
{
    world_open(16);
    for (int i = 0; i < 40; i++) {
        _Atomic bool is_closed = false;
        struct rg_reader_options options = reader_options();
        struct rg_reader *reader = reader_start(&options);
        pthread_t thread;
        RG_CHECK_EQ(pthread_create(&thread, NULL, drain_until_closed, &is_closed), 0);
        RG_AWAIT(rg_reader_taken(reader) > (uint64_t)i);
        rg_reader_close(reader);
        atomic_store(&is_closed, true);
        pthread_join(thread, NULL);
        (void)queue_drain();
    }
    world_close();
}

static void test_a_queue_full_of_requests_holds_samples_back(void)
{
    world_open(8);
    struct rg_completion records[8];
    for (int i = 0; i < 8; i++) {
        struct rg_get get = {.bucket = "data", .object = names[i], .user_data = 1};
        RG_CHECK_EQ(rg_submit_get(client, cq, &get), 0);
    }
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_start(&options);
    RG_CHECK_EQ(rg_cq_wait(cq, records, 8, 8, rg_now_ns() + PATIENCE_NS), 8);
    for (int i = 0; i < 8; i++) {
        RG_CHECK_EQ(records[i].user_data, 1);
        rg_lease_release(records[i].lease);
    }
    /* From now on samples leave room for requests. */
    for (bool is_over = false; !is_over;) {
        struct rg_get get = {.bucket = "data", .object = names[0], .user_data = 1};
        RG_CHECK_EQ(rg_submit_get(client, cq, &get), 0);
        do {
            RG_CHECK_EQ(rg_cq_wait(cq, records, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
            is_over = is_over || records[0].status == RG_STATUS_END;
            if (records[0].user_data == SAMPLES && records[0].status == RG_STATUS_OK) {
                sample_note(&records[0]);
            }
        } while (records[0].user_data == SAMPLES);
        rg_lease_release(records[0].lease);
    }
    check_each_seen_once();
    rg_reader_close(reader);
    world_close();
}

static void test_changed_objects_follow_the_policy(void)
{
    for (int changed = RG_CHANGED_ERROR; changed <= RG_CHANGED_NEWEST; changed++) {
        world_open(64);
        for (int i = 0; i < COUNT; i += 50) {
            objects[i].generation = 1;
        }
        objects[7].name = "gone";
        objects[7].generation = 1;
        objects[8].name = "";
        struct rg_reader_options options = reader_options();
        options.changed = (enum rg_changed)changed;
        struct rg_reader *reader = reader_start(&options);
        uint32_t failed = 0, count = 0;
        for (;;) {
            struct rg_completion record;
            RG_CHECK_EQ(rg_cq_wait(cq, &record, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
            if (record.status == RG_STATUS_END) {
                break;
            }
            failed += record.status == RG_STATUS_NOT_FOUND;
            RG_CHECK(record.status != RG_STATUS_BAD_REQUEST || record.sample_index == 8);
            count++;
            sample_note(&record);
        }
        static const uint32_t failures[] = {11, 0, 1};
        RG_CHECK_EQ(failed, failures[changed]);
        RG_CHECK_EQ(count, changed == RG_CHANGED_SKIP ? COUNT - 11 : COUNT);
        RG_CHECK_EQ(rg_reader_skipped(reader), changed == RG_CHANGED_SKIP ? 11 : 0);
        RG_CHECK_EQ(rg_reader_taken(reader), COUNT);
        rg_reader_close(reader);
        world_close();
    }
}

/* A crowd: two readers, gets and puts on one queue, from which four threads take. */

#define TAKERS 4
#define REQUESTS 200
enum { GETS = 100, PUTS, ORDERED, UNORDERED };

struct crowd {
    _Atomic uint64_t left; /* completions that nobody has taken yet */
    _Atomic uint32_t seen[4][COUNT];
    _Atomic uint32_t ends;
};

static struct crowd crowd;

static void crowd_note(const struct rg_completion *record)
{
    uint64_t who = record->user_data & 0xff, number = record->user_data >> 8;
    if (record->status == RG_STATUS_END) {
        RG_CHECK(who == ORDERED || who == UNORDERED);
        atomic_fetch_add(&crowd.ends, 1);
        return;
    }
    RG_CHECK_EQ(record->status, RG_STATUS_OK);
    RG_CHECK(who >= GETS && who <= UNORDERED);
    bool is_request = who == GETS || who == PUTS;
    RG_CHECK(!is_request || (record->sample_index == 0 && record->sample_number == 0));
    number = is_request ? number : record->sample_index;
    RG_CHECK_EQ(atomic_fetch_add(&crowd.seen[who - GETS][number], 1), 0);
    rg_lease_release(record->lease);
}

static void *crowd_take(void *context)
{
    uint32_t min = (uint32_t)(uintptr_t)context;
    while (atomic_load(&crowd.left) > 0) {
        struct rg_completion records[16];
        int count = rg_cq_wait(cq, records, RG_ARRAY_LEN(records), min, rg_now_ns() + PATIENCE_NS);
        for (int i = 0; i < count; i++) {
            crowd_note(&records[i]);
        }
        RG_CHECK(count > 0 || count == -EINTR);
        atomic_fetch_sub(&crowd.left, (uint64_t)RG_MAX(count, 0));
    }
    rg_cq_interrupt(cq); /* the next one has nothing to wait for either */
    return NULL;
}

static void request_submit(uint64_t who, uint64_t number)
{
    int rc;
    do {
        if (who == GETS) {
            struct rg_get get = {
                .bucket = "data", .object = names[number], .user_data = number << 8 | GETS};
            rc = rg_submit_get(client, cq, &get);
        } else {
            struct rg_put put = {.bucket = "data",
                                 .object = "new",
                                 .data = "x",
                                 .size = 1,
                                 .user_data = number << 8 | PUTS};
            rc = rg_submit_put(client, cq, &put);
        }
    } while (rc == -EAGAIN);
    RG_CHECK_EQ(rc, 0);
}

static void test_threads_take_what_readers_and_requests_give(void)
{
    static const uint32_t capacities[] = {16, 512};
    for (size_t turn = 0; turn < RG_ARRAY_LEN(capacities); turn++) {
        world_open(capacities[turn]);
        memset(&crowd, 0, sizeof(crowd));
        atomic_store(&crowd.left, 2 * COUNT + 2 + 2 * REQUESTS);
        struct rg_reader_options options = reader_options();
        struct rg_reader *readers[2];
        for (int i = 0; i < 2; i++) {
            options.unordered = i == 1;
            options.seed = (uint64_t)i;
            RG_CHECK_EQ(rg_reader_open(&readers[i], client, &options, NULL, 0), 0);
            RG_CHECK_EQ(rg_reader_start(readers[i], cq, i == 0 ? ORDERED : UNORDERED), 0);
        }
        pthread_t threads[TAKERS];
        for (uintptr_t i = 0; i < TAKERS; i++) {
            /* With requests beside them, only one is there for sure. */
            RG_CHECK_EQ(pthread_create(&threads[i], NULL, crowd_take, (void *)1), 0);
        }
        for (uint64_t i = 0; i < REQUESTS; i++) {
            request_submit(GETS, i);
            request_submit(PUTS, i);
        }
        for (int i = 0; i < TAKERS; i++) {
            pthread_join(threads[i], NULL);
        }
        RG_CHECK_EQ(atomic_load(&crowd.ends), 2);
        for (int i = 0; i < COUNT; i++) {
            RG_CHECK_EQ(crowd.seen[GETS - GETS][i], i < REQUESTS);
            RG_CHECK_EQ(crowd.seen[PUTS - GETS][i], i < REQUESTS);
            RG_CHECK_EQ(crowd.seen[ORDERED - GETS][i], 1);
            RG_CHECK_EQ(crowd.seen[UNORDERED - GETS][i], 1);
        }
        rg_reader_close(readers[0]);
        rg_reader_close(readers[1]);
        world_close();
    }
}

/* Batches of samples only, which are larger than windows and than what is left at the end. */
static void test_threads_wait_for_batches(void)
{
    world_open(256);
    memset(&crowd, 0, sizeof(crowd));
    atomic_store(&crowd.left, COUNT + 1);
    struct rg_reader_options options = reader_options();
    options.window_requests = 12;
    struct rg_reader *reader;
    RG_CHECK_EQ(rg_reader_open(&reader, client, &options, NULL, 0), 0);
    pthread_t threads[TAKERS];
    for (uintptr_t i = 0; i < TAKERS; i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, crowd_take, (void *)(1 + 5 * i)), 0);
    }
    RG_CHECK_EQ(rg_reader_start(reader, cq, ORDERED), 0);
    for (int i = 0; i < TAKERS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < COUNT; i++) {
        RG_CHECK_EQ(crowd.seen[ORDERED - GETS][i], 1);
    }
    RG_CHECK_EQ(atomic_load(&crowd.ends), 1);
    rg_reader_close(reader);
    world_close();
}

/* A source whose one record stops the thread that takes it, and what that thread takes with it. */
struct gate {
    struct rg_cq_source source;
    sem_t is_reached, go_on;
    struct rg_completion records[2];
};

static void sem_await(sem_t *sem)
{
    while (sem_wait(sem) < 0) {
        RG_CHECK_EQ(errno, EINTR);
    }
}

static void gate_took(struct rg_cq_source *source, struct rg_completion *records, uint32_t count)
{
    struct gate *gate = RG_CONTAINER_OF(source, struct gate, source);
    RG_CHECK_EQ(count, 1);
    records->sample_index = 0;
    sem_post(&gate->is_reached);
    sem_await(&gate->go_on);
}

static void gate_has_room(struct rg_cq_source *source)
{
    (void)source;
}

static void gate_open(struct gate *gate)
{
    *gate = (struct gate){.source.took = gate_took, .source.has_room = gate_has_room};
    sem_init(&gate->is_reached, 0, 0);
    sem_init(&gate->go_on, 0, 0);
    rg_cq_attach(cq, &gate->source);
    RG_CHECK_EQ(rg_cq_reserve(cq, 1), 1);
    struct rg_completion record = {.sample_index = (uintptr_t)&gate->source};
    rg_cq_publish(cq, &record, 1);
}

static void gate_close(struct gate *gate)
{
    rg_cq_source_become(cq, &gate->source, RG_CQ_SOURCE_AWAY);
    rg_cq_detach(cq, &gate->source);
    sem_destroy(&gate->is_reached);
    sem_destroy(&gate->go_on);
}

static void *gate_pass(void *context)
{
    struct gate *gate = context;
    RG_CHECK_EQ(rg_cq_wait(cq, gate->records, 2, 2, rg_now_ns() + PATIENCE_NS), 2);
    return NULL;
}

/* A thread is suspended when it has taken a sample off the queue and not marked it. Others take
 * what can be offered behind it. The first sample is large, so that it comes after the one that is
 * not marked, and the window goes on. */
static void test_a_suspended_taker_bounds_what_is_offered_behind_it(void)
{
    world_open(64);
    objects[0] = (struct rg_object){.name = "large-00000000", .size = 1600000};
    struct rg_reader_options options = reader_options();
    options.shuffle = false;
    options.unordered = true;
    options.window_requests = 16;
    struct gate gate;
    gate_open(&gate);
    pthread_t thread;
    RG_CHECK_EQ(pthread_create(&thread, NULL, gate_pass, &gate), 0);
    struct rg_reader *reader = reader_start(&options);
    sem_await(&gate.is_reached);
    RG_CHECK_EQ(samples_take(15), 15);
    /* With the first sample the window has gone on to the next, unless that is the one taken. */
    struct rg_stats stats;
    uint64_t asked = atomic_load(&times_seen[0]) == 1 ? 17 : 16;
    RG_AWAIT(rg_runtime_stats(runtime, &stats) == 0 && stats.total.count >= asked);
    loops_await();
    struct rg_completion record;
    RG_CHECK_EQ(rg_cq_poll(cq, &record, 1), 0);
    sem_post(&gate.go_on);
    RG_CHECK_EQ(pthread_join(thread, NULL), 0);
    gate_close(&gate);
    sample_note(&gate.records[1]);
    RG_CHECK_EQ(samples_take(UINT64_MAX), COUNT - 16);
    check_each_seen_once();
    rg_reader_close(reader);
    world_close();
}

static void test_a_closed_client_ends_the_epoch(void)
{
    for (uint64_t count = 0; count < 100; count += 33) {
        world_open(64);
        struct rg_reader_options options = reader_options();
        struct rg_reader *reader = reader_start(&options);
        RG_CHECK_EQ(samples_take(count), count);
        rg_client_close(client);
        client = NULL;
        uint64_t samples = count;
        for (;;) {
            struct rg_completion record;
            RG_CHECK_EQ(rg_cq_wait(cq, &record, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
            if (record.status == RG_STATUS_CLOSED) {
                RG_CHECK(record.detail != NULL && record.lease == NULL);
                break;
            }
            RG_CHECK_EQ(record.status, RG_STATUS_OK);
            sample_note(&record);
            samples++;
        }
        RG_CHECK(samples < COUNT);
        RG_CHECK_EQ(rg_reader_taken(reader), samples);
        rg_reader_close(reader);
        RG_CHECK_EQ(queue_drain(), 0);
        world_close();
    }
}

static void test_nothing_to_read_is_the_end(void)
{
    world_open(1);
    struct rg_reader_options options = reader_options();
    options.object_count = 0;
    struct rg_reader *reader = reader_start(&options);
    RG_CHECK_EQ(samples_take(1), 0);
    rg_reader_close(reader);
    RG_CHECK_EQ(queue_drain(), 0);
    world_close();
}

static void test_a_reader_starts_after_some_samples(void)
{
    world_open(64);
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader;
    RG_CHECK_EQ(rg_reader_open(&reader, client, &options, NULL, 0), 0);
    struct rg_sample sample;
    for (int i = 0; i < 10; i++) {
        RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
        atomic_fetch_add(&times_seen[sample.index], 1);
        rg_lease_release(sample.completion.lease);
    }
    RG_CHECK_EQ(rg_reader_start(reader, cq, SAMPLES), 0);
    RG_CHECK_EQ(samples_take(UINT64_MAX), COUNT - 10);
    check_each_seen_once();
    rg_reader_close(reader);
    world_close();
}

/* Four chunks of memory, of which three are held: the large sample has room when those that came
 * before its turn are dropped, for which nobody has to call anything. */
static void test_samples_before_their_turn_make_room(void)
{
    world_open_on(1, RG_MIB(8), 64);
    struct rg_lease *larges[3];
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof(name), "large-%08d", i);
        struct rg_get get = {.bucket = "data", .object = name, .length = RG_WHOLE};
        struct rg_completion done;
        RG_CHECK_EQ(rg_submit_get(client, cq, &get), 0);
        RG_CHECK_EQ(rg_cq_wait(cq, &done, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
        RG_CHECK_EQ(done.status, RG_STATUS_OK);
        larges[i] = done.lease;
    }
    objects[0] = (struct rg_object){.name = "big-00000000", .size = 2500000};
    struct rg_reader_options options = reader_options();
    options.shuffle = false;
    options.object_count = 20;
    struct rg_reader *reader = reader_start(&options);
    struct rg_stats stats = {0};
    /* All but the first have come, and are asked for again. */
    RG_AWAIT(rg_runtime_stats(runtime, &stats) == 0 && stats.starved_loops > 0);
    rg_lease_release(larges[0]);
    for (uint64_t i = 0; i < 20; i++) {
        struct rg_completion record;
        RG_CHECK_EQ(rg_cq_wait(cq, &record, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
        RG_CHECK_EQ(record.status, RG_STATUS_OK);
        RG_CHECK_EQ(record.sample_number, i);
        RG_CHECK_EQ(record.size, objects[i].size);
        rg_lease_release(record.lease);
    }
    RG_CHECK_EQ(samples_take(1), 0);
    rg_reader_close(reader);
    rg_lease_release(larges[1]);
    rg_lease_release(larges[2]);
    world_close();
}

/* A batch that the memory has no room for comes in parts. */
static void test_a_wait_ends_where_memory_has_no_room_for_more(void)
{
    world_open_on(1, RG_MIB(8), 64);
    struct rg_object large[12];
    char large_names[12][32];
    for (int i = 0; i < 12; i++) {
        snprintf(large_names[i], sizeof(large_names[i]), "large-%08d", i % 3);
        large[i] = (struct rg_object){.name = large_names[i]}; /* of unknown size */
    }
    struct rg_reader_options options = reader_options();
    options.shuffle = false;
    options.objects = large;
    options.object_count = 12;
    struct rg_reader *reader = reader_start(&options);
    uint64_t taken = 0;
    for (bool is_over = false; !is_over;) {
        struct rg_completion records[12];
        int count = rg_cq_wait(cq, records, 12, 12, rg_now_ns() + PATIENCE_NS);
        RG_CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            is_over = records[i].status == RG_STATUS_END;
            RG_CHECK(is_over || records[i].sample_number == taken++);
            rg_lease_release(records[i].lease);
        }
    }
    RG_CHECK_EQ(taken, 12);
    rg_reader_close(reader);
    world_close();
}

static void test_a_child_of_fork_can_only_close(void)
{
    world_open(16);
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_start(&options);
    (void)samples_take(20);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_good = rg_reader_start(reader, cq, 1) == -EOWNERDEAD;
        rg_reader_close(reader);
        rg_cq_close(cq);
        _exit(is_good ? 0 : 1);
    }
    int status = -1;
    RG_CHECK_EQ(waitpid(pid, &status, 0), pid);
    RG_CHECK_EQ(status, 0);
    RG_CHECK_EQ(samples_take(UINT64_MAX), COUNT - 20);
    check_each_seen_once();
    rg_reader_close(reader);
    world_close();
}

struct looks {
    struct rg_reader *reader;
    _Atomic bool are_over;
};

static void *look_on(void *context)
{
    struct looks *looks = context;
    char state[RG_READER_STATE_MAX];
    while (!atomic_load(&looks->are_over)) {
        (void)rg_reader_state(looks->reader, state, sizeof(state));
    }
    return NULL;
}

/* What was consumed is known there, too, whoever held the locks at that instant. */
static void test_a_child_of_fork_waits_for_no_thread_of_its_parent(void)
{
    world_open(16);
    struct rg_reader_options options = reader_options();
    options.consume_later = true;
    struct looks looks = {.reader = reader_start(&options)};
    (void)samples_take(20);
    rg_reader_consume(looks.reader);
    char state[RG_READER_STATE_MAX], again[RG_READER_STATE_MAX];
    size_t size = rg_reader_state(looks.reader, state, sizeof(state));
    pthread_t thread;
    RG_CHECK_EQ(pthread_create(&thread, NULL, look_on, &looks), 0);
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm((unsigned)(PATIENCE_NS / RG_NS_PER_S));
            bool is_same = rg_reader_state(looks.reader, again, sizeof(again)) == size &&
                           memcmp(again, state, size) == 0;
            bool is_good = is_same && rg_reader_skipped(looks.reader) == 0;
            rg_reader_close(looks.reader);
            _exit(is_good ? 0 : 1);
        }
        int status = -1;
        RG_CHECK_EQ(waitpid(pid, &status, 0), pid);
        RG_CHECK_EQ(status, 0);
    }
    atomic_store(&looks.are_over, true);
    pthread_join(thread, NULL);
    RG_CHECK_EQ(samples_take(UINT64_MAX), COUNT - 20);
    rg_reader_close(looks.reader);
    world_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_epoch_comes_through_a_queue),
        RG_TEST(test_loops_keep_the_window_full),
        RG_TEST(test_a_wait_ends_with_what_the_window_has),
        RG_TEST(test_a_descriptor_says_when_as_many_have_come),
        RG_TEST(test_a_state_is_what_was_taken),
        RG_TEST(test_what_was_not_consumed_comes_again),
        RG_TEST(test_a_closed_reader_leaves_what_it_delivered),
        RG_TEST(test_a_reader_is_closed_while_others_take),
        RG_TEST(test_a_queue_full_of_requests_holds_samples_back),
        RG_TEST(test_changed_objects_follow_the_policy),
        RG_TEST(test_threads_take_what_readers_and_requests_give),
        RG_TEST(test_threads_wait_for_batches),
        RG_TEST(test_a_suspended_taker_bounds_what_is_offered_behind_it),
        RG_TEST(test_a_closed_client_ends_the_epoch),
        RG_TEST(test_nothing_to_read_is_the_end),
        RG_TEST(test_a_reader_starts_after_some_samples),
        RG_TEST(test_samples_before_their_turn_make_room),
        RG_TEST(test_a_wait_ends_where_memory_has_no_room_for_more),
        RG_TEST(test_a_child_of_fork_can_only_close),
        RG_TEST(test_a_child_of_fork_waits_for_no_thread_of_its_parent),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
