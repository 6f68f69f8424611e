/* Readers of tar shards at an emulator: neighbouring samples come by one request and share its
 * memory, whatever is resumed, skipped, left out or left in between. */
#include "dataset/tar_cursor.h"
#include "dataset/tar_section.h"
#include "emulator/emulator.h"
#include "runtime/clock.h"
#include "tests/support/test.h"

#include <errno.h>
#include <inttypes.h>
#include <ringest/dataset.h>

#define PATIENCE_NS (60 * RG_NS_PER_S)
#define SHARDS 3
#define SAMPLES 100
#define COUNT (SHARDS * SAMPLES)
#define FAR (RG_TAR_GAP_MAX + 512)

/* A byte of a shard says where it is. */
static uint8_t content_at(uint64_t shard, uint64_t at)
{
    return (uint8_t)(shard * 89 + at * 7 + at / 509);
}

static struct rg_emulator *emulator;
static struct rg_runtime *runtime;
static struct rg_client *client;
static struct rg_cq *cq;
static struct rg_tar_index *tar;
static uint8_t content[RG_MIB(4)];
static uint32_t times_seen[COUNT];

static int64_t shard_put(const char *name, uint64_t shard, uint64_t size)
{
    for (uint64_t at = 0; at < size; at++) {
        content[at] = content_at(shard, at);
    }
    struct rg_put put = {.bucket = "data", .object = name, .data = content, .size = size};
    struct rg_completion done;
    RG_CHECK_EQ(rg_submit_put(client, cq, &put), 0);
    RG_CHECK_EQ(rg_cq_wait(cq, &done, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
    RG_CHECK_EQ(done.status, RG_STATUS_OK);
    rg_lease_release(done.lease);
    return done.generation;
}

static void member_add(struct rg_tar_section *section, uint64_t *at, const char *name,
                       uint64_t size)
{
    struct rg_tar_member member = {.name = name, .offset = *at + RG_TAR_BLOCK_SIZE, .size = size};
    RG_CHECK_EQ(rg_tar_section_add(section, &member), 0);
    *at = rg_tar_blocks_end(member.offset, size);
}

/* Samples have an "a", every tenth of them a large "mid", and a "z". */
static void shard_add(struct rg_tar_builder *builder, uint64_t shard)
{
    struct rg_tar_section section;
    uint64_t at = 0;
    char name[64];
    RG_CHECK_EQ(rg_tar_section_init(&section), 0);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        snprintf(name, sizeof(name), "%" PRIu64 "-%" PRIu64 ".a", shard, i);
        member_add(&section, &at, name, 100 + 30 * (i % 40));
        if (i % 10 == 0) {
            snprintf(name, sizeof(name), "%" PRIu64 "-%" PRIu64 ".mid", shard, i);
            member_add(&section, &at, name, FAR);
        }
        snprintf(name, sizeof(name), "%" PRIu64 "-%" PRIu64 ".z", shard, i);
        member_add(&section, &at, name, i % 7);
    }
    RG_CHECK_EQ(rg_tar_section_end(&section), 0);
    snprintf(name, sizeof(name), "%" PRIu64 ".tar", shard);
    int64_t generation = shard_put(name, shard, at);
    RG_CHECK_EQ(rg_tar_builder_add(builder, name, at, generation, &section), 0);
    rg_tar_section_fini(&section);
}

static void world_open(uint64_t memory_max)
{
    char error[512] = "";
    static const char *const buckets[] = {"data"};
    struct rg_emulator_options options = {
        .plain = true, .threads = 1, .buckets = buckets, .bucket_count = 1, .strict_buckets = true};
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    struct rg_runtime_options runtime_options;
    rg_runtime_options_init(&runtime_options);
    runtime_options.threads = 2;
    runtime_options.memory_max = memory_max;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &runtime_options), 0);
    struct rg_client_options client_options;
    rg_client_options_init(&client_options);
    client_options.endpoint = rg_emulator_endpoint(emulator);
    client_options.connections_max = 16;
    client_options.hedging =
        RG_SWITCH_OFF; /* requests are counted, and a slow machine's are hedged */
    RG_CHECK_EQ(rg_client_open(&client, runtime, &client_options), 0);
    RG_CHECK_EQ(rg_cq_open(&cq, runtime, 1), 0);
    struct rg_tar_builder builder;
    RG_CHECK_EQ(rg_tar_builder_init(&builder, "data"), 0);
    for (uint64_t i = 0; i < SHARDS; i++) {
        shard_add(&builder, i);
    }
    RG_CHECK_EQ(rg_tar_builder_finish(&builder, &tar), 0);
    rg_tar_builder_fini(&builder);
    memset(times_seen, 0, sizeof(times_seen));
}

