/* Which bytes of an object are there, by an index that nobody else has. */
#include "cache/extent.h"

#include "tests/support/test.h"

#include <string.h>

#define BLOCK RG_CACHE_BLOCK_SIZE

struct world {
    struct rg_cache_index *index;
    struct rg_cache_key key;
    struct rg_cache_key_sizes sizes;
    uint32_t number, place;
};

static void world_open(struct world *world)
{
    char why[256];
    struct rg_cache_nonce nonce = {{7}};
    *world = (struct world){.key = {.origin = "o", .bucket = "b", .object = "n", .generation = 5}};
    RG_CHECK_EQ(rg_cache_index_open(&world->index, NULL, 1, why, sizeof(why)), 0);
    RG_CHECK(rg_cache_key_measure(&world->key, &world->sizes));
    world->number = rg_cache_index_number(world->index, &nonce);
    world->place = 64;
}

/* As a record and its notes come into the index. */
static void put(struct world *world, uint64_t block, size_t size)
{
    struct rg_cache_content notes[RG_CACHE_GRANULES];
    struct rg_cache_key key = world->key;
    key.block = block;
    struct rg_cache_content record = {
        .hash = rg_cache_key_hash(&key, &world->sizes),
        .place = world->place++,
        .size = (uint32_t)(rg_cache_header_size(&world->sizes, size) + size),
    };
    rg_cache_index_insert(world->index, world->number, &record);
    uint32_t count = rg_cache_extent_notes(&key, &world->sizes, size, notes);
    RG_CHECK((block & RG_CACHE_PART) != 0 || count == 0);
    for (uint32_t i = 0; i < count; i++) {
        rg_cache_index_insert(world->index, world->number, &notes[i]);
    }
}

static void put_part(struct world *world, uint64_t begin, size_t size)
{
    put(world, RG_CACHE_PART | begin, size);
}

/* The byte is there, in a record that begins and ends so. */
static void check_there(struct world *world, uint64_t at, uint64_t begin, uint64_t end)
{
    struct rg_cache_extent extent;
    RG_CHECK(rg_cache_extent_find(world->index, &world->key, &world->sizes, at, RG_CACHE_BY_ANY,
                                  &extent));
    RG_CHECK_EQ(extent.begin, begin);
    RG_CHECK(extent.end >= end && extent.end < end + 2 * RG_CACHE_UNIT);
    RG_CHECK(extent.begin / BLOCK == (extent.end - 1) / BLOCK);
    struct rg_cache_key key = world->key;
    key.block = extent.block;
    RG_CHECK_EQ(rg_cache_key_first(&key), begin);
}

static void check_missing(struct world *world, uint64_t at)
{
    struct rg_cache_extent extent;
    RG_CHECK(!rg_cache_extent_find(world->index, &world->key, &world->sizes, at, RG_CACHE_BY_ANY,
                                   &extent));
}

static void test_blocks(void)
{
    struct world world;
    struct rg_cache_extent extent;
    world_open(&world);
    put(&world, 0, BLOCK);
    put(&world, 2, 1000);
    check_there(&world, 0, 0, BLOCK);
    check_there(&world, BLOCK - 1, 0, BLOCK);
    check_missing(&world, BLOCK);
    check_there(&world, 2 * BLOCK + 999, 2 * BLOCK, 2 * BLOCK + 1000);
    RG_CHECK(!rg_cache_extent_find(world.index, &world.key, &world.sizes, 5,
                                   RG_CACHE_BY_BEGIN | RG_CACHE_BY_NOTE, &extent));
    world.key.generation++;
    check_missing(&world, 0);
    rg_cache_index_close(world.index);
}

static void test_parts_of_any_size(void)
{
    static const size_t sizes[] = {1, 63, 64, 1000, 65535, 65536, 65537, 262144, 262145, 900000};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        struct world world;
        uint64_t begin = 3 * BLOCK + 12345, end = begin + sizes[i];
        world_open(&world);
        put_part(&world, begin, sizes[i]);
        check_there(&world, begin, begin, end);
        check_missing(&world, begin - 1);
        check_missing(&world, end);
        check_missing(&world, begin - BLOCK);
        for (uint64_t at = begin; at < begin + sizes[i] / 64 * 64; at += 1 + sizes[i] / 100) {
            check_there(&world, at, begin, end);
        }
        rg_cache_index_close(world.index);
    }
}

/* One takes the notes of the granules that both have bytes of. */
static void test_parts_that_share_granules(void)
{
    struct world world;
    world_open(&world);
    for (uint64_t i = 0; i < 10; i++) {
        put_part(&world, i * 102400, 102400);
    }
    for (uint64_t at = 0; at < 10 * 102400; at += 777) {
        uint64_t begin = at / 102400 * 102400;
        check_there(&world, at, begin, begin + 102400);
    }
    check_missing(&world, 10 * 102400);
    rg_cache_index_close(world.index);
}

static void test_the_note_of_a_part_that_is_gone(void)
{
    struct world world;
    world_open(&world);
    put_part(&world, 1000, 5000);
    struct rg_cache_key key = world.key;
    key.block = RG_CACHE_PART | 1000;
    rg_cache_index_forget(world.index, rg_cache_key_hash(&key, &world.sizes));
    check_missing(&world, 1000);
    check_missing(&world, 2000);
    rg_cache_index_close(world.index);
}

static void test_the_newest_generation(void)
{
    static const int64_t generations[] = {1, INT64_C(1) << 34, 1700000000000001, INT64_MAX};
    struct world world;
    struct rg_cache_content notes[2];
    world_open(&world);
    RG_CHECK_EQ(rg_cache_newest_find(world.index, &world.key, &world.sizes), 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(generations); i++) {
        world.key.generation = generations[i];
        rg_cache_newest_notes(&world.key, &world.sizes, notes);
        for (unsigned half = 0; half < 2; half++) {
            rg_cache_index_insert(world.index, world.number, &notes[half]);
        }
        world.key.generation = 1;
        RG_CHECK_EQ(rg_cache_newest_find(world.index, &world.key, &world.sizes), generations[i]);
    }
    world.key.object = "m";
    RG_CHECK_EQ(rg_cache_newest_find(world.index, &world.key, &world.sizes), 0);
    rg_cache_index_close(world.index);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_blocks),
        RG_TEST(test_parts_of_any_size),
        RG_TEST(test_parts_that_share_granules),
        RG_TEST(test_the_note_of_a_part_that_is_gone),
        RG_TEST(test_the_newest_generation),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
