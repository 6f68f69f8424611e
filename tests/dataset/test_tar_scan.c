/* Scanning shards at an emulator, and reading their samples: many at once, with older indexes,
 * shards that change meanwhile, and those that cannot be read. */
#include "dataset/tar_index.h"
#include "emulator/emulator.h"
#include "runtime/clock.h"
#include "tests/support/tar_header.h"
#include "tests/support/test.h"

#include <inttypes.h>
#include <ringest/dataset.h>

#define PATIENCE_NS (60 * RG_NS_PER_S)
#define SHARDS 12
#define ARCHIVE_SIZE_MAX RG_MIB(8)

static struct rg_emulator *emulator;
static struct rg_runtime *runtime;
static struct rg_client *client;
static struct rg_cq *cq;
static char names[SHARDS][32];
static struct rg_object shards[SHARDS];
static uint8_t archive[ARCHIVE_SIZE_MAX];
static size_t archive_size;

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
    for (int i = 0; i < SHARDS; i++) {
        snprintf(names[i], sizeof(names[i]), "train/%02d.tar", i);
        shards[i] = (struct rg_object){.name = names[i]};
    }
}

static void world_close(void)
{
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    RG_CHECK_EQ(stats.leased_bytes, 0);
    rg_cq_close(cq);
    rg_client_close(client);
    rg_runtime_close(runtime);
    rg_emulator_close(emulator);
}

static void member_add(const char *name, uint8_t fill, uint64_t size)
{
    rg_test_tar_header(archive + archive_size, name, '0', size);
    archive_size += RG_TAR_BLOCK_SIZE;
    uint64_t blocks = (size + RG_TAR_BLOCK_SIZE - 1) / RG_TAR_BLOCK_SIZE * RG_TAR_BLOCK_SIZE;
    RG_CHECK(archive_size + blocks + 2 * RG_TAR_BLOCK_SIZE <= sizeof(archive));
    memset(archive + archive_size, 0, blocks);
    memset(archive + archive_size, fill, size);
    archive_size += blocks;
}

/* Samples with a ".bin" of `size` bytes and a ".no" of one, both of the sample's number. */
static void archive_make(uint64_t shard, uint64_t count, uint64_t size)
{
    char name[64];
    archive_size = 0;
    for (uint64_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "%" PRIu64 "/%06" PRIu64 ".bin", shard, i);
        member_add(name, (uint8_t)i, size);
        snprintf(name, sizeof(name), "%" PRIu64 "/%06" PRIu64 ".no", shard, i);
        member_add(name, (uint8_t)i, 1);
    }
    memset(archive + archive_size, 0, 2 * RG_TAR_BLOCK_SIZE);
    archive_size += 2 * RG_TAR_BLOCK_SIZE;
}

static int64_t archive_put(const char *name)
{
    struct rg_put put = {.bucket = "data", .object = name, .data = archive, .size = archive_size};
    struct rg_completion done;
    RG_CHECK_EQ(rg_submit_put(client, cq, &put), 0);
    RG_CHECK_EQ(rg_cq_wait(cq, &done, 1, 1, rg_now_ns() + PATIENCE_NS), 1);
    RG_CHECK_EQ(done.status, RG_STATUS_OK);
    rg_lease_release(done.lease);
    return done.generation;
}

/* Shard i has i * 10 samples. */
static void shards_put(uint64_t size)
{
    for (uint64_t i = 0; i < SHARDS; i++) {
        archive_make(i, i * 10, size);
        (void)archive_put(names[i]);
    }
}

