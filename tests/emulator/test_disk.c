/* Buckets on disk: restarts, files that a user put there, names that cannot leave the folder. */
#include "emulator/checksum.h"
#include "emulator/clock.h"
#include "emulator/store.h"
#include "emulator/text.h"
#include "emulator/writer.h"
#include "tests/support/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static struct rg_store *store;

static void open_store(void)
{
    char error[512] = "";
    struct rg_store_options options = {.root = root};
    if (rg_store_open(&store, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
}

static void make_root(void)
{
    strcpy(root, "/tmp/ringest-test-XXXXXX");
    RG_CHECK(mkdtemp(root) != NULL);
    open_store();
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

static void remove_root(void)
{
    rg_store_close(store);
    RG_CHECK_EQ(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void restart(void)
{
    rg_store_close(store);
    open_store();
}

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    return path;
}

static bool exists(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

static void write_by_hand(const char *name, const char *text)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    RG_CHECK(fd >= 0);
    RG_CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static struct rg_store_object_info put_slice(struct rg_h1_slice name, const char *text)
{
    struct rg_store_writer *writer;
    struct rg_store_conditions none = {0};
    struct rg_store_object_info info = {
        .content_type = "text/x y", .content_encoding = "gzip", .md5 = "jXd/OF09/siBXSD3SWAm3A=="};
    RG_CHECK_EQ(rg_store_writer_create(&writer, store, rg_text_slice("bucket"), name, 0), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, text, strlen(text)), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), 0);
    return info;
}

static struct rg_store_object_info put(const char *name, const char *text)
{
    return put_slice(rg_text_slice(name), text);
}

static struct rg_bucket *bucket(void)
{
    struct rg_bucket *found = rg_store_find_bucket(store, rg_text_slice("bucket"));
    RG_CHECK(found != NULL);
    return found;
}

static int remove_object(const char *name)
{
    struct rg_store_conditions none = {0};
    return rg_bucket_remove_object(bucket(), rg_text_slice(name), &none);
}

/* Checks the bytes and hands out the facts. */
static struct rg_store_object_info check_object(struct rg_h1_slice name, const char *text)
{
    struct rg_store_object object;
    const uint8_t *data;
    RG_CHECK_EQ(rg_bucket_open_object(bucket(), name, &object), 0);
    RG_CHECK_EQ(object.info.size, strlen(text));
    if (object.info.size > 0) {
        size_t size = rg_store_object_read(&object, 0, &data);
        RG_CHECK_MEM(data, size, text, strlen(text));
    }
    RG_CHECK_EQ(object.info.crc32c, rg_checksum_extend(0, text, strlen(text)));
    rg_store_object_close(&object);
    return object.info;
}

static struct rg_store_object_info check(const char *name, const char *text)
{
    return check_object(rg_text_slice(name), text);
}

static int open_status(const char *name)
{
    struct rg_store_object object;
    int rc = rg_bucket_open_object(bucket(), rg_text_slice(name), &object);
    if (rc == 0) {
        rg_store_object_close(&object);
    }
    return rc;
}

static const char *list(void)
{
    static char names[4096];
    static struct rg_store_entry entry;
    char from[RG_STORE_NAME_SIZE_MAX + 1];
    uint32_t from_size = 0;
    names[0] = '\0';
    while (rg_bucket_seek_object(bucket(), (struct rg_h1_slice){from, from_size}, &entry) == 0) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s ",
                 (int)entry.name_size, entry.name);
        memcpy(from, entry.name, entry.name_size);
        from[entry.name_size] = '\0';
        from_size = entry.name_size + 1;
    }
    return names;
}

static void test_everything_survives_a_restart(void)
{
    make_root();
    struct rg_store_object_info before = put("dir/a", "hello");
    restart();
    struct rg_store_object_info after = check("dir/a", "hello");
    RG_CHECK_EQ(after.generation, before.generation);
    RG_CHECK_EQ(after.updated_us, before.generation);
    RG_CHECK_EQ(after.metageneration, 1);
    RG_CHECK_STR(after.content_type, "text/x y");
    RG_CHECK_STR(after.content_encoding, "gzip");
    RG_CHECK_STR(after.md5, "jXd/OF09/siBXSD3SWAm3A==");
    struct rg_store_object_info next = put("dir/a", "again");
    RG_CHECK(next.generation > before.generation);
    remove_root();
}

static void test_the_tree_is_what_a_user_expects(void)
{
    make_root();
    put("dir/sub/file.txt", "x");
    RG_CHECK(exists("bucket/dir/sub/file.txt"));
    RG_CHECK_EQ(remove_object("dir/sub/file.txt"), 0);
    RG_CHECK(!exists("bucket/dir"));
    RG_CHECK(!exists("bucket/.ringest/dir"));
    RG_CHECK_EQ(remove_object("dir/sub/file.txt"), -ENOENT);
    remove_root();
}

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
    restart();
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

static void test_files_put_there_by_hand_are_served(void)
{
    make_root();
    RG_CHECK_EQ(mkdir(path_of("bucket"), 0755), 0);
    RG_CHECK_EQ(mkdir(path_of("bucket/sub"), 0755), 0);
    write_by_hand("bucket/sub/hand.txt", "by hand");
    struct rg_store_object_info first = check("sub/hand.txt", "by hand");
    RG_CHECK_STR(first.content_type, "application/octet-stream");
    RG_CHECK_STR(first.md5, "");
    RG_CHECK_STR(list(), "sub/hand.txt ");
    /* Changed by hand: another generation, and the checksum that was noted is not believed. The
     * kernel's times of files go by ticks, of 10 ms at most. */
    usleep(20000);
    write_by_hand("bucket/sub/hand.txt", "by hanD");
    struct rg_store_object_info second = check("sub/hand.txt", "by hanD");
    RG_CHECK(second.generation != first.generation);
    restart();
    check("sub/hand.txt", "by hanD");
    put("sub/hand.txt", "written");
    check("sub/hand.txt", "written");
    remove_root();
}

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
    restart();
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

static void test_the_longest_names(void)
{
    char name[RG_STORE_NAME_SIZE_MAX];
    make_root();
    for (size_t i = 0; i < 3; i++) {
        memset(name, "x/\x01"[i], sizeof(name));
        struct rg_h1_slice slice = {name, sizeof(name)};
        put_slice(slice, "long");
        check_object(slice, "long");
    }
    remove_root();
}

static void test_an_aborted_write_leaves_nothing(void)
{
    struct rg_store_writer *writer;
    make_root();
    put("o", "old");
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice("o"), 0), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, "new", 3), 0);
    check("o", "old");
    rg_store_writer_abort(writer);
    check("o", "old");
    RG_CHECK(!exists("bucket/.ringest/%t1"));
    RG_CHECK_STR(list(), "o ");
    remove_root();
}

