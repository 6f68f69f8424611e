/* Uploads by every method over TLS to the emulator, which shares no code with them but HTTP: what
 * is stored, what a reader gets, and that nothing else is in the bucket; and what is left of those
 * that nobody finishes. */
#include "emulator/emulator.h"
#include "gcs/wire/checksum.h"
#include "runtime/clock.h"
#include "tests/support/client.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <ringest/upload.h>
#include <unistd.h>

#define PART RG_MIB(5)

struct stage {
    struct rg_emulator *emulator;
    struct rg_test_client c;
    uint8_t *data;
    uint64_t size;
    int fd;
};

static void stage_open(struct stage *stage, uint64_t size)
{
    char error[256];
    static const char *const buckets[] = {"bucket"};
    const struct rg_emulator_options options = {
        .threads = 1, .buckets = buckets, .bucket_count = 1, .strict_buckets = true};
    *stage = (struct stage){.size = size, .c = {.no_server = true}};
    if (rg_emulator_open(&stage->emulator, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    stage->c.options.endpoint = rg_emulator_endpoint(stage->emulator);
    stage->c.options.ca_file = rg_emulator_ca_path(stage->emulator);
    rg_test_client_open(&stage->c);
    stage->data = malloc(size + 1);
    rg_script_fill(stage->data, 0, size);
    char path[] = "/tmp/ringest-test-XXXXXX";
    stage->fd = mkostemp(path, O_CLOEXEC);
    RG_CHECK(stage->fd >= 0);
    unlink(path);
    RG_CHECK_EQ(write(stage->fd, stage->data, size), (ssize_t)size);
}

static void stage_close(struct stage *stage)
{
    rg_test_client_close(&stage->c);
    rg_emulator_close(stage->emulator);
    close(stage->fd);
    free(stage->data);
}

/* What the bucket holds has to be this object alone; or, where it need not be there yet or ever,
 * nothing. */
static void check_bucket(struct stage *stage, const char *name, bool is_there)
{
    const struct rg_list_request list = {.bucket = "bucket"};
    RG_CHECK_EQ(rg_submit_list(stage->c.client, stage->c.cq, &list), 0);
    struct rg_completion done = rg_test_take(&stage->c);
    RG_CHECK_STATUS(&done, OK);
    const struct rg_list_page *page = done.data;
    RG_CHECK(page->object_count == 1 || (page->object_count == 0 && !is_there));
    if (page->object_count == 1) {
        RG_CHECK_STR(page->objects[0].name, name);
        RG_CHECK_EQ(page->objects[0].size, stage->size);
        RG_CHECK_EQ(page->objects[0].crc32c, rg_crc32c(0, stage->data, stage->size));
    }
    rg_lease_release(done.lease);
}

static void check_stored(struct stage *stage, struct rg_completion *done, const char *name)
{
    RG_CHECK_STATUS(done, OK);
    RG_CHECK_EQ(done->object_size, stage->size);
    int64_t generation = done->generation;
    rg_lease_release(done->lease);
    rg_test_get(&stage->c, &(struct rg_get){.object = name, .generation = generation});
    struct rg_completion got = rg_test_take(&stage->c);
    RG_CHECK_STATUS(&got, OK);
    RG_CHECK_MEM(got.data, got.size, stage->data, stage->size);
    rg_lease_release(got.lease);
    check_bucket(stage, name, true);
}

static struct rg_upload upload_of(const struct stage *stage, enum rg_upload_method method,
                                  bool from_file)
{
    return (struct rg_upload){
        .bucket = "bucket",
        .object = "a b/\xc3\xa4?#%&+.bin",
        .method = method,
        .part_size = PART,
        .data = from_file ? NULL : stage->data,
        .fd = from_file ? stage->fd : -1,
        .size = stage->size,
        .content_type = "text/plain",
    };
}

static void test_methods_and_sources(void)
{
    static const uint64_t sizes[] = {0, 1, 2 * PART, 2 * PART + 77};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        for (int method = RG_UPLOAD_AUTO; method <= RG_UPLOAD_COMPOSE; method++) {
            struct stage stage;
            stage_open(&stage, sizes[i]);
            for (unsigned from_file = 0; from_file < 2; from_file++) {
                struct rg_upload upload =
                    upload_of(&stage, (enum rg_upload_method)method, from_file == 1);
                RG_CHECK_EQ(rg_submit_upload(stage.c.client, stage.c.cq, &upload), 0);
                struct rg_completion done = rg_test_take(&stage.c);
                check_stored(&stage, &done, upload.object);
            }
            stage_close(&stage);
        }
    }
}

static void test_conditions(void)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_SINGLE, RG_UPLOAD_RESUMABLE,
                                                    RG_UPLOAD_COMPOSE};
    for (size_t m = 0; m < RG_ARRAY_LEN(methods); m++) {
        struct stage stage;
        stage_open(&stage, PART + 1);
        struct rg_upload upload = upload_of(&stage, methods[m], false);
        upload.conditions.if_generation_match = RG_GENERATION_ABSENT;
        for (unsigned i = 0; i < 2; i++) {
            RG_CHECK_EQ(rg_submit_upload(stage.c.client, stage.c.cq, &upload), 0);
            struct rg_completion done = rg_test_take(&stage.c);
            rg_test_check_status(__FILE__, __LINE__, &done,
                                 i == 0 ? RG_STATUS_OK : RG_STATUS_PRECONDITION);
            rg_lease_release(done.lease);
            check_bucket(&stage, upload.object, true);
        }
        stage_close(&stage);
    }
}

