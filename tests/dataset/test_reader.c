/* Readers against an emulator: each sample once, in order or not, over resumptions and changes of
 * the number of ranks, with objects that are gone, in bounded memory. */
#include "runtime/clock.h"
#include "tests/dataset/reader_case.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS (60 * RG_NS_PER_S)

static uint32_t times_seen[COUNT];

static void world_open_on(uint32_t threads, uint64_t memory_max)
{
    reader_world_open(threads, memory_max);
    memset(times_seen, 0, sizeof(times_seen));
}

static void world_open(uint64_t memory_max)
{
    world_open_on(2, memory_max);
}

static void sample_check(const struct rg_sample *sample)
{
    RG_CHECK(sample->index < COUNT);
    RG_CHECK_EQ(sample->completion.user_data, sample->number);
    if (sample->completion.status == RG_STATUS_OK) {
        RG_CHECK_EQ(sample->completion.size, 2000);
    }
    times_seen[sample->index]++;
    rg_lease_release(sample->completion.lease);
}

/* Takes up to `count` samples, in odd portions; fewer only at the end. */
static uint64_t reader_take(struct rg_reader *reader, uint64_t count)
{
    uint64_t taken = 0;
    while (taken < count) {
        struct rg_sample samples[7];
        uint32_t want = (uint32_t)RG_MIN(count - taken, RG_ARRAY_LEN(samples));
        int got = rg_reader_next(reader, samples, want, 1 + (uint32_t)taken % want,
                                 rg_now_ns() + PATIENCE_NS);
        RG_CHECK(got >= 0);
        for (int i = 0; i < got; i++) {
            sample_check(&samples[i]);
        }
        taken += (uint64_t)got;
        if (got == 0) {
            break;
        }
    }
    return taken;
}

static void check_each_seen_once(void)
{
    for (int i = 0; i < COUNT; i++) {
        RG_CHECK_EQ(times_seen[i], 1);
    }
}

static void test_an_epoch_gives_each_object_once(void)
{
    for (int unordered = 0; unordered < 2; unordered++) {
        world_open(0);
        struct rg_reader_options options = reader_options();
        options.unordered = unordered == 1;
        struct rg_reader *reader = reader_open(&options);
        RG_CHECK_EQ(rg_reader_total(reader), COUNT);
        RG_CHECK_EQ(reader_take(reader, UINT64_MAX), COUNT);
        RG_CHECK_EQ(rg_reader_taken(reader), COUNT);
        struct rg_sample sample;
        RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, 0), 0);
        rg_reader_close(reader);
        check_each_seen_once();
        reader_world_close();
    }
}

static void test_an_ordered_reader_keeps_the_order(void)
{
    world_open(0);
    struct rg_reader_options options = reader_options();
    options.shuffle = false;
    struct rg_reader *reader = reader_open(&options);
    for (uint64_t i = 0; i < COUNT; i++) {
        struct rg_sample sample;
        RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
        RG_CHECK_EQ(sample.index, i);
        RG_CHECK_EQ(sample.number, i);
        sample_check(&sample);
    }
    rg_reader_close(reader);
    reader_world_close();
}

/* Stopped after every few samples, with requests in flight. */
static void test_a_reader_goes_on_exactly(void)
{
    for (int unordered = 0; unordered < 2; unordered++) {
        world_open(0);
        static uint8_t state[16384];
        size_t state_size = 0;
        uint64_t taken = 0;
        for (uint64_t portion = 0; taken < COUNT; portion++) {
            struct rg_reader_options options = reader_options();
            options.unordered = unordered == 1;
            options.state = portion > 0 ? state : NULL;
            options.state_size = state_size;
            struct rg_reader *reader = reader_open(&options);
            RG_CHECK_EQ(rg_reader_taken(reader), taken);
            /* A state that is saved before anything is read says the same. */
            RG_CHECK(portion == 0 || rg_reader_state(reader, NULL, 0) == state_size);
            taken += reader_take(reader, 1 + portion * 13 % 40);
            state_size = rg_reader_state(reader, state, sizeof(state));
            RG_CHECK(state_size <= sizeof(state));
            rg_reader_close(reader);
        }
        check_each_seen_once();
        reader_world_close();
    }
}

