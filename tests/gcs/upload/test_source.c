/* Where the bytes come from: files that shrink, cannot be read, or are larger than memory may be.
 */
#include "gcs/request/client.h"
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#include <fcntl.h>
#include <unistd.h>

#define PART RG_MIB(5)

/* Nothing is published of a file that is shorter than was said, wherever it ends. */
static void test_files_that_shrink(void)
{
    static const enum rg_upload_method methods[] = {RG_UPLOAD_SINGLE, RG_UPLOAD_RESUMABLE,
                                                    RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};
    static const uint64_t ends[] = {0, 1, PART, 2 * PART + 1};
    for (size_t m = 0; m < RG_ARRAY_LEN(methods); m++) {
        for (size_t i = 0; i < RG_ARRAY_LEN(ends); i++) {
            struct rg_upload_scene scene = {.size = 2 * PART + 2};
            rg_upload_scene_open(&scene);
            RG_CHECK_EQ(ftruncate(scene.fd, (off_t)(RG_UPLOAD_FILE_OFFSET + ends[i])), 0);
            const struct rg_upload upload = {.method = methods[m], .part_size = PART};
            struct rg_completion done = rg_upload_scene_run(&scene, &upload, true);
            RG_CHECK_CONTAINS(done.detail, "the file ends at byte");
            rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_SOURCE);
            rg_upload_scene_close(&scene);
        }
    }
}

/* What a request before it was answered, in the same place, is no part of the failure. */
static void test_files_that_cannot_be_read(void)
{
    struct rg_upload_scene scene = {.size = 100};
    rg_upload_scene_open(&scene);
    RG_CHECK_EQ(rg_submit_stat(scene.c.client, scene.c.cq,
                               &(struct rg_stat){.bucket = "bucket", .object = "object"}),
                0);
    struct rg_completion absent = rg_test_take(&scene.c);
    RG_CHECK_STATUS(&absent, NOT_FOUND);
    rg_lease_release(absent.lease);
    struct rg_upload upload = {.bucket = "bucket", .object = "object", .size = 100};
    upload.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    RG_CHECK_EQ(rg_submit_upload(scene.c.client, scene.c.cq, &upload), 0);
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_EQ(done.os_error, EBADF);
    RG_CHECK_EQ(done.http_status, 0);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_SOURCE);
    close(upload.fd);
    rg_upload_scene_close(&scene);
}

/* However large the file, no more memory than was asked for is taken. */
static void test_memory_is_bounded(void)
{
    struct rg_upload_scene scene = {.size = 12 * PART};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {.part_size = RG_MIB(8), .parts_inflight_max = 3};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, true);
    rg_upload_scene_check_stored(&scene, &done);
    const struct rg_part_memory *memory = &scene.c.client->loops[0].part_memory;
    RG_CHECK(memory->out_bytes_max <= 3 * RG_MIB(8));
    RG_CHECK(memory->out_bytes_max >= 2 * RG_MIB(8));
    RG_CHECK_EQ(memory->out_bytes, 0);
    RG_CHECK(memory->kept_bytes <= RG_PART_MEMORY_KEPT);
    rg_upload_scene_close(&scene);
}

/* Memory of the caller's is not copied. */
static void test_memory_takes_none(void)
{
    struct rg_upload_scene scene = {.size = 3 * PART};
    rg_upload_scene_open(&scene);
    struct rg_completion done =
        rg_upload_scene_run(&scene, &(struct rg_upload){.part_size = PART}, false);
    rg_upload_scene_check_stored(&scene, &done);
    RG_CHECK_EQ(scene.c.client->loops[0].part_memory.out_bytes_max, 0);
    rg_upload_scene_close(&scene);
}

/* Many uploads together have no more than there is: the others wait. */
static void test_many_uploads_share_the_memory(void)
{
    struct rg_upload_scene scene = {.size = 9 * RG_MIB(1)};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {
        .method = RG_UPLOAD_MULTIPART, .part_size = RG_PART_MEMORY_MAX, .parts_inflight_max = 1};
    for (unsigned i = 0; i < 24; i++) {
        rg_upload_scene_submit(&scene, &upload, true);
    }
    for (unsigned i = 0; i < 24; i++) {
        struct rg_completion done = rg_test_take(&scene.c);
        RG_CHECK_STATUS(&done, OK);
        rg_lease_release(done.lease);
    }
    RG_CHECK(scene.c.client->loops[0].part_memory.out_bytes_max <= RG_PART_MEMORY_MAX);
    rg_upload_scene_close(&scene);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_files_that_shrink),
        RG_TEST(test_files_that_cannot_be_read),
        RG_TEST(test_memory_is_bounded),
        RG_TEST(test_memory_takes_none),
        RG_TEST(test_many_uploads_share_the_memory),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