/* Ended at a moment that chance chooses: all of it is there, or nothing. */
static void test_cancelled_at_any_time(void)
{
    for (unsigned i = 0; i < 40; i++) {
        struct stage stage;
        stage_open(&stage, 2 * PART + 77);
        struct rg_upload upload =
            upload_of(&stage, (enum rg_upload_method)(RG_UPLOAD_SINGLE + i % 4), i / 4 % 2 == 1);
        RG_CHECK_EQ(rg_submit_upload(stage.c.client, stage.c.cq, &upload), 0);
        for (uint64_t turns = rg_test_random_below(8); turns > 0; turns--) {
            rg_test_client_turn(&stage.c);
        }
        RG_CHECK_EQ(rg_cancel(stage.c.client, stage.c.cq, 0), 0);
        struct rg_completion done = rg_test_take(&stage.c);
        if (done.status == RG_STATUS_OK) {
            check_stored(&stage, &done, upload.object);
        } else {
            RG_CHECK_STATUS(&done, CANCELLED);
            rg_lease_release(done.lease);
            rg_test_get(&stage.c, &(struct rg_get){.object = upload.object});
            struct rg_completion got = rg_test_take(&stage.c);
            bool is_there = got.status == RG_STATUS_OK;
            RG_CHECK(is_there || got.status == RG_STATUS_NOT_FOUND);
            rg_lease_release(got.lease);
            /* A request that was cut off may still take effect: then all of it. */
            check_bucket(&stage, upload.object, is_there);
        }
        stage_close(&stage);
    }
}

static void test_writers(void)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_AUTO, RG_UPLOAD_RESUMABLE,
                                                    RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};
    for (size_t m = 0; m < RG_ARRAY_LEN(methods); m++) {
        struct stage stage;
        stage_open(&stage, 3 * PART + 5);
        struct rg_writer_options options = {
            .bucket = "bucket", .object = "stream", .method = methods[m], .part_size = PART};
        if (m == 0) {
            options.conditions.if_generation_match = RG_GENERATION_ABSENT;
            options.part_size = 0;
            options.size_hint = stage.size;
        }
        struct rg_writer *writer;
        RG_CHECK_EQ(rg_writer_open(&writer, stage.c.client, &options), 0);
        uint64_t done_size = 0;
        while (done_size < stage.size) {
            int64_t taken = rg_writer_write(writer, stage.data + done_size, stage.size - done_size);
            RG_CHECK(taken > 0 || taken == -EAGAIN);
            done_size += taken > 0 ? (uint64_t)taken : 0;
            RG_CHECK_EQ(rg_writer_wait(writer, rg_now_ns() + RG_TEST_PATIENCE_NS), 0);
        }
        RG_CHECK_EQ(rg_writer_finish(writer, stage.c.cq, 1), 0);
        struct rg_completion done = rg_test_take(&stage.c);
        check_stored(&stage, &done, "stream");
        rg_writer_close(writer);
        stage_close(&stage);
    }
}