/* Takes in portions, of which most are larger than the window, and loses every second one. */
static void test_what_was_not_consumed_comes_again(void)
{
    for (int unordered = 0; unordered < 2; unordered++) {
        world_open(0);
        static uint8_t state[16384];
        static uint32_t consumed_times[COUNT];
        size_t state_size = 0;
        memset(consumed_times, 0, sizeof(consumed_times));
        for (uint64_t portion = 1, consumed = 0; consumed < COUNT; portion++) {
            struct rg_reader_options options = reader_options();
            options.unordered = unordered == 1;
            options.consume_later = true;
            options.window_requests = 16;
            options.state = portion > 1 ? state : NULL;
            options.state_size = state_size;
            struct rg_reader *reader = reader_open(&options);
            RG_CHECK_EQ(rg_reader_taken(reader), consumed);
            memset(times_seen, 0, sizeof(times_seen));
            consumed += reader_take(reader, 1 + portion * 13 % 50);
            for (int i = 0; i < COUNT; i++) {
                consumed_times[i] += times_seen[i];
            }
            rg_reader_consume(reader);
            (void)reader_take(reader, portion * 7 % 60);
            state_size = rg_reader_state(reader, state, sizeof(state));
            RG_CHECK(state_size <= sizeof(state));
            rg_reader_close(reader);
        }
        memcpy(times_seen, consumed_times, sizeof(times_seen));
        check_each_seen_once();
        reader_world_close();
    }
}

/* What each rank of a world saved. */
#define WORLD_MAX 5
static uint8_t states[WORLD_MAX][RG_READER_STATE_MAX], bases[WORLD_MAX][256];

static void reader_save(const struct rg_reader *reader, uint32_t rank, struct rg_saved *out_saved)
{
    *out_saved = (struct rg_saved){.state = states[rank]};
    out_saved->state_size = rg_reader_state(reader, states[rank], sizeof(states[rank]));
    RG_CHECK(out_saved->state_size <= sizeof(states[rank]));
    const void *base = rg_reader_base(reader, &out_saved->base_size);
    if (base != NULL) {
        RG_CHECK(out_saved->base_size <= sizeof(bases[rank]));
        out_saved->base = memcpy(bases[rank], base, out_saved->base_size);
    }
}

/* Ranks stop at different places, and where objects were skipped. */
static void test_an_epoch_goes_on_with_other_ranks(void)
{
    static const uint32_t worlds[] = {2, 5, 1, 3};
    world_open(0);
    for (int i = 0; i < COUNT; i += 25) {
        objects[i].generation = 1; /* has changed since */
    }
    struct rg_base *base = NULL;
    uint64_t skipped = 0;
    for (size_t turn = 0; turn < RG_ARRAY_LEN(worlds); turn++) {
        bool is_last = turn + 1 == RG_ARRAY_LEN(worlds);
        struct rg_saved saved[WORLD_MAX];
        for (uint32_t rank = 0; rank < worlds[turn]; rank++) {
            struct rg_reader_options options = reader_options();
            options.world_size = worlds[turn];
            options.rank = rank;
            options.changed = RG_CHANGED_SKIP;
            options.unordered = rank % 2 == 1;
            options.base = base != NULL ? rg_base_data(base, &options.base_size) : NULL;
            struct rg_reader *reader = reader_open(&options);
            (void)reader_take(reader, is_last ? UINT64_MAX : 5 + 20 * rank);
            skipped += rg_reader_skipped(reader);
            reader_save(reader, rank, &saved[rank]);
            rg_reader_close(reader);
        }
        rg_base_close(base);
        RG_CHECK_EQ(rg_base_open(&base, saved, worlds[turn], true, NULL, 0), 0);
    }
    rg_base_close(base);
    RG_CHECK_EQ(skipped, COUNT / 25);
    for (int i = 0; i < COUNT; i++) {
        RG_CHECK_EQ(times_seen[i], i % 25 != 0);
    }
    reader_world_close();
}

