/* What can be done with objects, by our client, on our emulator: stat, update, delete, copy,
 * compose, range sets and permissions, each with the conditions that it knows. */
#include "emulator/emulator.h"
#include "tests/support/client.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#include <ringest/objects.h>

#define BUCKET "a-bucket"
#define OTHER "other-bucket"
#define SIZE (RG_MIB(3) + 12345)

static struct rg_emulator *emulator;
static uint8_t data[SIZE];

static void client_open(struct rg_test_client *c)
{
    *c = (struct rg_test_client){.no_server = true};
    c->options.endpoint = rg_emulator_endpoint(emulator);
    rg_test_client_open(c);
}

/* Stores the first `size` bytes of the data; its generation. */
static int64_t put(struct rg_test_client *c, const char *object, uint64_t size)
{
    RG_CHECK_EQ(rg_submit_put(c->client, c->cq,
                              &(struct rg_put){
                                  .bucket = BUCKET, .object = object, .data = data, .size = size}),
                0);
    struct rg_completion done = rg_test_take(c);
    RG_CHECK_STATUS(&done, OK);
    rg_lease_release(done.lease);
    return done.generation;
}

static struct rg_completion stat_take(struct rg_test_client *c, const struct rg_stat *stat)
{
    RG_CHECK_EQ(rg_submit_stat(c->client, c->cq, stat), 0);
    return rg_test_take(c);
}

static enum rg_status status_taken(struct rg_test_client *c, int rc)
{
    RG_CHECK_EQ(rc, 0);
    struct rg_completion done = rg_test_take(c);
    rg_lease_release(done.lease);
    return done.status;
}

