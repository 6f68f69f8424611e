/* Versions whose bytes lie in several places. */
#include "emulator/store/memory/version.h"

#include "tests/support/test.h"

static struct rg_segment *segment_of(struct rg_memory_budget *budget, const char *text)
{
    struct rg_segment *segment;
    RG_CHECK_EQ(rg_segment_create(&segment, budget, strlen(text)), 0);
    memcpy(segment->data, text, strlen(text));
    segment->size = strlen(text);
    return segment;
}

static void test_pieces_are_read_from_any_offset(void)
{
    static const char want[] = "abcdeab";
    struct rg_memory_budget budget = {.max = 100};
    struct rg_segment *first = segment_of(&budget, "ab"), *second = segment_of(&budget, "cde");
    const struct rg_piece pieces[] = {{first, 2}, {second, 5}, {first, 7}};
    const struct rg_store_object_info info = {.size = 7, .generation = 1};
    struct rg_version *version = rg_version_create(&info, pieces, RG_ARRAY_LEN(pieces));
    struct rg_store_object object;
    RG_CHECK(version != NULL);
    rg_segment_unref(first);
    rg_segment_unref(second);
    rg_version_open(version, &object);
    for (uint64_t offset = 0; offset < 7; offset++) {
        const uint8_t *data;
        size_t size = rg_store_object_read(&object, offset, &data);
        RG_CHECK_EQ(offset + size, offset < 2 ? 2 : offset < 5 ? 5 : 7);
        RG_CHECK(memcmp(data, want + offset, size) == 0);
    }
    RG_CHECK_EQ(budget.used, 5);
    rg_store_object_close(&object);
    RG_CHECK_EQ(budget.used, 0);
}

static void test_an_open_object_keeps_its_version(void)
{
    struct rg_memory_budget budget = {.max = 100};
    struct rg_segment *segment = segment_of(&budget, "abc");
    const struct rg_piece piece = {segment, 3};
    const struct rg_store_object_info info = {.size = 3, .generation = 1};
    struct rg_version *version = rg_version_create(&info, &piece, 1);
    struct rg_store_object object;
    rg_segment_unref(segment);
    rg_version_open(rg_version_ref(version), &object);
    rg_version_unref(version);
    RG_CHECK_EQ(budget.used, 3);
    rg_store_object_close(&object);
    RG_CHECK_EQ(budget.used, 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_pieces_are_read_from_any_offset),
        RG_TEST(test_an_open_object_keeps_its_version),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
