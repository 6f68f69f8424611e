/* The beginning of the next epoch, at an emulator: it is in the cache when that epoch begins, it is
 * no part of any state, and a reader that is left leaves nothing behind. */
#include "dataset/ahead.h"

#include "cache/cache.h"
#include "gcs/request/cached_look.h"
#include "gcs/request/client.h"
#include "tests/dataset/reader_case.h"
#include "tests/support/certificates.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_NS (60 * RG_NS_PER_S)
#define SHARE (COUNT / 2)
#define HALF (WINDOW / 2)

static char folder[RG_TEST_PATH_SIZE];
static struct rg_client *plain; /* without a cache */

/* Objects have the generations that are there: only those are found without asking. */
static void generations_find(void)
{
    struct rg_reader_options options = reader_options();
    options.shuffle = false;
    struct rg_reader *reader = reader_open(&options);
    struct rg_sample sample;
    while (rg_reader_next(reader, &sample, 1, 1, RG_FOREVER) == 1) {
        objects[sample.index].generation = sample.completion.generation;
        rg_lease_release(sample.completion.lease);
    }
    rg_reader_close(reader);
}

static void world_open(void)
{
    const char *base = getenv("TMPDIR");
    reader_world_open(1, 0);
    generations_find();
    snprintf(folder, sizeof(folder), "%s/ringest-ahead-XXXXXX", base != NULL ? base : "/tmp");
    RG_CHECK(mkdtemp(folder) != NULL);
    struct rg_client_options options;
    rg_client_options_init(&options);
    options.endpoint = rg_emulator_endpoint(emulator);
    options.hedging = RG_SWITCH_OFF;
    options.cache = folder;
    options.cache_size = RG_MIB(64);
    plain = client;
    RG_CHECK_EQ(rg_client_open(&client, runtime, &options), 0);
}

static void world_close(void)
{
    rg_client_close(client);
    client = plain;
    reader_world_close();
    DIR *listed = opendir(folder);
    RG_CHECK(listed != NULL);
    for (struct dirent *entry; (entry = readdir(listed)) != NULL;) {
        RG_CHECK(entry->d_name[0] == '.' || unlinkat(dirfd(listed), entry->d_name, 0) == 0);
    }
    closedir(listed);
    RG_CHECK_EQ(rmdir(folder), 0);
}

static struct rg_stats stats(void)
{
    struct rg_stats found;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &found), 0);
    return found;
}

/* Rank 0 of 2, so that half of an epoch's objects were never read before. */
static struct rg_reader_options epoch_options(uint64_t epoch)
{
    struct rg_reader_options options = reader_options();
    options.world_size = 2;
    options.epoch = epoch;
    options.prefetch_next = true;
    return options;
}

/* Takes so many samples; returns how many there were. */
static uint64_t take(struct rg_reader *reader, uint64_t count)
{
    struct rg_sample sample;
    uint64_t taken = 0;
    while (taken < count && rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS) == 1) {
        RG_CHECK_EQ(sample.completion.status, RG_STATUS_OK);
        rg_lease_release(sample.completion.lease);
        taken++;
    }
    return taken;
}

/* What the reader of an epoch reads first, by its indices. */
static void order_of(uint64_t epoch, uint64_t *out_indices, uint32_t count)
{
    struct rg_reader_options options = epoch_options(epoch);
    struct rg_client *own = client;
    client = plain;
    struct rg_reader *reader = reader_open(&options);
    struct rg_sample sample;
    for (uint32_t i = 0; i < count; i++) {
        RG_CHECK_EQ(rg_reader_next(reader, &sample, 1, 1, RG_FOREVER), 1);
        out_indices[i] = sample.index;
        rg_lease_release(sample.completion.lease);
    }
    rg_reader_close(reader);
    client = own;
}

/* Of the first half window of epoch 1, what is not read in epoch 0. */
static uint32_t fresh_count(const uint64_t *next)
{
    uint64_t now[SHARE];
    uint32_t fresh = HALF;
    order_of(0, now, SHARE);
    for (uint32_t i = 0; i < HALF; i++) {
        for (uint32_t j = 0; j < SHARE; j++) {
            fresh -= next[i] == now[j];
        }
    }
    return fresh;
}

static bool is_missing(uint64_t index)
{
    struct rg_get get = {
        .bucket = "data", .object = objects[index].name, .generation = objects[index].generation};
    return rg_cached_is_missing(client, &get, objects[index].size);
}

