/* Files that are read: those of others, and those that are being replaced. */
#include "emulator/store/disk/object.h"

#include "tests/emulator/disk_case.h"

#include <pthread.h>
#include <stdatomic.h>

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
     * time is set, because the kernel's times of files go by ticks, of 10 ms at most. */
    const struct timespec later = {.tv_sec = first.generation / 1000000 + 1};
    write_by_hand("bucket/sub/hand.txt", "by hanD");
    RG_CHECK_EQ(
        utimensat(AT_FDCWD, path_of("bucket/sub/hand.txt"), (struct timespec[2]){later, later}, 0),
        0);
    struct rg_store_object_info second = check("sub/hand.txt", "by hanD");
    RG_CHECK(second.generation != first.generation);
    reopen_store();
    check("sub/hand.txt", "by hanD");
    put("sub/hand.txt", "written");
    check("sub/hand.txt", "written");
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

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_files_put_there_by_hand_are_served),
        RG_TEST(test_readers_see_old_or_new_while_it_is_overwritten),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
