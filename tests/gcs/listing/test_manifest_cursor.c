/* A cursor finds what rg_manifest_get finds, whichever way it goes. */
#include "gcs/listing/manifest.h"
#include "tests/support/manifest_file.h"
#include "tests/support/test.h"

#define COUNT 1000

static char name[RG_OBJECT_NAME_SIZE_MAX + 1];

static struct rg_manifest *manifest_make(uint64_t count)
{
    struct rg_manifest_writer *writer;
    struct rg_manifest *manifest;
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, NULL, "bucket"), 0);
    for (uint64_t i = 0; i < count; i++) {
        struct rg_object object = rg_test_manifest_object(i, name);
        RG_CHECK_EQ(rg_manifest_writer_add(writer, &object), 0);
    }
    RG_CHECK_EQ(rg_manifest_writer_finish(writer, &manifest), 0);
    return manifest;
}

static void check_entry(struct rg_manifest_cursor *cursor, uint64_t index)
{
    struct rg_object object, want = rg_test_manifest_object(index, name);
    RG_CHECK_EQ(rg_manifest_cursor_get(cursor, index, &object), 0);
    RG_CHECK_STR(object.name, name);
    RG_CHECK(object.size == want.size && object.generation == want.generation);
    RG_CHECK_EQ(object.has_crc32c, want.has_crc32c);
}

static void test_forwards_backwards_and_anywhere(void)
{
    struct rg_manifest *manifest = manifest_make(COUNT);
    struct rg_manifest_cursor *cursor;
    RG_CHECK_EQ(rg_manifest_cursor_open(&cursor, manifest), 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        check_entry(cursor, i);
        check_entry(cursor, i);
    }
    for (uint64_t i = COUNT; i-- > 0;) {
        check_entry(cursor, i);
    }
    for (uint64_t step = 1; step < 200; step++) {
        for (uint64_t i = step % 64; i < COUNT; i += step) {
            check_entry(cursor, i);
        }
    }
    for (unsigned i = 0; i < 20000; i++) {
        check_entry(cursor, rg_test_random_below(COUNT));
    }
    rg_manifest_cursor_close(cursor);
    rg_manifest_close(manifest);
}

static void test_beyond_the_end(void)
{
    struct rg_manifest *manifest = manifest_make(100), *empty = manifest_make(0);
    struct rg_manifest_cursor *cursor;
    struct rg_object object;
    RG_CHECK_EQ(rg_manifest_cursor_open(&cursor, manifest), 0);
    check_entry(cursor, 99);
    RG_CHECK_EQ(rg_manifest_cursor_get(cursor, 100, &object), -ERANGE);
    RG_CHECK_EQ(rg_manifest_cursor_get(cursor, UINT64_MAX, &object), -ERANGE);
    check_entry(cursor, 99);
    rg_manifest_cursor_close(cursor);
    RG_CHECK_EQ(rg_manifest_cursor_open(&cursor, empty), 0);
    RG_CHECK_EQ(rg_manifest_cursor_get(cursor, 0, &object), -ERANGE);
    rg_manifest_cursor_close(cursor);
    rg_manifest_cursor_close(NULL);
    rg_manifest_close(empty);
    rg_manifest_close(manifest);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_forwards_backwards_and_anywhere),
        RG_TEST(test_beyond_the_end),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
