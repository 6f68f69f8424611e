/* The frame of uploads: many at once, and clients that are closed in the middle of some. */
#include "runtime/clock.h"

#include "tests/support/test.h"
#include "tests/support/uploads.h"

#define PART RG_MIB(5)
#define SIZE (2 * PART + 99)

static const enum rg_upload_method methods[] = {RG_UPLOAD_SINGLE, RG_UPLOAD_RESUMABLE,
                                                RG_UPLOAD_MULTIPART, RG_UPLOAD_COMPOSE};

static void test_many_at_once(void)
{
    struct rg_upload_scene scene = {.size = 200000};
    rg_upload_scene_open(&scene);
    for (unsigned i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "object%u", i);
        const struct rg_upload upload = {
            .object = name, .method = methods[i % 2], .part_size = PART, .user_data = i};
        rg_upload_scene_submit(&scene, &upload, i % 3 == 0);
    }
    uint64_t seen[2] = {0, 0};
    for (unsigned i = 0; i < 100; i++) {
        struct rg_completion done = rg_test_take(&scene.c);
        RG_CHECK_STATUS(&done, OK);
        RG_CHECK((seen[done.user_data / 64] >> done.user_data % 64 & 1) == 0);
        seen[done.user_data / 64] |= UINT64_C(1) << done.user_data % 64;
        rg_lease_release(done.lease);
    }
    RG_CHECK_EQ(rg_emulated_objects(scene.emulated), 100);
    rg_upload_scene_close(&scene);
}

/* Each completes once, whatever it was at, and leaves nothing. */
static void test_client_closed_in_the_middle(void)
{
    static const enum rg_emulated_kind kinds[] = {RG_EMULATED_SINGLE, RG_EMULATED_CHUNK,
                                                  RG_EMULATED_PART, RG_EMULATED_COMPOSE};
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(methods); i++) {
        enum rg_emulated_kind kind = kinds[i / 2];
        const struct rg_emulated_fault faults[] = {{kind, 0, RG_EMULATED_HANG},
                                                   {.kind = RG_EMULATED_KIND_COUNT}};
        struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
        rg_upload_scene_open(&scene);
        const struct rg_upload upload = {.method = methods[i / 2], .part_size = PART};
        rg_upload_scene_submit(&scene, &upload, i % 2 == 1);
        rg_upload_scene_await(&scene, kind, 1);
        rg_client_close(scene.c.client);
        scene.c.client = NULL;
        struct rg_completion done = rg_test_take(&scene.c);
        RG_CHECK_STATUS(&done, CLOSED);
        rg_lease_release(done.lease);
        RG_CHECK_EQ(rg_emulated_uploads(scene.emulated), 0);
        RG_CHECK_EQ(rg_emulated_objects(scene.emulated), 0);
        rg_upload_scene_close(&scene);
    }
}

/* Cancelled again while it cleans up, which changes nothing; and closed then. */
static void test_ended_twice(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 0, RG_EMULATED_HANG},
                                               {RG_EMULATED_ABORT, 1, RG_EMULATED_HANG},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    rg_upload_scene_submit(&scene, &(struct rg_upload){.part_size = PART}, false);
    rg_upload_scene_await(&scene, RG_EMULATED_PART, 1);
    RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, 0), 0);
    rg_upload_scene_await(&scene, RG_EMULATED_ABORT, 1);
    RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, 0), 0);
    RG_CHECK(rg_test_is_quiet(&scene.c, 20));
    rg_client_close(scene.c.client);
    scene.c.client = NULL;
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_STATUS(&done, CANCELLED);
    rg_lease_release(done.lease);
    rg_upload_scene_close(&scene);
}

/* Cancelled when the server has done what was asked, and has not said so: it is stored, and the
 * completion says that. */
static void test_cancelled_when_it_is_published(void)
{
    static const enum rg_emulated_kind kinds[] = {RG_EMULATED_SINGLE, RG_EMULATED_CHUNK,
                                                  RG_EMULATED_COMPLETE, RG_EMULATED_COMPOSE};
    for (size_t i = 0; i < RG_ARRAY_LEN(methods); i++) {
        const struct rg_emulated_fault faults[] = {{kinds[i], 1, RG_EMULATED_DONE_HANG},
                                                   {.kind = RG_EMULATED_KIND_COUNT}};
        struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
        rg_upload_scene_open(&scene);
        const struct rg_upload upload = {.method = methods[i], .part_size = PART};
        rg_upload_scene_submit(&scene, &upload, false);
        uint64_t stored = 0, until_ns = rg_now_ns() + 60 * RG_NS_PER_S;
        while (stored != SIZE && rg_now_ns() < until_ns) {
            rg_upload_scene_await(&scene, kinds[i], 1);
            (void)rg_emulated_content(scene.emulated, "object", &stored);
        }
        RG_CHECK_EQ(rg_cancel(scene.c.client, scene.c.cq, 0), 0);
        struct rg_completion done = rg_test_take(&scene.c);
        rg_upload_scene_check_stored(&scene, &done);
        rg_upload_scene_close(&scene);
    }
}

static void test_no_server(void)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(methods); i++) {
        struct rg_upload_scene scene = {.size = SIZE, .options = {.attempts_max = 2}};
        rg_upload_scene_open(&scene);
        struct rg_client_options options;
        rg_client_options_init(&options);
        options.endpoint = "http://127.0.0.1:1";
        options.attempts_max = 2;
        options.backoff_min_ns = 1;
        struct rg_client *client;
        RG_CHECK_EQ(rg_client_open(&client, scene.c.runtime, &options), 0);
        const struct rg_upload upload = {.bucket = "bucket",
                                         .object = "object",
                                         .method = methods[i],
                                         .part_size = PART,
                                         .data = scene.data,
                                         .size = scene.size};
        RG_CHECK_EQ(rg_submit_upload(client, scene.c.cq, &upload), 0);
        struct rg_completion done = rg_test_take(&scene.c);
        RG_CHECK_STATUS(&done, CONNECT);
        RG_CHECK_CONTAINS(done.detail, "upload gs://bucket/object at http://127.0.0.1:1");
        rg_lease_release(done.lease);
        rg_client_close(client);
        rg_upload_scene_close(&scene);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_many_at_once), RG_TEST(test_client_closed_in_the_middle),
        RG_TEST(test_ended_twice),  RG_TEST(test_cancelled_when_it_is_published),
        RG_TEST(test_no_server),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
