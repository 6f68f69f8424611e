/* Written objects in memory: order, budget, versions. */
#include "emulator/store/model/clock.h"
#include "tests/emulator/store_case.h"

static void test_the_memory_budget_is_exact(void)
{
    char error[64], *data = calloc(1, 1 << 20);
    struct rg_store_object_info info;
    struct rg_store_object object;
    struct rg_store_options options = {.memory_max = 1 << 20};
    RG_CHECK_EQ(rg_store_open(&store, &options, error, sizeof(error)), 0);
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        RG_CHECK_EQ(put("bucket", name, data, 1 << 16, &info), i < 16 ? 0 : -ENOSPC);
    }
    /* An open object holds on to its bytes. */
    RG_CHECK_EQ(get("0", &object), 0);
    RG_CHECK_EQ(remove_object("0"), 0);
    RG_CHECK_EQ(put("bucket", "x", data, 1 << 16, &info), -ENOSPC);
    rg_store_object_close(&object);
    RG_CHECK_EQ(put("bucket", "x", data, 1 << 16, &info), 0);
    free(data);
    rg_store_close(store);
}

static void test_soft_deleted_versions_give_their_memory_back(void)
{
    char error[64], *data = calloc(1, 1 << 16);
    struct rg_store_object_info info;
    struct rg_bucket_info settings;
    struct rg_store_entry entry;
    struct rg_store_options options = {.memory_max = 3 << 16};
    RG_CHECK_EQ(rg_store_open(&store, &options, error, sizeof(error)), 0);
    RG_CHECK_EQ(put("bucket", "a", data, 1 << 16, &info), 0);
    struct rg_bucket *bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
    rg_bucket_get_info(bucket, &settings);
    settings.soft_delete_us = 1;
    RG_CHECK_EQ(rg_bucket_configure(bucket, &settings, 0), 0);
    for (int i = 0; i < 20; i++) { /* Two and the one that is being written are all that fit. */
        RG_CHECK_EQ(put("bucket", "a", data, 1 << 16, &info), 0);
        int64_t end = rg_store_now_us() + 1;
        while (rg_store_now_us() <= end) {
        }
        RG_CHECK_EQ(rg_bucket_seek_soft_deleted(bucket, rg_text_slice(""), 0, &entry), -ENOENT);
    }
    free(data);
    rg_store_close(store);
}

static void test_an_open_object_survives_overwrite_and_delete(void)
{
    struct rg_store_object old, new;
    const uint8_t *data;
    open_store(NULL, 0);
    put_text("o", "old");
    RG_CHECK_EQ(get("o", &old), 0);
    put_text("o", "newer");
    RG_CHECK_EQ(get("o", &new), 0);
    RG_CHECK_EQ(remove_object("o"), 0);
    RG_CHECK_EQ(rg_store_object_read(&old, 0, &data), 3);
    RG_CHECK_MEM(data, 3, "old", 3);
    RG_CHECK_EQ(rg_store_object_read(&new, 1, &data), 4);
    RG_CHECK_MEM(data, 4, "ewer", 4);
    rg_store_object_close(&old);
    rg_store_object_close(&new);
    rg_store_close(store);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_memory_budget_is_exact),
        RG_TEST(test_soft_deleted_versions_give_their_memory_back),
        RG_TEST(test_an_open_object_survives_overwrite_and_delete),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
