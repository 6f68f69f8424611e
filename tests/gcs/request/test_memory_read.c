/* Gets of a client with a cache in memory: what is answered from it, and whose bytes those are. The
 * cache is the test's own, by the folder through which processes share. */
#include "gcs/request/memory_read.h"

#include "cache/cache.h"
#include "cache/memory.h"
#include "gcs/request/cached_look.h"
#include "gcs/request/client_loop.h"
#include "tests/gcs/object/get_case.h"

#include <ringest/objects.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK RG_CACHE_BLOCK_SIZE
#define LARGE (3 * BLOCK + 1000)

struct world {
    struct rg_test_client c;
    char share[64], folder[RG_TEST_PATH_SIZE];
};

static void folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    RG_CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        RG_CHECK(entry->d_name[0] == '.' || unlinkat(dirfd(folder), entry->d_name, 0) == 0);
    }
    closedir(folder);
    RG_CHECK_EQ(rmdir(path), 0);
}

static void world_make(struct world *world)
{
    const char *base = getenv("TMPDIR");
    *world = (struct world){.share = "/dev/shm/ringest-test-XXXXXX"};
    snprintf(world->folder, sizeof(world->folder), "%s/ringest-memory-XXXXXX",
             base != NULL ? base : "/tmp");
    if (mkdtemp(world->share) == NULL) {
        rg_test_skip("there is no /dev/shm to write to");
    }
    RG_CHECK(mkdtemp(world->folder) != NULL);
}

/* A client of that world; `has_folder`: it keeps what it reads on the disk, too. */
static void client_open(struct world *world, const struct rg_step *const *scripts, bool has_folder)
{
    world->c = (struct rg_test_client){
        .scripts = scripts,
        .script_count = 1,
        .options = {.sharing = world->share,
                    .cache_memory = RG_MIB(64),
                    .cache = has_folder ? world->folder : NULL,
                    .cache_size = has_folder ? RG_MIB(64) : 0},
    };
    rg_test_client_open(&world->c);
}

static void world_end(struct world *world)
{
    folder_remove(world->share);
    folder_remove(world->folder);
}

static struct rg_completion get_of(struct world *world, const struct rg_get *get)
{
    struct rg_completion done = get_one(&world->c, get);
    RG_CHECK_STATUS(&done, OK);
    return done;
}

/* The get is answered as it should be, and this many requests are sent for it. */
static void check_get(struct world *world, const struct rg_get *get, uint64_t size,
                      uint32_t requests)
{
    uint32_t before = rg_scripted_server_requests(world->c.server);
    struct rg_completion done = get_of(world, get);
    RG_CHECK_BYTES(&done, get->offset, size);
    RG_CHECK_EQ(done.crc32c, rg_crc32c(0, done.data, size));
    RG_CHECK_EQ(done.generation, GENERATION);
    RG_CHECK(done.has_object_crc32c && !done.is_gzip);
    RG_CHECK(get->buf == NULL || done.data == get->buf);
    RG_CHECK_EQ(rg_scripted_server_requests(world->c.server) - before, requests);
    rg_lease_release(done.lease);
}

static void check_whole(uint64_t size)
{
    const struct rg_step script[] = {RG_READ, OBJECT(size), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    const struct rg_get get = {.generation = GENERATION};
    struct world world;
    world_make(&world);
    client_open(&world, scripts, false);
    check_get(&world, &get, size, 1);
    check_get(&world, &get, size, 0);
    struct rg_completion done = get_of(&world, &get);
    RG_CHECK_EQ(rg_lease_is_readonly(done.lease), size <= BLOCK);
    rg_lease_release(done.lease);
    uint8_t *own = malloc(size);
    check_get(&world, &(struct rg_get){.generation = GENERATION, .buf = own, .buf_size = size},
              size, 0);
    free(own);
    struct rg_stats stats = rg_test_stats(&world.c);
    RG_CHECK_EQ(stats.cache_hits, 3);
    RG_CHECK_EQ(stats.cache_memory_hits, 3 * ((size + BLOCK - 1) / BLOCK));
    RG_CHECK_EQ(stats.cache_misses, 1);
    rg_test_client_close(&world.c);
    world_end(&world);
}

static void test_a_whole_object_is_sent_once(void)
{
    static const uint64_t sizes[] = {1, SIZE, 300000, BLOCK, BLOCK + 1, LARGE};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        check_whole(sizes[i]);
    }
}

static void test_ranges(void)
{
    static const struct {
        uint64_t offset, length, size;
    } rows[] = {
        {0, 1, 1},
        {BLOCK - 1, 2, 2},
        {5, BLOCK, BLOCK},
        {2 * BLOCK + 65536, 65536, 65536},
        {BLOCK + 100, RG_WHOLE, LARGE - BLOCK - 100},
        {LARGE - 1, 50, 1},
    };
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct world world;
    world_make(&world);
    client_open(&world, scripts, false);
    check_get(&world, &(struct rg_get){.generation = GENERATION}, LARGE, 1);
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_get get = {
            .generation = GENERATION, .offset = rows[i].offset, .length = rows[i].length};
        check_get(&world, &get, rows[i].size, 0);
        RG_CHECK(!rg_cached_is_missing(world.c.client,
                                       &(struct rg_get){.bucket = "bucket",
                                                        .object = "object",
                                                        .generation = GENERATION,
                                                        .offset = rows[i].offset},
                                       rows[i].size));
    }
    RG_CHECK_EQ(rg_cached_refused(world.c.client), 0);
    rg_test_client_close(&world.c);
    /* A part that was read by range, and the rest. */
    client_open(&world, scripts, false);
    struct rg_get get = {.generation = GENERATION, .offset = 700000, .length = 900000};
    check_get(&world, &get, 900000, 1);
    check_get(&world, &get, 900000, 0);
    get.length = 1000000;
    check_get(&world, &get, 1000000, 1);
    check_get(&world, &get, 1000000, 0);
    rg_test_client_close(&world.c);
    world_end(&world);
}

