/* Reads that are submitted: many at once, from several threads, always of one generation, compared
 * with the object's CRC32C, cancelled, closed, refused, and with a peer that dies. */
#include "gcs/wire/checksum.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <pthread.h>
#include <ringest/checkpoint.h>
#include <sys/wait.h>
#include <unistd.h>

#define GENERATION 7
#define SIZE (RG_MIB(20) + 12345)
#define THREADS 4
#define READS 40

struct scene {
    struct rg_test_client c;
    struct rg_step script[3];
    const struct rg_step *scripts[1];
    struct rg_checkpoint_reader *reader;
    uint8_t *buf;
};

static struct rg_step object_step(uint64_t size, int64_t generation)
{
    return (struct rg_step){
        .kind = RG_STEP_SEND_OBJECT, .size = size, .text = rg_test_object_fields(size, generation)};
}

/* scene->c says what else than a good server of an object of SIZE bytes there is. */
static void scene_open(struct scene *scene, const struct rg_step *step)
{
    if (scene->c.scripts == NULL) {
        scene->script[0] = (struct rg_step)RG_READ;
        scene->script[1] = step != NULL ? *step : object_step(SIZE, GENERATION);
        scene->script[2] = (struct rg_step)RG_AGAIN;
        scene->scripts[0] = scene->script;
        scene->c.scripts = scene->scripts;
        scene->c.script_count = 1;
    }
    rg_test_client_open(&scene->c);
    const struct rg_checkpoint_reader_options options = {.bucket = "bucket", .object = "object"};
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

static int submit(struct scene *scene, uint64_t offset, uint64_t size, uint64_t user_data)
{
    const struct rg_checkpoint_read read = {
        .offset = offset, .size = size, .buf = scene->buf + offset, .user_data = user_data};
    return rg_submit_checkpoint_read(scene->reader, scene->c.cq, &read);
}

static void check_read(const struct rg_completion *done, uint64_t offset, uint64_t size)
{
    RG_CHECK_STATUS(done, OK);
    RG_CHECK_BYTES(done, offset, size);
    RG_CHECK_EQ(done->crc32c, rg_crc32c(0, done->data, size));
    RG_CHECK_EQ(done->generation, GENERATION);
    RG_CHECK_EQ(done->object_size, SIZE);
    RG_CHECK(done->has_object_crc32c && done->lease == NULL);
}

static void read_one(struct scene *scene, uint64_t offset, uint64_t size)
{
    uint64_t want = RG_MIN(size, SIZE - RG_MIN((uint64_t)SIZE, offset));
    memset(scene->buf + offset, 0xee, want);
    RG_CHECK_EQ(submit(scene, offset, size, offset), 0);
    struct rg_completion done = rg_test_take(&scene->c);
    RG_CHECK_EQ(done.user_data, offset);
    check_read(&done, offset, want);
}

static void test_pieces_of_all_sizes(void)
{
    struct scene scene = {0};
    scene_open(&scene, NULL);
    RG_CHECK_EQ(rg_checkpoint_reader_generation(scene.reader), 0);
    read_one(&scene, 0, SIZE);
    RG_CHECK_EQ(rg_checkpoint_reader_generation(scene.reader), GENERATION);
    read_one(&scene, 5, 1);
    read_one(&scene, RG_MIB(8) - 1, 2);
    read_one(&scene, 100, RG_MIB(16));
    read_one(&scene, SIZE - 1, 1);
    read_one(&scene, 17, 0);
    scene_close(&scene);
}

static void test_the_end(void)
{
    struct scene scene = {0};
    scene_open(&scene, NULL);
    uint8_t byte;
    const uint64_t offsets[] = {SIZE, SIZE + 1, RG_MIB(100)};
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < RG_ARRAY_LEN(offsets); i++) {
            const struct rg_checkpoint_read read = {.offset = offsets[i], .size = 1, .buf = &byte};
            RG_CHECK_EQ(rg_submit_checkpoint_read(scene.reader, scene.c.cq, &read), 0);
            struct rg_completion done = rg_test_take(&scene.c);
            RG_CHECK_STATUS(&done, OK);
            RG_CHECK_EQ(done.size, 0);
        }
        read_one(&scene, SIZE - 10, 10);
    }
    scene_close(&scene);
}

struct reading {
    struct scene *scene;
    unsigned thread;
};

