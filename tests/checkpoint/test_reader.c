/* An object read as a file: in pieces of all sizes, forwards and back, across its end, of one
 * generation, damaged, in little memory, with deadlines and failures. */
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <errno.h>
#include <ringest/checkpoint.h>
#include <stdlib.h>
#include <string.h>

#define GENERATION 7
#define SIZE (RG_MIB(9) + 12345)
#define BLOCK (RG_MIB(2) - RG_KIB(64))

struct scene {
    struct rg_test_client c;
    struct rg_step script[3];
    const struct rg_step *scripts[1];
    struct rg_checkpoint_reader *reader;
    uint8_t *buf;
};

/* A server of an object of SIZE bytes, or what `step` says, and a reader of it. */
static void scene_open(struct scene *scene, const struct rg_step *step, uint64_t memory_max)
{
    struct rg_step object = {
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, GENERATION)};
    scene->script[0] = (struct rg_step)RG_READ;
    scene->script[1] = step != NULL ? *step : object;
    scene->script[2] = (struct rg_step)RG_AGAIN;
    scene->scripts[0] = scene->script;
    scene->c = (struct rg_test_client){
        .scripts = scene->scripts, .script_count = 1, .memory_max = memory_max};
    rg_test_client_open(&scene->c);
    struct rg_checkpoint_reader_options options = {.bucket = "bucket", .object = "object"};
    RG_CHECK_EQ(rg_checkpoint_reader_open(&scene->reader, scene->c.client, &options), 0);
    scene->buf = malloc(SIZE + 1);
}

static void scene_close(struct scene *scene)
{
    rg_checkpoint_reader_close(scene->reader);
    RG_CHECK_EQ(rg_test_stats(&scene->c).leased_bytes, 0);
    rg_test_client_close(&scene->c);
    free(scene->buf);
}

static int64_t scene_read(struct scene *scene, uint64_t offset, uint64_t size)
{
    return rg_checkpoint_reader_read(scene->reader, offset, scene->buf, size,
                                     rg_now_ns() + RG_TEST_PATIENCE_NS);
}

static void check_read(struct scene *scene, uint64_t offset, uint64_t size)
{
    uint64_t want = RG_MIN(size, SIZE - RG_MIN((uint64_t)SIZE, offset));
    memset(scene->buf, 0xee, want);
    RG_CHECK_EQ(scene_read(scene, offset, size), (int64_t)want);
    uint64_t differs = rg_script_differs(scene->buf, offset, want);
    if (differs < want) {
        rg_test_fail(__FILE__, __LINE__, "byte %llu differs",
                     (unsigned long long)(offset + differs));
    }
}

/* Whole objects, in order, whose CRC32C is compared at the end. */
static void test_in_order(void)
{
    static const uint64_t pieces[] = {1000, 65536, RG_MIB(1) - 1, RG_MIB(1), RG_MIB(3) + 5, SIZE};
    for (size_t i = 0; i < RG_ARRAY_LEN(pieces); i++) {
        struct scene scene;
        scene_open(&scene, NULL, 0);
        RG_CHECK_EQ(rg_checkpoint_reader_generation(scene.reader), 0);
        for (uint64_t at = 0; at < SIZE; at += pieces[i]) {
            check_read(&scene, at, pieces[i]);
        }
        check_read(&scene, SIZE, 10);
        RG_CHECK_EQ(rg_checkpoint_reader_generation(scene.reader), GENERATION);
        RG_CHECK(rg_checkpoint_reader_failure(scene.reader) == NULL);
        scene_close(&scene);
    }
}