/* An operation that begins many gets is told their ends one by one. */
static void test_many_ranges_of_one_operation(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(LARGE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    struct rg_range ranges[9];
    struct world world;
    world_make(&world);
    client_open(&world, scripts, false);
    check_get(&world, &(struct rg_get){.generation = GENERATION}, LARGE, 1);
    for (size_t i = 0; i < RG_ARRAY_LEN(ranges); i++) {
        ranges[i] = (struct rg_range){.offset = i * 300000, .length = 1000 + i};
    }
    const struct rg_get_ranges all = {.bucket = "bucket",
                                      .object = "object",
                                      .generation = GENERATION,
                                      .ranges = ranges,
                                      .count = RG_ARRAY_LEN(ranges)};
    for (unsigned round = 0; round < 3; round++) {
        RG_CHECK_EQ(rg_submit_get_ranges(world.c.client, world.c.cq, &all), 0);
        struct rg_completion done = rg_test_take(&world.c);
        RG_CHECK_STATUS(&done, OK);
        const struct rg_range_result *results = done.data;
        for (size_t i = 0; i < RG_ARRAY_LEN(ranges); i++) {
            RG_CHECK_EQ(results[i].size, ranges[i].length);
            RG_CHECK_EQ(rg_script_differs(results[i].data, ranges[i].offset, results[i].size),
                        results[i].size);
        }
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(rg_scripted_server_requests(world.c.server), 1);
    rg_test_client_close(&world.c);
    world_end(&world);
}

#define OTHER (GENERATION + 1)

static void test_the_newest_generation_is_asked_for(void)
{
    const struct rg_step script[] = {
        RG_READ,
        OBJECT(SIZE),
        RG_READ,
        RG_SEND("HTTP/1.1 304 Not Modified\r\n\r\n"),
        RG_READ,
        {.kind = RG_STEP_SEND_OBJECT,
         .size = SIZE / 2,
         .text = rg_test_object_fields(SIZE / 2, OTHER)},
        RG_READ,
        OBJECT(SIZE),
        RG_END,
    };
    const struct rg_step *const scripts[] = {script};
    struct world world;
    world_make(&world);
    client_open(&world, scripts, false);
    check_get(&world, &(struct rg_get){0}, SIZE, 1);
    check_get(&world, &(struct rg_get){0}, SIZE, 1);
    struct rg_completion done = get_of(&world, &(struct rg_get){0});
    RG_CHECK_EQ(done.generation, OTHER);
    RG_CHECK_BYTES(&done, 0, SIZE / 2);
    rg_lease_release(done.lease);
    /* The old one was forgotten, and is asked for by whoever names it. */
    check_get(&world, &(struct rg_get){.generation = GENERATION}, SIZE, 1);
    rg_test_client_close(&world.c);
    world_end(&world);
}

static void test_what_the_folder_has_comes_to_memory(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    const struct rg_get get = {.generation = GENERATION};
    struct world world;
    world_make(&world);
    client_open(&world, scripts, true);
    check_get(&world, &get, SIZE, 1);
    rg_cache_flush(world.c.client->cache);
    /* As if it were another process, which has nothing in memory. */
    const struct rg_cache_key key = {.origin = world.c.client->endpoint.authority,
                                     .bucket = "bucket",
                                     .object = "object",
                                     .generation = GENERATION};
    rg_memory_forget(world.c.client->memory, &key);
    check_get(&world, &get, SIZE, 0);
    RG_CHECK_EQ(rg_test_stats(&world.c).cache_memory_hits, 0);
    check_get(&world, &get, SIZE, 0);
    RG_CHECK_EQ(rg_test_stats(&world.c).cache_memory_hits, 1);
    rg_test_client_close(&world.c);
    world_end(&world);
}

static void test_a_lease_outlives_its_client(void)
{
    const struct rg_step script[] = {RG_READ, OBJECT(SIZE), RG_AGAIN};
    const struct rg_step *const scripts[] = {script};
    const struct rg_get get = {.generation = GENERATION};
    struct world world;
    world_make(&world);
    client_open(&world, scripts, false);
    check_get(&world, &get, SIZE, 1);
    struct rg_completion done = get_of(&world, &get);
    RG_CHECK(rg_lease_is_readonly(done.lease));
    rg_test_client_close(&world.c);
    RG_CHECK_BYTES(&done, 0, SIZE);
    rg_lease_release(done.lease);
    world_end(&world);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_whole_object_is_sent_once),
        RG_TEST(test_ranges),
        RG_TEST(test_many_ranges_of_one_operation),
        RG_TEST(test_the_newest_generation_is_asked_for),
        RG_TEST(test_what_the_folder_has_comes_to_memory),
        RG_TEST(test_a_lease_outlives_its_client),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
