/* Manifests as they are written: what is refused, and that a file is there whole or not at all. */
#include "gcs/listing/manifest.h"
#include "tests/support/manifest_file.h"
#include "tests/support/test.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char name[RG_OBJECT_NAME_SIZE_MAX + 1];

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static uint64_t count_of(const struct rg_test_manifest *file)
{
    struct rg_manifest *manifest;
    RG_CHECK_EQ(rg_manifest_open(&manifest, file->path, NULL, 0), 0);
    uint64_t count = rg_manifest_count(manifest);
    rg_manifest_close(manifest);
    return count;
}

static void test_objects_that_are_refused(void)
{
    static char longish[RG_OBJECT_NAME_SIZE_MAX + 2];
    memset(longish, 'z', sizeof(longish) - 1);
    struct rg_test_manifest file;
    struct rg_manifest_writer *writer;
    rg_test_manifest_init(&file);
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, file.path, "B"), -EINVAL);
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, file.path, "bucket"), 0);
    RG_CHECK_EQ(rg_manifest_writer_add(writer, &(struct rg_object){.name = "b"}), 0);
    const struct rg_object bad[] = {
        {.name = NULL}, {.name = ""},      {.name = "a"},
        {.name = "b"},  {.name = longish}, {.name = "c", .generation = -1},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_manifest_writer_add(writer, &bad[i]), -EINVAL);
    }
    /* A newer generation of the same name is another object. */
    RG_CHECK_EQ(rg_manifest_writer_add(writer, &(struct rg_object){.name = "b", .generation = 2}),
                0);
    longish[RG_OBJECT_NAME_SIZE_MAX] = '\0';
    RG_CHECK_EQ(rg_manifest_writer_add(writer, &(struct rg_object){.name = longish}), 0);
    RG_CHECK_EQ(rg_manifest_writer_close(writer, false), 0);
    RG_CHECK_EQ(count_of(&file), 3);
    rg_test_manifest_fini(&file);
}

static void test_nothing_is_there_before_all_is(void)
{
    struct rg_test_manifest file;
    struct rg_manifest_writer *writer;
    rg_test_manifest_init(&file);
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, file.path, "bucket"), 0);
    RG_CHECK_EQ(rg_manifest_writer_add(writer, &(struct rg_object){.name = "b"}), 0);
    RG_CHECK(!exists(file.path));
    RG_CHECK_EQ(rg_manifest_writer_close(writer, true), 0);
    RG_CHECK(!exists(file.path));
    RG_CHECK_EQ(rg_manifest_writer_close(NULL, false), 0);
    rg_test_manifest_fini(&file);
}

static void test_the_old_one_stays_until_the_new_one_is_whole(void)
{
    struct rg_test_manifest file;
    struct rg_manifest_writer *writer;
    rg_test_manifest_init(&file);
    rg_test_manifest_write(&file, 10);
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, file.path, "bucket"), 0);
    RG_CHECK_EQ(rg_manifest_writer_add(writer, &(struct rg_object){.name = "b"}), 0);
    RG_CHECK_EQ(count_of(&file), 10);
    RG_CHECK_EQ(rg_manifest_writer_close(writer, true), 0);
    RG_CHECK_EQ(count_of(&file), 10);
    rg_test_manifest_write(&file, 20);
    RG_CHECK_EQ(count_of(&file), 20);
    rg_test_manifest_fini(&file);
}

static void test_two_writers_of_one_path(void)
{
    struct rg_test_manifest file;
    struct rg_manifest_writer *writers[2];
    rg_test_manifest_init(&file);
    for (unsigned i = 0; i < 2; i++) {
        RG_CHECK_EQ(rg_manifest_writer_open(&writers[i], file.path, "bucket"), 0);
    }
    RG_CHECK_EQ(rg_manifest_writer_add(writers[0], &(struct rg_object){.name = "b"}), 0);
    RG_CHECK_EQ(rg_manifest_writer_close(writers[0], false), 0);
    RG_CHECK_EQ(count_of(&file), 1);
    RG_CHECK_EQ(rg_manifest_writer_close(writers[1], false), 0);
    RG_CHECK_EQ(count_of(&file), 0);
    rg_test_manifest_fini(&file);
}

static void test_a_folder_that_is_not_there(void)
{
    struct rg_manifest_writer *writer;
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, "/no/such/folder/x", "bucket"), -ENOENT);
}

/* A disk that is full leaves no file behind; a limit on the size of files stands in for it. */
static void test_a_file_that_cannot_grow(void)
{
    struct rg_test_manifest file;
    struct rg_manifest_writer *writer;
    struct rlimit old, limit;
    rg_test_manifest_init(&file);
    (void)signal(SIGXFSZ, SIG_IGN);
    RG_CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
    RG_CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, file.path, "bucket"), 0);
    int rc = 0;
    for (uint64_t i = 0; i < 100000 && rc == 0; i++) {
        struct rg_object object = rg_test_manifest_object(i, name);
        rc = rg_manifest_writer_add(writer, &object);
    }
    RG_CHECK_EQ(rc, -EFBIG);
    RG_CHECK_EQ(rg_manifest_writer_close(writer, false), -EFBIG);
    RG_CHECK_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    RG_CHECK(!exists(file.path));
    rg_test_manifest_fini(&file);
}

