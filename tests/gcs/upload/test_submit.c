/* Which method an upload takes, and what is refused at once. */
#include "tests/support/test.h"
#include "tests/support/uploads.h"

static const struct rg_conditions absent = {.if_generation_match = RG_GENERATION_ABSENT};

static void check_method(uint64_t size, const struct rg_conditions *conditions,
                         enum rg_emulated_kind want)
{
    struct rg_upload_scene scene = {.size = size};
    rg_upload_scene_open(&scene);
    struct rg_upload upload = {0};
    upload.conditions = conditions != NULL ? *conditions : upload.conditions;
    struct rg_completion done = rg_upload_scene_run(&scene, &upload, true);
    rg_upload_scene_check_stored(&scene, &done);
    RG_CHECK(rg_emulated_count(scene.emulated, want) > 0);
    rg_upload_scene_close(&scene);
}

static void test_the_method_by_size_and_conditions(void)
{
    check_method(RG_MIB(8), NULL, RG_EMULATED_SINGLE);
    check_method(RG_MIB(8) + 1, NULL, RG_EMULATED_COMPLETE);
    check_method(RG_MIB(8), &absent, RG_EMULATED_SINGLE);
    check_method(RG_MIB(8) + 1, &absent, RG_EMULATED_COMPOSE);
}

static void test_what_is_refused_at_once(void)
{
    struct rg_upload_scene scene = {.size = 1};
    rg_upload_scene_open(&scene);
    const struct rg_metadata no_value[] = {{"key", NULL}}, bad_key[] = {{"a b", "c"}};
    const struct rg_upload bad[] = {
        {.object = "o", .data = "a", .size = 1},
        {.bucket = "bucket", .data = "a", .size = 1},
        {.bucket = "bucket", .object = "o\r", .data = "a", .size = 1},
        {.bucket = "bucket", .object = "o", .fd = -1, .size = 1},
        {.bucket = "bucket", .object = "o", .data = "a", .size = UINT64_MAX},
        {.bucket = "bucket", .object = "o", .file_offset = INT64_MAX, .size = 1},
        {.bucket = "bucket", .object = "o", .method = (enum rg_upload_method)5},
        {.bucket = "bucket", .object = "o", .content_type = "a\nb"},
        {.bucket = "bucket", .object = "o", .content_type = " a"},
        {.bucket = "bucket", .object = "o", .cache_control = "\xff"},
        {.bucket = "bucket", .object = "o", .metadata = no_value, .metadata_count = 1},
        {.bucket = "bucket", .object = "o", .metadata = bad_key, .metadata_count = 1},
        {.bucket = "bucket", .object = "o", .conditions.if_generation_match = -2},
        {.bucket = "bucket", .object = "o", .parts_inflight_max = 129},
        {.bucket = "bucket", .object = "o", .part_size = UINT64_MAX},
        {.bucket = "bucket", .object = "o", .method = RG_UPLOAD_MULTIPART, .conditions = absent},
        /* A file in one request is in memory as a whole. */
        {.bucket = "bucket", .object = "o", .method = RG_UPLOAD_SINGLE, .size = RG_MIB(128) + 1},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(rg_submit_upload(scene.c.client, scene.c.cq, &bad[i]), -EINVAL);
    }
    RG_CHECK(rg_test_is_quiet(&scene.c, 20));
    rg_upload_scene_close(&scene);
}

/* A caller of an older library knows fewer fields. */
static void test_a_shorter_struct(void)
{
    struct rg_upload_scene scene = {.size = 100};
    rg_upload_scene_open(&scene);
    struct rg_upload upload = {.bucket = "bucket",
                               .object = "object",
                               .data = scene.data,
                               .size = 100,
                               .part_size = UINT64_MAX,
                               .parts_inflight_max = UINT32_MAX};
    RG_CHECK_EQ(rg_submit_upload_sized(scene.c.client, scene.c.cq, &upload,
                                       offsetof(struct rg_upload, part_size)),
                0);
    struct rg_completion done = rg_test_take(&scene.c);
    rg_upload_scene_check_stored(&scene, &done);
    rg_upload_scene_close(&scene);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_method_by_size_and_conditions),
        RG_TEST(test_what_is_refused_at_once),
        RG_TEST(test_a_shorter_struct),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