/* Begins a stream that has sent a part, and leaves it. */
static struct rg_writer *writer_begin(struct stage *stage, const char *object)
{
    static uint8_t data[5 << 20];
    struct rg_writer *writer;
    const struct rg_writer_options options = {
        .bucket = "bucket", .object = object, .part_size = sizeof(data)};
    RG_CHECK_EQ(rg_writer_open(&writer, stage->c.client, &options), 0);
    RG_CHECK_EQ(rg_writer_write(writer, data, sizeof(data)), sizeof(data));
    RG_AWAIT(rg_writer_settled(writer) >= sizeof(data));
    return writer;
}

/* Over pages of one, in order; aborts those below "b". How many there are. */
static unsigned walk(struct stage *stage, bool is_aborting)
{
    unsigned count = 0;
    char key[64] = "", id[128] = "";
    for (bool more = true; more;) {
        const struct rg_list_uploads list = {
            .bucket = "bucket", .key_marker = key, .id_marker = id, .results_max = 1};
        RG_CHECK_EQ(rg_submit_list_uploads(stage->c.client, stage->c.cq, &list), 0);
        struct rg_completion done = rg_test_take(&stage->c);
        RG_CHECK_STATUS(&done, OK);
        const struct rg_uploads_page *found = done.data;
        RG_CHECK(found->count <= 1);
        for (size_t i = 0; i < found->count; i++, count++) {
            const struct rg_unfinished_upload *upload = &found->uploads[i];
            RG_CHECK(upload->initiated != NULL && strchr(upload->initiated, 'T') != NULL);
            if (is_aborting && upload->object[0] == 'b') {
                const struct rg_abort_upload abort = {
                    .bucket = "bucket", .object = upload->object, .id = upload->id};
                RG_CHECK_EQ(rg_submit_abort_upload(stage->c.client, stage->c.cq, &abort), 0);
                struct rg_completion aborted = rg_test_take(&stage->c);
                RG_CHECK_STATUS(&aborted, OK);
                rg_lease_release(aborted.lease);
            }
        }
        more = found->next_key_marker != NULL;
        if (more) {
            RG_CHECK(found->count == 1);
            snprintf(key, sizeof(key), "%s", found->next_key_marker);
            snprintf(id, sizeof(id), "%s", found->next_id_marker);
        }
        rg_lease_release(done.lease);
    }
    return count;
}

static void test_unfinished_uploads(void)
{
    static const char *const names[] = {"c", "a", "b/\xc3\xa4 &<>", "b/\xc3\xa4 &<>"};
    struct rg_writer *writers[RG_ARRAY_LEN(names)];
    struct stage stage;
    stage_open(&stage, 1);
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        writers[i] = writer_begin(&stage, names[i]);
    }
    RG_CHECK_EQ(walk(&stage, true), 4);
    RG_CHECK_EQ(walk(&stage, false), 2);
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        rg_writer_close(writers[i]);
    }
    RG_CHECK_EQ(walk(&stage, false), 0);
    stage_close(&stage);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_methods_and_sources),   RG_TEST(test_conditions),
        RG_TEST(test_cancelled_at_any_time), RG_TEST(test_writers),
        RG_TEST(test_unfinished_uploads),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
