/* Streams of unknown length: every method, sizes around those of parts, back-pressure, failures
 * before and after the end, and writers that are closed in the middle. */
#include "gcs/wire/checksum.h"
#include "runtime/clock.h"
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#define PART RG_MIB(5)

static struct rg_writer *writer_open(struct rg_upload_scene *scene,
                                     const struct rg_writer_options *options)
{
    struct rg_writer_options own = *options;
    struct rg_writer *writer = NULL;
    own.bucket = "bucket";
    own.object = "object";
    own.part_size = own.part_size != 0 ? own.part_size : PART;
    RG_CHECK_EQ(rg_writer_open(&writer, scene->c.client, &own), 0);
    return writer;
}

/* Writes the scene's data; -EIO ends it. */
static int write_all(struct rg_upload_scene *scene, struct rg_writer *writer, size_t piece)
{
    uint64_t done = 0;
    while (done < scene->size) {
        size_t size = (size_t)RG_MIN((uint64_t)piece, scene->size - done);
        int64_t taken = rg_writer_write(writer, scene->data + done, size);
        if (taken == -EAGAIN) {
            taken = rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS);
            if (taken == -EIO) {
                return -EIO;
            }
            RG_CHECK_EQ(taken, 0);
            continue;
        }
        if (taken == -EIO) {
            return -EIO;
        }
        RG_CHECK(taken > 0 && (size_t)taken <= size);
        done += (uint64_t)taken;
    }
    return 0;
}

static struct rg_completion writer_finish(struct rg_upload_scene *scene, struct rg_writer *writer)
{
    int rc;
    while ((rc = rg_writer_finish(writer, scene->c.cq, 77)) == -EAGAIN) {
        (void)rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS);
    }
    RG_CHECK_EQ(rc, 0);
    struct rg_completion done = rg_test_take(&scene->c);
    RG_CHECK_EQ(done.user_data, 77);
    return done;
}

static void write_one(enum rg_upload_method method, uint64_t size, size_t piece, uint32_t inflight,
                      const struct rg_emulated_fault *faults)
{
    struct rg_upload_scene scene = {.size = size, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_writer *writer = writer_open(
        &scene, &(struct rg_writer_options){.method = method, .parts_inflight_max = inflight});
    RG_CHECK_EQ(write_all(&scene, writer, piece), 0);
    struct rg_completion done = writer_finish(&scene, writer);
    rg_upload_scene_check_stored(&scene, &done);
    rg_writer_close(writer);
    rg_upload_scene_close(&scene);
}

static void test_sizes_and_methods(void)
{
    static const uint64_t sizes[] = {0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 99};
    static const enum rg_upload_method methods[] = {RG_UPLOAD_AUTO, RG_UPLOAD_RESUMABLE,
                                                    RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};
    for (size_t m = 0; m < RG_ARRAY_LEN(methods); m++) {
        for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
            if (rg_test_takes(m * RG_ARRAY_LEN(sizes) + i)) {
                write_one(methods[m], sizes[i], 100001, 1 + (uint32_t)(i % 3), NULL);
            }
        }
    }
}

static void test_one_large_write(void)
{
    write_one(RG_UPLOAD_MULTIPART, 3 * PART + 5, SIZE_MAX, 2, NULL);
}

/* Lends and copies by turns, in strange sizes, and gives memory back as it is settled. What is lent
 * is summed up every other time. */
static void lend_one(enum rg_upload_method method, uint64_t size,
                     const struct rg_emulated_fault *faults)
{
    static const size_t sizes[] = {100, 4096, 70000, 1, 300000, 4095, 1 << 20, 17, 5000, 16384};
    struct rg_upload_scene scene = {.size = size, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_writer *writer =
        writer_open(&scene, &(struct rg_writer_options){.method = method, .parts_inflight_max = 2});
    uint64_t done = 0;
    for (size_t i = 0; done < size; i++) {
        size_t piece = (size_t)RG_MIN(size - done, (uint64_t)sizes[i % RG_ARRAY_LEN(sizes)]);
        const uint8_t *data = scene.data + done;
        uint32_t before = rg_crc32c(0, "before", 6), sum = before;
        int64_t taken = i % 3 == 2   ? rg_writer_write(writer, data, piece)
                        : i % 2 == 0 ? rg_writer_lend_sum(writer, data, piece, &sum)
                                     : rg_writer_lend(writer, data, piece);
        bool is_summed = i % 3 != 2 && i % 2 == 0 && taken > 0;
        RG_CHECK_EQ(sum, is_summed ? rg_crc32c(before, data, (size_t)taken) : before);
        RG_CHECK(rg_writer_settled(writer) <= done + piece);
        if (taken == -EAGAIN) {
            RG_CHECK_EQ(rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS), 0);
        } else {
            RG_CHECK(taken > 0);
            done += (uint64_t)taken;
        }
    }
    struct rg_completion completion = writer_finish(&scene, writer);
    RG_CHECK_EQ(rg_writer_settled(writer), size);
    rg_upload_scene_check_stored(&scene, &completion);
    rg_writer_close(writer);
    rg_upload_scene_close(&scene);
}

