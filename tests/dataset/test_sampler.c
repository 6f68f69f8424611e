/* Who gets which sample: every rank, worker and resumption together give each object once. */
#include "dataset/sampler.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 400

static uint32_t times_seen[COUNT_MAX];

/* Reads what one rank has left, worker by worker, and counts the objects. */
static void rank_read(struct rg_sampler_options options, uint32_t workers)
{
    uint64_t total = 0, rank_total = 0;
    for (uint32_t worker = 0; worker < workers; worker++) {
        struct rg_sampler sampler;
        options.worker = worker;
        options.worker_count = workers;
        RG_CHECK_EQ(rg_sampler_init(&sampler, &options), 0);
        for (uint64_t i = 0; i < sampler.total; i++) {
            times_seen[rg_sampler_at(&sampler, i)]++;
        }
        total += sampler.total;
        rank_total = sampler.rank_total;
    }
    RG_CHECK_EQ(total, rank_total);
}

static void check_seen(uint64_t count, uint64_t once, uint64_t twice)
{
    uint64_t counts[4] = {0};
    for (uint64_t i = 0; i < count; i++) {
        RG_CHECK(times_seen[i] < 3);
        counts[times_seen[i]]++;
    }
    RG_CHECK_EQ(counts[1], once);
    RG_CHECK_EQ(counts[2], twice);
}

static void test_all_readers_together_read_each_object_once(void)
{
    for (uint64_t count = 1; count < 120; count += 7) {
        for (uint32_t world = 1; world <= 5; world++) {
            for (uint32_t workers = 1; workers <= 3; workers++) {
                memset(times_seen, 0, sizeof(times_seen));
                for (uint32_t rank = 0; rank < world; rank++) {
                    rank_read((struct rg_sampler_options){.count = count,
                                                          .seed = 9,
                                                          .shuffle = count % 2 == 0,
                                                          .rank = rank,
                                                          .world_size = world,
                                                          .block_size = 1 + rank % 4},
                              workers);
                }
                check_seen(count, count, 0);
            }
        }
    }
}

static void test_padding_and_dropping_make_ranks_equal(void)
{
    for (int pad = 0; pad < 2; pad++) {
        memset(times_seen, 0, sizeof(times_seen));
        for (uint32_t rank = 0; rank < 4; rank++) {
            struct rg_sampler_options options = {
                .count = 101,
                .shuffle = true,
                .rank = rank,
                .world_size = 4,
                .worker_count = 1,
                .block_size = 8,
                .remainder = pad ? RG_REMAINDER_PAD : RG_REMAINDER_DROP,
            };
            struct rg_sampler sampler;
            RG_CHECK_EQ(rg_sampler_init(&sampler, &options), 0);
            RG_CHECK_EQ(sampler.total, pad ? 26 : 25);
            rank_read(options, 1);
        }
        check_seen(101, pad ? 98 : 100, pad ? 3 : 0);
    }
}

/* The blocks of the workers, taken in turn, are the stream that one reader would have. */
static void test_a_ranks_stream_does_not_depend_on_its_workers(void)
{
    struct rg_sampler_options options = {
        .count = 97, .seed = 4, .shuffle = true, .world_size = 2, .block_size = 5};
    struct rg_sampler alone, worker[3];
    options.worker_count = 1;
    RG_CHECK_EQ(rg_sampler_init(&alone, &options), 0);
    options.worker_count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        options.worker = i;
        RG_CHECK_EQ(rg_sampler_init(&worker[i], &options), 0);
    }
    for (uint64_t i = 0; i < alone.total; i++) {
        uint64_t block = i / 5;
        uint64_t own = block / 3 * 5 + i % 5;
        RG_CHECK_EQ(rg_sampler_at(&alone, i), rg_sampler_at(&worker[block % 3], own));
    }
}

/* What is left of an epoch, with holes, is assigned as a whole one is. */
static void test_what_is_left_is_assigned_to_ranks(void)
{
    uint8_t bits[40];
    for (size_t i = 0; i < sizeof(bits); i++) {
        bits[i] = (uint8_t)rg_test_random();
    }
    bits[39] |= 0x80;
    struct rg_remaining left;
    RG_CHECK_EQ(rg_remaining_init(&left, 400, 50, bits, 320), 0);
    for (uint32_t world = 1; world <= 5; world++) {
        memset(times_seen, 0, sizeof(times_seen));
        for (uint32_t rank = 0; rank < world; rank++) {
            rank_read((struct rg_sampler_options){.count = 400,
                                                  .rank = rank,
                                                  .world_size = world,
                                                  .block_size = 3,
                                                  .left = &left},
                      1 + rank % 3);
        }
        for (uint64_t i = 0; i < 400; i++) {
            RG_CHECK_EQ(times_seen[i], !rg_remaining_is_done(&left, i));
        }
    }
    rg_remaining_fini(&left);
}

/* A rank's stream with holes keeps its order, whatever the number of workers. */
static void test_what_is_left_of_a_stream_is_assigned_to_workers(void)
{
    static const uint8_t bits[] = {0xa6, 0x91};
    struct rg_remaining left = rg_remaining_from(100, 10), own;
    RG_CHECK_EQ(rg_remaining_init(&own, 30, 4, bits, 16), 0);
    struct rg_sampler_options options = {
        .count = 100, .rank = 2, .world_size = 3, .block_size = 5, .left = &left, .own_left = &own};
    for (uint32_t workers = 1; workers <= 3; workers++) {
        options.worker_count = workers;
        for (uint64_t place = 0; place < rg_remaining_total(&own); place++) {
            uint64_t sample;
            options.worker = rg_sampler_worker(&options, place, &sample);
            struct rg_sampler sampler;
            RG_CHECK_EQ(rg_sampler_init(&sampler, &options), 0);
            RG_CHECK_EQ(rg_sampler_place(&options, sample), place);
            RG_CHECK_EQ(rg_sampler_at(&sampler, sample), 10 + 3 * rg_remaining_at(&own, place) + 2);
        }
    }
    rg_remaining_fini(&own);
}

