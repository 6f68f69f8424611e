/* Files in the making. */
#include "emulator/store/disk/writer.h"

#include "tests/emulator/disk_case.h"

static void test_an_aborted_write_leaves_nothing(void)
{
    struct rg_store_writer *writer;
    make_root();
    put("o", "old");
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice("o"), 0), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, "new", 3), 0);
    check("o", "old");
    rg_store_writer_abort(writer);
    check("o", "old");
    RG_CHECK(!exists("bucket/.ringest/%t1"));
    RG_CHECK_STR(list(), "o ");
    remove_root();
}

static void test_parts_are_joined(void)
{
    struct rg_store_object parts[2], whole;
    struct rg_store_writer *writer;
    struct rg_store_conditions none = {0};
    struct rg_store_object_info info = {.content_type = "a/b"};
    make_root();
    put("x", "object ");
    for (size_t i = 0; i < 2; i++) {
        RG_CHECK_EQ(
            rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice("o"), 0),
            0);
        RG_CHECK_EQ(rg_store_writer_append(writer, i == 0 ? "part " : "end", i == 0 ? 5 : 3), 0);
        RG_CHECK_EQ(rg_store_writer_seal(writer, &parts[i]), 0);
    }
    RG_CHECK_EQ(rg_bucket_open_object(bucket(), rg_text_slice("x"), &whole), 0);
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice("o"), 0), 0);
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &parts[0]), 0);
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &whole), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, "bytes ", 6), 0);
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &parts[1]), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), 0);
    rg_store_object_close(&parts[0]);
    rg_store_object_close(&parts[1]);
    rg_store_object_close(&whole);
    check("o", "part object bytes end");
    RG_CHECK(!exists("bucket/.ringest/%t1")); /* What they were in is gone. */
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_aborted_write_leaves_nothing),
        RG_TEST(test_parts_are_joined),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