static void test_lending(void)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_AUTO, RG_UPLOAD_RESUMABLE,
                                                    RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};
    static const uint64_t sizes[] = {3, 100000, PART, 3 * PART + 12345};
    for (size_t m = 0; m < RG_ARRAY_LEN(methods); m++) {
        for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
            if (rg_test_takes(m * RG_ARRAY_LEN(sizes) + i)) {
                lend_one(methods[m], sizes[i], NULL);
            }
        }
    }
}

static void test_lending_with_faults(void)
{
    static const struct rg_emulated_fault rows[][2] = {
        {{RG_EMULATED_CHUNK, 2, RG_EMULATED_HALF}, {.kind = RG_EMULATED_KIND_COUNT}},
        {{RG_EMULATED_CHUNK, 2, RG_EMULATED_HALF_503}, {.kind = RG_EMULATED_KIND_COUNT}},
        {{RG_EMULATED_PART, 2, RG_EMULATED_RESET}, {.kind = RG_EMULATED_KIND_COUNT}},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        bool chunked = rows[i][0].kind == RG_EMULATED_CHUNK;
        lend_one(chunked ? RG_UPLOAD_RESUMABLE : RG_UPLOAD_MULTIPART, 2 * PART + 99, rows[i]);
    }
}

/* Lends a copy of the scene's data, and overwrites each piece as soon as it is told that it may.
 * How many pieces were taken, and in *out_told how many were told of; -EIO ends it. */
static unsigned lend_told(struct rg_upload_scene *scene, struct rg_writer *writer, uint8_t *copy,
                          unsigned *out_told)
{
    static const size_t sizes[] = {100, 4096, 70000, 300000, 4095, 1 << 20, 17, 16384};
    struct rg_completion done;
    uint64_t at = 0;
    unsigned count = 0;
    *out_told = 0;
    while (at < scene->size) {
        size_t size =
            (size_t)RG_MIN(scene->size - at, (uint64_t)sizes[count % RG_ARRAY_LEN(sizes)]);
        int64_t taken = rg_writer_lend_completed(writer, copy + at, size, scene->c.cq, count);
        if (taken == -EIO) {
            break;
        }
        RG_CHECK(taken == -EAGAIN || taken > 0);
        if (taken == -EAGAIN) {
            (void)rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS);
        } else {
            at += (uint64_t)taken;
            count++;
        }
        while (rg_cq_poll(scene->c.cq, &done, 1) == 1) {
            RG_CHECK_EQ(done.user_data, (*out_told)++);
            RG_CHECK(done.status != RG_STATUS_OK ||
                     done.crc32c == rg_crc32c(0, done.data, done.size));
            memset((void *)(uintptr_t)done.data, 0xff, (size_t)done.size);
        }
    }
    return count;
}

/* Takes the rest of them, which come before the end's completion. */
static struct rg_completion told_all(struct rg_upload_scene *scene, unsigned count, unsigned told)
{
    struct rg_completion done = rg_test_take(&scene->c);
    for (; told < count; told++) {
        RG_CHECK_EQ(done.user_data, told);
        RG_CHECK(done.size > 0 && done.lease == NULL);
        done = rg_test_take(&scene->c);
    }
    RG_CHECK_EQ(done.user_data, 1000000);
    return done;
}