/* From its own state, whatever the number of its workers, and with no other rank's. */
static void test_a_rank_goes_on_with_other_workers(void)
{
    world_open(0);
    struct rg_reader_options options = reader_options();
    options.rank = 1;
    options.world_size = 2;
    options.batch_size = 8;
    struct rg_reader *reader = reader_open(&options);
    struct rg_saved saved;
    (void)reader_take(reader, 50);
    reader_save(reader, 0, &saved);
    rg_reader_close(reader);
    options.state = saved.state;
    options.state_size = saved.state_size;
    options.worker_count = 3;
    uint64_t total = 50;
    for (options.worker = 0; options.worker < 3; options.worker++) {
        reader = reader_open(&options);
        total += reader_take(reader, UINT64_MAX);
        RG_CHECK_EQ(rg_reader_taken(reader), rg_reader_total(reader));
        rg_reader_close(reader);
    }
    RG_CHECK_EQ(total, COUNT / 2);
    uint64_t seen = 0;
    for (int i = 0; i < COUNT; i++) {
        RG_CHECK(times_seen[i] <= 1);
        seen += times_seen[i];
    }
    RG_CHECK_EQ(seen, COUNT / 2);
    reader_world_close();
}

/* What version 1 saved of these objects after 37 samples. */
static void test_a_state_of_version_1_is_gone_on_with(void)
{
    static const uint8_t state[] = {
        0x72, 0x67, 0x64, 0x73, 0x01, 0x00, 0x01, 0x00, 0xf4, 0x01, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x6a, 0x29, 0x7a, 0xfd, 0x00, 0x00, 0x00, 0x00, 0x0b, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x25, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x6f, 0x1b, 0x77, 0xe9,
    };
    world_open(0);
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_open(&options);
    (void)reader_take(reader, 37);
    rg_reader_close(reader);
    options.state = state;
    options.state_size = sizeof(state);
    for (uint32_t world = 1; world <= 2; world++) {
        uint32_t before[COUNT];
        memcpy(before, times_seen, sizeof(before));
        for (uint32_t rank = 0; rank < world; rank++) {
            options.rank = rank;
            options.world_size = world;
            reader = reader_open(&options);
            (void)reader_take(reader, UINT64_MAX);
            rg_reader_close(reader);
        }
        check_each_seen_once();
        memcpy(times_seen, before, sizeof(before));
    }
    reader_world_close();
}

static void test_workers_share_a_ranks_samples(void)
{
    world_open(0);
    for (uint32_t worker = 0; worker < 3; worker++) {
        struct rg_reader_options options = reader_options();
        options.worker = worker;
        options.worker_count = 3;
        options.batch_size = 16;
        struct rg_reader *reader = reader_open(&options);
        RG_CHECK_EQ(reader_take(reader, UINT64_MAX), rg_reader_total(reader));
        rg_reader_close(reader);
    }
    check_each_seen_once();
    reader_world_close();
}

static void test_changed_objects_follow_the_policy(void)
{
    for (int changed = RG_CHANGED_ERROR; changed <= RG_CHANGED_NEWEST; changed++) {
        world_open(0);
        for (int i = 0; i < COUNT; i += 50) {
            objects[i].generation = 1;
        }
        objects[7].name = "gone";
        objects[7].generation = 1;
        struct rg_reader_options options = reader_options();
        options.changed = (enum rg_changed)changed;
        struct rg_reader *reader = reader_open(&options);
        uint32_t failed = 0, count = 0;
        struct rg_sample sample;
        while (rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS) == 1) {
            count++;
            failed += sample.completion.status == RG_STATUS_NOT_FOUND;
            RG_CHECK(sample.completion.status == RG_STATUS_OK ||
                     sample.completion.status == RG_STATUS_NOT_FOUND);
            sample_check(&sample);
        }
        static const uint32_t failures[] = {11, 0, 1};
        RG_CHECK_EQ(failed, failures[changed]);
        RG_CHECK_EQ(count, changed == RG_CHANGED_SKIP ? COUNT - 11 : COUNT);
        RG_CHECK_EQ(rg_reader_skipped(reader), changed == RG_CHANGED_SKIP ? 11 : 0);
        RG_CHECK_EQ(rg_reader_taken(reader), COUNT);
        rg_reader_close(reader);
        reader_world_close();
    }
}

