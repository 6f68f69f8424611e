/* A map against a plain array: what is put in, taken out by hash, and taken out by line. */
#include "cache/memory_map.h"

#include "tests/support/test.h"

#define HASHES 600
#define LINES 5

/* Hashes that meet in few places of the table. */
static uint64_t hash_of(unsigned i)
{
    return (uint64_t)(i % 7 + 1) + ((uint64_t)i << 32);
}

static void compare(const struct rg_memory_map *map, const struct rg_memory_slot *model)
{
    size_t count = 0;
    for (unsigned i = 0; i < HASHES; i++) {
        const struct rg_memory_slot *slot = rg_memory_map_find(map, hash_of(i));
        RG_CHECK_EQ(slot != NULL, model[i].hash != 0);
        RG_CHECK(slot == NULL || (slot->place == model[i].place && slot->line == model[i].line));
        count += slot != NULL;
    }
    RG_CHECK_EQ(map->count, count);
}

static void line_remove(struct rg_memory_map *map, struct rg_memory_slot *model, uint32_t line)
{
    rg_memory_map_remove_line(map, line);
    for (unsigned i = 0; i < HASHES; i++) {
        model[i].hash = model[i].line == line ? 0 : model[i].hash;
    }
}

static void test_it_is_what_an_array_is(void)
{
    struct rg_memory_map map = {.count = 0};
    struct rg_memory_slot model[HASHES] = {{.hash = 0}};
    for (unsigned step = 0; step < 20000; step++) {
        unsigned i = (unsigned)rg_test_random_below(HASHES);
        struct rg_memory_slot slot = {hash_of(i), step, (uint32_t)rg_test_random_below(LINES)};
        unsigned what = (unsigned)rg_test_random_below(1000);
        if (what == 0) {
            line_remove(&map, model, slot.line);
        } else if (what < 400) {
            rg_memory_map_remove(&map, hash_of(i));
            model[i].hash = 0;
        } else {
            rg_memory_map_insert(&map, &slot);
            model[i] = model[i].hash == 0 ? slot : model[i];
        }
        if (step % 500 == 0) {
            compare(&map, model);
        }
    }
    compare(&map, model);
    rg_memory_map_fini(&map);
    RG_CHECK(rg_memory_map_find(&map, 1) == NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {RG_TEST(test_it_is_what_an_array_is)};
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
