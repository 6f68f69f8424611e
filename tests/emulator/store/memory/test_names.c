/* Names in their order, whatever the order in which they come. */
#include "emulator/store/memory/names.h"
#include "tests/emulator/store_case.h"

static void test_names_in_random_order_come_back_sorted(void)
{
    enum { COUNT = 2000 };
    static bool present[COUNT];
    char name[16];
    open_store(NULL, 0);
    put_text("x", "");
    for (int i = 0; i < 3 * COUNT; i++) {
        size_t n = rg_test_random_below(COUNT);
        snprintf(name, sizeof(name), "%05zu", n);
        if (rg_test_random_below(3) == 0) {
            RG_CHECK_EQ(remove_object(name), present[n] ? 0 : -ENOENT);
            present[n] = false;
        } else {
            put_text(name, "1");
            present[n] = true;
        }
    }
    struct rg_bucket *bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
    for (size_t n = 0, next; n < COUNT; n++) {
        static struct rg_store_entry entry;
        for (next = n; next < COUNT && !present[next];) {
            next++;
        }
        snprintf(name, sizeof(name), "%05zu", n);
        RG_CHECK_EQ(rg_bucket_seek_object(bucket, rg_text_slice(name), &entry), 0);
        snprintf(name, sizeof(name), "%05zu", next);
        const char *want = next < COUNT ? name : "x";
        RG_CHECK_MEM(entry.name, entry.name_size, want, strlen(want));
    }
    memset(present, 0, sizeof(present));
    rg_store_close(store);
}

static struct rg_version *version_of(int64_t generation)
{
    const struct rg_store_object_info info = {.generation = generation};
    struct rg_version *version = rg_version_create(&info, NULL, 0);
    RG_CHECK(version != NULL);
    return version;
}

static void test_versions_of_a_name(void)
{
    struct rg_names names = {.random = 1};
    struct rg_store_fate kept = {.kept = true}, gone = {.kept = false};
    struct rg_h1_slice name = rg_text_slice("a");
    RG_CHECK(rg_names_get(&names, name, NULL) == NULL);
    RG_CHECK_EQ(rg_names_put(&names, name, version_of(1), &gone), 0);
    RG_CHECK_EQ(rg_names_put(&names, name, version_of(2), &kept), 0);
    RG_CHECK_EQ(rg_names_put(&names, name, version_of(3), &gone), 0); /* 2 is lost. */
    RG_CHECK_EQ(names.count, 1);
    struct rg_node *node = rg_names_get(&names, name, NULL);
    RG_CHECK(node != NULL && node == rg_names_find(&names, rg_text_slice(""), NULL));
    RG_CHECK_EQ((*rg_node_version(node, 0, false))->info.generation, 3);
    RG_CHECK_EQ((*rg_node_version(node, 1, false))->info.generation, 1);
    RG_CHECK(*rg_node_version(node, 2, false) == NULL);
    RG_CHECK(*rg_node_version(node, 1, true) == NULL);
    RG_CHECK_EQ(rg_node_next_version(node, 0, false)->info.generation, 1);
    RG_CHECK_EQ(rg_node_next_version(node, 1, false)->info.generation, 3);
    RG_CHECK(rg_node_next_version(node, 3, false) == NULL);
    rg_names_fini(&names);
}

static void test_a_name_without_versions_is_dropped(void)
{
    struct rg_names names = {.random = 1};
    struct rg_store_fate gone = {.kept = false};
    for (int i = 0; i < 100; i++) {
        char text[8];
        snprintf(text, sizeof(text), "%02d", i * 37 % 100);
        RG_CHECK_EQ(rg_names_put(&names, rg_text_slice(text), version_of(i + 1), &gone), 0);
    }
    struct rg_node *node = rg_names_get(&names, rg_text_slice("50"), NULL);
    rg_names_drop_empty(&names, node);
    RG_CHECK_EQ(names.count, 100);
    rg_version_unref(node->live);
    node->live = NULL;
    rg_names_drop_empty(&names, node);
    RG_CHECK_EQ(names.count, 99);
    RG_CHECK(rg_names_get(&names, rg_text_slice("50"), NULL) == NULL);
    RG_CHECK(rg_text_equals(rg_node_name(rg_names_find(&names, rg_text_slice("50"), NULL)), "51"));
    rg_names_fini(&names);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_names_in_random_order_come_back_sorted),
        RG_TEST(test_versions_of_a_name),
        RG_TEST(test_a_name_without_versions_is_dropped),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
