/* Whether a cache has what a get would ask for, by the index alone. */
#include "gcs/request/cached_look.h"

#include "cache/cache.h"
#include "gcs/request/client_loop.h"
#include "tests/gcs/object/get_case.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK RG_CACHE_BLOCK_SIZE

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

static bool is_missing(const struct rg_test_client *c, uint64_t at, uint64_t size)
{
    struct rg_get get = {.bucket = "bucket",
                         .object = "object",
                         .generation = GENERATION,
                         .offset = at,
                         .length = size};
    return rg_cached_is_missing(c->client, &get, size);
}

static void block_write(const struct rg_test_client *c, uint64_t block, size_t size)
{
    static uint8_t body[BLOCK];
    const struct rg_cache_key key = {.origin = c->client->endpoint.authority,
                                     .bucket = "bucket",
                                     .object = "object",
                                     .generation = GENERATION,
                                     .block = block};
    const struct rg_cache_record record = {.object_size = 3 * BLOCK};
    RG_CHECK(rg_cache_write(c->client->cache, &key, &record, body, size));
}

static void client_open(struct rg_test_client *c, char folder[RG_TEST_PATH_SIZE])
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, RG_TEST_PATH_SIZE, "%s/ringest-look-XXXXXX", base != NULL ? base : "/tmp");
    RG_CHECK(mkdtemp(folder) != NULL);
    *c = (struct rg_test_client){.options = {.cache = folder, .cache_size = RG_MIB(64)}};
    rg_test_client_open(c);
}

static void test_blocks_and_parts_of_one_object(void)
{
    char folder[RG_TEST_PATH_SIZE];
    struct rg_test_client c;
    client_open(&c, folder);
    RG_CHECK_EQ(rg_cached_refused(c.client), 0);
    RG_CHECK(is_missing(&c, 0, 3 * BLOCK));
    block_write(&c, 0, BLOCK);
    block_write(&c, 2, BLOCK);
    block_write(&c, RG_CACHE_PART | (BLOCK + 100), 1000);
    rg_cache_flush(c.client->cache);
    RG_CHECK(!is_missing(&c, 0, BLOCK));
    RG_CHECK(!is_missing(&c, 5, 10));
    RG_CHECK(is_missing(&c, 0, BLOCK + 1));
    RG_CHECK(!is_missing(&c, BLOCK + 100, 1000));
    RG_CHECK(!is_missing(&c, BLOCK + 500, 400));
    RG_CHECK(is_missing(&c, BLOCK + 100, BLOCK));
    RG_CHECK(is_missing(&c, BLOCK + 99, 10));
    RG_CHECK(!is_missing(&c, 2 * BLOCK, 0));
    struct rg_get newest = {.bucket = "bucket", .object = "object", .length = RG_WHOLE};
    RG_CHECK(!rg_cached_is_missing(c.client, &newest, BLOCK));
    rg_test_client_close(&c);
    folder_remove(folder);
}

/* Whoever asks for more than the object has is told so, however often the last block is found. */
static void test_bytes_behind_the_last_block_are_missing(void)
{
    char folder[RG_TEST_PATH_SIZE];
    struct rg_test_client c;
    client_open(&c, folder);
    block_write(&c, 2, 1000);
    block_write(&c, RG_CACHE_PART | 100, 1000);
    rg_cache_flush(c.client->cache);
    RG_CHECK(!is_missing(&c, 2 * BLOCK, 1000));
    RG_CHECK(is_missing(&c, 2 * BLOCK, 5000));
    RG_CHECK(is_missing(&c, 2 * BLOCK + 5000, 10));
    RG_CHECK(is_missing(&c, 100, 5000));
    rg_test_client_close(&c);
    folder_remove(folder);
}

static void test_a_client_without_a_cache(void)
{
    struct rg_test_client c = {0};
    rg_test_client_open(&c);
    RG_CHECK_EQ(rg_cached_refused(c.client), UINT64_MAX);
    RG_CHECK(!is_missing(&c, 0, 1));
    rg_test_client_close(&c);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_blocks_and_parts_of_one_object),
        RG_TEST(test_bytes_behind_the_last_block_are_missing),
        RG_TEST(test_a_client_without_a_cache),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