static void test_what_a_crash_left_is_cleared_at_the_start(void)
{
    make_root();
    put("o", "old");
    write_by_hand("bucket/.ringest/%t77", "half");
    restart();
    check("o", "old");
    RG_CHECK(!exists("bucket/.ringest/%t77"));
    remove_root();
}

static atomic_int failures;
static atomic_bool finished;

static void *read_all_the_time(void *argument)
{
    struct rg_bucket *where = argument;
    while (!atomic_load(&finished)) {
        struct rg_store_object object;
        const uint8_t *data;
        int rc = rg_bucket_open_object(where, rg_text_slice("o"), &object);
        if (rc != 0) {
            atomic_fetch_add(&failures, 1);
            continue;
        }
        size_t size = rg_store_object_read(&object, 0, &data);
        if (rg_checksum_extend(0, data, size) != object.info.crc32c ||
            strcmp(object.info.content_type, "text/x y") != 0) {
            atomic_fetch_add(&failures, 1);
        }
        rg_store_object_close(&object);
    }
    return NULL;
}

static void test_readers_see_old_or_new_while_it_is_overwritten(void)
{
    pthread_t thread;
    make_root();
    put("o", "first");
    atomic_store(&failures, 0);
    atomic_store(&finished, false);
    RG_CHECK_EQ(pthread_create(&thread, NULL, read_all_the_time, bucket()), 0);
    for (int i = 0; i < 500; i++) {
        char text[32];
        snprintf(text, sizeof(text), "version %d", i);
        put("o", text);
    }
    atomic_store(&finished, true);
    pthread_join(thread, NULL);
    RG_CHECK_EQ(atomic_load(&failures), 0);
    remove_root();
}

static void test_a_root_that_is_not_there_is_named(void)
{
    struct rg_store *none;
    char error[256];
    struct rg_store_options options = {.root = "/nowhere/at/all"};
    RG_CHECK_EQ(rg_store_open(&none, &options, error, sizeof(error)), -ENOENT);
    RG_CHECK(strstr(error, "--root '/nowhere/at/all'") != NULL);
}