static void test_in_any_order(void)
{
    struct scene scene;
    scene_open(&scene, NULL, 0);
    uint64_t random = 1;
    for (int i = 0; i < 300; i++) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        uint64_t offset = (random >> 20) % (SIZE + 5);
        uint64_t size = i % 10 == 0 ? RG_MIB(2) : 1 + (random >> 50);
        check_read(&scene, offset, size);
        if (i % 3 == 0) {
            check_read(&scene, offset + size, size);
        }
    }
    check_read(&scene, SIZE - 1, RG_MIB(4));
    check_read(&scene, SIZE + 100, RG_MIB(4));
    RG_CHECK_EQ(scene_read(&scene, 5, 0), 0);
    scene_close(&scene);
}

/* Small pieces in order take few requests, and more of them than were needed so far; scattered ones
 * take a block each. */
static void test_reading_ahead(void)
{
    struct scene scene;
    scene_open(&scene, NULL, 0);
    for (uint64_t at = 0; at < SIZE; at += 4096) {
        check_read(&scene, at, 4096);
    }
    RG_CHECK_EQ(rg_test_stats(&scene.c).requests, (SIZE + BLOCK - 1) / BLOCK);
    scene_close(&scene);
    scene_open(&scene, NULL, 0);
    for (uint64_t at = 0; at < 40; at += 10) {
        check_read(&scene, at, 10);
    }
    RG_AWAIT(rg_test_stats(&scene.c).requests >= 4);
    scene_close(&scene);
    scene_open(&scene, NULL, 0);
    check_read(&scene, RG_MIB(6), 10);
    check_read(&scene, 100, 10);
    RG_CHECK_EQ(rg_test_stats(&scene.c).requests, 2);
    scene_close(&scene);
}

static void test_little_memory(void)
{
    static const uint64_t memories[] = {RG_MIB(5), RG_MIB(9), RG_MIB(17)};
    for (size_t i = 0; i < RG_ARRAY_LEN(memories); i++) {
        struct scene scene;
        scene_open(&scene, NULL, memories[i]);
        for (uint64_t at = 0; at < SIZE; at += 300000) {
            check_read(&scene, at, 300000);
        }
        check_read(&scene, 0, SIZE);
        scene_close(&scene);
    }
}

static void test_what_lies_behind_the_end(void)
{
    struct scene scene;
    struct rg_step empty = {.kind = RG_STEP_SEND,
                            .text =
                                "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n"};
    scene_open(&scene, &empty, 0);
    RG_CHECK_EQ(scene_read(&scene, 0, 10), 0);
    RG_CHECK_EQ(scene_read(&scene, 0, RG_MIB(2)), 0);
    scene_close(&scene);
}

/* The first answer tells how large the object is, and all others that it ends before what was asked
 * for: that is no end of it, neither for a block nor while a large piece is out. */
static void test_an_end_that_was_told_otherwise(void)
{
#define NO_RANGE "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n"
    struct rg_step object = {
        .kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = rg_test_object_fields(SIZE, GENERATION)};
    const struct rg_step script[] = {RG_READ, object,
                                     RG_READ, RG_SEND(NO_RANGE),
                                     RG_READ, RG_SEND(NO_RANGE),
                                     RG_READ, RG_SEND(NO_RANGE),
                                     RG_READ, RG_SEND(NO_RANGE),
                                     RG_END};
    const struct rg_step *const scripts[] = {script};
    for (unsigned direct = 0; direct < 2; direct++) {
        struct scene scene = {
            .c = {.scripts = scripts, .script_count = 1, .options = {.connections_max = 1}}};
        rg_test_client_open(&scene.c);
        struct rg_checkpoint_reader_options options = {.bucket = "bucket", .object = "object"};
        RG_CHECK_EQ(rg_checkpoint_reader_open(&scene.reader, scene.c.client, &options), 0);
        scene.buf = malloc(SIZE + 1);
        check_read(&scene, 0, 10);
        if (direct == 1) {
            /* The block behind is asked for in advance, and answered while the large one is out. */
            check_read(&scene, 10, 10);
            RG_CHECK_EQ(scene_read(&scene, 2 * BLOCK, RG_MIB(2)), -EIO);
        } else {
            RG_CHECK_EQ(scene_read(&scene, 2 * BLOCK, 10), -EIO);
        }
        RG_CHECK_STATUS(rg_checkpoint_reader_failure(scene.reader), RANGE);
        scene_close(&scene);
    }
}

