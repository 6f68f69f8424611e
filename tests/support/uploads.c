/* See uploads.h. */
#include "tests/support/uploads.h"

#include "gcs/wire/checksum.h"
#include "runtime/clock.h"
#include "tests/support/test.h"

#include <fcntl.h>
#include <unistd.h>

void rg_upload_scene_open(struct rg_upload_scene *scene)
{
    scene->emulated = rg_emulated_start(scene->faults);
    scene->c = (struct rg_test_client){.no_server = true, .options = scene->options};
    scene->c.options.endpoint = rg_emulated_endpoint(scene->emulated);
    rg_test_client_open(&scene->c);
    scene->data = malloc(scene->size + 1);
    rg_script_fill(scene->data, 0, scene->size);
    char path[] = "/tmp/ringest-test-XXXXXX";
    scene->fd = mkostemp(path, O_CLOEXEC);
    RG_CHECK(scene->fd >= 0);
    unlink(path);
    RG_CHECK_EQ(pwrite(scene->fd, scene->data, scene->size, RG_UPLOAD_FILE_OFFSET),
                (ssize_t)scene->size);
}

void rg_upload_scene_close(struct rg_upload_scene *scene)
{
    rg_test_client_close(&scene->c);
    rg_emulated_stop(scene->emulated);
    close(scene->fd);
    free(scene->data);
}

void rg_upload_scene_submit(struct rg_upload_scene *scene, const struct rg_upload *upload,
                            bool from_file)
{
    struct rg_upload own = *upload;
    own.bucket = own.bucket != NULL ? own.bucket : "bucket";
    own.object = own.object != NULL ? own.object : "object";
    own.size = own.size != 0 ? own.size : scene->size;
    own.data = from_file ? NULL : scene->data;
    own.fd = from_file ? scene->fd : -1;
    own.file_offset = from_file ? RG_UPLOAD_FILE_OFFSET : 0;
    RG_CHECK_EQ(rg_submit_upload(scene->c.client, scene->c.cq, &own), 0);
}

struct rg_completion rg_upload_scene_run(struct rg_upload_scene *scene,
                                         const struct rg_upload *upload, bool from_file)
{
    rg_upload_scene_submit(scene, upload, from_file);
    return rg_test_take(&scene->c);
}

void rg_upload_scene_check_stored(struct rg_upload_scene *scene, struct rg_completion *done)
{
    uint64_t size = 0;
    RG_CHECK_STATUS(done, OK);
    const uint8_t *content = rg_emulated_content(scene->emulated, "object", &size);
    RG_CHECK(content != NULL);
    RG_CHECK_MEM(content, size, scene->data, scene->size);
    RG_CHECK_EQ(done->object_size, scene->size);
    RG_CHECK_EQ(done->crc32c, rg_crc32c(0, scene->data, scene->size));
    RG_CHECK(done->generation > 1000);
    RG_CHECK_EQ(rg_emulated_objects(scene->emulated), 1);
    RG_CHECK_EQ(rg_emulated_uploads(scene->emulated), 0);
    rg_lease_release(done->lease);
}

void rg_upload_scene_check_nothing(struct rg_upload_scene *scene, struct rg_completion *done,
                                   enum rg_status want)
{
    rg_test_check_status(__FILE__, __LINE__, done, want);
    RG_CHECK(done->detail != NULL);
    RG_CHECK_CONTAINS(done->detail, "upload gs://bucket/object");
    RG_CHECK_EQ(rg_emulated_objects(scene->emulated), 0);
    RG_CHECK_EQ(rg_emulated_uploads(scene->emulated), 0);
    rg_lease_release(done->lease);
}

void rg_upload_scene_await(struct rg_upload_scene *scene, enum rg_emulated_kind kind,
                           uint32_t count)
{
    RG_AWAIT(rg_emulated_count(scene->emulated, kind) >= count);
}

static void try_from(bool from_file, enum rg_upload_method method, uint64_t size,
                     uint64_t part_size, const struct rg_conditions *conditions,
                     struct rg_emulated_fault fault, enum rg_status want)
{
    const struct rg_emulated_fault faults[] = {fault, {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = size, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_upload upload = {.method = method, .part_size = part_size};
    upload.conditions = conditions != NULL ? *conditions : upload.conditions;
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, from_file);
    if (want == RG_STATUS_OK) {
        rg_upload_scene_check_stored(&scene, &done);
    } else {
        rg_upload_scene_check_nothing(&scene, &done, want);
    }
    if (fault.action != RG_EMULATED_GOOD) {
        RG_CHECK(rg_emulated_count(scene.emulated, fault.kind) >= fault.nth);
    }
    rg_upload_scene_close(&scene);
}

void rg_upload_try(enum rg_upload_method method, uint64_t size, uint64_t part_size,
                   const struct rg_conditions *conditions, struct rg_emulated_fault fault)
{
    try_from(false, method, size, part_size, conditions, fault, RG_STATUS_OK);
    try_from(true, method, size, part_size, conditions, fault, RG_STATUS_OK);
}

void rg_upload_try_failing(enum rg_upload_method method, uint64_t size, uint64_t part_size,
                           const struct rg_conditions *conditions, struct rg_emulated_fault fault,
                           enum rg_status want)
{
    try_from(false, method, size, part_size, conditions, fault, want);
    try_from(true, method, size, part_size, conditions, fault, want);
}

static void try_ending(enum rg_upload_method method, uint64_t size, uint64_t part_size,
                       enum rg_emulated_kind kind, bool by_deadline, bool from_file)
{
    const struct rg_emulated_fault faults[] = {{kind, 1, RG_EMULATED_HANG},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = size, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_upload upload = {.method = method, .part_size = part_size, .user_data = 7};
    upload.deadline_ns = by_deadline ? rg_now_ns() + 400 * RG_NS_PER_MS : 0;
    rg_upload_scene_submit(&scene, &upload, from_file);
    if (!by_deadline) {
        rg_upload_scene_await(&scene, kind, 1);
        RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, 7), 0);
    }
    struct rg_completion done = rg_test_take(&scene.c);
    /* A deadline may come earlier where the machine is busy. */
    RG_CHECK(by_deadline || rg_emulated_count(scene.emulated, kind) >= 1);
    rg_upload_scene_check_nothing(&scene, &done,
                                  by_deadline ? RG_STATUS_DEADLINE : RG_STATUS_CANCELLED);
    rg_upload_scene_close(&scene);
}

void rg_upload_try_ending(enum rg_upload_method method, uint64_t size, uint64_t part_size,
                          enum rg_emulated_kind kind)
{
    for (unsigned i = 0; i < 4; i++) {
        try_ending(method, size, part_size, kind, i % 2 == 1, i / 2 == 1);
    }
}