/* Attributes of one known and one own field. */
static struct rg_attributes *some_attributes(void)
{
    struct rg_text list = {0};
    struct rg_attributes *attributes;
    RG_CHECK_EQ(rg_attributes_set(&list, rg_text_slice("cacheControl"), rg_text_slice("no-store")),
                0);
    RG_CHECK_EQ(
        rg_attributes_set(&list, rg_text_slice("metadata.a b"), rg_text_slice("x\n\xc3\xa4")), 0);
    RG_CHECK_EQ(rg_attributes_create(&attributes, &list), 0);
    rg_text_fini(&list);
    return attributes;
}

static void check_attributes(const char *name, int64_t metageneration)
{
    struct rg_store_object object;
    RG_CHECK_EQ(rg_bucket_open_object(bucket(), rg_text_slice(name), &object), 0);
    struct rg_h1_slice value = rg_attributes_get(object.info.attributes, "metadata.a b");
    RG_CHECK_MEM(value.data, value.size, "x\n\xc3\xa4", (size_t)4);
    value = rg_attributes_get(object.info.attributes, "cacheControl");
    RG_CHECK_MEM(value.data, value.size, "no-store", (size_t)8);
    RG_CHECK_EQ(object.info.metageneration, metageneration);
    RG_CHECK(object.info.updated_us >= object.info.generation);
    rg_store_object_close(&object);
}

static void test_metadata_survives_a_restart(void)
{
    make_root();
    struct rg_store_object_info info = put("a/b", "data");
    struct rg_attributes *attributes = some_attributes();
    info.attributes = attributes;
    RG_CHECK_EQ(rg_bucket_update_object(bucket(), rg_text_slice("a/b"), &info), 0);
    RG_CHECK_EQ(info.metageneration, 2);
    info.metageneration = 1; /* Somebody else was there first. */
    RG_CHECK_EQ(rg_bucket_update_object(bucket(), rg_text_slice("a/b"), &info), -EAGAIN);
    rg_attributes_unref(attributes);
    check_attributes("a/b", 2);
    restart();
    check_attributes("a/b", 2);
    check("a/b", "data");
    RG_CHECK_EQ(remove_object("a/b"), 0);
    RG_CHECK(!exists("bucket/.ringest/a"));
    remove_root();
}

static void enable_versioning(void)
{
    struct rg_bucket_info info;
    rg_bucket_get_info(bucket(), &info);
    info.versioning = true;
    RG_CHECK_EQ(rg_bucket_configure(bucket(), &info, 0), 0);
}

/* "name:size" of each version, with "!" where it is noncurrent. */
static const char *list_versions(void)
{
    static char names[4096];
    static struct rg_store_entry entry;
    char from[RG_STORE_NAME_SIZE_MAX + 1];
    uint32_t from_size = 0;
    int64_t after = 0;
    names[0] = '\0';
    while (rg_bucket_seek_version(bucket(), (struct rg_h1_slice){from, from_size}, after, &entry) ==
           0) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s:%d%s ",
                 (int)entry.name_size, entry.name, (int)entry.info.size,
                 entry.info.deleted_us != 0 ? "!" : "");
        memcpy(from, entry.name, entry.name_size);
        from_size = entry.name_size;
        after = entry.info.generation;
    }
    return names;
}

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
        restart();
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
        restart();
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
    restart();
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
    restart();
    snprintf(name, sizeof(name), "bucket/.ringest/a%%v%" PRId64, generation);
    RG_CHECK(exists(name));
    RG_CHECK_STR(list_soft_deleted(), "");
    RG_CHECK(!exists(name)); /* Its file goes when somebody looks. */
    remove_root();
}

/* A process that dies between the two steps of a write leaves the second name of a version that is
 * still the live one. */
static void test_a_second_name_of_the_live_version_does_not_count(void)
{
    char from[512], to[512], name[64];
    make_root();
    int64_t generation = put("a", "one").generation;
    enable_versioning();
    snprintf(name, sizeof(name), "bucket/.ringest/a%%v%" PRId64, generation);
    snprintf(from, sizeof(from), "%s", path_of("bucket/a"));
    snprintf(to, sizeof(to), "%s", path_of(name));
    RG_CHECK_EQ(link(from, to), 0);
    restart();
    RG_CHECK_STR(list_versions(), "a:3 ");
    check("a", "one");
    put("a", "two!");
    RG_CHECK_STR(list_versions(), "a:3! a:4 ");
    remove_root();
}