static void test_lends_that_are_told_of(void)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_AUTO, RG_UPLOAD_RESUMABLE,
                                                    RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};
    static const uint64_t sizes[] = {3, 100000, PART, 3 * PART + 12345};
    for (size_t m = 0; m < RG_ARRAY_LEN(methods); m++) {
        for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
            if (!rg_test_takes(m * RG_ARRAY_LEN(sizes) + i)) {
                continue;
            }
            struct rg_upload_scene scene = {.size = sizes[i]};
            rg_upload_scene_open(&scene);
            uint8_t *copy = malloc(scene.size);
            memcpy(copy, scene.data, scene.size);
            struct rg_writer *writer = writer_open(
                &scene, &(struct rg_writer_options){.method = methods[m], .parts_inflight_max = 2});
            unsigned told, count = lend_told(&scene, writer, copy, &told);
            int rc;
            while ((rc = rg_writer_finish(writer, scene.c.cq, 1000000)) == -EAGAIN) {
                (void)rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS);
            }
            RG_CHECK_EQ(rc, 0);
            struct rg_completion done = told_all(&scene, count, told);
            rg_upload_scene_check_stored(&scene, &done);
            rg_writer_close(writer);
            rg_upload_scene_close(&scene);
            free(copy);
        }
    }
}

/* A part is refused while others are being sent, or a session breaks: what is told as done was
 * sent, the rest fails as the upload does. */
static void test_lends_of_an_upload_that_fails(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 2, RG_EMULATED_403},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = 10 * PART, .faults = faults};
    rg_upload_scene_open(&scene);
    uint8_t *copy = malloc(scene.size);
    memcpy(copy, scene.data, scene.size);
    struct rg_writer *writer =
        writer_open(&scene, &(struct rg_writer_options){.method = RG_UPLOAD_MULTIPART,
                                                        .parts_inflight_max = 2});
    unsigned told, count = lend_told(&scene, writer, copy, &told);
    RG_CHECK_EQ(rg_writer_finish(writer, scene.c.cq, 1000000), 0);
    struct rg_completion done = told_all(&scene, count, told);
    RG_CHECK(count > 0);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_PERMISSION);
    rg_writer_close(writer);
    rg_upload_scene_close(&scene);
    free(copy);
}

/* Before anything was sent, and while parts are out. */
static void test_lends_of_a_writer_that_is_closed(void)
{
    static const uint64_t sizes[] = {1000, 2 * PART};
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 0, RG_EMULATED_HANG},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        struct rg_upload_scene scene = {.size = sizes[i], .faults = faults};
        rg_upload_scene_open(&scene);
        struct rg_writer *writer =
            writer_open(&scene, &(struct rg_writer_options){.method = RG_UPLOAD_MULTIPART,
                                                            .parts_inflight_max = 2});
        uint64_t half = sizes[i] / 2;
        for (uint64_t k = 0; k < 2; k++) {
            RG_CHECK_EQ(
                rg_writer_lend_completed(writer, scene.data + k * half, half, scene.c.cq, k),
                (int64_t)half);
        }
        RG_CHECK(rg_test_is_quiet(&scene.c, 0));
        rg_writer_close(writer);
        for (uint64_t k = 0; k < 2; k++) {
            struct rg_completion done = rg_test_take(&scene.c);
            RG_CHECK_EQ(done.user_data, k);
            RG_CHECK_EQ(done.size, half);
            RG_CHECK_STATUS(&done, CANCELLED);
            RG_CHECK(strstr(done.detail, "closed without rg_writer_finish") != NULL);
        }
        rg_upload_scene_close(&scene);
    }
}

static void test_lends_with_a_full_queue(void)
{
    struct rg_upload_scene scene = {.size = 100000};
    rg_upload_scene_open(&scene);
    struct rg_cq *small;
    struct rg_completion done;
    RG_CHECK_EQ(rg_cq_open(&small, scene.c.runtime, 1), 0);
    struct rg_writer *writer = writer_open(&scene, &(struct rg_writer_options){0});
    RG_CHECK_EQ(rg_writer_lend_completed(writer, scene.data, 50000, small, 1), 50000);
    RG_CHECK_EQ(rg_writer_lend_completed(writer, scene.data, 50000, small, 2), -EAGAIN);
    RG_CHECK_EQ(rg_writer_lend_completed(writer, NULL, 1, scene.c.cq, 3), -EINVAL);
    RG_CHECK_EQ(rg_writer_lend_completed(writer, scene.data, 0, scene.c.cq, 3), 0);
    RG_CHECK_EQ(rg_writer_lend(writer, scene.data + 50000, 50000), 50000);
    struct rg_completion end = writer_finish(&scene, writer);
    rg_upload_scene_check_stored(&scene, &end);
    RG_CHECK_EQ(rg_cq_poll(small, &done, 1), 1);
    RG_CHECK_EQ(done.user_data, 1);
    RG_CHECK_STATUS(&done, OK);
    rg_writer_close(writer);
    rg_cq_close(small);
    rg_upload_scene_close(&scene);
}

