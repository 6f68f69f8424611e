/* Buckets on disk as a whole: restarts, and the tree that a user sees. */
#include "emulator/store/disk/disk.h"

#include "tests/emulator/disk_case.h"

static void test_everything_survives_a_restart(void)
{
    make_root();
    struct rg_store_object_info before = put("dir/a", "hello");
    reopen_store();
    struct rg_store_object_info after = check("dir/a", "hello");
    RG_CHECK_EQ(after.generation, before.generation);
    RG_CHECK_EQ(after.updated_us, before.generation);
    RG_CHECK_EQ(after.metageneration, 1);
    RG_CHECK_STR(after.content_type, "text/x y");
    RG_CHECK_STR(after.content_encoding, "gzip");
    RG_CHECK_STR(after.md5, "jXd/OF09/siBXSD3SWAm3A==");
    struct rg_store_object_info next = put("dir/a", "again");
    RG_CHECK(next.generation > before.generation);
    remove_root();
}

static void test_the_tree_is_what_a_user_expects(void)
{
    make_root();
    put("dir/sub/file.txt", "x");
    RG_CHECK(exists("bucket/dir/sub/file.txt"));
    RG_CHECK_EQ(remove_object("dir/sub/file.txt"), 0);
    RG_CHECK(!exists("bucket/dir"));
    RG_CHECK(!exists("bucket/.ringest/dir"));
    RG_CHECK_EQ(remove_object("dir/sub/file.txt"), -ENOENT);
    remove_root();
}

static void test_the_longest_names(void)
{
    char name[RG_STORE_NAME_SIZE_MAX];
    make_root();
    for (size_t i = 0; i < 3; i++) {
        memset(name, "x/\x01"[i], sizeof(name));
        struct rg_h1_slice slice = {name, sizeof(name)};
        put_slice(slice, "long");
        check_object(slice, "long");
    }
    remove_root();
}

static void test_a_root_that_is_not_there_is_named(void)
{
    struct rg_store *none;
    char error[256];
    struct rg_store_options options = {.root = "/nowhere/at/all"};
    RG_CHECK_EQ(rg_store_open(&none, &options, error, sizeof(error)), -ENOENT);
    RG_CHECK(strstr(error, "--root '/nowhere/at/all'") != NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_everything_survives_a_restart),
        RG_TEST(test_the_tree_is_what_a_user_expects),
        RG_TEST(test_the_longest_names),
        RG_TEST(test_a_root_that_is_not_there_is_named),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
