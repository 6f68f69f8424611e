/* Uploads in parts: cut at every step, ended at every step, and what is left then. */
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#define PART RG_MIB(5)
#define SIZE (2 * PART + 12345)

static void try_multipart(enum rg_emulated_kind kind, uint32_t nth, enum rg_emulated_action action)
{
    rg_upload_try(RG_UPLOAD_MULTIPART, SIZE, PART, NULL,
                  (struct rg_emulated_fault){kind, nth, action});
}

static void fail_multipart(enum rg_emulated_kind kind, enum rg_emulated_action action,
                           enum rg_status want)
{
    rg_upload_try_failing(RG_UPLOAD_MULTIPART, SIZE, PART, NULL,
                          (struct rg_emulated_fault){kind, 0, action}, want);
}

static void test_sizes(void)
{
    static const uint64_t sizes[] = {0, 1, PART - 1, PART, PART + 1, 3 * PART};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        rg_upload_try(RG_UPLOAD_MULTIPART, sizes[i], PART, NULL, (struct rg_emulated_fault){0});
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
    const char *begin = rg_emulated_head(scene.emulated, RG_EMULATED_BEGIN);
    RG_CHECK_CONTAINS(begin, "POST /bucket/object?uploads HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nContent-Type: text/plain\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nCache-Control: no-store\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nx-goog-storage-class: NEARLINE\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nx-goog-meta-key: value\r\n");
    RG_CHECK_CONTAINS(begin, "\r\nContent-Length: 0\r\n");
    /* Which is of the JSON API only. */
    RG_CHECK(strstr(begin, "idempotency-token") == NULL);
    RG_CHECK_CONTAINS(rg_emulated_head(scene.emulated, RG_EMULATED_PART),
                      "\r\nx-goog-hash: crc32c=");
    /* The answer to the completion says what is stored. */
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_STAT), 0);
    rg_upload_scene_close(&scene);
}

static void test_parts_are_sent_side_by_side(void)
{
    /* All hang, so all that may be out are. */
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 0, RG_EMULATED_HANG},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = 4 * PART, .faults = faults};
    rg_upload_scene_open(&scene);
    rg_upload_scene_submit(&scene,
                           &(struct rg_upload){.method = RG_UPLOAD_MULTIPART,
                                               .part_size = PART,
                                               .parts_inflight_max = 3},
                           false);
    rg_upload_scene_await(&scene, RG_EMULATED_PART, 3);
    rg_test_client_turn(&scene.c);
    rg_cancel(scene.c.client, scene.c.cq, 0);
    struct rg_completion done = rg_test_take(&scene.c);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_PART), 3);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_CANCELLED);
    rg_upload_scene_close(&scene);
}

static void test_faults(void)
{
    static const enum rg_emulated_kind kinds[] = {RG_EMULATED_BEGIN, RG_EMULATED_PART,
                                                  RG_EMULATED_COMPLETE};
    static const enum rg_emulated_action actions[] = {RG_EMULATED_RESET_HEAD, RG_EMULATED_RESET,
                                                      RG_EMULATED_503};
    for (size_t i = 0; i < RG_ARRAY_LEN(kinds); i++) {
        for (size_t k = 0; k < RG_ARRAY_LEN(actions); k++) {
            try_multipart(kinds[i], 1, actions[k]);
        }
    }
    try_multipart(RG_EMULATED_PART, 3, RG_EMULATED_503);
    try_multipart(RG_EMULATED_PART, 2, RG_EMULATED_LOST);
    /* The service has other bytes than were sent: once more. */
    try_multipart(RG_EMULATED_PART, 1, RG_EMULATED_CORRUPT);
}

/* What is stored tells that it was done, however often it has to be asked. */
static void test_lost_answer_of_the_completion(void)
{
    static const enum rg_emulated_action actions[] = {RG_EMULATED_GOOD, RG_EMULATED_RESET_HEAD,
                                                      RG_EMULATED_RESET, RG_EMULATED_503};
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(actions); i++) {
        const struct rg_emulated_fault faults[] = {{RG_EMULATED_COMPLETE, 1, RG_EMULATED_LOST},
                                                   {RG_EMULATED_STAT, 1, actions[i / 2]},
                                                   {.kind = RG_EMULATED_KIND_COUNT}};
        struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
        rg_upload_scene_open(&scene);
        struct rg_completion done =
            rg_upload_scene_run(&scene, &(struct rg_upload){.part_size = PART}, i % 2 == 1);
        rg_upload_scene_check_stored(&scene, &done);
        RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_STAT), i < 2 ? 1 : 2);
        rg_upload_scene_close(&scene);
    }
}

static void test_error_in_the_body_of_a_200(void)
{
    try_multipart(RG_EMULATED_COMPLETE, 1, RG_EMULATED_ERROR_IN_200);
    fail_multipart(RG_EMULATED_COMPLETE, RG_EMULATED_ERROR_IN_200, RG_STATUS_SERVER);
}

static void test_failures_leave_nothing(void)
{
    fail_multipart(RG_EMULATED_BEGIN, RG_EMULATED_403, RG_STATUS_PERMISSION);
    fail_multipart(RG_EMULATED_PART, RG_EMULATED_403, RG_STATUS_PERMISSION);
    fail_multipart(RG_EMULATED_PART, RG_EMULATED_503, RG_STATUS_SERVER);
    fail_multipart(RG_EMULATED_PART, RG_EMULATED_CORRUPT, RG_STATUS_CHECKSUM);
    fail_multipart(RG_EMULATED_COMPLETE, RG_EMULATED_403, RG_STATUS_PERMISSION);
    fail_multipart(RG_EMULATED_COMPLETE, RG_EMULATED_503, RG_STATUS_SERVER);
}