/* Sends a copy of the scene's data by lends of one size and one queue, overwrites what is told to
 * be its own again, and waits for nothing but what must come: completions while some are out, or
 * else a free part. */
static void lend_and_wait(struct rg_upload_scene *scene, struct rg_writer *writer, struct rg_cq *cq,
                          size_t piece)
{
    uint8_t *copy = malloc(scene->size);
    struct rg_completion done;
    uint64_t at = 0, told = 0, out = 0;
    memcpy(copy, scene->data, scene->size);
    while (at < scene->size) {
        size_t size = (size_t)RG_MIN(scene->size - at, (uint64_t)piece);
        int64_t taken = rg_writer_lend_completed(writer, copy + at, size, cq, at);
        if (taken > 0) {
            at += (uint64_t)taken;
            out++;
        } else if (out > 0) {
            RG_CHECK_EQ(taken, -EAGAIN);
            RG_CHECK_EQ(rg_cq_wait(cq, &done, 1, 1, rg_now_ns() + RG_TEST_PATIENCE_NS), 1);
            RG_CHECK_EQ(done.user_data, told);
            RG_CHECK_STATUS(&done, OK);
            memset(copy + told, 0xff, (size_t)done.size);
            told += done.size;
            out--;
        } else {
            RG_CHECK_EQ(taken, -EAGAIN);
            RG_CHECK_EQ(rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS), 0);
        }
    }
    struct rg_completion end = writer_finish(scene, writer);
    rg_upload_scene_check_stored(scene, &end);
    while (rg_cq_poll(cq, &done, 1) == 1) {
        RG_CHECK_EQ(done.user_data, told);
        told += done.size;
    }
    RG_CHECK_EQ(told, scene->size);
    free(copy);
}

/* However few slots the queue has for the lends of a part, and however small they are. */
static void test_lends_never_wait_for_themselves(void)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_AUTO, RG_UPLOAD_RESUMABLE,
                                                    RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};
    static const uint32_t capacities[] = {1, 2, 16, 1024};
    static const size_t pieces[] = {1, RG_KIB(4), RG_MIB(1), 2 * PART};
    for (size_t i = 0; i < 64; i++) {
        size_t piece = pieces[i % 4];
        if (!rg_test_takes(i)) {
            continue;
        }
        struct rg_upload_scene scene = {
            .size = piece == 1 ? 3000 : RG_MAX((uint64_t)piece, PART) + RG_KIB(4) + 1};
        struct rg_cq *cq;
        rg_upload_scene_open(&scene);
        RG_CHECK_EQ(rg_cq_open(&cq, scene.c.runtime, capacities[i / 4 % 4]), 0);
        struct rg_writer *writer =
            writer_open(&scene, &(struct rg_writer_options){.method = methods[i / 16],
                                                            .parts_inflight_max = 2});
        lend_and_wait(&scene, writer, cq, piece);
        rg_writer_close(writer);
        rg_cq_close(cq);
        rg_upload_scene_close(&scene);
    }
}

/* One writer's lends of an unfilled part leave slots to what else uses the queue. */
static void test_lends_leave_room_in_the_queue(void)
{
    struct rg_upload_scene scene = {.size = 12 * RG_KIB(4)};
    struct rg_completion done;
    struct rg_cq *cq;
    rg_upload_scene_open(&scene);
    RG_CHECK_EQ(rg_cq_open(&cq, scene.c.runtime, 16), 0);
    struct rg_writer *writer = writer_open(&scene, &(struct rg_writer_options){0});
    for (uint64_t i = 0; i < 12; i++) {
        RG_CHECK_EQ(rg_cq_poll(cq, &done, 1), 0);
        RG_CHECK_EQ(rg_writer_lend_completed(writer, scene.data + i * RG_KIB(4), RG_KIB(4), cq, i),
                    (int64_t)RG_KIB(4));
    }
    for (uint64_t i = 0; i < 12; i++) {
        RG_CHECK_EQ(rg_cq_poll(cq, &done, 1), 1);
        RG_CHECK_EQ(done.user_data, i);
    }
    RG_CHECK_EQ(rg_writer_settled(writer), 0);
    struct rg_completion end = writer_finish(&scene, writer);
    rg_upload_scene_check_stored(&scene, &end);
    rg_writer_close(writer);
    rg_cq_close(cq);
    rg_upload_scene_close(&scene);
}