/* A window of more bytes than there is memory would wait for itself. */
static void test_a_window_larger_than_the_memory_is_cut(void)
{
    world_open(RG_MIB(16));
    for (int i = 0; i < COUNT; i++) {
        objects[i].size = RG_MIB(1);
    }
    struct rg_reader_options options = reader_options();
    options.window_bytes = UINT64_C(1) << 40;
    options.window_requests = 1024;
    struct rg_reader *reader = reader_open(&options);
    RG_CHECK_EQ(reader_take(reader, 1), 1);
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    RG_CHECK(stats.requests <= 16);
    RG_CHECK_EQ(reader_take(reader, UINT64_MAX), COUNT - 1);
    rg_reader_close(reader);
    reader_world_close();
}

/* Four chunks of memory, of which all but the first are taken until they are released. */
#define LARGES 3
static struct rg_lease *larges[LARGES];

static void full_world_open(void)
{
    world_open_on(1, RG_MIB(8));
    struct rg_cq *cq;
    RG_CHECK_EQ(rg_cq_open(&cq, runtime, 1), 0);
    for (int i = 0; i < LARGES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "large-%08d", i);
        struct rg_get get = {.bucket = "data", .object = name, .length = RG_WHOLE};
        struct rg_completion done;
        RG_CHECK_EQ(rg_submit_get(client, cq, &get), 0);
        RG_CHECK_EQ(rg_cq_wait(cq, &done, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
        RG_CHECK_EQ(done.status, RG_STATUS_OK);
        larges[i] = done.lease;
    }
    rg_cq_close(cq);
}

static void larges_release(int begin, int end)
{
    for (int i = begin; i < end; i++) {
        rg_lease_release(larges[i]);
    }
}

/* In order, the sample `big` being the large one. */
static struct rg_reader *full_world_reader(uint64_t count, uint64_t big)
{
    struct rg_reader_options options = reader_options();
    options.shuffle = false;
    options.object_count = count;
    objects[big] = (struct rg_object){.name = "big-00000000", .size = 2500000};
    return reader_open(&options);
}

static void test_samples_behind_the_first_make_room_for_it(void)
{
    full_world_open();
    struct rg_reader *reader = full_world_reader(20, 0);
    struct rg_sample sample;
    RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + 300 * RG_NS_PER_MS), -ETIME);
    /* The second chunk is room enough together with the first, which the others had. */
    larges_release(0, 1);
    for (uint64_t i = 0; i < 20; i++) {
        RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
        RG_CHECK_EQ(sample.number, i);
        RG_CHECK_EQ(sample.completion.status, RG_STATUS_OK);
        RG_CHECK_EQ(sample.completion.size, objects[i].size);
        rg_lease_release(sample.completion.lease);
    }
    RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS), 0);
    rg_reader_close(reader);
    larges_release(1, LARGES);
    reader_world_close();
}

static void test_fewer_are_given_where_they_hold_the_memory_of_the_next(void)
{
    full_world_open();
    struct rg_reader *reader = full_world_reader(3, 1);
    struct rg_sample samples[3];
    uint64_t deadline_ns = rg_now_ns() + PATIENCE_NS;
    RG_CHECK_EQ(rg_reader_next(reader, samples, 3, 3, deadline_ns), 1);
    RG_CHECK(rg_now_ns() < deadline_ns);
    sample_check(&samples[0]);
    larges_release(0, LARGES);
    RG_CHECK_EQ(rg_reader_next(reader, samples, 3, 2, rg_now_ns() + PATIENCE_NS), 2);
    RG_CHECK_EQ(samples[0].completion.size, objects[1].size);
    rg_lease_release(samples[0].completion.lease);
    sample_check(&samples[1]);
    rg_reader_close(reader);
    reader_world_close();
}

static void test_a_bad_name_is_a_failed_sample(void)
{
    world_open(0);
    objects[3].name = "not utf-8: \xff";
    objects[4].name = "";
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_open(&options);
    uint32_t failed = 0;
    struct rg_sample sample;
    while (rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS) == 1) {
        failed += sample.completion.status == RG_STATUS_BAD_REQUEST;
        sample_check(&sample);
    }
    RG_CHECK_EQ(failed, 2);
    check_each_seen_once();
    rg_reader_close(reader);
    reader_world_close();
}