/* What was there before is no sign of success. */
static void test_an_older_object_is_not_taken_for_ours(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_COMPLETE, 0, RG_EMULATED_503},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    rg_emulated_put(scene.emulated, "object", "another", 7);
    struct rg_completion done = rg_upload_scene_run(&scene, &(struct rg_upload){0}, true);
    RG_CHECK_STATUS(&done, SERVER);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_emulated_uploads(scene.emulated), 0);
    rg_upload_scene_close(&scene);
}

/* A server of others: its names need escapes, its completion does not say what is stored, and who
 * may only write cannot ask for it. */
static void test_a_server_that_says_little(void)
{
    static const struct rg_step script[] = {
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 92\r\n\r\n<InitiateMultipartUploadResult>"
                "<UploadId>u+/&amp;</UploadId></InitiateMultipartUploadResult>"),
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nETag: \"<1>&\"\r\nContent-Length: 0\r\n\r\n"),
        RG_READ,
        RG_SEND("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        RG_READ,
        RG_SEND("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"),
        RG_END,
    };
    static const struct rg_step *const scripts[] = {script};
    struct rg_test_client c = {
        .scripts = scripts, .script_count = 1, .options = {.connections_max = 1}};
    rg_test_client_open(&c);
    const struct rg_upload upload = {.bucket = "bucket",
                                     .object = "object",
                                     .method = RG_UPLOAD_MULTIPART,
                                     .data = "data",
                                     .size = 4};
    RG_CHECK_EQ(rg_submit_upload(c.client, c.cq, &upload), 0);
    struct rg_completion done = rg_test_take(&c);
    RG_CHECK_STATUS(&done, OK);
    RG_CHECK_EQ(done.object_size, 4);
    rg_lease_release(done.lease);
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 1), "uploadId=u%2B%2F%26");
    RG_CHECK_CONTAINS(rg_scripted_server_body(c.server, 2), "<ETag>\"&lt;1&gt;&amp;\"</ETag>");
    RG_CHECK_CONTAINS(rg_scripted_server_head(c.server, 3), "GET /storage/v1/b/bucket/o/object?");
    rg_test_client_close(&c);
}

static void test_ended_in_the_middle(void)
{
    rg_upload_try_ending(RG_UPLOAD_MULTIPART, SIZE, PART, RG_EMULATED_PART);
    rg_upload_try_ending(RG_UPLOAD_MULTIPART, SIZE, PART, RG_EMULATED_COMPLETE);
}

/* An abort that fails once is tried again. */
static void test_abort_is_tried_again(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_PART, 0, RG_EMULATED_403},
                                               {RG_EMULATED_ABORT, 1, RG_EMULATED_503},
                                               {RG_EMULATED_ABORT, 2, RG_EMULATED_RESET},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_completion done = rg_upload_scene_run(&scene, &(struct rg_upload){0}, true);
    rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_PERMISSION);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_ABORT), 3);
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
    static const enum rg_emulated_action actions[] = {RG_EMULATED_400, RG_EMULATED_404,
                                                      RG_EMULATED_405, RG_EMULATED_501};
    for (size_t i = 0; i < 2 * RG_ARRAY_LEN(actions); i++) {
        const struct rg_emulated_fault faults[] = {{RG_EMULATED_BEGIN, 0, actions[i / 2]},
                                                   {.kind = RG_EMULATED_KIND_COUNT}};
        struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
        rg_upload_scene_open(&scene);
        submit_again(&scene, i % 2 == 1);
        submit_again(&scene, i % 2 == 1);
        RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_BEGIN), 1);
        RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_SESSION), 2);
        rg_upload_scene_close(&scene);
    }
}

static void test_what_was_asked_for_by_name_stays(void)
{
    fail_multipart(RG_EMULATED_BEGIN, RG_EMULATED_404, RG_STATUS_NOT_FOUND);
    fail_multipart(RG_EMULATED_BEGIN, RG_EMULATED_501, RG_STATUS_BAD_REQUEST);
}

/* The service itself, of which a bucket is missing, or a server of which everything is. */
static void test_refusals_that_are_no_lack_of_uploads(void)
{
    for (uint32_t sessions = 0; sessions < 2; sessions++) {
        bool bucket_is_there = sessions == 1;
        const struct rg_emulated_fault faults[] = {{RG_EMULATED_BEGIN, 1, RG_EMULATED_404},
                                                   {RG_EMULATED_SESSION, 1, RG_EMULATED_404},
                                                   {.kind = RG_EMULATED_KIND_COUNT}};
        struct rg_upload_scene scene = {.size = SIZE, .faults = bucket_is_there ? faults : NULL};
        rg_upload_scene_open(&scene);
        if (!bucket_is_there) {
            rg_emulated_bucket(scene.emulated, false);
        }
        struct rg_completion done = rg_upload_scene_run(&scene, &(struct rg_upload){0}, true);
        rg_upload_scene_check_nothing(&scene, &done, RG_STATUS_NOT_FOUND);
        RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_SESSION), sessions);
        if (!bucket_is_there) {
            rg_emulated_bucket(scene.emulated, true);
        }
        /* Nothing is concluded from that. */
        submit_again(&scene, false);
        RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_BEGIN), 2);
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
        RG_TEST(test_a_server_that_says_little),
        RG_TEST(test_ended_in_the_middle),
        RG_TEST(test_abort_is_tried_again),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
