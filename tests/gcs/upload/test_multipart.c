/* Uploads in parts: cut at every step, ended at every step, and what is left then. */
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#define PART RG_MIB(5)
#define SIZE (2 * PART + 12345)

static void try_multipart(enum rg_fake_kind kind, uint32_t nth, enum rg_fake_action action)
{
    rg_upload_try(RG_UPLOAD_MULTIPART, SIZE, PART, NULL, (struct rg_fake_fault){kind, nth, action});
}

static void fail_multipart(enum rg_fake_kind kind, enum rg_fake_action action, enum rg_status want)
{
    rg_upload_try_failing(RG_UPLOAD_MULTIPART, SIZE, PART, NULL,
                          (struct rg_fake_fault){kind, 0, action}, want);
}

static void test_sizes(void)
{
    static const uint64_t sizes[] = {0, 1, PART - 1, PART, PART + 1, 3 * PART};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        rg_upload_try(RG_UPLOAD_MULTIPART, sizes[i], PART, NULL, (struct rg_fake_fault){0});
    }
}

static void test_what_is_sent(void)
{
    struct rg_upload_scene scene = {.size = SIZE};
    rg_upload_scene_open(&scene);
    const struct rg_metadata metadata[] = {{"key", "value"}};
    const struct rg_upload upload = {.content_type = "text/plain",
                                     .cache_control = "no-store",
                                     .storage_class = "NEARLINE",
                                     .metadata = metadata,
                                     .metadata_count = 1};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, false);
    rg_upload_scene_check_stored(&scene, &done);
    const char *begin = rg_fake_gcs_head(scene.fake, RG_FAKE_BEGIN);
    RG_CHECK_CONTAINS(begin, "POST /bucket/object?uploads HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nContent-Type: text/plain\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nCache-Control: no-store\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nx-goog-storage-class: NEARLINE\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nx-goog-meta-key: value\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nContent-Length: 0\r\n");
    /* Which is of the JSON API only. */
    RG_CHECK(strstr(begin, "idempotency-token") == NULL);
    RG_CHECK_CONTAINS(rg_fake_gcs_head(scene.fake, RG_FAKE_PART), "\r\nx-goog-hash: crc32c=");
    RG_CHECK_EQ(rg_fake_gcs_count(scene.fake, RG_FAKE_STAT), 1);
    rg_upload_scene_close(&scene);
}

static void test_parts_are_sent_side_by_side(void)
{
    /* All hang, so all that may be out are. */
    const struct rg_fake_fault faults[] = {{RG_FAKE_PART, 0, RG_FAKE_HANG},
                                           {.kind = RG_FAKE_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = 4 * PART, .faults = faults};
    rg_upload_scene_open(&scene);
    rg_upload_scene_submit(&scene,
                           &(struct rg_upload){.method = RG_UPLOAD_MULTIPART,
                                               .part_size = PART,
                                               .parts_inflight_max = 3},
                           false);
    rg_upload_scene_await(&scene, RG_FAKE_PART, 3);
    rg_test_client_turn(&scene.c);
    rg_cancel(scene.c.client, scene.c.cq, 0);
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_EQ(rg_fake_gcs_count(scene.fake, RG_FAKE_PART), 3);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_CANCELLED);
    rg_upload_scene_close(&scene);
}

static void test_faults(void)
{
    static const enum rg_fake_kind kinds[] = {RG_FAKE_BEGIN, RG_FAKE_PART, RG_FAKE_COMPLETE,
                                              RG_FAKE_STAT};
    static const enum rg_fake_action actions[] = {RG_FAKE_RESET_HEAD, RG_FAKE_RESET, RG_FAKE_503};
    for (size_t i = 0; i < RG_ARRAY_LEN(kinds); i++) {
        for (size_t k = 0; k < RG_ARRAY_LEN(actions); k++) {
            try_multipart(kinds[i], 1, actions[k]);
        }
    }
    try_multipart(RG_FAKE_PART, 3, RG_FAKE_503);
    try_multipart(RG_FAKE_PART, 2, RG_FAKE_LOST);
    /* The service has other bytes than were sent: once more. */
    try_multipart(RG_FAKE_PART, 1, RG_FAKE_CORRUPT);
}

static void test_lost_answer_of_the_completion(void)
{
    try_multipart(RG_FAKE_COMPLETE, 1, RG_FAKE_LOST);
}

static void test_error_in_the_body_of_a_200(void)
{
    try_multipart(RG_FAKE_COMPLETE, 1, RG_FAKE_ERROR_IN_200);
    fail_multipart(RG_FAKE_COMPLETE, RG_FAKE_ERROR_IN_200, RG_STATUS_SERVER);
}

static void test_failures_leave_nothing(void)
{
    fail_multipart(RG_FAKE_BEGIN, RG_FAKE_403, RG_STATUS_PERMISSION);
    fail_multipart(RG_FAKE_PART, RG_FAKE_403, RG_STATUS_PERMISSION);
    fail_multipart(RG_FAKE_PART, RG_FAKE_503, RG_STATUS_SERVER);
    fail_multipart(RG_FAKE_PART, RG_FAKE_CORRUPT, RG_STATUS_CHECKSUM);
    fail_multipart(RG_FAKE_COMPLETE, RG_FAKE_403, RG_STATUS_PERMISSION);
    fail_multipart(RG_FAKE_COMPLETE, RG_FAKE_503, RG_STATUS_SERVER);
}