static void test_a_state_of_something_else_is_refused(void)
{
    world_open(0);
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_open(&options);
    uint8_t state[256];
    (void)reader_take(reader, 10);
    size_t size = rg_reader_state(reader, state, sizeof(state));
    rg_reader_close(reader);
    static const char *const differences[] = {
        "objects, and now there are", "names, sizes", "seed 11 in epoch 0",
        "seed 11 in epoch 0",         "shuffled",     "damaged"};
    for (size_t i = 0; i < RG_ARRAY_LEN(differences); i++) {
        options = reader_options();
        options.state = state;
        options.state_size = size - (i == 5);
        options.object_count -= i == 0;
        objects[0].size = i == 1 ? 2001 : 2000;
        options.seed += i == 2;
        options.epoch += i == 3;
        options.shuffle = i != 4;
        char error[512] = "";
        RG_CHECK_EQ(rg_reader_open(&reader, client, &options, error, sizeof(error)), -EINVAL);
        if (strstr(error, differences[i]) == NULL) {
            rg_test_fail(__FILE__, __LINE__, "%s", error);
        }
    }
    reader_world_close();
}

static void test_a_workers_state_is_for_that_worker(void)
{
    world_open(0);
    struct rg_reader_options options = reader_options();
    options.worker_count = 2;
    options.batch_size = 4;
    struct rg_reader *reader = reader_open(&options);
    uint8_t state[256];
    (void)reader_take(reader, 10);
    size_t size = rg_reader_state(reader, state, sizeof(state));
    rg_reader_close(reader);
    options.state = state;
    options.state_size = size;
    options.worker = 1;
    char error[512] = "";
    RG_CHECK_EQ(rg_reader_open(&reader, client, &options, error, sizeof(error)), -EINVAL);
    RG_CHECK(strstr(error, "worker 0 of 2") != NULL);
    reader_world_close();
}

static void test_closing_in_the_middle_gives_everything_back(void)
{
    world_open(0);
    for (uint64_t taken = 0; taken < 40; taken += 3) {
        struct rg_reader_options options = reader_options();
        struct rg_reader *reader = reader_open(&options);
        (void)reader_take(reader, taken);
        rg_reader_close(reader);
    }
    reader_world_close();
}

static void *epoch_take(void *reader)
{
    return (void *)(uintptr_t)reader_take(reader, UINT64_MAX);
}

static void test_another_thread_asks_how_far_it_is(void)
{
    for (int unordered = 0; unordered < 2; unordered++) {
        world_open(0);
        struct rg_reader_options options = reader_options();
        options.unordered = unordered == 1;
        struct rg_reader *reader = reader_open(&options);
        pthread_t thread;
        RG_CHECK_EQ(pthread_create(&thread, NULL, epoch_take, reader), 0);
        uint64_t before = 0, taken = 0;
        while (taken < COUNT) {
            char state[16384];
            size_t size = rg_reader_state(reader, state, sizeof(state));
            taken = rg_reader_taken(reader);
            RG_CHECK_EQ(rg_reader_skipped(reader), 0);
            struct rg_reader_options later = options;
            later.state = state;
            later.state_size = size;
            struct rg_reader *again = reader_open(&later);
            RG_CHECK(rg_reader_taken(again) >= before && rg_reader_taken(again) <= taken);
            before = rg_reader_taken(again);
            rg_reader_close(again);
        }
        void *count;
        RG_CHECK_EQ(pthread_join(thread, &count), 0);
        RG_CHECK_EQ((uintptr_t)count, COUNT);
        check_each_seen_once();
        rg_reader_close(reader);
        reader_world_close();
    }
}

static void *sample_wait(void *reader)
{
    struct rg_sample sample;
    return (void *)(intptr_t)rg_reader_next(reader, &sample, 1, 1, RG_FOREVER);
}

