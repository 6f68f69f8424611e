/* What is known of a bucket survives a restart. */
#include "emulator/store/disk/description.h"

#include "tests/emulator/disk_case.h"

static void test_the_settings_of_a_bucket_survive_a_restart(void)
{
    struct rg_bucket_settings *settings;
    struct rg_bucket_info info;
    make_root();
    put("a", "x");
    RG_CHECK_EQ(rg_bucket_settings_create(&settings, rg_text_slice("{\"labels\":{\"a b\":\"c\"}}")),
                0);
    rg_bucket_get_info(bucket(), &info);
    info.settings = settings;
    info.requester_pays = info.no_public_access = info.holds_by_default = true;
    info.retention_us = 7;
    info.retention_locked = true;
    RG_CHECK_EQ(rg_bucket_configure(bucket(), &info, 0), 0);
    rg_bucket_settings_unref(settings);
    reopen_store();
    rg_bucket_get_info(bucket(), &info);
    RG_CHECK(info.requester_pays && info.no_public_access && info.holds_by_default);
    RG_CHECK(info.retention_locked && rg_bucket_requester_pays(bucket()));
    RG_CHECK_EQ(info.retention_us, 7);
    settings = rg_bucket_get_settings(bucket());
    RG_CHECK(rg_text_equals(rg_bucket_settings_json(settings), "{\"labels\":{\"a b\":\"c\"}}"));
    rg_bucket_settings_unref(settings);
    remove_root();
}

static void test_a_bucket_is_described_and_removed(void)
{
    struct rg_bucket_info info;
    make_root();
    put("a", "x");
    enable_versioning();
    reopen_store();
    rg_bucket_get_info(bucket(), &info);
    RG_CHECK(info.versioning);
    RG_CHECK_EQ(info.metageneration, 2);
    RG_CHECK_STR(info.location, "US");
    RG_CHECK_EQ(remove_object("a"), 0);
    RG_CHECK_EQ(rg_store_remove_bucket(store, rg_text_slice("bucket")), -ENOTEMPTY);
    struct rg_store_entry entry;
    RG_CHECK_EQ(rg_bucket_seek_version(bucket(), rg_text_slice(""), 0, &entry), 0);
    struct rg_store_conditions conditions = {.generation = {true, entry.info.generation}};
    RG_CHECK_EQ(rg_bucket_remove_object(bucket(), rg_text_slice("a"), &conditions), 0);
    RG_CHECK_EQ(rg_store_remove_bucket(store, rg_text_slice("bucket")), 0);
    RG_CHECK(!exists("bucket"));
    RG_CHECK_EQ(rg_store_remove_bucket(store, rg_text_slice("bucket")), -ENOENT);
    put("a", "again");
    check("a", "again");
    rg_bucket_get_info(bucket(), &info);
    RG_CHECK(!info.versioning);
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_settings_of_a_bucket_survive_a_restart),
        RG_TEST(test_a_bucket_is_described_and_removed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
