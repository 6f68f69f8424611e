/* Resumable uploads: cut at every step, and a service that persists less than it was sent. */
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#define PART RG_MIB(1)
#define SIZE (2 * PART + 12345)

static const struct rg_conditions absent = {.if_generation_match = RG_GENERATION_ABSENT};

static void try_resumable(enum rg_emulated_kind kind, uint32_t nth, enum rg_emulated_action action)
{
    rg_upload_try(RG_UPLOAD_RESUMABLE, SIZE, PART, &absent,
                  (struct rg_emulated_fault){kind, nth, action});
}

static void fail_resumable(enum rg_emulated_kind kind, enum rg_emulated_action action,
                           enum rg_status want)
{
    rg_upload_try_failing(RG_UPLOAD_RESUMABLE, SIZE, PART, &absent,
                          (struct rg_emulated_fault){kind, 0, action}, want);
}

static void test_sizes(void)
{
    static const uint64_t sizes[] = {0, 1, RG_KIB(256), PART - 1, PART, PART + 1, 3 * PART};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        rg_upload_try(RG_UPLOAD_RESUMABLE, sizes[i], PART, NULL, (struct rg_emulated_fault){0});
    }
}

static void test_what_is_sent(void)
{
    struct rg_upload_scene scene = {.size = SIZE};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {.method = RG_UPLOAD_RESUMABLE,
                                     .part_size = PART,
                                     .content_type = "text/plain",
                                     .conditions = absent};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, true);
    rg_upload_scene_check_stored(&scene, &done);
    const char *session = rg_emulated_head(scene.emulated, RG_EMULATED_SESSION);
    RG_CHECK_CONTAINS(session, "POST /upload/storage/v1/b/bucket/o?uploadType=resumable&name=object"
                               "&ifGenerationMatch=0 HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(session, "\r\nX-Upload-Content-Type: text/plain\r\n");
    RG_CHECK_CONTAINS(session, "\r\nX-Upload-Content-Length: 2109497\r\n");
    const char *chunk = rg_emulated_head(scene.emulated, RG_EMULATED_CHUNK);
    RG_CHECK_CONTAINS(chunk, "PUT /upload/storage/v1/b/bucket/o?uploadType=resumable&name=object"
                             "&upload_id=");
    RG_CHECK_CONTAINS(chunk, "\r\nContent-Range: bytes 2097152-2109496/2109497\r\n");
    RG_CHECK_CONTAINS(chunk, "\r\nx-goog-hash: crc32c=");
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_CHUNK), 3);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_ASK), 0);
    rg_upload_scene_close(&scene);
}

static void test_memory_goes_by_one_request(void)
{
    struct rg_upload_scene scene = {.size = SIZE};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {.method = RG_UPLOAD_RESUMABLE, .part_size = PART};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, false);
    rg_upload_scene_check_stored(&scene, &done);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_CHUNK), 1);
    rg_upload_scene_close(&scene);
}

static void test_faults(void)
{
    static const enum rg_emulated_action actions[] = {RG_EMULATED_RESET_HEAD, RG_EMULATED_RESET,
                                                      RG_EMULATED_LOST, RG_EMULATED_503};
    for (size_t i = 0; i < RG_ARRAY_LEN(actions); i++) {
        try_resumable(RG_EMULATED_CHUNK, 1, actions[i]);
        rg_upload_try(RG_UPLOAD_RESUMABLE, SIZE, RG_KIB(768), &absent,
                      (struct rg_emulated_fault){RG_EMULATED_SESSION, 1, RG_EMULATED_503});
    }
    try_resumable(RG_EMULATED_SESSION, 1, RG_EMULATED_RESET_HEAD);
}

/* Only a file has three chunks. */
static void try_chunk(uint32_t nth, enum rg_emulated_action action)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_CHUNK, nth, action},
                                               {RG_EMULATED_ASK, 1, RG_EMULATED_503},
                                               {RG_EMULATED_ASK, 2, RG_EMULATED_RESET},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {.method = RG_UPLOAD_RESUMABLE, .part_size = PART};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, true);
    rg_upload_scene_check_stored(&scene, &done);
    rg_upload_scene_close(&scene);
}

static void test_faults_of_each_chunk(void)
{
    for (uint32_t nth = 1; nth <= 3; nth++) {
        try_chunk(nth, RG_EMULATED_RESET);
        try_chunk(nth, RG_EMULATED_LOST);
        try_chunk(nth, RG_EMULATED_503);
        try_chunk(nth, RG_EMULATED_HALF);
        try_chunk(nth, RG_EMULATED_NONE);
        try_chunk(nth, RG_EMULATED_HALF_503);
    }
}

