/* Uploads in one request: what is sent, and what is tried again. */
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#define SIZE 300000

static const struct rg_conditions absent = {.if_generation_match = RG_GENERATION_ABSENT};

static void try_single(const struct rg_conditions *conditions, enum rg_emulated_action action)
{
    rg_upload_try(RG_UPLOAD_SINGLE, SIZE, 0, conditions,
                  (struct rg_emulated_fault){RG_EMULATED_SINGLE, 1, action});
}

static void fail_single(const struct rg_conditions *conditions, enum rg_emulated_action action,
                        enum rg_status want)
{
    rg_upload_try_failing(RG_UPLOAD_SINGLE, SIZE, 0, conditions,
                          (struct rg_emulated_fault){RG_EMULATED_SINGLE, 0, action}, want);
}

static void test_sizes(void)
{
    static const uint64_t sizes[] = {0, 1, 16383, 16384, 65536, 100000, 3000000};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        rg_upload_try(RG_UPLOAD_SINGLE, sizes[i], 0, NULL, (struct rg_emulated_fault){0});
        rg_upload_try(RG_UPLOAD_AUTO, sizes[i], 0, &absent, (struct rg_emulated_fault){0});
    }
}

static void test_what_is_said_of_the_object(void)
{
    struct rg_upload_scene scene = {.size = 5};
    rg_upload_scene_open(&scene);
    const struct rg_metadata metadata[] = {{"key", "a \"value\""}, {"other", "\xc3\xa4"}};
    const struct rg_upload upload = {.content_type = "text/plain",
                                     .content_encoding = "gzip",
                                     .cache_control = "no-store",
                                     .storage_class = "NEARLINE",
                                     .metadata = metadata,
                                     .metadata_count = 2,
                                     .conditions = absent};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, false);
    rg_upload_scene_check_stored(&scene, &done);
    const char *head = rg_emulated_head(scene.emulated, RG_EMULATED_SINGLE);
    RG_CHECK_CONTAINS(head, "POST /upload/storage/v1/b/bucket/o?uploadType=multipart&name=object"
                            "&ifGenerationMatch=0 HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(head, "\r\nContent-Type: multipart/related; boundary=");
    rg_upload_scene_close(&scene);
}

static void test_faults_with_a_condition(void)
{
    static const enum rg_emulated_action actions[] = {RG_EMULATED_RESET_HEAD, RG_EMULATED_RESET,
                                                      RG_EMULATED_LOST, RG_EMULATED_503};
    for (size_t i = 0; i < RG_ARRAY_LEN(actions); i++) {
        try_single(&absent, actions[i]);
    }
}

/* It may have been stored, and a second one might not be wanted. */
static void test_faults_without_a_condition(void)
{
    fail_single(NULL, RG_EMULATED_RESET, RG_STATUS_CONNECTION_LOST);
    fail_single(NULL, RG_EMULATED_503, RG_STATUS_SERVER);
}

static void test_refusals(void)
{
    fail_single(&absent, RG_EMULATED_403, RG_STATUS_PERMISSION);
    fail_single(&absent, RG_EMULATED_503, RG_STATUS_SERVER);
    const struct rg_conditions other = {.if_generation_match = 5};
    rg_upload_try_failing(RG_UPLOAD_SINGLE, SIZE, 0, &other, (struct rg_emulated_fault){0},
                          RG_STATUS_PRECONDITION);
}

static void test_another_object_is_not_taken_for_ours(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_SINGLE, 1, RG_EMULATED_503},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    rg_emulated_put(scene.emulated, "object", "another", 7);
    struct rg_completion done =
        rg_upload_scene_run(&scene, &(struct rg_upload){.conditions = absent}, false);
    RG_CHECK_STATUS(&done, PRECONDITION);
    rg_lease_release(done.lease);
    uint64_t size;
    RG_CHECK_MEM(rg_emulated_content(scene.emulated, "object", &size), 7, "another", 7);
    rg_upload_scene_close(&scene);
}

static void test_what_is_stored_is_compared(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_SINGLE, 0, RG_EMULATED_CORRUPT},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    struct rg_completion done =
        rg_upload_scene_run(&scene, &(struct rg_upload){.conditions = absent}, false);
    RG_CHECK_STATUS(&done, CHECKSUM);
    RG_CHECK_CONTAINS(done.detail, "; delete generation ");
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_SINGLE), 1);
    rg_upload_scene_close(&scene);
}

static void test_ended_in_the_middle(void)
{
    rg_upload_try_ending(RG_UPLOAD_SINGLE, SIZE, 0, RG_EMULATED_SINGLE);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sizes),
        RG_TEST(test_what_is_said_of_the_object),
        RG_TEST(test_faults_with_a_condition),
        RG_TEST(test_faults_without_a_condition),
        RG_TEST(test_refusals),
        RG_TEST(test_another_object_is_not_taken_for_ours),
        RG_TEST(test_what_is_stored_is_compared),
        RG_TEST(test_ended_in_the_middle),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
