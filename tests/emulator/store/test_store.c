/* Buckets by name: made once, listed in their order, removed when they are empty. */
#include "emulator/store/store.h"

#include "emulator/store/writer.h"
#include "tests/emulator/store_case.h"

static void test_generations_grow_over_all_buckets(void)
{
    int64_t last = 0;
    open_store(NULL, 0);
    for (int i = 0; i < 1000; i++) {
        struct rg_store_object_info info;
        RG_CHECK_EQ(put(i % 3 != 0 ? "bucket" : "other", "o", "x", 1, &info), 0);
        RG_CHECK(info.generation > last);
        last = info.generation;
    }
    rg_store_close(store);
}

static void test_a_bucket_is_made_once(void)
{
    struct rg_bucket *first, *again;
    struct rg_h1_slice name = rg_text_slice("bucket");
    open_store(NULL, 0);
    RG_CHECK(rg_store_find_bucket(store, name) == NULL);
    RG_CHECK_EQ(rg_store_create_bucket(store, name, &first), 0);
    RG_CHECK_EQ(rg_store_create_bucket(store, name, &again), -EEXIST);
    RG_CHECK(first == again);
    RG_CHECK(rg_store_find_bucket(store, name) == first);
    RG_CHECK(rg_store_find_bucket(store, rg_text_slice("no bucket")) == NULL);
    rg_store_close(store);
}

static void test_strict_buckets_are_made_by_no_object(void)
{
    static const char *const names[] = {"made", "made"};
    static const char *const bad[] = {"no bucket"};
    struct rg_store_options options = {
        .buckets = names, .bucket_count = RG_ARRAY_LEN(names), .strict_buckets = true};
    char error[256];
    RG_CHECK_EQ(rg_store_open(&store, &options, error, sizeof(error)), 0);
    RG_CHECK(rg_store_find_bucket(store, rg_text_slice("made")) != NULL);
    struct rg_store_object_info info;
    RG_CHECK_EQ(put("made", "o", "x", 1, &info), 0);
    RG_CHECK_EQ(put("typo", "o", "x", 1, &info), -ENOENT);
    RG_CHECK(rg_store_find_bucket(store, rg_text_slice("typo")) == NULL);
    rg_store_close(store);
    options.buckets = bad;
    options.bucket_count = 1;
    RG_CHECK_EQ(rg_store_open(&store, &options, error, sizeof(error)), -EINVAL);
    RG_CHECK(strstr(error, "--bucket 'no bucket': ") == error);
}

static void test_buckets_are_listed_in_their_order(void)
{
    static const char *const names[] = {"mmm", "zzz", "aaa", "bbb"};
    static const char *const sorted[] = {"aaa", "bbb", "mmm", "zzz"};
    struct rg_bucket *bucket;
    char from[8] = "";
    open_store(NULL, 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        RG_CHECK_EQ(rg_store_create_bucket(store, rg_text_slice(names[i]), &bucket), 0);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(sorted); i++) {
        bucket = rg_store_seek_bucket(store, rg_text_slice(from));
        RG_CHECK(bucket != NULL && rg_text_equals(rg_bucket_name(bucket), sorted[i]));
        snprintf(from, sizeof(from), "%s0", sorted[i]);
    }
    RG_CHECK(rg_store_seek_bucket(store, rg_text_slice(from)) == NULL);
    rg_store_close(store);
}

static void test_a_bucket_is_removed_when_it_is_empty(void)
{
    struct rg_bucket *bucket, *next;
    struct rg_h1_slice name = rg_text_slice("bucket");
    open_store(NULL, 0);
    RG_CHECK_EQ(rg_store_remove_bucket(store, name), -ENOENT);
    put_text("o", "text");
    bucket = rg_store_find_bucket(store, name);
    RG_CHECK_EQ(rg_store_remove_bucket(store, name), -ENOTEMPTY);
    RG_CHECK_EQ(remove_object("o"), 0);
    RG_CHECK_EQ(rg_store_remove_bucket(store, name), 0);
    RG_CHECK(rg_store_find_bucket(store, name) == NULL);
    /* Who still has the old one finds that it is gone; another one of its name is a new one. */
    RG_CHECK_EQ(rg_store_create_bucket(store, name, &next), 0);
    RG_CHECK(next != bucket);
    rg_store_close(store);
}

static void test_a_write_fails_when_its_bucket_is_removed(void)
{
    struct rg_store_writer *writer;
    struct rg_store_conditions none = {0};
    struct rg_store_object_info info = {.content_type = "a/b"};
    struct rg_h1_slice name = rg_text_slice("bucket");
    open_store(NULL, 0);
    RG_CHECK_EQ(rg_store_writer_create(&writer, store, name, rg_text_slice("o"), 0), 0);
    RG_CHECK_EQ(rg_store_remove_bucket(store, name), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), -ENOENT);
    rg_store_close(store);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_generations_grow_over_all_buckets),
        RG_TEST(test_a_bucket_is_made_once),
        RG_TEST(test_strict_buckets_are_made_by_no_object),
        RG_TEST(test_buckets_are_listed_in_their_order),
        RG_TEST(test_a_bucket_is_removed_when_it_is_empty),
        RG_TEST(test_a_write_fails_when_its_bucket_is_removed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
