/* Sources: what the options of a reader say of objects, each by its index. */
#include "dataset/source.h"
#include "tests/support/manifest_file.h"
#include "tests/support/test.h"

#include <errno.h>

#define COUNT 300

static struct rg_object objects[COUNT];
static char names[COUNT][RG_OBJECT_NAME_SIZE_MAX + 1];

static struct rg_reader_options options_make(void)
{
    struct rg_reader_options options;
    rg_reader_options_init(&options);
    for (int i = 0; i < COUNT; i++) {
        objects[i] = rg_test_manifest_object((uint64_t)i, names[i]);
    }
    options.bucket = "bucket";
    options.objects = objects;
    options.object_count = COUNT;
    return options;
}

static void source_open(struct rg_source *source, const struct rg_reader_options *options)
{
    char error[256] = "";
    if (rg_source_open(source, options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
}

static uint32_t fingerprint_of(const struct rg_reader_options *options)
{
    struct rg_source source;
    uint32_t fingerprint;
    source_open(&source, options);
    RG_CHECK_EQ(rg_source_fingerprint(&source, &fingerprint), 0);
    rg_source_close(&source);
    return fingerprint;
}

static void test_an_array_and_a_manifest_of_the_same_objects_are_alike(void)
{
    struct rg_test_manifest file;
    rg_test_manifest_init(&file);
    rg_test_manifest_write(&file, COUNT);
    struct rg_manifest *manifest;
    char error[256] = "", name[RG_OBJECT_NAME_SIZE_MAX + 1];
    RG_CHECK_EQ(rg_manifest_open(&manifest, file.path, error, sizeof(error)), 0);
    struct rg_reader_options array = options_make(), other;
    rg_reader_options_init(&other);
    other.manifest = manifest;
    RG_CHECK_EQ(fingerprint_of(&array), fingerprint_of(&other));
    struct rg_source source;
    source_open(&source, &other);
    RG_CHECK_EQ(source.count, COUNT);
    RG_CHECK_STR(source.bucket, rg_manifest_bucket(manifest));
    for (uint64_t i = 0; i < COUNT; i++) {
        struct rg_source_item item;
        RG_CHECK_EQ(rg_source_at(&source, i, &item, name), 0);
        RG_CHECK_STR(item.name, objects[i].name);
        RG_CHECK_EQ(item.size, objects[i].size);
        RG_CHECK_EQ(item.generation, objects[i].generation);
        RG_CHECK(!item.is_range);
        RG_CHECK_EQ(item.piece_count, 0);
    }
    rg_source_close(&source);
    rg_source_close(&source);
    rg_manifest_close(manifest);
    rg_test_manifest_fini(&file);
}

static void test_a_fingerprint_tells_objects_apart(void)
{
    struct rg_reader_options options = options_make();
    uint32_t before = fingerprint_of(&options);
    RG_CHECK_EQ(fingerprint_of(&options), before);
    objects[0].size++;
    RG_CHECK(fingerprint_of(&options) != before);
    objects[0].size--;
    objects[0].generation++;
    RG_CHECK(fingerprint_of(&options) != before);
    objects[0].generation--;
    objects[0].name = "another";
    RG_CHECK(fingerprint_of(&options) != before);
    options = options_make();
    options.object_count--;
    RG_CHECK(fingerprint_of(&options) != before);
    options.object_count = 0;
    RG_CHECK(fingerprint_of(&options) != before);
}

static void test_what_is_missing_is_said(void)
{
    struct rg_reader_options options = options_make();
    struct rg_source source;
    for (int i = 0; i < 2; i++) {
        char error[256] = "";
        options = options_make();
        options.bucket = i == 0 ? NULL : "bucket";
        options.objects = i == 1 ? NULL : objects;
        RG_CHECK_EQ(rg_source_open(&source, &options, error, sizeof(error)), -EINVAL);
        RG_CHECK(strstr(error, "there is nothing to read: give manifest") != NULL);
        rg_source_close(&source);
    }
    options.object_count = 0; /* of nothing there may be no array */
    source_open(&source, &options);
    RG_CHECK_EQ(source.count, 0);
    rg_source_close(&source);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_an_array_and_a_manifest_of_the_same_objects_are_alike),
        RG_TEST(test_a_fingerprint_tells_objects_apart),
        RG_TEST(test_what_is_missing_is_said),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