static struct rg_stats stats_now(void)
{
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    return stats;
}

static void world_close(void)
{
    RG_CHECK_EQ(stats_now().leased_bytes, 0);
    rg_tar_index_close(tar);
    rg_cq_close(cq);
    rg_client_close(client);
    rg_runtime_close(runtime);
    rg_emulator_close(emulator);
}

static struct rg_reader_options reader_options(void)
{
    struct rg_reader_options options;
    rg_reader_options_init(&options);
    options.tar = tar;
    return options;
}

static struct rg_reader *reader_open(const struct rg_reader_options *options)
{
    struct rg_reader *reader;
    char error[512] = "";
    if (rg_reader_open(&reader, client, options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return reader;
}

/* Every byte of every member is that of its place in its shard. */
static void bytes_check(struct rg_tar_cursor *cursor, const struct rg_sample *sample)
{
    struct rg_tar_sample whole;
    const struct rg_tar_sample *got;
    const uint8_t *data = sample->completion.data;
    RG_CHECK_EQ(sample->completion.status, RG_STATUS_OK);
    RG_CHECK_EQ(rg_tar_index_get(tar, sample->index, &whole), 0);
    RG_CHECK_EQ(rg_tar_cursor_get(cursor, sample->index, &got), 0);
    RG_CHECK_EQ(sample->completion.size, got->size);
    for (uint32_t i = 0; i < got->part_count; i++) {
        const struct rg_tar_part *part = &got->parts[i], *in_shard = whole.parts;
        while (in_shard->extension != part->extension &&
               memcmp(in_shard->extension, part->extension, 1) != 0) {
            in_shard++;
        }
        RG_CHECK_EQ(part->size, in_shard->size);
        for (uint64_t at = 0; at < part->size; at++) {
            RG_CHECK_EQ(data[part->offset + at],
                        content_at(whole.shard, whole.offset + in_shard->offset + at));
        }
    }
}

static void sample_check(struct rg_tar_cursor *cursor, const struct rg_sample *sample)
{
    RG_CHECK_EQ(sample->completion.user_data, sample->number);
    bytes_check(cursor, sample);
    times_seen[sample->index]++;
    rg_lease_release(sample->completion.lease);
}

static uint64_t reader_take(struct rg_reader *reader, const struct rg_reader_options *options,
                            uint64_t count)
{
    struct rg_tar_cursor *cursor;
    struct rg_sample sample;
    uint64_t taken = 0;
    int got = 1;
    RG_CHECK_EQ(rg_tar_cursor_open(&cursor, tar, options->tar_members, options->tar_member_count),
                0);
    while (taken < count &&
           (got = rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS)) == 1) {
        sample_check(cursor, &sample);
        taken++;
    }
    RG_CHECK_EQ(got < 0 ? got : 0, 0);
    rg_tar_cursor_close(cursor);
    return taken;
}

static void check_each_seen_once(void)
{
    for (int i = 0; i < COUNT; i++) {
        RG_CHECK_EQ(times_seen[i], 1);
    }
}

/* Requests of an epoch of the whole index. */
static uint64_t requests_of(const struct rg_reader_options *options)
{
    uint64_t before = stats_now().requests;
    struct rg_reader *reader = reader_open(options);
    memset(times_seen, 0, sizeof(times_seen));
    RG_CHECK_EQ(reader_take(reader, options, UINT64_MAX), COUNT);
    check_each_seen_once();
    rg_reader_close(reader);
    return stats_now().requests - before;
}

static void test_neighbours_come_by_one_request(void)
{
    world_open(0);
    struct rg_reader_options options = reader_options();
    /* 64 of 100 samples, the 16th part of the window, and then the others of a shard. */
    RG_CHECK_EQ(requests_of(&options), 2 * SHARDS);
    options.window_requests = 2000;
    RG_CHECK_EQ(requests_of(&options), SHARDS);
    options.unordered = true;
    RG_CHECK_EQ(requests_of(&options), SHARDS);
    options.tar_request_bytes = 1;
    RG_CHECK_EQ(requests_of(&options), COUNT);
    options.tar_request_bytes = 0;
    options.window_bytes = RG_KIB(64) * 16; /* one that is read whole has about 370 KiB */
    uint64_t requests = requests_of(&options);
    RG_CHECK(requests >= 5 * SHARDS && requests <= 10 * SHARDS);
    options = reader_options();
    options.shuffle = true;
    requests = requests_of(&options);
    RG_CHECK(requests > COUNT * 9 / 10 && requests <= COUNT);
    world_close();
}

static void test_memory_comes_back_with_the_last_of_a_request(void)
{
    world_open(0);
    struct rg_reader_options options = reader_options();
    struct rg_sample samples[SAMPLES];
    struct rg_reader *reader = reader_open(&options);
    RG_CHECK_EQ(rg_reader_next(reader, samples, 64, 64, rg_now_ns() + PATIENCE_NS), 64);
    rg_reader_close(reader);
    uint64_t leased = stats_now().leased_bytes;
    RG_CHECK(leased > 0);
    for (int i = 0; i < 64; i++) {
        int k = i * 37 % 64;
        RG_CHECK_EQ(stats_now().leased_bytes, leased);
        RG_CHECK(samples[k].completion.lease == samples[0].completion.lease);
        struct rg_tar_cursor *cursor;
        RG_CHECK_EQ(rg_tar_cursor_open(&cursor, tar, NULL, 0), 0);
        bytes_check(cursor, &samples[k]);
        rg_tar_cursor_close(cursor);
        rg_lease_release(samples[k].completion.lease);
    }
    RG_CHECK_EQ(stats_now().leased_bytes, 0);
    world_close();
}

/* Stopped in the middle of what one request reads, over and over. */
static void test_it_goes_on_exactly_at_any_sample(void)
{
    for (int unordered = 0; unordered < 2; unordered++) {
        world_open(0);
        static uint8_t state[16384];
        size_t state_size = 0;
        uint64_t taken = 0;
        for (uint64_t portion = 0; taken < COUNT; portion++) {
            struct rg_reader_options options = reader_options();
            options.unordered = unordered == 1;
            options.window_requests = 200;
            options.state = portion > 0 ? state : NULL;
            options.state_size = state_size;
            struct rg_reader *reader = reader_open(&options);
            RG_CHECK_EQ(rg_reader_taken(reader), taken);
            taken += reader_take(reader, &options, 1 + portion * 13 % 17);
            state_size = rg_reader_state(reader, state, sizeof(state));
            RG_CHECK(state_size <= sizeof(state));
            rg_reader_close(reader);
        }
        check_each_seen_once();
        world_close();
    }
}

/* Through a queue that has fewer slots than a request has samples. Stopped in the middle at first.
 */
static void test_samples_come_through_a_queue(void)
{
    for (int unordered = 0; unordered < 2; unordered++) {
        world_open(0);
        static uint8_t state[16384];
        struct rg_reader_options options = reader_options();
        struct rg_completion done = {0};
        struct rg_tar_cursor *cursor;
        struct rg_cq *samples;
        options.unordered = unordered == 1;
        RG_CHECK_EQ(rg_cq_open(&samples, runtime, 8), 0);
        RG_CHECK_EQ(rg_tar_cursor_open(&cursor, tar, NULL, 0), 0);
        for (uint64_t taken = 0; done.status != RG_STATUS_END;) {
            struct rg_reader *reader = reader_open(&options);
            RG_CHECK_EQ(rg_reader_taken(reader), taken);
            RG_CHECK_EQ(rg_reader_start(reader, samples, 1), 0);
            for (uint64_t end = taken + 101; taken < end; taken++) {
                RG_CHECK_EQ(rg_cq_wait(samples, &done, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
                if (done.status == RG_STATUS_END) {
                    break;
                }
                struct rg_sample sample = {
                    .index = done.sample_index, .number = done.sample_number, .completion = done};
                sample.completion.user_data = done.sample_number;
                sample_check(cursor, &sample);
            }
            options.state_size = rg_reader_state(reader, state, sizeof(state));
            options.state = state;
            rg_reader_close(reader);
            struct rg_completion left;
            while (rg_cq_poll(samples, &left, 1) == 1) {
                rg_lease_release(left.lease);
            }
        }
        check_each_seen_once();
        rg_tar_cursor_close(cursor);
        rg_cq_close(samples);
        world_close();
    }
}

static void test_ranks_and_workers_share_the_samples(void)
{
    world_open(0);
    for (uint32_t i = 0; i < 6; i++) {
        struct rg_reader_options options = reader_options();
        options.rank = i / 3;
        options.world_size = 2;
        options.worker = i % 3;
        options.worker_count = 3;
        options.batch_size = 8;
        struct rg_reader *reader = reader_open(&options);
        (void)reader_take(reader, &options, UINT64_MAX);
        rg_reader_close(reader);
    }
    check_each_seen_once();
    world_close();
}

static void test_a_shard_that_was_replaced_follows_the_policy(void)
{
    for (int changed = RG_CHANGED_ERROR; changed <= RG_CHANGED_SKIP; changed++) {
        world_open(0);
        (void)shard_put("1.tar", 1, 5);
        struct rg_reader_options options = reader_options();
        options.changed = (enum rg_changed)changed;
        struct rg_reader *reader = reader_open(&options);
        struct rg_sample sample;
        uint32_t failed = 0, count = 0;
        while (rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS) == 1) {
            bool is_failed = sample.completion.status == RG_STATUS_NOT_FOUND;
            RG_CHECK_EQ(is_failed, sample.index / SAMPLES == 1);
            RG_CHECK(!is_failed || strstr(sample.completion.detail, "1.tar") != NULL);
            failed += is_failed;
            count++;
            rg_lease_release(sample.completion.lease);
        }
        RG_CHECK_EQ(failed, changed == RG_CHANGED_ERROR ? SAMPLES : 0);
        RG_CHECK_EQ(count, changed == RG_CHANGED_ERROR ? COUNT : COUNT - SAMPLES);
        RG_CHECK_EQ(rg_reader_skipped(reader), COUNT - count);
        RG_CHECK_EQ(rg_reader_taken(reader), COUNT);
        rg_reader_close(reader);
        world_close();
    }
}

/* One without bytes is read with its neighbours, but not with those of a shard that is gone. */
static void test_a_sample_without_bytes_is_of_its_own_shard(void)
{
    static const char *const members[] = {"z"};
    world_open(0);
    (void)shard_put("1.tar", 1, 5);
    struct rg_reader_options options = reader_options();
    options.tar_members = members;
    options.tar_member_count = 1;
    struct rg_reader *reader = reader_open(&options);
    struct rg_sample sample;
    uint32_t failed = 0;
    while (rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS) == 1) {
        bool is_failed = sample.completion.status != RG_STATUS_OK;
        RG_CHECK(!is_failed || sample.index / SAMPLES == 1);
        failed += is_failed;
        rg_lease_release(sample.completion.lease);
    }
    RG_CHECK(failed >= SAMPLES * 6 / 7);
    rg_reader_close(reader);
    world_close();
}

static void test_only_members_that_are_wanted_are_read(void)
{
    static const char *const members[] = {"z", "a"};
    world_open(0);
    for (int unordered = 0; unordered < 2; unordered++) {
        struct rg_reader_options options = reader_options();
        options.tar_members = members;
        options.tar_member_count = RG_ARRAY_LEN(members);
        options.unordered = unordered == 1;
        uint64_t before = stats_now().recv_bytes;
        uint64_t requests = requests_of(&options);
        uint64_t read = stats_now().recv_bytes - before;
        /* A sample with a large member is two requests, unless its "z" is empty; what lies between
         * two of these is one. */
        RG_CHECK(requests > 2 * COUNT / 10 && requests <= 3 * COUNT / 10);
        RG_CHECK(read < COUNT * RG_KIB(4));
    }
    struct rg_reader_options options = reader_options();
    static const char *const none[] = {"nothing"};
    options.tar_members = none;
    options.tar_member_count = 1;
    RG_CHECK_EQ(requests_of(&options), 0);
    world_close();
}

static void test_members_may_change_where_an_epoch_goes_on(void)
{
    static const char *const members[] = {"z"};
    world_open(0);
    uint8_t state[256];
    struct rg_reader_options options = reader_options();
    struct rg_reader *reader = reader_open(&options);
    RG_CHECK_EQ(reader_take(reader, &options, 33), 33);
    size_t size = rg_reader_state(reader, state, sizeof(state));
    rg_reader_close(reader);
    options.state = state;
    options.state_size = size;
    options.tar_members = members;
    options.tar_member_count = 1;
    reader = reader_open(&options);
    RG_CHECK_EQ(reader_take(reader, &options, UINT64_MAX), COUNT - 33);
    rg_reader_close(reader);
    check_each_seen_once();
    world_close();
}

static void test_a_list_of_samples_is_read_in_its_order(void)
{
    static const uint64_t indices[] = {299, 5, 6, 7, 5, 0, 150, 151};
    world_open(0);
    struct rg_reader_options options = reader_options();
    options.indices = indices;
    options.index_count = RG_ARRAY_LEN(indices);
    uint64_t before = stats_now().requests;
    struct rg_reader *reader = reader_open(&options);
    struct rg_sample samples[RG_ARRAY_LEN(indices)];
    struct rg_tar_cursor *cursor;
    RG_CHECK_EQ(rg_tar_cursor_open(&cursor, tar, NULL, 0), 0);
    RG_CHECK_EQ(rg_reader_total(reader), RG_ARRAY_LEN(indices));
    RG_CHECK_EQ(rg_reader_next(reader, samples, 8, 8, rg_now_ns() + PATIENCE_NS), 8);
    for (size_t i = 0; i < RG_ARRAY_LEN(indices); i++) {
        RG_CHECK_EQ(samples[i].index, indices[i]);
        sample_check(cursor, &samples[i]);
    }
    rg_tar_cursor_close(cursor);
    RG_CHECK_EQ(rg_reader_state(reader, NULL, 0), 0);
    RG_CHECK_EQ(rg_reader_next(reader, samples, 8, 8, rg_now_ns() + PATIENCE_NS), 0);
    rg_reader_close(reader);
    RG_CHECK_EQ(stats_now().requests - before, 5);
    world_close();
}

static void test_options_that_make_no_sense(void)
{
    static const uint64_t indices[] = {COUNT};
    static const char *const members[RG_TAR_MEMBERS_MAX + 1] = {"a"};
    static const char *const texts[] = {
        "indices has 300, and there are 300", "cannot be combined with state",
        "tar_members has more than", "tar_members is given without tar"};
    world_open(0);
    for (int i = 0; i < 4; i++) {
        struct rg_reader_options options = reader_options();
        options.indices = i < 2 ? indices : NULL;
        options.index_count = i == 0;
        options.state = i == 1 ? "x" : NULL;
        options.tar_members = members;
        options.tar_member_count = i == 2 ? RG_ARRAY_LEN(members) : i == 3;
        options.tar = i == 3 ? NULL : tar;
        options.bucket = "data";
        char error[512] = "";
        struct rg_reader *reader;
        RG_CHECK_EQ(rg_reader_open(&reader, client, &options, error, sizeof(error)), -EINVAL);
        if (strstr(error, texts[i]) == NULL) {
            rg_test_fail(__FILE__, __LINE__, "%s", error);
        }
    }
    world_close();
}

static void test_closing_in_the_middle_gives_everything_back(void)
{
    static const char *const members[] = {"z", "a"};
    world_open(RG_MIB(8));
    for (uint64_t taken = 0; taken < 90; taken += 7) {
        struct rg_reader_options options = reader_options();
        options.tar_members = members;
        options.tar_member_count = taken % 2 * 2;
        struct rg_reader *reader = reader_open(&options);
        RG_CHECK_EQ(reader_take(reader, &options, taken), taken);
        rg_reader_close(reader);
    }
    world_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_neighbours_come_by_one_request),
        RG_TEST(test_memory_comes_back_with_the_last_of_a_request),
        RG_TEST(test_it_goes_on_exactly_at_any_sample),
        RG_TEST(test_samples_come_through_a_queue),
        RG_TEST(test_ranks_and_workers_share_the_samples),
        RG_TEST(test_a_shard_that_was_replaced_follows_the_policy),
        RG_TEST(test_a_sample_without_bytes_is_of_its_own_shard),
        RG_TEST(test_only_members_that_are_wanted_are_read),
        RG_TEST(test_members_may_change_where_an_epoch_goes_on),
        RG_TEST(test_a_list_of_samples_is_read_in_its_order),
        RG_TEST(test_options_that_make_no_sense),
        RG_TEST(test_closing_in_the_middle_gives_everything_back),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