static void test_without_shuffle_the_order_is_the_manifests(void)
{
    struct rg_sampler sampler;
    struct rg_sampler_options options = {
        .count = 10, .world_size = 1, .worker_count = 1, .block_size = 3};
    RG_CHECK_EQ(rg_sampler_init(&sampler, &options), 0);
    for (uint64_t i = 0; i < 10; i++) {
        RG_CHECK_EQ(rg_sampler_at(&sampler, i), i);
    }
}

static void test_epochs_differ_and_an_epoch_repeats_itself(void)
{
    uint32_t same = 0;
    struct rg_sampler first, again, second;
    struct rg_sampler_options options = {
        .count = 300, .shuffle = true, .world_size = 1, .worker_count = 1, .block_size = 1};
    RG_CHECK_EQ(rg_sampler_init(&first, &options), 0);
    RG_CHECK_EQ(rg_sampler_init(&again, &options), 0);
    options.epoch = 1;
    RG_CHECK_EQ(rg_sampler_init(&second, &options), 0);
    for (uint64_t i = 0; i < 300; i++) {
        RG_CHECK_EQ(rg_sampler_at(&first, i), rg_sampler_at(&again, i));
        same += rg_sampler_at(&first, i) == rg_sampler_at(&second, i);
    }
    RG_CHECK(same < 10);
}

static void test_nothing_is_left_of_an_empty_or_finished_epoch(void)
{
    for (uint64_t count = 0; count <= 12; count += 12) {
        struct rg_remaining left = rg_remaining_from(count, count);
        struct rg_sampler sampler;
        struct rg_sampler_options options = {.count = count,
                                             .shuffle = true,
                                             .world_size = 3,
                                             .worker_count = 2,
                                             .block_size = 2,
                                             .remainder = RG_REMAINDER_PAD,
                                             .left = &left};
        RG_CHECK_EQ(rg_sampler_init(&sampler, &options), 0);
        RG_CHECK_EQ(sampler.total, 0);
    }
}

/* Against all that the ranks read. */
static void check_ranks(struct rg_sampler_options options)
{
    for (options.rank = 0; options.rank < options.world_size; options.rank++) {
        struct rg_sampler sampler;
        RG_CHECK_EQ(rg_sampler_init(&sampler, &options), 0);
        bool is_read[100] = {false};
        for (uint64_t i = 0; i < sampler.total; i++) {
            is_read[rg_sampler_at(&sampler, i)] = true;
        }
        for (uint64_t object = 0; object < options.count; object++) {
            RG_CHECK_EQ(rg_sampler_is_ranks(&sampler, object), is_read[object]);
        }
    }
}

static void test_whose_an_object_is_can_be_asked(void)
{
    static const uint8_t bits[] = {0x5a, 0x03};
    struct rg_remaining left;
    RG_CHECK_EQ(rg_remaining_init(&left, 100, 20, bits, 16), 0);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        for (uint32_t world = 1; world < 4; world++) {
            struct rg_sampler_options options = {.count = 100,
                                                 .seed = 7,
                                                 .shuffle = shuffle != 0,
                                                 .world_size = world,
                                                 .worker_count = 1,
                                                 .block_size = 4,
                                                 .remainder = RG_REMAINDER_DROP};
            check_ranks(options);
            options.left = &left;
            check_ranks(options);
        }
    }
    rg_remaining_fini(&left);
}

static void test_contradictions_are_refused(void)
{
    const struct rg_sampler_options good = {
        .count = 10, .world_size = 2, .worker_count = 2, .block_size = 1};
    struct rg_sampler_options bad[8];
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        bad[i] = good;
    }
    bad[0].rank = 2;
    bad[1].worker = 2;
    bad[2].block_size = 0;
    struct rg_remaining other = rg_remaining_from(11, 0), stream = rg_remaining_from(6, 0);
    bad[3].left = &other;
    bad[7].own_left = &stream;
    bad[4].world_size = 0;
    bad[5].count = RG_PERMUTATION_COUNT_MAX + 1;
    bad[6].remainder = (enum rg_remainder)3;
    struct rg_sampler sampler;
    RG_CHECK_EQ(rg_sampler_init(&sampler, &good), 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_sampler_init(&sampler, &bad[i]), -EINVAL);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_all_readers_together_read_each_object_once),
        RG_TEST(test_padding_and_dropping_make_ranks_equal),
        RG_TEST(test_a_ranks_stream_does_not_depend_on_its_workers),
        RG_TEST(test_what_is_left_is_assigned_to_ranks),
        RG_TEST(test_what_is_left_of_a_stream_is_assigned_to_workers),
        RG_TEST(test_without_shuffle_the_order_is_the_manifests),
        RG_TEST(test_epochs_differ_and_an_epoch_repeats_itself),
        RG_TEST(test_nothing_is_left_of_an_empty_or_finished_epoch),
        RG_TEST(test_whose_an_object_is_can_be_asked),
        RG_TEST(test_contradictions_are_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