static void *read_share(void *context)
{
    const struct reading *reading = context;
    for (uint64_t i = reading->thread; i < READS; i += THREADS) {
        uint64_t from = SIZE / READS * i, to = i + 1 < READS ? SIZE / READS * (i + 1) : SIZE;
        int rc;
        while ((rc = submit(reading->scene, from, to - from, i)) == -EAGAIN) {
            sched_yield();
        }
        RG_CHECK_EQ(rc, 0);
    }
    return NULL;
}

/* The queue is small, so that it is full at times. */
static void test_many_from_several_threads(void)
{
    struct scene scene = {.c = {.threads = 2, .capacity = 8}};
    scene_open(&scene, NULL);
    pthread_t threads[THREADS];
    struct reading readings[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        readings[i] = (struct reading){&scene, i};
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, read_share, &readings[i]), 0);
    }
    uint64_t seen = 0;
    for (unsigned i = 0; i < READS; i++) {
        struct rg_completion done = rg_test_take(&scene.c);
        RG_CHECK_EQ(seen >> done.user_data & 1, 0);
        seen |= UINT64_C(1) << done.user_data;
        check_read(&done, SIZE / READS * done.user_data, done.size);
    }
    RG_CHECK_EQ(seen, (UINT64_C(1) << READS) - 1);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    scene_close(&scene);
}

/* Two are sent before anything is known. The one that is answered with another generation is sent
 * again, and names the first's. */
static void two_generations(bool is_gone)
{
#define GONE RG_READ, RG_SEND("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    const struct rg_step first[] = {RG_READ, RG_GATE(1), object_step(SIZE, GENERATION), RG_AGAIN};
    const struct rg_step first_gone[] = {RG_READ, RG_GATE(1), object_step(SIZE, GENERATION),
                                         GONE,    GONE,       RG_END};
    const struct rg_step second[] = {RG_READ,
                                     RG_GATE(0),
                                     object_step(SIZE, GENERATION + 1),
                                     RG_READ,
                                     object_step(SIZE, GENERATION),
                                     RG_END};
    const struct rg_step second_gone[] = {RG_READ, RG_GATE(0), object_step(SIZE, GENERATION + 1),
                                          GONE,    GONE,       RG_END};
    const struct rg_step *const scripts[] = {is_gone ? first_gone : first,
                                             is_gone ? second_gone : second};
    struct scene scene = {.c = {.scripts = scripts, .script_count = 2}};
    scene_open(&scene, NULL);
    RG_CHECK_EQ(submit(&scene, 0, 1000, 0), 0);
    RG_CHECK_EQ(submit(&scene, 5000, 1000, 5000), 0);
    RG_AWAIT(rg_scripted_server_requests(scene.c.server) == 2);
    rg_scripted_server_open(scene.c.server, 1);
    struct rg_completion done = rg_test_take(&scene.c);
    uint64_t offset = done.user_data;
    check_read(&done, offset, 1000);
    rg_scripted_server_open(scene.c.server, 0);
    done = rg_test_take(&scene.c);
    RG_CHECK_EQ(done.user_data, 5000 - offset);
    RG_CHECK_CONTAINS(rg_scripted_server_head(scene.c.server, 2), "generation=7");
    if (is_gone) {
        RG_CHECK_STATUS(&done, NOT_FOUND);
        RG_CHECK_CONTAINS(done.detail, "get gs://bucket/object");
        rg_lease_release(done.lease);
    } else {
        check_read(&done, 5000 - offset, 1000);
    }
    scene_close(&scene);
}

static void test_the_first_answer_fixes_the_generation(void)
{
    two_generations(false);
}

static void test_an_object_that_was_replaced_is_not_mixed(void)
{
    two_generations(true);
}

/* Nobody can tell which object such an answer is of. */
static void test_an_answer_without_a_generation(void)
{
    const struct rg_step step = {.kind = RG_STEP_SEND_OBJECT, .size = SIZE, .text = ""};
    struct scene scene = {0};
    scene_open(&scene, &step);
    RG_CHECK_EQ(submit(&scene, 0, 10, 1), 0);
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_STATUS(&done, BAD_RESPONSE);
    RG_CHECK_CONTAINS(done.detail, "gs://bucket/object");
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_checkpoint_reader_read(scene.reader, 0, scene.buf, 10, RG_FOREVER), -EIO);
    RG_CHECK_STATUS(rg_checkpoint_reader_failure(scene.reader), BAD_RESPONSE);
    scene_close(&scene);
}

