/* Written objects over synthetic ones, conditions, and many threads at once. */
#include "emulator/store/bucket.h"

#include "emulator/wire/checksum.h"
#include "tests/emulator/store_case.h"

#include <pthread.h>
#include <stdatomic.h>

/* The names in the bucket, each with a space. */
static const char *list(void)
{
    static char names[4096];
    struct rg_bucket *bucket = rg_store_find_bucket(store, rg_text_slice("bucket"));
    static struct rg_store_entry entry;
    char from[RG_STORE_NAME_SIZE_MAX + 1];
    uint32_t from_size = 0;
    names[0] = '\0';
    while (rg_bucket_seek_object(bucket, (struct rg_h1_slice){from, from_size}, &entry) == 0) {
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s ",
                 (int)entry.name_size, entry.name);
        memcpy(from, entry.name, entry.name_size);
        from[entry.name_size] = '\0';
        from_size = entry.name_size + 1;
    }
    return names;
}

static void test_writing_shadows_and_deleting_hides_a_synthetic_object(void)
{
    static const char *const sets[] = {"bucket/s:3:5"};
    struct rg_store_object object;
    open_store(sets, 1);
    put_text("s00000001", "written");
    put_text("a", "1");
    put_text("z", "1");
    RG_CHECK_STR(list(), "a s00000000 s00000001 s00000002 z ");
    RG_CHECK_EQ(get("s00000001", &object), 0);
    RG_CHECK_EQ(object.info.size, 7);
    rg_store_object_close(&object);
    RG_CHECK_EQ(remove_object("s00000001"), 0);
    RG_CHECK_EQ(get("s00000001", &object), -ENOENT);
    RG_CHECK_EQ(remove_object("s00000001"), -ENOENT);
    RG_CHECK_EQ(remove_object("s00000000"), 0);
    RG_CHECK_STR(list(), "a s00000002 z ");
    put_text("s00000000", "again");
    RG_CHECK_EQ(get("s00000000", &object), 0);
    RG_CHECK_EQ(object.info.size, 5);
    rg_store_object_close(&object);
    RG_CHECK_STR(list(), "a s00000000 s00000002 z ");
    rg_store_close(store);
}

static void test_conditions_are_checked_where_the_write_happens(void)
{
    struct rg_store_object_info info = {.content_type = "a/b"};
    struct rg_store_conditions absent = {.generation_match = {.set = true, .value = 0}};
    open_store(NULL, 0);
    struct rg_store_writer *first, *second;
    struct rg_h1_slice bucket = rg_text_slice("bucket"), name = rg_text_slice("o");
    RG_CHECK_EQ(rg_store_writer_create(&first, store, bucket, name, 0), 0);
    RG_CHECK_EQ(rg_store_writer_create(&second, store, bucket, name, 0), 0);
    RG_CHECK_EQ(rg_store_writer_commit(first, &absent, &info, &info), 0);
    RG_CHECK_EQ(rg_store_writer_commit(second, &absent, &info, &info), -ESTALE);
    rg_store_close(store);
}

/* Threads that write, read and delete the same few objects. Every body is of one letter. */
enum { THREADS = 4, ROUNDS = 3000, BODY_SIZE = 5000 };

static atomic_int failures;

static void check_body(struct rg_store_object *object)
{
    const uint8_t *data;
    size_t size = rg_store_object_read(object, 0, &data);
    bool good = size == BODY_SIZE && rg_checksum_extend(0, data, size) == object->info.crc32c;
    for (size_t i = 1; good && i < size; i++) {
        good = data[i] == data[0];
    }
    if (!good) {
        atomic_fetch_add(&failures, 1);
    }
}

static void *disturb(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    char *body = malloc(BODY_SIZE);
    for (int i = 0; i < ROUNDS; i++) {
        char name[16];
        struct rg_store_object object;
        struct rg_store_object_info info;
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        snprintf(name, sizeof(name), "o%u", (unsigned)(random >> 40) % 5);
        memset(body, 'a' + i % 26, BODY_SIZE);
        switch ((random >> 33) % 4) {
        case 0:
            if (put("bucket", name, body, BODY_SIZE, &info) != 0) {
                atomic_fetch_add(&failures, 1);
            }
            break;
        case 1:
            (void)remove_object(name);
            break;
        default:
            if (get(name, &object) == 0) {
                check_body(&object);
                rg_store_object_close(&object);
            }
            break;
        }
    }
    free(body);
    return NULL;
}

static void test_threads_see_whole_objects_only(void)
{
    pthread_t threads[THREADS];
    open_store(NULL, 0);
    put_text("other", "");
    atomic_store(&failures, 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, disturb, (void *)(i + rg_test_seed())), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    RG_CHECK_EQ(atomic_load(&failures), 0);
    rg_store_close(store);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_writing_shadows_and_deleting_hides_a_synthetic_object),
        RG_TEST(test_conditions_are_checked_where_the_write_happens),
        RG_TEST(test_threads_see_whole_objects_only),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