static void test_a_wrong_checksum(void)
{
    struct rg_step wrong = {.kind = RG_STEP_SEND_OBJECT,
                            .size = SIZE,
                            .text = "x-goog-generation: 7\r\nx-goog-hash: crc32c=AAAAAA==\r\n"};
    struct scene scene;
    scene_open(&scene, &wrong, 0);
    for (uint64_t at = 0; at + RG_MIB(1) < SIZE; at += RG_MIB(1)) {
        check_read(&scene, at, RG_MIB(1));
    }
    RG_CHECK_EQ(scene_read(&scene, RG_MIB(9), RG_MIB(1)), -EIO);
    const struct rg_completion *failure = rg_checkpoint_reader_failure(scene.reader);
    RG_CHECK_STATUS(failure, CHECKSUM);
    RG_CHECK_CONTAINS(failure->detail, "bytes 0 to 9449528 of generation 7");
    RG_CHECK_CONTAINS(failure->detail, "instead of AAAAAA==");
    RG_CHECK_EQ(scene_read(&scene, 0, 1), -EIO);
    scene_close(&scene);
}

static void test_failures(void)
{
    static const uint64_t sizes[] = {10, RG_MIB(2)};
    struct rg_step gone = {.kind = RG_STEP_SEND,
                           .text = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        struct scene scene;
        scene_open(&scene, &gone, 0);
        RG_CHECK_EQ(scene_read(&scene, 0, sizes[i]), -EIO);
        RG_CHECK_STATUS(rg_checkpoint_reader_failure(scene.reader), NOT_FOUND);
        scene_close(&scene);
    }
}

/* A call that timed out is gone on with, or the reader is closed. */
static void test_deadlines(void)
{
    static const uint64_t sizes[] = {10, RG_MIB(2)};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        struct rg_step hold = RG_HOLD;
        struct scene scene;
        scene_open(&scene, &hold, 0);
        RG_CHECK_EQ(rg_checkpoint_reader_read(scene.reader, 0, scene.buf, sizes[i],
                                              rg_now_ns() + RG_NS_PER_MS),
                    -ETIME);
        scene_close(&scene);
        scene_open(&scene, NULL, 0);
        int64_t got;
        do {
            got = rg_checkpoint_reader_read(scene.reader, 3, scene.buf, sizes[i], rg_now_ns());
        } while (got == -ETIME);
        RG_CHECK_EQ(got, (int64_t)sizes[i]);
        RG_CHECK_EQ(scene.buf[0], rg_script_byte(3));
        RG_CHECK_EQ(scene.buf[sizes[i] - 1], rg_script_byte(3 + sizes[i] - 1));
        scene_close(&scene);
    }
}

static void test_options(void)
{
    struct scene scene;
    scene_open(&scene, NULL, 0);
    struct rg_checkpoint_reader *reader;
    struct rg_checkpoint_reader_options bad[] = {
        {.object = "o"}, {.bucket = "b"}, {.bucket = "b", .object = "o", .generation = -1}};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_checkpoint_reader_open(&reader, scene.c.client, &bad[i]), -EINVAL);
    }
    rg_checkpoint_reader_close(NULL);
    scene_close(&scene);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_in_order),
        RG_TEST(test_in_any_order),
        RG_TEST(test_reading_ahead),
        RG_TEST(test_little_memory),
        RG_TEST(test_what_lies_behind_the_end),
        RG_TEST(test_an_end_that_was_told_otherwise),
        RG_TEST(test_a_wrong_checksum),
        RG_TEST(test_failures),
        RG_TEST(test_deadlines),
        RG_TEST(test_options),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
