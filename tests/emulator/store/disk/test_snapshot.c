/* Which names a listing finds. */
#include "emulator/store/disk/snapshot.h"

#include "tests/emulator/disk_case.h"

static void test_what_is_no_object_is_not_listed(void)
{
    make_root();
    put("o", "x");
    write_by_hand("bucket/100%", "not a path of ours");
    write_by_hand("bucket/\xff", "not UTF-8");
    RG_CHECK_EQ(mkfifo(path_of("bucket/fifo"), 0600), 0);
    RG_CHECK_EQ(symlink(".", path_of("bucket/loop")), 0);
    RG_CHECK_EQ(open_status("fifo"), -ENOENT);
    RG_CHECK_EQ(open_status("100%"), -ENOENT);
    RG_CHECK(strncmp(list(), "loop/loop", 9) == 0 || strstr(list(), "o ") != NULL);
    remove_root();
}

static void test_a_listing_sees_every_write_at_once(void)
{
    make_root();
    put("b", "x");
    RG_CHECK_STR(list(), "b ");
    put("a", "x");
    RG_CHECK_STR(list(), "a b ");
    RG_CHECK_EQ(remove_object("b"), 0);
    put("c", "x");
    RG_CHECK_STR(list(), "a c ");
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_is_no_object_is_not_listed),
        RG_TEST(test_a_listing_sees_every_write_at_once),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