/* The read that brings the last of all bytes fails, whichever that is, and all that come later. */
static void test_a_wrong_checksum(void)
{
    const struct rg_step wrong = {.kind = RG_STEP_SEND_OBJECT,
                                  .size = SIZE,
                                  .text =
                                      "x-goog-generation: 7\r\nx-goog-hash: crc32c=AAAAAA==\r\n"};
    static const uint64_t cuts[] = {RG_MIB(9), 0, RG_MIB(1), RG_MIB(16), SIZE};
    struct scene scene = {0};
    scene_open(&scene, &wrong);
    read_one(&scene, cuts[0], cuts[3] - cuts[0] + 100);
    read_one(&scene, cuts[1], cuts[2] - cuts[1]);
    read_one(&scene, cuts[3], cuts[4] - cuts[3]);
    RG_CHECK_EQ(submit(&scene, cuts[2] - 50, cuts[0] - cuts[2] + 100, 1), 0);
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_STATUS(&done, CHECKSUM);
    RG_CHECK_CONTAINS(done.detail, "gs://bucket/object");
    RG_CHECK_CONTAINS(done.detail, "of generation 7 have the CRC32C");
    rg_lease_release(done.lease);
    RG_CHECK_EQ(submit(&scene, 0, 10, 2), 0);
    done = rg_test_take(&scene.c);
    RG_CHECK_STATUS(&done, CHECKSUM);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_checkpoint_reader_read(scene.reader, 0, scene.buf, 10, RG_FOREVER), -EIO);
    RG_CHECK_STATUS(rg_checkpoint_reader_failure(scene.reader), CHECKSUM);
    scene_close(&scene);
}

/* All of an object by one read, which comes broken, is read again before it fails. */
static void test_a_broken_object_is_read_again(void)
{
    const struct rg_step wrong = {.kind = RG_STEP_SEND_OBJECT,
                                  .size = SIZE,
                                  .text =
                                      "x-goog-generation: 7\r\nx-goog-hash: crc32c=AAAAAA==\r\n"};
    struct scene scene = {0};
    scene_open(&scene, &wrong);
    RG_CHECK_EQ(submit(&scene, 0, SIZE, 1), 0);
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_STATUS(&done, CHECKSUM);
    RG_CHECK_EQ(rg_test_stats(&scene.c).requests, 4 * 3);
    rg_lease_release(done.lease);
    scene_close(&scene);
}

static void test_a_peer_that_dies(void)
{
    struct rg_step some = object_step(SIZE, GENERATION);
    some.body_max = RG_MIB(1) + 5;
    const struct rg_step dying[] = {RG_READ, some, {.kind = RG_STEP_RESET}};
    const struct rg_step good[] = {RG_READ, object_step(SIZE, GENERATION), RG_AGAIN};
    const struct rg_step *const scripts[] = {dying, dying, dying, good};
    struct scene scene = {.c = {.scripts = scripts, .script_count = 4}};
    scene_open(&scene, NULL);
    read_one(&scene, 0, SIZE);
    RG_CHECK(rg_test_stats(&scene.c).retries > 0);
    scene_close(&scene);
}

static void test_full_queues_and_wrong_reads(void)
{
    struct rg_step hold = RG_HOLD;
    struct scene scene = {.c = {.capacity = 2}};
    scene_open(&scene, &hold);
    const struct rg_checkpoint_read bad[] = {{.size = 1},
                                             {.offset = UINT64_MAX, .size = 2, .buf = scene.buf}};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_submit_checkpoint_read(scene.reader, scene.c.cq, &bad[i]), -EINVAL);
    }
    RG_CHECK_EQ(submit(&scene, 0, 10, 1), 0);
    RG_CHECK_EQ(submit(&scene, 0, 10, 2), 0);
    RG_CHECK_EQ(submit(&scene, 0, 10, 3), -EAGAIN);
    RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, 2), 0);
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_EQ(done.user_data, 2);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    const struct rg_checkpoint_read late = {
        .size = 10, .buf = scene.buf, .user_data = 4, .deadline_ns = rg_now_ns()};
    RG_CHECK_EQ(rg_submit_checkpoint_read(scene.reader, scene.c.cq, &late), 0);
    done = rg_test_take(&scene.c);
    RG_CHECK_EQ(done.user_data, 4);
    RG_CHECK_STATUS(&done, DEADLINE);
    rg_lease_release(done.lease);
    rg_checkpoint_reader_close(scene.reader);
    scene.reader = NULL;
    done = rg_test_take(&scene.c);
    RG_CHECK_EQ(done.user_data, 1);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    scene_close(&scene);
}