static void test_small_objects_take_one_request(void)
{
    struct rg_upload_scene scene = {.size = 1000};
    rg_upload_scene_open(&scene);
    struct rg_writer *writer = writer_open(&scene, &(struct rg_writer_options){0});
    RG_CHECK_EQ(write_all(&scene, writer, 10), 0);
    struct rg_completion done = writer_finish(&scene, writer);
    rg_upload_scene_check_stored(&scene, &done);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_SINGLE), 1);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_BEGIN), 0);
    rg_writer_close(writer);
    rg_upload_scene_close(&scene);
}

static void test_faults(void)
{
    static const struct rg_emulated_fault rows[][2] = {
        {{RG_EMULATED_CHUNK, 1, RG_EMULATED_RESET}, {.kind = RG_EMULATED_KIND_COUNT}},
        {{RG_EMULATED_CHUNK, 2, RG_EMULATED_LOST}, {.kind = RG_EMULATED_KIND_COUNT}},
        {{RG_EMULATED_CHUNK, 3, RG_EMULATED_LOST}, {.kind = RG_EMULATED_KIND_COUNT}},
        {{RG_EMULATED_CHUNK, 2, RG_EMULATED_HALF}, {.kind = RG_EMULATED_KIND_COUNT}},
        {{RG_EMULATED_CHUNK, 2, RG_EMULATED_HALF_503}, {.kind = RG_EMULATED_KIND_COUNT}},
        {{RG_EMULATED_PART, 2, RG_EMULATED_RESET}, {.kind = RG_EMULATED_KIND_COUNT}},
        {{RG_EMULATED_COMPLETE, 1, RG_EMULATED_LOST}, {.kind = RG_EMULATED_KIND_COUNT}},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        bool chunked = rows[i][0].kind == RG_EMULATED_CHUNK;
        write_one(chunked ? RG_UPLOAD_RESUMABLE : RG_UPLOAD_MULTIPART, 2 * PART + 99, 1 << 20, 2,
                  rows[i]);
    }
}

/* Without anybody who takes parts, no more than the parts in flight are taken. */
static void test_back_pressure(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 0, RG_EMULATED_HANG},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = 4 * PART, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_writer *writer =
        writer_open(&scene, &(struct rg_writer_options){.method = RG_UPLOAD_MULTIPART,
                                                        .parts_inflight_max = 2});
    RG_CHECK_EQ(rg_writer_write(writer, scene.data, scene.size), 2 * PART);
    RG_CHECK_EQ(rg_writer_write(writer, scene.data, 1), -EAGAIN);
    RG_CHECK_EQ(rg_writer_finish(writer, scene.c.cq, 0), -EAGAIN);
    RG_CHECK_EQ(rg_writer_wait(writer, rg_now_ns() + 10 * RG_NS_PER_MS), -ETIME);
    rg_upload_scene_await(&scene, RG_EMULATED_PART, 2);
    rg_writer_close(writer);
    RG_CHECK_EQ(rg_emulated_uploads(scene.emulated), 0);
    RG_CHECK_EQ(rg_emulated_objects(scene.emulated), 0);
    rg_upload_scene_close(&scene);
}

static void test_closed_without_an_end(void)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_RESUMABLE, RG_UPLOAD_MULTIPART,
                                                    RG_UPLOAD_COMPOSE};
    static const uint64_t sizes[] = {0, 1, PART, 2 * PART + 1};
    for (size_t m = 0; m < RG_ARRAY_LEN(methods); m++) {
        for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
            struct rg_upload_scene scene = {.size = sizes[i]};
            rg_upload_scene_open(&scene);
            struct rg_writer *writer =
                writer_open(&scene, &(struct rg_writer_options){.method = methods[m]});
            RG_CHECK_EQ(write_all(&scene, writer, 1 << 20), 0);
            if (m == 0) { /* Others are closed before anything is out. */
                rg_test_client_turn(&scene.c);
            }
            rg_writer_close(writer);
            RG_CHECK_EQ(rg_emulated_uploads(scene.emulated), 0);
            RG_CHECK_EQ(rg_emulated_objects(scene.emulated), 0);
            rg_upload_scene_close(&scene);
        }
    }
    rg_writer_close(NULL);
}

/* A failure before the end shows at the next write, and its cause when the stream is ended. */
static void test_failure_before_the_end(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 0, RG_EMULATED_403},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = 10 * PART, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_writer *writer =
        writer_open(&scene, &(struct rg_writer_options){.parts_inflight_max = 2});
    RG_CHECK_EQ(write_all(&scene, writer, 1 << 20), -EIO);
    RG_CHECK_EQ(rg_writer_write(writer, "a", 1), -EIO);
    struct rg_completion done = writer_finish(&scene, writer);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_PERMISSION);
    rg_writer_close(writer);
    rg_upload_scene_close(&scene);
}