static void test_parts_are_joined(void)
{
    struct rg_store_object parts[2], whole;
    struct rg_store_writer *writer;
    struct rg_store_conditions none = {0};
    struct rg_store_object_info info = {.content_type = "a/b"};
    make_root();
    put("x", "object ");
    for (size_t i = 0; i < 2; i++) {
        RG_CHECK_EQ(
            rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice("o"), 0),
            0);
        RG_CHECK_EQ(rg_store_writer_append(writer, i == 0 ? "part " : "end", i == 0 ? 5 : 3), 0);
        RG_CHECK_EQ(rg_store_writer_seal(writer, &parts[i]), 0);
    }
    RG_CHECK_EQ(rg_bucket_open_object(bucket(), rg_text_slice("x"), &whole), 0);
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice("o"), 0), 0);
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &parts[0]), 0);
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &whole), 0);
    RG_CHECK_EQ(rg_store_writer_append(writer, "bytes ", 6), 0);
    RG_CHECK_EQ(rg_store_writer_append_object(writer, &parts[1]), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &none, &info, &info), 0);
    rg_store_object_close(&parts[0]);
    rg_store_object_close(&parts[1]);
    rg_store_object_close(&whole);
    check("o", "part object bytes end");
    RG_CHECK(!exists("bucket/.ringest/%t1")); /* What they were in is gone. */
    remove_root();
}

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
    restart();
    rg_bucket_get_info(bucket(), &info);
    RG_CHECK(info.requester_pays && info.no_public_access && info.holds_by_default);
    RG_CHECK(info.retention_locked && rg_bucket_requester_pays(bucket()));
    RG_CHECK_EQ(info.retention_us, 7);
    settings = rg_bucket_get_settings(bucket());
    RG_CHECK(rg_text_equals(rg_bucket_settings_json(settings), "{\"labels\":{\"a b\":\"c\"}}"));
    rg_bucket_settings_unref(settings);
    remove_root();
}

static void test_an_object_without_a_content_type_survives_a_restart(void)
{
    struct rg_store_object_info described = {0}, info;
    struct rg_store_conditions conditions = {0};
    struct rg_store_writer *writer;
    struct rg_store_object object;
    make_root();
    RG_CHECK_EQ(
        rg_store_writer_create(&writer, store, rg_text_slice("bucket"), rg_text_slice("a"), 0), 0);
    RG_CHECK_EQ(rg_store_writer_commit(writer, &conditions, &described, &info), 0);
    restart();
    RG_CHECK_EQ(rg_bucket_open_object(bucket(), rg_text_slice("a"), &object), 0);
    RG_CHECK_STR(object.info.content_type, "");
    rg_store_object_close(&object);
    remove_root();
}

static void test_a_bucket_is_described_and_removed(void)
{
    struct rg_bucket_info info;
    make_root();
    put("a", "x");
    enable_versioning();
    restart();
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
        RG_TEST(test_everything_survives_a_restart),
        RG_TEST(test_the_tree_is_what_a_user_expects),
        RG_TEST(test_an_object_and_a_folder_of_one_name_live_together),
        RG_TEST(test_files_put_there_by_hand_are_served),
        RG_TEST(test_what_is_no_object_is_not_listed),
        RG_TEST(test_dangerous_names_stay_inside_and_apart),
        RG_TEST(test_a_listing_sees_every_write_at_once),
        RG_TEST(test_the_longest_names),
        RG_TEST(test_an_aborted_write_leaves_nothing),
        RG_TEST(test_what_a_crash_left_is_cleared_at_the_start),
        RG_TEST(test_readers_see_old_or_new_while_it_is_overwritten),
        RG_TEST(test_a_root_that_is_not_there_is_named),
        RG_TEST(test_metadata_survives_a_restart),
        RG_TEST(test_versions_are_kept),
        RG_TEST(test_soft_deleted_versions_survive_a_restart),
        RG_TEST(test_soft_deleted_versions_end),
        RG_TEST(test_a_second_name_of_the_live_version_does_not_count),
        RG_TEST(test_parts_are_joined),
        RG_TEST(test_the_settings_of_a_bucket_survive_a_restart),
        RG_TEST(test_an_object_without_a_content_type_survives_a_restart),
        RG_TEST(test_a_bucket_is_described_and_removed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
