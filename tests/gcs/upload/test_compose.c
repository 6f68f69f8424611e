/* Uploads of temporary objects that are composed: cut at every step, trees of more than one level,
 * and that nothing temporary stays. */
#include "tests/support/test.h"
#include "tests/support/uploads.h"

#define PART RG_KIB(256)
#define SIZE (2 * PART + 12345)

static const struct rg_conditions absent = {.if_generation_match = RG_GENERATION_ABSENT};

static void try_compose(enum rg_emulated_kind kind, uint32_t nth, enum rg_emulated_action action)
{
    rg_upload_try(RG_UPLOAD_COMPOSE, SIZE, PART, &absent,
                  (struct rg_emulated_fault){kind, nth, action});
}

static void fail_compose(enum rg_emulated_kind kind, enum rg_emulated_action action,
                         enum rg_status want)
{
    rg_upload_try_failing(RG_UPLOAD_COMPOSE, SIZE, PART, &absent,
                          (struct rg_emulated_fault){kind, 0, action}, want);
}

static void test_sizes(void)
{
    static const uint64_t sizes[] = {0, 1, PART - 1, PART, PART + 1, 3 * PART};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        rg_upload_try(RG_UPLOAD_COMPOSE, sizes[i], PART, NULL, (struct rg_emulated_fault){0});
    }
}

/* 32, 33 and more parts: one level, and two. */
static void test_trees(void)
{
    static const uint32_t parts[] = {32, 33, 64, 70};
    for (size_t i = 0; i < RG_ARRAY_LEN(parts); i++) {
        struct rg_upload_scene scene = {.size = parts[i] * 1000};
        rg_upload_scene_open(&scene);
        const struct rg_upload upload = {
            .method = RG_UPLOAD_COMPOSE, .part_size = 1000, .conditions = absent};
        struct rg_completion done = rg_upload_scene_run(&scene, &upload, i % 2 == 1);
        rg_upload_scene_check_stored(&scene, &done);
        uint32_t joins = parts[i] > 32 ? (parts[i] + 31) / 32 : 0;
        RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_COMPOSE), joins + 1);
        RG_CHECK_EQ(rg_emulated_count(scene.emulated, RG_EMULATED_DELETE), parts[i] + joins);
        rg_upload_scene_close(&scene);
    }
}

static void test_what_is_sent(void)
{
    struct rg_upload_scene scene = {.size = SIZE};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {
        .method = RG_UPLOAD_COMPOSE, .part_size = PART, .conditions = absent};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, false);
    rg_upload_scene_check_stored(&scene, &done);
    const char *part = rg_emulated_head(scene.emulated, RG_EMULATED_SINGLE);
    RG_CHECK_CONTAINS(part, "&name=.ringest-parts%2F");
    RG_CHECK_CONTAINS(part, "&ifGenerationMatch=0 HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(
        rg_emulated_head(scene.emulated, RG_EMULATED_COMPOSE),
        "POST /storage/v1/b/bucket/o/object/compose?ifGenerationMatch=0 HTTP/1.1\r\n");
    RG_CHECK_CONTAINS(rg_emulated_head(scene.emulated, RG_EMULATED_DELETE), "?generation=");
    rg_upload_scene_close(&scene);
}

static void test_faults(void)
{
    static const enum rg_emulated_kind kinds[] = {RG_EMULATED_SINGLE, RG_EMULATED_COMPOSE,
                                                  RG_EMULATED_DELETE};
    static const enum rg_emulated_action actions[] = {RG_EMULATED_RESET_HEAD, RG_EMULATED_RESET,
                                                      RG_EMULATED_LOST, RG_EMULATED_503};
    for (size_t i = 0; i < RG_ARRAY_LEN(kinds); i++) {
        for (size_t k = 0; k < RG_ARRAY_LEN(actions); k++) {
            try_compose(kinds[i], 1, actions[k]);
        }
    }
    try_compose(RG_EMULATED_SINGLE, 3, RG_EMULATED_LOST);
}

/* It is not sent again, but what is stored tells that it was done. */
static void test_lost_answer_without_a_condition(void)
{
    rg_upload_try(RG_UPLOAD_COMPOSE, SIZE, PART, NULL,
                  (struct rg_emulated_fault){RG_EMULATED_COMPOSE, 1, RG_EMULATED_LOST});
    rg_upload_try_failing(RG_UPLOAD_COMPOSE, SIZE, PART, NULL,
                          (struct rg_emulated_fault){RG_EMULATED_COMPOSE, 1, RG_EMULATED_503},
                          RG_STATUS_SERVER);
}

static void test_failures_leave_nothing(void)
{
    fail_compose(RG_EMULATED_SINGLE, RG_EMULATED_403, RG_STATUS_PERMISSION);
    fail_compose(RG_EMULATED_SINGLE, RG_EMULATED_503, RG_STATUS_SERVER);
    fail_compose(RG_EMULATED_SINGLE, RG_EMULATED_CORRUPT, RG_STATUS_CHECKSUM);
    fail_compose(RG_EMULATED_COMPOSE, RG_EMULATED_403, RG_STATUS_PERMISSION);
    fail_compose(RG_EMULATED_COMPOSE, RG_EMULATED_503, RG_STATUS_SERVER);
    const struct rg_conditions other = {.if_generation_match = 5};
    rg_upload_try_failing(RG_UPLOAD_COMPOSE, SIZE, PART, &other, (struct rg_emulated_fault){0},
                          RG_STATUS_PRECONDITION);
}

/* What cannot be removed does not make a failure of a success. */
static void test_removal_that_fails(void)
{
    const struct rg_emulated_fault faults[] = {{RG_EMULATED_DELETE, 0, RG_EMULATED_403},
                                               {.kind = RG_EMULATED_KIND_COUNT}};
    struct rg_upload_scene scene = {.size = SIZE, .faults = faults};
    rg_upload_scene_open(&scene);
    const struct rg_upload upload = {.method = RG_UPLOAD_COMPOSE, .part_size = PART};
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, false);
    RG_CHECK_STATUS(&done, OK);
    rg_lease_release(done.lease);
    RG_CHECK_EQ(rg_emulated_objects(scene.emulated), 1 + 3);
    rg_upload_scene_close(&scene);
}

static void test_ended_in_the_middle(void)
{
    rg_upload_try_ending(RG_UPLOAD_COMPOSE, SIZE, PART, RG_EMULATED_SINGLE);
    rg_upload_try_ending(RG_UPLOAD_COMPOSE, SIZE, PART, RG_EMULATED_COMPOSE);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sizes),
        RG_TEST(test_trees),
        RG_TEST(test_what_is_sent),
        RG_TEST(test_faults),
        RG_TEST(test_lost_answer_without_a_condition),
        RG_TEST(test_failures_leave_nothing),
        RG_TEST(test_removal_that_fails),
        RG_TEST(test_ended_in_the_middle),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