static void test_failure_at_the_end(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_COMPLETE, 0, RG_EMULATED_403},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = 2 * PART, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_writer *writer = writer_open(&scene, &(struct rg_writer_options){0});
    RG_CHECK_EQ(write_all(&scene, writer, 1 << 20), 0);
    struct rg_completion done = writer_finish(&scene, writer);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_PERMISSION);
    RG_CHECK_EQ(rg_writer_write(writer, "a", 1), -EINVAL);
    RG_CHECK_EQ(rg_writer_finish(writer, scene.c.cq, 0), -EINVAL);
    rg_writer_close(writer);
    rg_upload_scene_close(&scene);
}

static void test_cancelled_after_the_end(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_COMPLETE, 1, RG_EMULATED_HANG},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = 2 * PART, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_writer *writer = writer_open(&scene, &(struct rg_writer_options){0});
    RG_CHECK_EQ(write_all(&scene, writer, 1 << 20), 0);
    RG_CHECK_EQ(rg_writer_finish(writer, scene.c.cq, 5), 0);
    rg_upload_scene_await(&scene, RG_EMULATED_COMPLETE, 1);
    RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, 5), 0);
    struct rg_completion done = rg_test_take(&scene.c);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_CANCELLED);
    rg_writer_close(writer);
    rg_upload_scene_close(&scene);
}

static void test_conditions(void)
{
    struct rg_upload_scene scene = {.size = PART + 1};
    rg_upload_scene_open(&scene);
    const struct rg_writer_options options = {
        .conditions = {.if_generation_match = RG_GENERATION_ABSENT}};
    for (unsigned i = 0; i < 2; i++) {
        struct rg_writer *writer = writer_open(&scene, &options);
        RG_CHECK_EQ(i == 0 ? write_all(&scene, writer, 1 << 20) : 0, 0);
        struct rg_completion done = writer_finish(&scene, writer);
        rg_test_check_status(__FILE__, __LINE__, &done,
                             i == 0 ? RG_STATUS_OK : RG_STATUS_PRECONDITION);
        rg_lease_release(done.lease);
        rg_writer_close(writer);
    }
    /* In parallel, though no multipart upload can have the condition. */
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_COMPOSE), 1);
    RG_CHECK_EQ(rg_emulated_objects(scene.emulated), 1);
    rg_upload_scene_close(&scene);
}

/* Without what the caller fixes. */
static struct rg_writer *adaptive_open(struct rg_upload_scene *scene, uint64_t size_hint)
{
    struct rg_writer *writer = NULL;
    const struct rg_writer_options options = {
        .bucket = "bucket", .object = "object", .size_hint = size_hint};
    RG_CHECK_EQ(rg_writer_open(&writer, scene->c.client, &options), 0);
    return writer;
}

/* What a stream of a size that was announced, or not, is sent by. */
static void test_parts_adapt_to_the_size(void)
{
    static const struct {
        uint64_t size, hint;
        enum rg_emulated_kind kind;
        uint32_t count;
    } rows[] = {
        {RG_MIB(3), RG_MIB(3), RG_EMULATED_SINGLE, 1},
        {RG_MIB(8), RG_MIB(8), RG_EMULATED_SINGLE, 1},
        {RG_MIB(8), 0, RG_EMULATED_SINGLE, 1},
        {RG_MIB(40), 0, RG_EMULATED_PART, 3},
        {RG_MIB(40), RG_MIB(40), RG_EMULATED_PART, 5},
        {RG_MIB(40), RG_MIB(1), RG_EMULATED_PART, 3},
        {RG_MIB(20), UINT64_C(100) << 30, RG_EMULATED_PART, 2},
        {RG_MIB(20), UINT64_C(5) << 40, RG_EMULATED_COMPOSE, 1},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_upload_scene scene = {.size = rows[i].size};
        rg_upload_scene_open(&scene);
        struct rg_writer *writer = adaptive_open(&scene, rows[i].hint);
        RG_CHECK_EQ(write_all(&scene, writer, SIZE_MAX), 0);
        struct rg_completion done = writer_finish(&scene, writer);
        rg_upload_scene_check_stored(&scene, &done);
        RG_CHECK_EQ(rg_emulated_count(scene.emulated, rows[i].kind), rows[i].count);
        rg_writer_close(writer);
        rg_upload_scene_close(&scene);
    }
}