/* It is asked how far it got before anything is sent again, and only what is missing is. */
static void test_the_service_is_believed(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_CHUNK, 1, RG_EMULATED_HALF_503},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {.method = RG_UPLOAD_RESUMABLE};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, false);
    rg_upload_scene_check_stored(&scene, &done);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_ASK), 1);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_CHUNK), 2);
    RG_CHECK_CONTAINS(rg_emulated_head(scene.emulated, RG_EMULATED_ASK),
                      "\r\nContent-Range: bytes */*\r\n");
    RG_CHECK_CONTAINS(rg_emulated_head(scene.emulated, RG_EMULATED_CHUNK),
                      "\r\nContent-Range: bytes 524288-2109496/2109497\r\n");
    rg_upload_scene_close(&scene);
}

static void test_lost_final_answer_is_asked_for(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_CHUNK, 1, RG_EMULATED_LOST},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {.method = RG_UPLOAD_RESUMABLE, .conditions = absent};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, false);
    rg_upload_scene_check_stored(&scene, &done);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_CHUNK), 1);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_ASK), 1);
    rg_upload_scene_close(&scene);
}

static void test_sessions_that_are_gone(void)
{
    /* In the middle, at the end, and when it is complete already. */
    try_resumable(RG_EMULATED_CHUNK, 1, RG_EMULATED_GONE);
    try_chunk(2, RG_EMULATED_GONE);
    try_chunk(3, RG_EMULATED_GONE);
    try_chunk(3, RG_EMULATED_DONE_GONE);
}

/* A second session would meet the object that the first has made. */
static void test_a_session_that_is_gone_and_complete(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_CHUNK, 1, RG_EMULATED_DONE_GONE},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {.method = RG_UPLOAD_RESUMABLE, .conditions = absent};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, false);
    rg_upload_scene_check_stored(&scene, &done);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_SESSION), 1);
    rg_upload_scene_close(&scene);
}

static void test_failures_leave_nothing(void)
{
    fail_resumable(RG_EMULATED_SESSION, RG_EMULATED_403, RG_STATUS_PERMISSION);
    fail_resumable(RG_EMULATED_CHUNK, RG_EMULATED_403, RG_STATUS_PERMISSION);
    fail_resumable(RG_EMULATED_CHUNK, RG_EMULATED_503, RG_STATUS_SERVER);
    fail_resumable(RG_EMULATED_CHUNK, RG_EMULATED_RESET, RG_STATUS_CONNECTION_LOST);
    fail_resumable(RG_EMULATED_CHUNK, RG_EMULATED_NONE, RG_STATUS_SERVER);
    fail_resumable(RG_EMULATED_CHUNK, RG_EMULATED_GONE, RG_STATUS_SERVER);
    const struct rg_conditions other = {.if_generation_match = 5};
    rg_upload_try_failing(RG_UPLOAD_RESUMABLE, SIZE, PART, &other, (struct rg_emulated_fault){0},
                          RG_STATUS_PRECONDITION);
}

static void test_what_is_stored_is_compared(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_CHUNK, 0, RG_EMULATED_CORRUPT},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_completion done =
        rg_upload_scene_run(&scene, &(struct rg_upload){.method = RG_UPLOAD_RESUMABLE}, false);
    RG_CHECK_STATUS(&done, CHECKSUM);
    rg_lease_release(done.lease);
    rg_upload_scene_close(&scene);
}

static void test_ended_in_the_middle(void)
{
    rg_upload_try_ending(RG_UPLOAD_RESUMABLE, SIZE, PART, RG_EMULATED_CHUNK);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sizes),
        RG_TEST(test_what_is_sent),
        RG_TEST(test_memory_goes_by_one_request),
        RG_TEST(test_faults),
        RG_TEST(test_faults_of_each_chunk),
        RG_TEST(test_the_service_is_believed),
        RG_TEST(test_lost_final_answer_is_asked_for),
        RG_TEST(test_sessions_that_are_gone),
        RG_TEST(test_a_session_that_is_gone_and_complete),
        RG_TEST(test_failures_leave_nothing),
        RG_TEST(test_what_is_stored_is_compared),
        RG_TEST(test_ended_in_the_middle),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
