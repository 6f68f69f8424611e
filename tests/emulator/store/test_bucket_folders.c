/* Folders of a bucket and the objects in them: renames on disk, kills in the middle of one. */
#include "emulator/store/bucket_folders.h"
#include "emulator/store/folders.h"
#include "emulator/store/writer.h"

#include "tests/support/test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static struct rg_store *store;
static struct rg_bucket *bucket;

static void open_store(void)
{
    char error[512] = "";
    struct rg_store_options options = {.root = root};
    if (rg_store_open(&store, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
}

/* A hierarchical bucket below a new root. */
static void begin(void)
{
    struct rg_bucket_info info;
    strcpy(root, "/tmp/ringest-test-XXXXXX");
    RG_CHECK(mkdtemp(root) != NULL);
    open_store();
    RG_CHECK_EQ(rg_store_create_bucket(store, rg_text_slice("bucket"), &bucket), 0);
    rg_bucket_get_info(bucket, &info);
    info.hierarchical = true;
    RG_CHECK_EQ(rg_bucket_configure(bucket, &info, 0), 0);
}

static void restart(void)
{
    rg_store_close(store);
    open_store();
    bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

static void finish(void)
{
    rg_store_close(store);
    RG_CHECK_EQ(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void put(const char *name, const char *text)
{
    struct rg_store_writer *writer;
    struct rg_store_conditions none = {0};
    struct rg_store_object_info info = {.content_type = "text/x"};
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice(name), 0), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, text, strlen(text)), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), 0);
}

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

static int rename_folder(const char *from, const char *to)
{
    struct rg_store_conditions none = {0};
    struct rg_folder_info info;
    return rg_bucket_rename_folder(bucket, rg_text_slice(from), rg_text_slice(to), &none, &info);
}

static const char *list(void)
{
    static char names[4096];
    struct rg_folder_entry entry;
    char from[RG_STORE_FOLDER_SIZE_MAX + 1] = "";
    uint32_t from_size = 0;
    names[0] = '\0';
    while (rg_bucket_seek_folder(bucket, (struct rg_h1_slice){from, from_size}, &entry) == 0) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s ",
                 (int)entry.name_size, entry.name);
        memcpy(from, entry.name, entry.name_size);
        from[entry.name_size] = '\0';
        from_size = entry.name_size + 1;
    }
    return names;
}

static const char *log_path(void)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/bucket/.ringest/%%folders", root);
    return path;
}

/* As a process leaves it that is killed in the middle of writing. */
static void append_to_log(const char *text)
{
    int fd = open(log_path(), O_WRONLY | O_APPEND | O_CREAT, 0644);
    RG_CHECK(fd >= 0);
    RG_CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
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
    finish();
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
    finish();
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
    finish();
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