/* Takes nothing while it is asked: as much as four parts, and after a 503 as two. */
static void test_no_more_is_taken_than_may_be_there(void)
{
    static const struct {
        struct rg_emulated_fault faults[3];
        uint64_t taken;
    } rows[] = {
        {{{RG_EMULATED_PART, 0, RG_EMULATED_HANG}, {.kind = RG_EMULATED_KIND_COUNT}}, RG_MIB(64)},
        {{{RG_EMULATED_PART, 1, RG_EMULATED_503},
          {RG_EMULATED_PART, 0, RG_EMULATED_HANG},
          {.kind = RG_EMULATED_KIND_COUNT}},
         RG_MIB(32)},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_upload_scene scene = {.size = RG_MIB(100), .faults = rows[i].faults};
        rg_upload_scene_open(&scene);
        struct rg_writer *writer = adaptive_open(&scene, 0);
        int64_t taken = rg_writer_write(writer, scene.data, RG_MIB(16));
        RG_CHECK_EQ(taken, RG_MIB(16));
        /* The second is another try, so that the answer to the first has been heard. */
        rg_upload_scene_await(&scene, RG_EMULATED_PART, (uint32_t)i + 1);
        taken += rg_writer_write(writer, scene.data + taken, scene.size - (uint64_t)taken);
        RG_CHECK_EQ(taken, rows[i].taken);
        RG_CHECK_EQ(rg_writer_write(writer, scene.data, 1), -EAGAIN);
        rg_writer_close(writer);
        RG_CHECK_EQ(rg_emulated_uploads(scene.emulated), 0);
        rg_upload_scene_close(&scene);
    }
}

/* What lies behind a part that does not end is lent until that does, so it is bounded, too. */
static void test_no_more_is_lent_behind_a_slow_part(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 1, RG_EMULATED_HANG},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = 8 * PART, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_writer *writer =
        writer_open(&scene, &(struct rg_writer_options){.method = RG_UPLOAD_MULTIPART,
                                                        .parts_inflight_max = 2});
    /* The first of the stream is the one that comes first. */
    uint64_t taken = PART;
    RG_CHECK_EQ(rg_writer_lend(writer, scene.data, PART), PART);
    rg_upload_scene_await(&scene, RG_EMULATED_PART, 1);
    while (taken < 4 * PART) {
        int64_t some = rg_writer_lend(writer, scene.data + taken, scene.size - taken);
        taken += some > 0 ? (uint64_t)some : 0;
        RG_CHECK(some > 0 || rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS) == 0);
    }
    RG_CHECK_EQ(taken, 4 * PART);
    rg_upload_scene_await(&scene, RG_EMULATED_PART, 4);
    /* The answers to the others may still come, and lead to nothing. */
    int rc;
    do {
        rc = rg_writer_wait(writer, rg_now_ns() + 200 * RG_NS_PER_MS);
        RG_CHECK_EQ(rg_writer_lend(writer, scene.data, 1), -EAGAIN);
    } while (rc == 0);
    RG_CHECK_EQ(rc, -ETIME);
    RG_CHECK_EQ(rg_writer_settled(writer), 0);
    rg_writer_close(writer);
    RG_CHECK_EQ(rg_emulated_uploads(scene.emulated), 0);
    rg_upload_scene_close(&scene);
}

/* Each method that is chosen sends parts of different sizes, with faults between them. */
static void test_faults_in_streams_that_adapt(void)
{
    static const struct {
        uint64_t hint;
        struct rg_emulated_fault faults[4];
    } rows[] = {
        {0,
         {{RG_EMULATED_PART, 1, RG_EMULATED_RESET},
          {RG_EMULATED_PART, 2, RG_EMULATED_503},
          {RG_EMULATED_COMPLETE, 1, RG_EMULATED_LOST},
          {.kind = RG_EMULATED_KIND_COUNT}}},
        {RG_MIB(40),
         {{RG_EMULATED_PART, 2, RG_EMULATED_503},
          {RG_EMULATED_PART, 3, RG_EMULATED_LOST},
          {.kind = RG_EMULATED_KIND_COUNT}}},
        {UINT64_C(5) << 40,
         {{RG_EMULATED_SINGLE, 1, RG_EMULATED_LOST},
          {RG_EMULATED_COMPOSE, 1, RG_EMULATED_LOST},
          {RG_EMULATED_DELETE, 1, RG_EMULATED_503},
          {.kind = RG_EMULATED_KIND_COUNT}}},
        {0,
         {{RG_EMULATED_BEGIN, 1, RG_EMULATED_501},
          {RG_EMULATED_CHUNK, 2, RG_EMULATED_HALF_503},
          {.kind = RG_EMULATED_KIND_COUNT}}},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_upload_scene scene = {.size = RG_MIB(40) + 12345, .faults = rows[i].faults};
        rg_upload_scene_open(&scene);
        struct rg_writer *writer = adaptive_open(&scene, rows[i].hint);
        RG_CHECK_EQ(write_all(&scene, writer, RG_MIB(1)), 0);
        struct rg_completion done = writer_finish(&scene, writer);
        rg_upload_scene_check_stored(&scene, &done);
        rg_writer_close(writer);
        rg_upload_scene_close(&scene);
    }
}

