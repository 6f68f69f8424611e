/* Versions that are replaced or removed, and stay for a while. */
#include "emulator/store/disk/retire.h"

#include "emulator/store/model/clock.h"
#include "tests/emulator/disk_case.h"

#include <inttypes.h>

static void check_version(const char *name, int64_t generation, const char *text)
{
    struct rg_store_object object;
    const uint8_t *data;
    RG_CHECK_EQ(rg_bucket_open_version(bucket(), rg_text_slice(name), generation, &object), 0);
    size_t size = rg_store_object_read(&object, 0, &data);
    RG_CHECK_MEM(data, size, text, strlen(text));
    RG_CHECK_EQ(object.info.generation, generation);
    rg_store_object_close(&object);
}

static void test_versions_are_kept(void)
{
    make_root();
    put("a", "plain");
    enable_versioning();
    int64_t first = put("a", "1").generation;
    int64_t second = put("a", "22").generation;
    put("a/b", "333"); /* "a" is put aside for the folder. */
    put("c", "4444");
    RG_CHECK_STR(list_versions(), "a:5! a:1! a:2 a/b:3 c:4 ");
    RG_CHECK_EQ(remove_object("a"), 0);
    RG_CHECK_EQ(remove_object("c"), 0);
    for (int i = 0; i < 2; i++) {
        RG_CHECK_STR(list(), "a/b ");
        RG_CHECK_STR(list_versions(), "a:5! a:1! a:2! a/b:3 c:4! ");
        check_version("a", first, "1");
        check_version("a", second, "22");
        RG_CHECK_EQ(open_status("a"), -ENOENT);
        reopen_store();
    }
    put("a", "55555555");
    struct rg_store_conditions conditions = {.generation = {true, first}};
    RG_CHECK_EQ(rg_bucket_remove_object(bucket(), rg_text_slice("a"), &conditions), 0);
    RG_CHECK_STR(list_versions(), "a:5! a:2! a:8 a/b:3 c:4! ");
    RG_CHECK_EQ(rg_bucket_remove_object(bucket(), rg_text_slice("a"), &conditions), -ENOENT);
    remove_root();
}

#define WEEK_US INT64_C(604800000000)

static void soft_delete_for(int64_t time_us)
{
    struct rg_bucket_info info;
    rg_bucket_get_info(bucket(), &info);
    info.soft_delete_us = time_us;
    RG_CHECK_EQ(rg_bucket_configure(bucket(), &info, 0), 0);
}

/* "name:size" of each. */
static const char *list_soft_deleted(void)
{
    static char names[4096];
    struct rg_store_entry entry;
    char from[RG_STORE_NAME_SIZE_MAX];
    uint32_t from_size = 0;
    int64_t after = 0;
    names[0] = '\0';
    while (rg_bucket_seek_soft_deleted(bucket(), (struct rg_h1_slice){from, from_size}, after,
                                       &entry) == 0) {
        RG_CHECK_EQ(entry.info.hard_delete_us - entry.info.soft_deleted_us, WEEK_US);
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s:%d ",
                 (int)entry.name_size, entry.name, (int)entry.info.size);
        memcpy(from, entry.name, entry.name_size);
        from_size = entry.name_size;
        after = entry.info.generation;
    }
    return names;
}

static void test_soft_deleted_versions_survive_a_restart(void)
{
    struct rg_store_object object;
    make_root();
    put("b", "x");
    soft_delete_for(WEEK_US);
    RG_CHECK_EQ(mkdir(path_of("bucket/sub"), 0755), 0);
    write_by_hand("bucket/sub/hand", "by hand");
    int64_t first = put("a", "1").generation;
    put("a", "22");
    RG_CHECK_EQ(remove_object("a"), 0);
    RG_CHECK_EQ(remove_object("sub/hand"), 0);
    for (int i = 0; i < 2; i++) {
        RG_CHECK_STR(list(), "b ");
        RG_CHECK_STR(list_versions(), "b:1 ");
        RG_CHECK_STR(list_soft_deleted(), "a:1 a:2 sub/hand:7 ");
        RG_CHECK_EQ(rg_bucket_open_version(bucket(), rg_text_slice("a"), first, &object), -ENOENT);
        RG_CHECK_EQ(rg_bucket_open_soft_deleted(bucket(), rg_text_slice("a"), first, &object), 0);
        RG_CHECK_STR(object.info.content_type, "text/x y");
        rg_store_object_close(&object);
        reopen_store();
    }
    put("a", "333");
    RG_CHECK_STR(list_soft_deleted(), "a:1 a:2 sub/hand:7 ");
    /* A process that died before it removed what it had made ready for that. */
    int64_t live = put("c", "4444").generation;
    char from[512], name[64];
    snprintf(from, sizeof(from), "%s", path_of("bucket/c"));
    snprintf(name, sizeof(name), "bucket/.ringest/c%%v%" PRId64, live);
    RG_CHECK_EQ(link(from, path_of(name)), 0);
    snprintf(name, sizeof(name), "bucket/.ringest/c%%g%" PRId64, live);
    write_by_hand(name, "crc32c 00000000\nsize 4\nsoft-deleted 1\nhard-delete 2\n");
    reopen_store();
    RG_CHECK_STR(list_soft_deleted(), "a:1 a:2 sub/hand:7 ");
    RG_CHECK_STR(list(), "a b c ");
    remove_root();
}

static void test_soft_deleted_versions_end(void)
{
    char name[64];
    make_root();
    put("a", "1");
    soft_delete_for(1);
    int64_t generation = put("a", "22").generation;
    RG_CHECK_EQ(remove_object("a"), 0);
    int64_t end = rg_store_now_us() + 1;
    while (rg_store_now_us() <= end) {
    }
    reopen_store();
    snprintf(name, sizeof(name), "bucket/.ringest/a%%v%" PRId64, generation);
    RG_CHECK(exists(name));
    RG_CHECK_STR(list_soft_deleted(), "");
    RG_CHECK(!exists(name)); /* Its file goes when somebody looks. */
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_versions_are_kept),
        RG_TEST(test_soft_deleted_versions_survive_a_restart),
        RG_TEST(test_soft_deleted_versions_end),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