static void test_the_first_samples_of_the_next_epoch_need_no_request(void)
{
    world_open();
    uint64_t next[HALF];
    order_of(1, next, HALF);
    uint32_t fresh = fresh_count(next);
    RG_CHECK(fresh > 0);
    uint64_t before = stats().requests;
    struct rg_reader_options options = epoch_options(0);
    struct rg_reader *reader = reader_open(&options);
    RG_CHECK_EQ(take(reader, SHARE - WINDOW), SHARE - WINDOW);
    RG_CHECK_EQ(take(reader, HALF + 1), HALF + 1);
    RG_AWAIT(stats().cache_writes == SHARE + fresh);
    rg_cache_flush(client->cache);
    RG_CHECK_EQ(rg_reader_taken(reader), SHARE - HALF + 1);
    RG_CHECK_EQ(take(reader, SHARE), HALF - 1);
    rg_reader_close(reader);
    RG_CHECK_EQ(stats().requests, before + SHARE + fresh);
    RG_CHECK_EQ(stats().cache_hits, 0);
    for (uint32_t i = 0; i < HALF; i++) {
        RG_CHECK(!is_missing(next[i]));
    }
    world_close();
}

static void test_what_is_there_is_not_read_again(void)
{
    world_open();
    uint64_t next[HALF];
    order_of(1, next, HALF);
    for (uint32_t i = 0; i < HALF; i += 2) {
        struct rg_reader_options one = reader_options();
        one.indices = &next[i];
        one.index_count = 1;
        struct rg_reader *reader = reader_open(&one);
        RG_CHECK_EQ(take(reader, 2), 1);
        rg_reader_close(reader);
    }
    rg_cache_flush(client->cache);
    uint64_t before = stats().requests;
    uint32_t hits = 0, fresh = 0;
    for (uint32_t i = 0; i < HALF; i++) {
        fresh += is_missing(next[i]);
    }
    struct rg_reader_options options = epoch_options(0);
    struct rg_reader *reader = reader_open(&options);
    RG_CHECK_EQ(take(reader, SHARE), SHARE);
    rg_reader_close(reader);
    hits = (uint32_t)stats().cache_hits;
    RG_CHECK(hits <= HALF / 2);
    RG_CHECK(stats().requests <= before + SHARE - hits + fresh);
    world_close();
}

static void test_states_know_nothing_of_it(void)
{
    world_open();
    struct rg_reader_options with = epoch_options(0), without = with;
    without.prefetch_next = false;
    struct rg_reader *one = reader_open(&with), *other = reader_open(&without);
    for (uint64_t i = 0; i <= SHARE; i++) {
        uint8_t state[RG_READER_STATE_MAX], same[RG_READER_STATE_MAX];
        size_t size = rg_reader_state(one, state, sizeof(state));
        RG_CHECK_EQ(rg_reader_state(other, same, sizeof(same)), size);
        RG_CHECK_EQ(memcmp(state, same, size), 0);
        RG_CHECK_EQ(take(one, 1), i < SHARE);
        RG_CHECK_EQ(take(other, 1), i < SHARE);
    }
    rg_reader_close(one);
    rg_reader_close(other);
    world_close();
}

static void test_a_reader_that_is_left_leaves_nothing_out(void)
{
    latency_ms = "20";
    world_open();
    latency_ms = NULL;
    for (uint64_t left = 0; left < WINDOW; left += 5) {
        struct rg_reader_options options = epoch_options(left);
        struct rg_reader *reader = reader_open(&options);
        RG_CHECK_EQ(take(reader, SHARE - left), SHARE - left);
        rg_reader_close(reader);
        RG_AWAIT(stats().leased_bytes == 0); /* the cache gives back what it was reading into */
    }
    world_close();
}

static void test_without_a_cache_nothing_more_is_asked_for(void)
{
    reader_world_open(1, 0);
    struct rg_reader_options options = epoch_options(0);
    struct rg_reader *reader = reader_open(&options);
    RG_CHECK_EQ(take(reader, COUNT), SHARE);
    rg_reader_close(reader);
    RG_CHECK_EQ(stats().requests, SHARE);
    struct rg_ahead *ahead;
    struct rg_sampler sampler = {0};
    RG_CHECK_EQ(rg_ahead_open(&ahead, client, &options, &sampler, NULL, 0), 0);
    RG_CHECK(ahead == NULL);
    rg_ahead_close(ahead, client, true);
    reader_world_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_first_samples_of_the_next_epoch_need_no_request),
        RG_TEST(test_what_is_there_is_not_read_again),
        RG_TEST(test_states_know_nothing_of_it),
        RG_TEST(test_a_reader_that_is_left_leaves_nothing_out),
        RG_TEST(test_without_a_cache_nothing_more_is_asked_for),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