/* What was there before is no sign of success. */
static void test_an_older_object_is_not_taken_for_ours(void)
{
    const struct rg_fake_fault faults[] = {{RG_FAKE_COMPLETE, 0, RG_FAKE_503},
                                           {.kind = RG_FAKE_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    rg_fake_gcs_put(scene.fake, "object", "another", 7);
    struct rg_completion done = rg_upload_scene_run(&scene, &(struct rg_upload){0}, true);
    RG_CHECK_STATUS(&done, SERVER);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_fake_gcs_uploads(scene.fake), 0);
    rg_upload_scene_close(&scene);
}

/* Who may only write cannot ask what is stored. */
static void test_without_permission_to_read(void)
{
    const struct rg_fake_fault faults[] = {{RG_FAKE_STAT, 0, RG_FAKE_403},
                                           {.kind = RG_FAKE_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_completion done = rg_upload_scene_run(&scene, &(struct rg_upload){0}, false);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.object_size, SIZE);
    RG_CHECK_EQ(rg_fake_gcs_objects(scene.fake), 1);
    rg_lease_release(done.lease);
    rg_upload_scene_close(&scene);
}

static void test_ended_in_the_middle(void)
{
    rg_upload_try_ending(RG_UPLOAD_MULTIPART, SIZE, PART, RG_FAKE_PART);
    rg_upload_try_ending(RG_UPLOAD_MULTIPART, SIZE, PART, RG_FAKE_COMPLETE);
}

/* An abort that fails once is tried again. */
static void test_abort_is_tried_again(void)
{
    const struct rg_fake_fault faults[] = {{RG_FAKE_PART, 0, RG_FAKE_403},
                                           {RG_FAKE_ABORT, 1, RG_FAKE_503},
                                           {RG_FAKE_ABORT, 2, RG_FAKE_RESET},
                                           {.kind = RG_FAKE_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_completion done = rg_upload_scene_run(&scene, &(struct rg_upload){0}, true);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_PERMISSION);
    RG_CHECK_EQ(rg_fake_gcs_count(scene.fake, RG_FAKE_ABORT), 3);
    rg_upload_scene_close(&scene);
}

static void submit_again(struct rg_upload_scene *scene, bool from_file)
{
    struct rg_completion done = rg_upload_scene_run(
        scene, &(struct rg_upload){.part_size = PART + 1, .parts_inflight_max = 2}, from_file);
    rg_upload_scene_check_stored(scene, &done);
}

/* Uploads whose method is ours to choose become sessions; the client asks once. */
static void test_servers_that_have_no_such_uploads(void)
{
    static const enum rg_fake_action actions[] = {RG_FAKE_400, RG_FAKE_404, RG_FAKE_405,
                                                  RG_FAKE_501};
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(actions); i++) {
        const struct rg_fake_fault faults[] = {{RG_FAKE_BEGIN, 0, actions[i / 2]},
                                               {.kind = RG_FAKE_KIND_COUNT}};
        struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
        rg_upload_scene_open(&scene);
        submit_again(&scene, i % 2 == 1);
        submit_again(&scene, i % 2 == 1);
        RG_CHECK_EQ(rg_fake_gcs_count(scene.fake, RG_FAKE_BEGIN), 1);
        RG_CHECK_EQ(rg_fake_gcs_count(scene.fake, RG_FAKE_SESSION), 2);
        rg_upload_scene_close(&scene);
    }
}

static void test_what_was_asked_for_by_name_stays(void)
{
    fail_multipart(RG_FAKE_BEGIN, RG_FAKE_404, RG_STATUS_NOT_FOUND);
    fail_multipart(RG_FAKE_BEGIN, RG_FAKE_501, RG_STATUS_BAD_REQUEST);
}

/* The service itself, of which a bucket is missing, or a server of which everything is. */
static void test_refusals_that_are_no_lack_of_uploads(void)
{
    static const struct {
        enum rg_fake_action begin;
        uint32_t sessions;
    } rows[] = {{RG_FAKE_404_XML, 0}, {RG_FAKE_404, 1}};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        const struct rg_fake_fault faults[] = {{RG_FAKE_BEGIN, 1, rows[i].begin},
                                               {RG_FAKE_SESSION, 1, RG_FAKE_404},
                                               {.kind = RG_FAKE_KIND_COUNT}};
        struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
        rg_upload_scene_open(&scene);
        struct rg_completion done = rg_upload_scene_run(&scene, &(struct rg_upload){0}, true);
        rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_NOT_FOUND);
        RG_CHECK_EQ(rg_fake_gcs_count(scene.fake, RG_FAKE_SESSION), rows[i].sessions);
        /* Nothing is concluded from that. */
        submit_again(&scene, false);
        RG_CHECK_EQ(rg_fake_gcs_count(scene.fake, RG_FAKE_BEGIN), 2);
        rg_upload_scene_close(&scene);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sizes),
        RG_TEST(test_what_is_sent),
        RG_TEST(test_parts_are_sent_side_by_side),
        RG_TEST(test_faults),
        RG_TEST(test_lost_answer_of_the_completion),
        RG_TEST(test_error_in_the_body_of_a_200),
        RG_TEST(test_failures_leave_nothing),
        RG_TEST(test_servers_that_have_no_such_uploads),
        RG_TEST(test_what_was_asked_for_by_name_stays),
        RG_TEST(test_refusals_that_are_no_lack_of_uploads),
        RG_TEST(test_an_older_object_is_not_taken_for_ours),
        RG_TEST(test_without_permission_to_read),
        RG_TEST(test_ended_in_the_middle),
        RG_TEST(test_abort_is_tried_again),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
