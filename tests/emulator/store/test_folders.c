/* The table of folders and its log: restarts, kills in the middle of a change, renames on disk. */
#include "emulator/store/folders.h"

#include "tests/emulator/store/folders_case.h"

static int create(const char *name)
{
    struct rg_folder_info info;
    return rg_bucket_create_folder(bucket, rg_text_slice(name), false, &info);
}

static int remove_folder(const char *name)
{
    struct rg_store_conditions none = {0};
    return rg_bucket_remove_folder(bucket, rg_text_slice(name), &none);
}

static void test_folders_survive_a_restart(void)
{
    struct rg_folder_info before, after;
    begin();
    RG_CHECK_EQ(create("a/"), 0);
    RG_CHECK_EQ(create("a/b c%\xc3\xa4/"), 0);
    RG_CHECK_EQ(create("gone/"), 0);
    RG_CHECK_EQ(create("old/"), 0);
    put("x/y/o", "o");
    RG_CHECK_EQ(remove_folder("gone/"), 0);
    RG_CHECK_EQ(rename_folder("old/", "a/new/"), 0);
    RG_CHECK_EQ(rg_bucket_get_folder(bucket, rg_text_slice("a/new/"), &before), 0);
    const char *want = "a/ a/b c%\xc3\xa4/ a/new/ x/ x/y/ ";
    RG_CHECK_STR(list(), want);
    for (int i = 0; i < 2; i++) {
        restart();
        RG_CHECK_STR(list(), want);
        RG_CHECK_EQ(rg_bucket_get_folder(bucket, rg_text_slice("a/new/"), &after), 0);
        RG_CHECK_EQ(after.created_us, before.created_us);
        RG_CHECK_EQ(after.updated_us, before.updated_us);
        RG_CHECK_EQ(after.metageneration, 2);
    }
    RG_CHECK_EQ(create("a/"), -EEXIST);
    RG_CHECK_EQ(create("none/b/"), -ENOTDIR);
    remove_root();
}

static void test_a_line_that_is_not_complete_is_forgotten(void)
{
    begin();
    RG_CHECK_EQ(create("a/"), 0);
    append_to_log("folder 1 1 1 b");
    restart();
    RG_CHECK_STR(list(), "a/ ");
    RG_CHECK_EQ(create("c/"), 0);
    restart();
    RG_CHECK_STR(list(), "a/ c/ ");
    remove_root();
}

static void test_the_log_is_shortened(void)
{
    struct stat status;
    begin();
    for (int i = 0; i < 5000; i++) {
        RG_CHECK_EQ(create("folder/"), 0);
        RG_CHECK_EQ(remove_folder("folder/"), 0);
    }
    RG_CHECK_EQ(stat(log_path(), &status), 0);
    RG_CHECK(status.st_size < 100000); /* more than 300,000 were written */
    RG_CHECK_EQ(create("kept/"), 0);
    restart();
    RG_CHECK_STR(list(), "kept/ ");
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_folders_survive_a_restart),
        RG_TEST(test_a_line_that_is_not_complete_is_forgotten),
        RG_TEST(test_the_log_is_shortened),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