/* Held back for good until the program says otherwise, or closes. */
static void test_a_rate(void)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_AUTO, RG_UPLOAD_RESUMABLE,
                                                    RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};
    for (size_t m = 0; m < RG_ARRAY_LEN(methods); m++) {
        for (int finish = 0; finish < 2; finish++) {
            struct rg_upload_scene scene = {.size = 2 * PART + 99};
            rg_upload_scene_open(&scene);
            struct rg_writer *writer = writer_open(
                &scene, &(struct rg_writer_options){.method = methods[m], .parts_inflight_max = 3});
            rg_writer_set_rate(writer, 1);
            RG_CHECK_EQ(write_all(&scene, writer, 100001), 0);
            RG_CHECK_EQ(rg_writer_finish(writer, scene.c.cq, 77), 0);
            struct rg_completion done;
            RG_CHECK_EQ(rg_writer_settled(writer), 0);
            if (finish) {
                rg_writer_set_rate(writer, RG_MIB(1024));
                rg_writer_set_rate(writer, 0);
            } else {
                RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, 77), 0);
            }
            done = rg_test_take(&scene.c);
            if (finish) {
                rg_upload_scene_check_stored(&scene, &done);
            } else {
                rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_CANCELLED);
            }
            rg_writer_close(writer);
            rg_upload_scene_close(&scene);
        }
    }
}

static void test_what_is_refused_at_once(void)
{
    struct rg_upload_scene scene = {.size = 1};
    rg_upload_scene_open(&scene);
    const struct rg_writer_options bad[] = {
        {.bucket = "bucket"},
        {.object = "object"},
        {.bucket = "bucket", .object = "a\r"},
        {.bucket = "bucket", .object = "object", .method = RG_UPLOAD_SINGLE},
        {.bucket = "bucket", .object = "object", .method = (enum rg_upload_method)9},
        {.bucket = "bucket", .object = "object", .parts_inflight_max = 1000},
        {.bucket = "bucket", .object = "object", .size_hint = (UINT64_C(5) << 40) + 1},
        {.bucket = "bucket", .object = "object", .content_type = "a\r\nb: c"},
        {.bucket = "bucket",
         .object = "object",
         .method = RG_UPLOAD_MULTIPART,
         .conditions = {.if_generation_match = 1}},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        struct rg_writer *writer;
        RG_CHECK_EQ(rg_writer_open(&writer, scene.c.client, &bad[i]), -EINVAL);
    }
    rg_upload_scene_close(&scene);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sizes_and_methods),
        RG_TEST(test_one_large_write),
        RG_TEST(test_lending),
        RG_TEST(test_lending_with_faults),
        RG_TEST(test_lends_that_are_told_of),
        RG_TEST(test_lends_of_an_upload_that_fails),
        RG_TEST(test_lends_of_a_writer_that_is_closed),
        RG_TEST(test_lends_with_a_full_queue),
        RG_TEST(test_lends_never_wait_for_themselves),
        RG_TEST(test_lends_leave_room_in_the_queue),
        RG_TEST(test_small_objects_take_one_request),
        RG_TEST(test_faults),
        RG_TEST(test_back_pressure),
        RG_TEST(test_closed_without_an_end),
        RG_TEST(test_failure_before_the_end),
        RG_TEST(test_failure_at_the_end),
        RG_TEST(test_cancelled_after_the_end),
        RG_TEST(test_conditions),
        RG_TEST(test_parts_adapt_to_the_size),
        RG_TEST(test_no_more_is_taken_than_may_be_there),
        RG_TEST(test_no_more_is_lent_behind_a_slow_part),
        RG_TEST(test_faults_in_streams_that_adapt),
        RG_TEST(test_a_rate),
        RG_TEST(test_what_is_refused_at_once),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