/* What a list in memory becomes, by way of the bytes or of the descriptor, in another process. */
static void check_copies(const struct rg_manifest *manifest)
{
    size_t size, copy_size;
    const void *data = rg_manifest_data(manifest, &size);
    struct rg_manifest *copy;
    uint8_t digest[RG_DIGEST_SIZE], again[RG_DIGEST_SIZE];
    RG_CHECK_EQ(rg_manifest_open_memory(&copy, data, size, NULL, 0), 0);
    const void *copied = rg_manifest_data(copy, &copy_size);
    RG_CHECK_MEM(copied, copy_size, data, size);
    rg_manifest_digest(manifest, digest);
    rg_manifest_digest(copy, again);
    RG_CHECK_MEM(digest, sizeof(digest), again, sizeof(again));
    rg_manifest_close(copy);
    int fd = rg_manifest_fd(manifest);
    if (fd >= 0) {
        RG_CHECK_EQ(rg_manifest_open_fd(&copy, fd, NULL, 0), 0);
        RG_CHECK(rg_manifest_fd(copy) != fd);
        RG_CHECK_EQ(rg_manifest_count(copy), rg_manifest_count(manifest));
        rg_manifest_close(copy);
    }
}

static struct rg_manifest *memory_make(uint64_t count)
{
    struct rg_manifest_writer *writer;
    struct rg_manifest *manifest;
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, NULL, "some-bucket"), 0);
    for (uint64_t i = 0; i < count; i++) {
        struct rg_object object = rg_test_manifest_object(i, name);
        RG_CHECK_EQ(rg_manifest_writer_add(writer, &object), 0);
    }
    RG_CHECK_EQ(rg_manifest_writer_finish(writer, &manifest), 0);
    return manifest;
}

static void test_a_list_in_memory_has_the_bytes_of_the_file(void)
{
    static const uint64_t counts[] = {0, 1, 64, 1000, 50000};
    for (size_t i = 0; i < RG_ARRAY_LEN(counts); i++) {
        struct rg_test_manifest file;
        struct rg_manifest *manifest = memory_make(counts[i]), *of_file;
        rg_test_manifest_init(&file);
        rg_test_manifest_write(&file, counts[i]);
        RG_CHECK_EQ(rg_manifest_open(&of_file, file.path, NULL, 0), 0);
        size_t size, file_size;
        const void *data = rg_manifest_data(manifest, &size);
        const void *file_data = rg_manifest_data(of_file, &file_size);
        RG_CHECK_MEM(data, size, file_data, file_size);
        RG_CHECK_EQ(rg_manifest_fd(manifest) >= 0, size >= RG_BYTES_SHARED_SIZE_MIN);
        RG_CHECK(rg_manifest_fd(of_file) >= 0);
        check_copies(manifest);
        rg_manifest_close(of_file);
        rg_manifest_close(manifest);
        rg_test_manifest_fini(&file);
    }
}

static void test_a_list_in_memory_keeps_its_order(void)
{
    static const char *const names[] = {"b", "a", "a", "c"};
    struct rg_manifest_writer *writer;
    struct rg_manifest *manifest;
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, NULL, "bucket"), 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        struct rg_object object = {.name = names[i], .size = i};
        RG_CHECK_EQ(rg_manifest_writer_add(writer, &object), 0);
    }
    RG_CHECK_EQ(rg_manifest_writer_add(writer, &(struct rg_object){.name = ""}), -EINVAL);
    RG_CHECK_EQ(rg_manifest_writer_finish(writer, &manifest), 0);
    RG_CHECK_EQ(rg_manifest_count(manifest), RG_ARRAY_LEN(names));
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        struct rg_object object;
        RG_CHECK_EQ(rg_manifest_get(manifest, i, &object, name), 0);
        RG_CHECK_STR(name, names[i]);
        RG_CHECK_EQ(object.size, i);
    }
    check_copies(manifest);
    rg_manifest_close(manifest);
}

/* As where a filter of system calls forbids memfd_create. */
static void test_a_list_in_memory_without_a_memory_file(void)
{
    struct rlimit limit, none;
    RG_CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct rg_manifest *manifest = memory_make(50000);
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    RG_CHECK_EQ(rg_manifest_fd(manifest), -1);
    struct rg_manifest *other = memory_make(50000);
    size_t size, other_size;
    const void *data = rg_manifest_data(manifest, &size);
    const void *other_data = rg_manifest_data(other, &other_size);
    RG_CHECK_MEM(data, size, other_data, other_size);
    rg_manifest_close(other);
    rg_manifest_close(manifest);
}

static void test_only_lists_in_memory_are_finished(void)
{
    struct rg_test_manifest file;
    struct rg_manifest_writer *writer;
    struct rg_manifest *manifest;
    rg_test_manifest_init(&file);
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, file.path, "bucket"), 0);
    RG_CHECK_EQ(rg_manifest_writer_finish(writer, &manifest), -EINVAL);
    RG_CHECK(!exists(file.path));
    RG_CHECK_EQ(rg_manifest_writer_open(&writer, NULL, "bucket"), 0);
    RG_CHECK_EQ(rg_manifest_writer_close(writer, false), 0);
    rg_test_manifest_fini(&file);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_objects_that_are_refused),
        RG_TEST(test_nothing_is_there_before_all_is),
        RG_TEST(test_the_old_one_stays_until_the_new_one_is_whole),
        RG_TEST(test_two_writers_of_one_path),
        RG_TEST(test_a_folder_that_is_not_there),
        RG_TEST(test_a_file_that_cannot_grow),
        RG_TEST(test_a_list_in_memory_has_the_bytes_of_the_file),
        RG_TEST(test_a_list_in_memory_keeps_its_order),
        RG_TEST(test_a_list_in_memory_without_a_memory_file),
        RG_TEST(test_only_lists_in_memory_are_finished),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