/* Each of those that are out when the reader is closed gives its completion; other readers' go on.
 */
static void test_closed_with_reads_out(void)
{
    struct rg_step hold = RG_HOLD;
    struct scene scene = {.c = {.threads = 2}};
    scene_open(&scene, &hold);
    struct rg_checkpoint_reader *other;
    const struct rg_checkpoint_reader_options options = {.bucket = "bucket", .object = "object"};
    RG_CHECK_EQ(rg_checkpoint_reader_open(&other, scene.c.client, &options), 0);
    for (uint64_t i = 0; i < READS; i++) {
        RG_CHECK_EQ(submit(&scene, i, i % 2 == 0 ? RG_MIB(19) : 5, 1), 0);
    }
    uint8_t byte;
    const struct rg_checkpoint_read read = {.size = 1, .buf = &byte, .user_data = 2};
    RG_CHECK_EQ(rg_submit_checkpoint_read(other, scene.c.cq, &read), 0);
    rg_checkpoint_reader_close(scene.reader);
    scene.reader = NULL;
    struct rg_completion done;
    for (unsigned i = 0; i < READS; i++) {
        done = rg_test_take(&scene.c);
        RG_CHECK_EQ(done.user_data, 1);
        RG_CHECK_STATUS(&done, CANCELLED);
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(rg_cq_poll(scene.c.cq, &done, 1), 0);
    rg_checkpoint_reader_close(other);
    done = rg_test_take(&scene.c);
    RG_CHECK_EQ(done.user_data, 2);
    rg_lease_release(done.lease);
    scene_close(&scene);
}

/* Both kinds of reads of one reader at once. */
static void test_beside_the_call_that_waits(void)
{
    struct scene scene = {.c = {.threads = 2}};
    scene_open(&scene, NULL);
    uint8_t *own = malloc(SIZE);
    for (uint64_t at = 0; at < SIZE; at += RG_MIB(1)) {
        uint64_t size = RG_MIN((uint64_t)RG_MIB(1), SIZE - at);
        RG_CHECK_EQ(submit(&scene, at, size, at), 0);
        RG_CHECK_EQ(rg_checkpoint_reader_read(scene.reader, at, own + at, size, RG_FOREVER),
                    (int64_t)size);
    }
    RG_CHECK_EQ(rg_script_differs(own, 0, SIZE), SIZE);
    for (uint64_t at = 0; at < SIZE; at += RG_MIB(1)) {
        struct rg_completion done = rg_test_take(&scene.c);
        check_read(&done, done.user_data, done.size);
    }
    RG_CHECK_EQ(rg_script_differs(scene.buf, 0, SIZE), SIZE);
    free(own);
    scene_close(&scene);
}

static void test_in_a_child_of_fork(void)
{
    struct scene scene = {0};
    scene_open(&scene, NULL);
    pid_t child = fork();
    if (child == 0) {
        int rc = submit(&scene, 0, 10, 1);
        rg_checkpoint_reader_close(scene.reader);
        _exit(rc == -EOWNERDEAD ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    read_one(&scene, 0, SIZE);
    scene_close(&scene);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_pieces_of_all_sizes),
        RG_TEST(test_the_end),
        RG_TEST(test_many_from_several_threads),
        RG_TEST(test_the_first_answer_fixes_the_generation),
        RG_TEST(test_an_object_that_was_replaced_is_not_mixed),
        RG_TEST(test_an_answer_without_a_generation),
        RG_TEST(test_a_wrong_checksum),
        RG_TEST(test_a_broken_object_is_read_again),
        RG_TEST(test_a_peer_that_dies),
        RG_TEST(test_full_queues_and_wrong_reads),
        RG_TEST(test_closed_with_reads_out),
        RG_TEST(test_beside_the_call_that_waits),
        RG_TEST(test_in_a_child_of_fork),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