static struct rg_tar_scan *scan_open(const struct rg_tar_index *known, uint32_t at_once)
{
    struct rg_tar_scan_options options;
    struct rg_tar_scan *scan;
    char error[256];
    rg_tar_scan_options_init(&options);
    options.bucket = "data";
    options.shards = shards;
    options.shard_count = SHARDS;
    options.known = known;
    options.shards_at_once = at_once;
    if (rg_tar_scan_open(&scan, client, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return scan;
}

static struct rg_tar_index *scan_all(const struct rg_tar_index *known, uint32_t at_once,
                                     uint64_t *out_read)
{
    struct rg_tar_scan *scan = scan_open(known, at_once);
    struct rg_tar_index *index;
    if (rg_tar_scan_run(scan, rg_now_ns() + PATIENCE_NS) != 0) {
        const char *shard;
        struct rg_completion completion;
        rg_test_fail(__FILE__, __LINE__, "%s", rg_tar_scan_failure(scan, &shard, &completion));
    }
    RG_CHECK_EQ(rg_tar_scan_done(scan, out_read), SHARDS);
    RG_CHECK_EQ(rg_tar_scan_finish(scan, &index), 0);
    rg_tar_scan_close(scan);
    return index;
}

static void check_index(const struct rg_tar_index *index, uint64_t size)
{
    uint64_t number = 0;
    for (uint64_t i = 0; i < SHARDS; i++) {
        struct rg_tar_shard shard;
        RG_CHECK_EQ(rg_tar_index_shard(index, i, &shard), 0);
        RG_CHECK_STR(shard.name, names[i]);
        RG_CHECK_EQ(shard.count, i * 10);
        RG_CHECK(shard.generation > 0);
        for (uint64_t k = 0; k < shard.count; k++, number++) {
            struct rg_tar_sample sample;
            char key[64];
            snprintf(key, sizeof(key), "%" PRIu64 "/%06" PRIu64, i, k);
            RG_CHECK_EQ(rg_tar_index_get(index, number, &sample), 0);
            RG_CHECK_STR(sample.key, key);
            RG_CHECK_EQ(sample.part_count, 2);
            RG_CHECK_EQ(sample.parts[0].size, size);
        }
    }
    RG_CHECK_EQ(rg_tar_index_count(index), number);
}

static void test_shards_are_scanned_many_at_once(void)
{
    static const uint32_t at_once[] = {1, 3, 0};
    static const uint64_t sizes[] = {0, 700, 70000};
    world_open(0);
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        uint64_t read;
        shards_put(sizes[i]);
        struct rg_tar_index *index = scan_all(NULL, at_once[i], &read);
        RG_CHECK_EQ(read, SHARDS);
        check_index(index, sizes[i]);
        rg_tar_index_close(index);
    }
    world_close();
}

static void test_a_scan_fits_a_small_memory(void)
{
    uint64_t read;
    world_open(RG_MIB(16));
    archive_make(0, 600, 10000);
    for (int i = 0; i < SHARDS; i++) {
        (void)archive_put(names[i]);
    }
    struct rg_stats stats;
    struct rg_tar_index *index = scan_all(NULL, SHARDS, &read);
    RG_CHECK_EQ(rg_tar_index_count(index), 600 * SHARDS);
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    /* A window may wait for a moment where sizes change; it is not how a scan goes on. */
    RG_CHECK(stats.lease_waits * 10 <= stats.requests);
    rg_tar_index_close(index);
    world_close();
}

static void test_what_is_known_is_not_read_again(void)
{
    uint64_t read;
    struct rg_tar_shard shard;
    world_open(0);
    shards_put(700);
    struct rg_tar_index *known = scan_all(NULL, 0, &read), *index;
    index = scan_all(known, 0, &read);
    RG_CHECK_EQ(read, 0);
    check_index(index, 700);
    rg_tar_index_close(index);
    archive_make(3, 30, 700);
    int64_t generation = archive_put(names[3]);
    index = scan_all(known, 0, &read);
    RG_CHECK_EQ(read, 1);
    check_index(index, 700);
    RG_CHECK_EQ(rg_tar_index_shard(index, 3, &shard), 0);
    RG_CHECK_EQ(shard.generation, generation);
    rg_tar_index_close(known);
    /* With generations at hand nothing is asked. */
    struct rg_stats before, after;
    for (uint64_t i = 0; i < SHARDS; i++) {
        RG_CHECK_EQ(rg_tar_index_shard(index, i, &shard), 0);
        shards[i].generation = shard.generation;
    }
    RG_CHECK_EQ(rg_runtime_stats(runtime, &before), 0);
    known = scan_all(index, 0, &read);
    RG_CHECK_EQ(rg_runtime_stats(runtime, &after), 0);
    RG_CHECK_EQ(read, 0);
    RG_CHECK_EQ(after.requests, before.requests);
    check_index(known, 700);
    rg_tar_index_close(known);
    rg_tar_index_close(index);
    world_close();
}

static void test_a_shard_that_is_replaced_meanwhile_is_read_anew(void)
{
    world_open(0);
    shards_put(700);
    /* Its headers are so far apart that there is a request for each sample. */
    archive_make(11, 60, 100000);
    (void)archive_put(names[11]);
    for (int i = 0; i < SHARDS - 1; i++) {
        shards[i].name = names[0];
    }
    shards[0].name = names[11];
    struct rg_tar_scan *scan = scan_open(NULL, 1);
    uint64_t read;
    struct rg_stats stats;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    uint64_t begin = stats.requests;
    do {
        RG_CHECK_EQ(rg_tar_scan_run(scan, rg_now_ns()), -ETIME);
        RG_CHECK_EQ(rg_runtime_stats(runtime, &stats), 0);
    } while (stats.requests < begin + 4);
    RG_CHECK_EQ(rg_tar_scan_done(scan, &read), 0);
    archive_make(11, 110, 700);
    int64_t generation = archive_put(names[11]);
    RG_CHECK_EQ(rg_tar_scan_run(scan, rg_now_ns() + PATIENCE_NS), 0);
    struct rg_tar_index *index;
    struct rg_tar_shard shard;
    RG_CHECK_EQ(rg_tar_scan_finish(scan, &index), 0);
    RG_CHECK_EQ(rg_tar_index_shard(index, 0, &shard), 0);
    RG_CHECK_EQ(shard.generation, generation);
    RG_CHECK_EQ(shard.count, 110);
    rg_tar_index_close(index);
    rg_tar_scan_close(scan);
    world_close();
}

static void check_failure(int rc, enum rg_status status, int number, const char *text)
{
    const char *shard;
    struct rg_completion completion;
    struct rg_tar_scan *scan = scan_open(NULL, 0);
    RG_CHECK_EQ(rg_tar_scan_run(scan, rg_now_ns() + PATIENCE_NS), rc);
    RG_CHECK_EQ(rg_tar_scan_run(scan, rg_now_ns() + PATIENCE_NS), rc);
    const char *line = rg_tar_scan_failure(scan, &shard, &completion);
    RG_CHECK_STR(shard, shards[number].name);
    RG_CHECK_EQ(completion.status, status);
    if (strstr(line, shard) == NULL || strstr(line, text) == NULL) {
        rg_test_fail(__FILE__, __LINE__, "%s", line);
    }
    rg_tar_scan_close(scan);
}

static void test_failures_name_the_shard(void)
{
    world_open(0);
    shards_put(700);
    shards[5].name = "gone.tar";
    check_failure(-EREMOTEIO, RG_STATUS_NOT_FOUND, 5, "gs://data/gone.tar: ");
    shards[5].name = "";
    check_failure(-EREMOTEIO, RG_STATUS_BAD_REQUEST, 5, "the service allows no such name");
    shards[5].name = names[5];
    archive_make(5, 50, 700);
    archive[RG_TAR_BLOCK_SIZE * 3 + 1] ^= 1;
    (void)archive_put(names[5]);
    check_failure(-EBADMSG, RG_STATUS_OK, 5, "at byte 1536: the header's checksum is wrong");
    archive_make(5, 50, 700);
    archive_size -= 2 * RG_TAR_BLOCK_SIZE;
    (void)archive_put(names[5]);
    check_failure(-EBADMSG, RG_STATUS_OK, 5, "cut off");
    archive_size = 0;
    (void)archive_put(names[5]);
    check_failure(-EBADMSG, RG_STATUS_OK, 5, "at byte 0: it is empty");
    archive_size = 0;
    member_add("a.x", 1, 5);
    member_add("a.X", 1, 5);
    (void)archive_put(names[5]);
    check_failure(-EBADMSG, RG_STATUS_OK, 5, "sample \"a\" has \"x\" twice");
    world_close();
}

static void test_a_scan_may_be_left(void)
{
    world_open(0);
    shards_put(700);
    for (int i = 0; i < 5; i++) {
        struct rg_tar_scan *scan = scan_open(NULL, 0);
        /* 0 where the machine held this thread up until all had come. */
        int rc = rg_tar_scan_run(scan, rg_now_ns());
        RG_CHECK(rc == -ETIME || rc == 0);
        rg_tar_scan_close(scan);
    }
    rg_tar_scan_close(NULL);
    world_close();
}

static void test_options_that_make_no_sense(void)
{
    struct rg_tar_scan_options options;
    struct rg_tar_scan *scan;
    char error[256];
    world_open(0);
    rg_tar_scan_options_init(&options);
    RG_CHECK_EQ(rg_tar_scan_open(&scan, client, &options, error, sizeof(error)), -EINVAL);
    RG_CHECK_STR(error, "no bucket or no shards were given");
    options.bucket = "data";
    options.shards_at_once = RG_TAR_SCAN_SHARDS_MAX + 1;
    RG_CHECK_EQ(rg_tar_scan_open(&scan, client, &options, error, sizeof(error)), -EINVAL);
    RG_CHECK(strstr(error, "4097, above the limit of 4096") != NULL);
    world_close();
}

static void check_sample(const struct rg_tar_index *index, const struct rg_sample *got)
{
    struct rg_tar_sample sample;
    RG_CHECK_EQ(got->completion.status, RG_STATUS_OK);
    RG_CHECK_EQ(rg_tar_index_get(index, got->index, &sample), 0);
    RG_CHECK_EQ(got->completion.size, sample.size);
    uint8_t number = (uint8_t)strtoul(strchr(sample.key, '/') + 1, NULL, 10);
    const uint8_t *data = got->completion.data;
    for (uint32_t i = 0; i < sample.part_count; i++) {
        const struct rg_tar_part *part = &sample.parts[i];
        RG_CHECK(part->size == 0 || data[part->offset] == number);
        RG_CHECK(part->size == 0 || data[part->offset + part->size - 1] == number);
    }
    rg_lease_release(got->completion.lease);
}

static void test_a_reader_gives_the_samples(void)
{
    uint64_t read, count = 0;
    static uint8_t seen[10 * SHARDS * SHARDS / 2];
    world_open(0);
    shards_put(3000);
    struct rg_tar_index *index = scan_all(NULL, 0, &read);
    struct rg_reader_options options;
    rg_reader_options_init(&options);
    options.tar = index;
    options.shuffle = true;
    struct rg_reader *reader;
    RG_CHECK_EQ(rg_reader_open(&reader, client, &options, NULL, 0), 0);
    RG_CHECK_EQ(rg_reader_total(reader), rg_tar_index_count(index));
    struct rg_sample sample;
    memset(seen, 0, sizeof(seen));
    while (rg_reader_next(reader, &sample, 1, 1, rg_now_ns() + PATIENCE_NS) == 1) {
        check_sample(index, &sample);
        RG_CHECK_EQ(seen[sample.index]++, 0);
        count++;
    }
    RG_CHECK_EQ(count, rg_tar_index_count(index));
    rg_reader_close(reader);
    char error[256];
    options.changed = RG_CHANGED_NEWEST;
    RG_CHECK_EQ(rg_reader_open(&reader, client, &options, error, sizeof(error)), -EINVAL);
    RG_CHECK(strstr(error, "scan the shards again") != NULL);
    rg_tar_index_close(index);
    world_close();
}

/* A length of 0 would ask for the whole shard. */
static void test_an_empty_sample_needs_no_request(void)
{
    world_open(0);
    archive_size = 0;
    member_add("a.x", 0, 0);
    member_add("b.x", 0, 0);
    memset(archive + archive_size, 0, RG_TAR_BLOCK_SIZE);
    archive_size += RG_TAR_BLOCK_SIZE;
    (void)archive_put(names[0]);
    for (int i = 0; i < SHARDS; i++) {
        shards[i].name = names[0];
    }
    uint64_t read;
    struct rg_tar_index *index = scan_all(NULL, 0, &read);
    struct rg_stats before, after;
    RG_CHECK_EQ(rg_runtime_stats(runtime, &before), 0);
    for (int unordered = 0; unordered < 2; unordered++) {
        struct rg_reader_options options;
        rg_reader_options_init(&options);
        options.tar = index;
        options.unordered = unordered == 1;
        struct rg_reader *reader;
        RG_CHECK_EQ(rg_reader_open(&reader, client, &options, NULL, 0), 0);
        struct rg_sample sample[2 * SHARDS];
        RG_CHECK_EQ(
            rg_reader_next(reader, sample, 2 * SHARDS, 2 * SHARDS, rg_now_ns() + PATIENCE_NS),
            2 * SHARDS);
        for (int i = 0; i < 2 * SHARDS; i++) {
            RG_CHECK_EQ(sample[i].completion.status, RG_STATUS_OK);
            RG_CHECK_EQ(sample[i].completion.size, 0);
        }
        rg_reader_close(reader);
    }
    RG_CHECK_EQ(rg_runtime_stats(runtime, &after), 0);
    RG_CHECK_EQ(after.requests, before.requests);
    rg_tar_index_close(index);
    world_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_shards_are_scanned_many_at_once),
        RG_TEST(test_a_scan_fits_a_small_memory),
        RG_TEST(test_what_is_known_is_not_read_again),
        RG_TEST(test_a_shard_that_is_replaced_meanwhile_is_read_anew),
        RG_TEST(test_failures_name_the_shard),
        RG_TEST(test_a_scan_may_be_left),
        RG_TEST(test_options_that_make_no_sense),
        RG_TEST(test_a_reader_gives_the_samples),
        RG_TEST(test_an_empty_sample_needs_no_request),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