static void test_another_thread_ends_a_wait(void)
{
    latency_ms = "600000";
    world_open(0);
    latency_ms = NULL;
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_open(&options);
    pthread_t thread;
    RG_CHECK_EQ(pthread_create(&thread, NULL, sample_wait, reader), 0);
    rg_reader_interrupt(reader);
    void *result;
    RG_CHECK_EQ(pthread_join(thread, &result), 0);
    RG_CHECK_EQ((intptr_t)result, -EINTR);
    rg_reader_close(reader);
    reader_world_close();
}

static void test_bad_options_are_refused(void)
{
    world_open(0);
    for (int i = 0; i < 6; i++) {
        struct rg_reader_options options = reader_options();
        options.bucket = i == 0 ? NULL : "data";
        options.objects = i == 1 ? NULL : objects;
        options.rank = i == 2;
        options.worker = i == 3;
        options.window_requests = i == 4 ? RG_WINDOW_REQUESTS_MAX + 1 : 1;
        options.changed = (enum rg_changed)(i == 5 ? 3 : 0);
        struct rg_reader *reader;
        char error[512] = "";
        RG_CHECK_EQ(rg_reader_open(&reader, client, &options, error, sizeof(error)), -EINVAL);
        RG_CHECK(error[0] != '\0');
    }
    reader_world_close();
}

static void test_a_share_that_cannot_be_is_refused(void)
{
    static const struct {
        uint32_t rank, worker;
        enum rg_remainder remainder;
        const char *text;
    } wrong[] = {
        {2, 0, RG_REMAINDER_UNEVEN, "rank is 2, and must be below world_size, which is 2"},
        {0, 3, RG_REMAINDER_UNEVEN, "worker is 3, and must be below worker_count, which is 3"},
        {0, 0, (enum rg_remainder)9, "remainder is 9, not a value of enum rg_remainder"},
    };
    world_open(0);
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        struct rg_reader_options options = reader_options();
        options.rank = wrong[i].rank;
        options.world_size = 2;
        options.worker = wrong[i].worker;
        options.worker_count = 3;
        options.remainder = wrong[i].remainder;
        struct rg_reader *reader;
        char error[512] = "";
        RG_CHECK_EQ(rg_reader_open(&reader, client, &options, error, sizeof(error)), -EINVAL);
        RG_CHECK_STR(error, wrong[i].text);
    }
    reader_world_close();
}

static void test_nothing_to_read_is_the_end(void)
{
    world_open(0);
    struct rg_reader_options options = reader_options();
    options.object_count = 0;
    struct rg_reader *reader = reader_open(&options);
    struct rg_sample sample;
    RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, RG_FOREVER), 0);
    RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 2, RG_FOREVER), -EINVAL);
    rg_reader_close(reader);
    rg_reader_close(NULL);
    reader_world_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_epoch_gives_each_object_once),
        RG_TEST(test_an_ordered_reader_keeps_the_order),
        RG_TEST(test_a_reader_goes_on_exactly),
        RG_TEST(test_what_was_not_consumed_comes_again),
        RG_TEST(test_an_epoch_goes_on_with_other_ranks),
        RG_TEST(test_a_rank_goes_on_with_other_workers),
        RG_TEST(test_a_state_of_version_1_is_gone_on_with),
        RG_TEST(test_workers_share_a_ranks_samples),
        RG_TEST(test_changed_objects_follow_the_policy),
        RG_TEST(test_a_window_larger_than_the_memory_is_cut),
        RG_TEST(test_samples_behind_the_first_make_room_for_it),
        RG_TEST(test_fewer_are_given_where_they_hold_the_memory_of_the_next),
        RG_TEST(test_a_bad_name_is_a_failed_sample),
        RG_TEST(test_a_state_of_something_else_is_refused),
        RG_TEST(test_a_workers_state_is_for_that_worker),
        RG_TEST(test_closing_in_the_middle_gives_everything_back),
        RG_TEST(test_another_thread_asks_how_far_it_is),
        RG_TEST(test_another_thread_ends_a_wait),
        RG_TEST(test_bad_options_are_refused),
        RG_TEST(test_a_share_that_cannot_be_is_refused),
        RG_TEST(test_nothing_to_read_is_the_end),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