static void check_content(struct rg_test_client *c, const char *bucket, const char *object,
                          uint64_t size)
{
    struct rg_get get = {.bucket = bucket, .object = object};
    rg_test_get(c, &get);
    struct rg_completion done = rg_test_take(c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_MEM(done.data, done.size, data, size);
    RG_CHECK_EQ(done.crc32c, done.object_crc32c);
    rg_lease_release(done.lease);
}

static void test_stat_and_conditions(void)
{
    struct rg_test_client c;
    client_open(&c);
    int64_t old = put(&c, "stat/a b", 1000), new = put(&c, "stat/a b", 2000);
    RG_CHECK(old != new);
    struct rg_completion done =
        stat_take(&c, &(struct rg_stat){.bucket = BUCKET, .object = "stat/a b"});
    RG_CHECK_STATUS(&done, OK);
    const struct rg_object_info *info = done.data;
    RG_CHECK_STR(info->bucket, BUCKET);
    RG_CHECK_STR(info->object.name, "stat/a b");
    RG_CHECK_STR(info->content_type, "application/octet-stream");
    RG_CHECK(info->time_created != NULL && info->object.updated != NULL);
    RG_CHECK_EQ(info->metageneration, 1);
    RG_CHECK_EQ(done.generation, new);
    RG_CHECK_EQ(done.object_size, 2000);
    rg_lease_release(done.lease);
    const struct {
        struct rg_conditions conditions;
        int64_t generation;
        enum rg_status want;
    } rows[] = {
        {.generation = old, .want = RG_STATUS_NOT_FOUND},
        {.conditions.if_generation_match = new},
        {.conditions.if_generation_match = old, .want = RG_STATUS_PRECONDITION},
        {.conditions.if_generation_not_match = new, .want = RG_STATUS_PRECONDITION},
        {.conditions.if_generation_not_match = old},
        {.conditions.if_metageneration_match = 1},
        {.conditions.if_metageneration_match = 2, .want = RG_STATUS_PRECONDITION},
        {.conditions.if_metageneration_not_match = 1, .want = RG_STATUS_PRECONDITION},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_stat stat = {.bucket = BUCKET,
                               .object = "stat/a b",
                               .generation = rows[i].generation,
                               .conditions = rows[i].conditions};
        RG_CHECK_EQ(status_taken(&c, rg_submit_stat(c.client, c.cq, &stat)), rows[i].want);
        struct rg_get get = {.bucket = BUCKET,
                             .object = "stat/a b",
                             .generation = rows[i].generation,
                             .conditions = rows[i].conditions};
        RG_CHECK_EQ(status_taken(&c, rg_submit_get(c.client, c.cq, &get)), rows[i].want);
    }
    rg_test_client_close(&c);
}

static void test_update(void)
{
    static const struct rg_metadata first[] = {{"k", "v\n\xc3\xa9"}, {"other", "x"}},
                                    second[] = {{"k", NULL}};
    struct rg_test_client c;
    client_open(&c);
    put(&c, "update", 1000);
    struct rg_update update = {.bucket = BUCKET,
                               .object = "update",
                               .content_type = "text/plain",
                               .content_encoding = "gzip",
                               .metadata = first,
                               .metadata_count = 2,
                               .conditions = {.if_metageneration_match = 1}};
    RG_CHECK_EQ(rg_submit_update(c.client, c.cq, &update), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    const struct rg_object_info *info = done.data;
    RG_CHECK_EQ(info->metageneration, 2);
    RG_CHECK_STR(info->content_type, "text/plain");
    RG_CHECK_EQ(info->metadata_count, 2);
    RG_CHECK_STR(info->metadata[0].value, "v\n\xc3\xa9");
    rg_lease_release(done.lease);
    RG_CHECK_EQ(status_taken(&c, rg_submit_update(c.client, c.cq, &update)),
                RG_STATUS_PRECONDITION);
    /* It says now that it is compressed; its bytes are what they were. */
    check_content(&c, BUCKET, "update", 1000);
    update = (struct rg_update){.bucket = BUCKET,
                                .object = "update",
                                .content_encoding = "",
                                .metadata = second,
                                .metadata_count = 1};
    RG_CHECK_EQ(rg_submit_update(c.client, c.cq, &update), 0);
    done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    info = done.data;
    RG_CHECK(info->content_encoding == NULL);
    RG_CHECK_STR(info->content_type, "text/plain");
    RG_CHECK_EQ(info->metadata_count, 1);
    RG_CHECK_STR(info->metadata[0].key, "other");
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_delete(void)
{
    struct rg_test_client c;
    client_open(&c);
    int64_t generation = put(&c, "delete", 10);
    struct rg_delete del = {.bucket = BUCKET,
                            .object = "delete",
                            .conditions = {.if_generation_match = generation + 1}};
    RG_CHECK_EQ(status_taken(&c, rg_submit_delete(c.client, c.cq, &del)), RG_STATUS_PRECONDITION);
    del.conditions.if_generation_match = generation;
    RG_CHECK_EQ(status_taken(&c, rg_submit_delete(c.client, c.cq, &del)), RG_STATUS_OK);
    del.conditions.if_generation_match = 0;
    RG_CHECK_EQ(status_taken(&c, rg_submit_delete(c.client, c.cq, &del)), RG_STATUS_NOT_FOUND);
    rg_test_client_close(&c);
}

/* A hundred by one request: each third is there, is not there, or is another generation. */
static void test_delete_many(void)
{
    struct rg_test_client c;
    client_open(&c);
    struct rg_delete deletes[RG_DELETES_MAX];
    static char names[RG_DELETES_MAX][32];
    for (unsigned i = 0; i < RG_DELETES_MAX; i++) {
        snprintf(names[i], sizeof(names[i]), "many/%u ?#%%+", i);
        int64_t generation = i % 3 != 1 ? put(&c, names[i], 1) : 1;
        deletes[i] = (struct rg_delete){.bucket = BUCKET, .object = names[i]};
        deletes[i].conditions.if_generation_match = i % 3 == 2 ? generation + 1 : 0;
        deletes[i].generation = i % 3 == 0 ? generation : 0;
    }
    struct rg_delete_many many = {.deletes = deletes, .count = RG_DELETES_MAX};
    RG_CHECK_EQ(rg_submit_delete_many(c.client, c.cq, &many), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.attempts, 1);
    const struct rg_delete_result *results = done.data;
    static const enum rg_status want[] = {RG_STATUS_OK, RG_STATUS_NOT_FOUND,
                                          RG_STATUS_PRECONDITION};
    for (unsigned i = 0; i < RG_DELETES_MAX; i++) {
        RG_CHECK_EQ(results[i].status, want[i % 3]);
        struct rg_stat stat = {.bucket = BUCKET, .object = names[i]};
        RG_CHECK_EQ(status_taken(&c, rg_submit_stat(c.client, c.cq, &stat)),
                    i % 3 == 2 ? RG_STATUS_OK : RG_STATUS_NOT_FOUND);
    }
    rg_lease_release(done.lease);
    rg_test_client_close(&c);
}

static void test_copy(void)
{
    struct rg_test_client c;
    client_open(&c);
    int64_t generation = put(&c, "from/a b", SIZE);
    struct rg_copy copy = {.source_bucket = BUCKET,
                           .source_object = "from/a b",
                           .bucket = OTHER,
                           .object = "to/a%2Fb",
                           .conditions = {.if_generation_match = RG_GENERATION_ABSENT},
                           .source_conditions = {.if_generation_match = generation}};
    for (unsigned i = 0; i < 2; i++) {
        RG_CHECK_EQ(rg_submit_copy(c.client, c.cq, &copy), 0);
        struct rg_completion done = rg_test_take(&c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK_EQ(done.object_size, SIZE);
        RG_CHECK_EQ(done.attempts, i == 0 ? 2 : 5);
        RG_CHECK_STR(((const struct rg_object_info *)done.data)->bucket, OTHER);
        rg_lease_release(done.lease);
        check_content(&c, OTHER, copy.object, SIZE);
        RG_CHECK_EQ(status_taken(&c, rg_submit_copy(c.client, c.cq, &copy)),
                    RG_STATUS_PRECONDITION);
        copy.step_max = RG_MIB(1);
        copy.object = "to/in steps";
    }
    copy.object = "to/nothing";
    copy.source_generation = generation + 1;
    RG_CHECK_EQ(status_taken(&c, rg_submit_copy(c.client, c.cq, &copy)), RG_STATUS_NOT_FOUND);
    rg_test_client_close(&c);
}

static void test_compose(void)
{
    struct rg_test_client c;
    client_open(&c);
    int64_t generation = put(&c, "part 0", 1000);
    put(&c, "part 1", 500);
    struct rg_completion parts[2];
    uint32_t crc = 0;
    for (unsigned i = 0; i < 2; i++) {
        parts[i] = stat_take(
            &c, &(struct rg_stat){.bucket = BUCKET, .object = i == 0 ? "part 0" : "part 1"});
        RG_CHECK_STATUS(&parts[i], OK);
        crc = rg_crc32c_combine(crc, parts[i].object_crc32c, parts[i].object_size);
        rg_lease_release(parts[i].lease);
    }
    crc = rg_crc32c_combine(crc, parts[0].object_crc32c, 1000);
    const struct rg_compose_source sources[] = {
        {"part 0", generation}, {"part 1", 0}, {"part 0", 0}};
    static const struct rg_metadata metadata[] = {{"k", "v"}};
    struct rg_compose compose = {.bucket = BUCKET,
                                 .object = "composed",
                                 .sources = sources,
                                 .source_count = 3,
                                 .content_type = "text/plain",
                                 .metadata = metadata,
                                 .metadata_count = 1,
                                 .crc32c = crc,
                                 .has_crc32c = true,
                                 .conditions = {.if_generation_match = RG_GENERATION_ABSENT}};
    RG_CHECK_EQ(rg_submit_compose(c.client, c.cq, &compose), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    const struct rg_object_info *info = done.data;
    RG_CHECK_EQ(info->object.size, 2500);
    RG_CHECK_EQ(info->component_count, 3);
    RG_CHECK_STR(info->content_type, "text/plain");
    RG_CHECK_STR(info->metadata[0].value, "v");
    RG_CHECK(info->md5 == NULL);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(status_taken(&c, rg_submit_compose(c.client, c.cq, &compose)),
                RG_STATUS_PRECONDITION);
    compose.conditions.if_generation_match = 0;
    compose.crc32c++;
    RG_CHECK_EQ(status_taken(&c, rg_submit_compose(c.client, c.cq, &compose)), RG_STATUS_CHECKSUM);
    rg_test_client_close(&c);
}

static void test_ranges(void)
{
    struct rg_test_client c;
    client_open(&c);
    int64_t generation = put(&c, "ranges", SIZE);
    uint8_t *buf = malloc(SIZE);
    struct rg_range ranges[200];
    for (unsigned i = 0; i < RG_ARRAY_LEN(ranges); i++) {
        uint64_t offset = rg_test_random_below(SIZE), length = rg_test_random_below(100000);
        ranges[i] = (struct rg_range){offset, length, i % 5 == 0 ? malloc(length + 1) : NULL};
    }
    ranges[3] = (struct rg_range){0, 2 * SIZE, buf};
    struct rg_get_ranges get = {.bucket = BUCKET,
                                .object = "ranges",
                                .generation = generation,
                                .ranges = ranges,
                                .count = RG_ARRAY_LEN(ranges),
                                .gap_max = 5000,
                                .request_size_max = 300000};
    RG_CHECK_EQ(rg_submit_get_ranges(c.client, c.cq, &get), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    const struct rg_range_result *results = done.data;
    for (unsigned i = 0; i < RG_ARRAY_LEN(ranges); i++) {
        uint64_t size = RG_MIN(ranges[i].length, SIZE - ranges[i].offset);
        RG_CHECK_MEM(results[i].data, results[i].size, data + ranges[i].offset, size);
    }
    RG_CHECK_EQ(results[3].crc32c, done.object_crc32c);
    rg_lease_release(done.lease);
    put(&c, "ranges", 10);
    RG_CHECK_EQ(status_taken(&c, rg_submit_get_ranges(c.client, c.cq, &get)), RG_STATUS_NOT_FOUND);
    for (unsigned i = 0; i < RG_ARRAY_LEN(ranges); i++) {
        free(ranges[i].buf);
    }
    rg_test_client_close(&c);
}

static void test_permissions(void)
{
    static const char *const names[] = {"storage.objects.get", "storage.objects.create"};
    struct rg_test_client c;
    client_open(&c);
    struct rg_test_permissions test = {.bucket = BUCKET, .permissions = names, .count = 2};
    RG_CHECK_EQ(rg_submit_test_permissions(c.client, c.cq, &test), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    const bool *granted = done.data;
    RG_CHECK(granted[0] && granted[1]);
    rg_lease_release(done.lease);
    test.bucket = "no-such-bucket";
    RG_CHECK_EQ(status_taken(&c, rg_submit_test_permissions(c.client, c.cq, &test)),
                RG_STATUS_NOT_FOUND);
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_stat_and_conditions),
        RG_TEST(test_update),
        RG_TEST(test_delete),
        RG_TEST(test_delete_many),
        RG_TEST(test_copy),
        RG_TEST(test_compose),
        RG_TEST(test_ranges),
        RG_TEST(test_permissions),
    };
    static const char *const buckets[] = {"/" BUCKET, "/" OTHER};
    char error[256] = "";
    struct rg_emulator_options options = {.threads = 1, .plain = true, .strict_buckets = true};
    for (uint64_t i = 0; i < sizeof(data); i++) {
        data[i] = rg_script_byte(i);
    }
    if (rg_emulator_open(&emulator, &options, error, sizeof(error)) < 0) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(buckets); i++) {
        struct rg_talk talk;
        rg_talk(&talk, rg_talk_port(rg_emulator_endpoint(emulator)),
                &(struct rg_talk_request){.method = "PUT", .target = buckets[i]});
        RG_ASSERT(talk.status == 200);
    }
    int rc = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_emulator_close(emulator);
    return rc;
}
