/* Folders of a bucket and the objects in them: renames on disk, kills in the middle of one. */
#include "emulator/store/bucket_folders.h"

#include "tests/emulator/store/folders_case.h"

static void check(const char *name, const char *text)
{
    struct rg_store_object object;
    const uint8_t *data;
    RG_CHECK_EQ(rg_bucket_open_object(bucket, rg_text_slice(name), &object), 0);
    size_t size = rg_store_object_read(&object, 0, &data);
    RG_CHECK_MEM(data, size, text, strlen(text));
    RG_CHECK_STR(object.info.content_type, "text/x"); /* Its record came along. */
    rg_store_object_close(&object);
}

static bool absent(const char *name)
{
    struct rg_store_object object;
    int rc = rg_bucket_open_object(bucket, rg_text_slice(name), &object);
    if (rc == 0) {
        rg_store_object_close(&object);
    }
    return rc == -ENOENT;
}

static void test_a_rename_that_was_killed_is_completed(void)
{
    struct rg_store_object object;
    begin();
    put("a/one", "1");
    put("a/b/two", "2");
    put("a/b/three", "3");
    RG_CHECK_EQ(rg_bucket_open_object(bucket, rg_text_slice("a/b/two"), &object), 0);
    rg_store_object_close(&object);
    rg_store_close(store);
    append_to_log("rename 7 a/ z/\n");
    /* It was killed between an object's record and the object. */
    char from[256], to[256];
    snprintf(from, sizeof(from), "%s/bucket/.ringest/a/b/two%%g%lld", root,
             (long long)object.info.generation);
    snprintf(to, sizeof(to), "%s/bucket/.ringest/z", root);
    RG_CHECK_EQ(mkdir(to, 0755), 0);
    strcat(to, "/b");
    RG_CHECK_EQ(mkdir(to, 0755), 0);
    snprintf(to, sizeof(to), "%s/bucket/.ringest/z/b/two%%g%lld", root,
             (long long)object.info.generation);
    RG_CHECK_EQ(rename(from, to), 0);
    append_to_log("renam");
    open_store();
    bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
    RG_CHECK(bucket != NULL);
    RG_CHECK_STR(list(), "z/ z/b/ ");
    check("z/one", "1");
    check("z/b/two", "2");
    check("z/b/three", "3");
    RG_CHECK(absent("a/one") && absent("a/b/two"));
    put("a/one", "new");
    restart(); /* It is not done again. */
    check("a/one", "new");
    check("z/one", "1");
    RG_CHECK_STR(list(), "a/ z/ z/b/ ");
    remove_root();
}

static void test_objects_and_folders_of_one_name(void)
{
    begin();
    put("a", "object a");
    put("a/o", "in a");
    put("c", "object c");
    RG_CHECK_EQ(rename_folder("a/", "c/"), 0);
    check("a", "object a");
    check("c", "object c");
    check("c/o", "in a");
    RG_CHECK(absent("a/o"));
    put("a/o", "again");
    RG_CHECK_EQ(rename_folder("a/", "c/d/"), 0);
    RG_CHECK_EQ(rename_folder("c/", "a/"), 0);
    restart();
    check("a", "object a");
    check("c", "object c");
    check("a/o", "in a");
    check("a/d/o", "again");
    RG_CHECK_STR(list(), "a/ a/d/ ");
    remove_root();
}

static void test_files_put_there_by_hand_are_in_the_way(void)
{
    char path[256];
    begin();
    put("a/o", "o");
    snprintf(path, sizeof(path), "%s/bucket/hand", root);
    RG_CHECK_EQ(mkdir(path, 0755), 0);
    strcat(path, "/file");
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    RG_CHECK(fd >= 0);
    close(fd);
    restart(); /* Listings see it at once then. */
    RG_CHECK_EQ(rename_folder("a/", "hand/"), -EEXIST);
    check("a/o", "o");
    remove_root();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_rename_that_was_killed_is_completed),
        RG_TEST(test_objects_and_folders_of_one_name),
        RG_TEST(test_files_put_there_by_hand_are_in_the_way),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
