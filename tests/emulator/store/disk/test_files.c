/* Files that stay inside their folder and out of the way of each other. */
#include "emulator/store/disk/files.h"

#include "tests/emulator/disk_case.h"

#include <dirent.h>

static void test_an_object_and_a_folder_of_one_name_live_together(void)
{
    make_root();
    put("a", "file first");
    put("a/b", "inside");
    check("a", "file first");
    check("a/b", "inside");
    put("c/d", "inside");
    put("c", "file second");
    check("c", "file second");
    check("c/d", "inside");
    put("a", "overwritten");
    check("a", "overwritten");
    RG_CHECK_STR(list(), "a a/b c c/d ");
    reopen_store();
    check("a", "overwritten");
    RG_CHECK_EQ(remove_object("a/b"), 0);
    check("a", "overwritten");
    put("a", "plain again");
    check("a", "plain again");
    RG_CHECK(!exists("bucket/a%+"));
    RG_CHECK_EQ(remove_object("c"), 0);
    RG_CHECK_EQ(open_status("c"), -ENOENT);
    check("c/d", "inside");
    RG_CHECK_STR(list(), "a c/d ");
    remove_root();
}

static void test_dangerous_names_stay_inside_and_apart(void)
{
    static const char *const names[] = {
        "../escape",   "..",         "a/../../../escape",
        "/etc/passwd", "a//b",       "a/b",
        "a/",          "a",          "//",
        "/",           ".ringest/x", ".ringest",
        "%2E%2E/x",    "%-",         "a%+",
        "con\x01trol", "a/.",        "a/..",
    };
    make_root();
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        struct rg_h1_slice name = rg_text_slice(names[i]);
        if (rg_store_object_name_valid(name)) {
            put(names[i], names[i]);
        }
    }
    reopen_store();
    size_t size = 0;
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        struct rg_h1_slice name = rg_text_slice(names[i]);
        if (rg_store_object_name_valid(name)) {
            check(names[i], names[i]);
            size += name.size + 1;
        }
    }
    RG_CHECK_EQ(strlen(list()), size);
    /* Nothing but the bucket in the root. */
    DIR *dir = opendir(root);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        RG_CHECK(entry->d_name[0] == '.' || strcmp(entry->d_name, "bucket") == 0);
    }
    closedir(dir);
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        if (rg_store_object_name_valid(rg_text_slice(names[i]))) {
            RG_CHECK_EQ(remove_object(names[i]), 0);
        }
    }
    RG_CHECK_STR(list(), "");
    remove_root();
}

static void test_what_a_crash_left_is_cleared_at_the_start(void)
{
    make_root();
    put("o", "old");
    write_by_hand("bucket/.ringest/%t77", "half");
    reopen_store();
    check("o", "old");
    RG_CHECK(!exists("bucket/.ringest/%t77"));
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_object_and_a_folder_of_one_name_live_together),
        RG_TEST(test_dangerous_names_stay_inside_and_apart),
        RG_TEST(test_what_a_crash_left_is_cleared_at_the_start),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
