/* URIs of objects: their parts. What the program and the Python package make of them is compared in
 * tests/python/test_uris.py. */
#include "runtime/uri.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

static void check_part(const char *part, size_t size, const char *expected)
{
    RG_CHECK_EQ(size, strlen(expected));
    RG_CHECK(memcmp(part, expected, size) == 0);
}

static void test_a_uri_is_cut_behind_the_bucket(void)
{
    static const struct {
        const char *text;
        enum rg_uri_scheme scheme;
        const char *bucket, *name;
        bool has_slash;
    } rows[] = {
        {"gs://bucket/a/b c?d#e%20", RG_URI_GS, "bucket", "a/b c?d#e%20", true},
        {"gs://bucket", RG_URI_GS, "bucket", "", false},
        {"gs://bucket/", RG_URI_GS, "bucket", "", true},
        {"gs://my_bucket-1.x//o", RG_URI_GS, "my_bucket-1.x", "/o", true},
        {"gcs://abc/\xc3\xa9\n", RG_URI_GCS, "abc", "\xc3\xa9\n", true},
        {"gs://", RG_URI_GS, "", "", false},
        {"gs:///o", RG_URI_GS, "", "o", true},
        {"gcs://gs://b/o", RG_URI_GCS, "gs:", "/b/o", true},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_uri uri;
        RG_CHECK_EQ(rg_uri_split(rows[i].text, strlen(rows[i].text), &uri), 0);
        RG_CHECK_EQ(uri.scheme, rows[i].scheme);
        RG_CHECK_EQ(uri.has_slash, rows[i].has_slash);
        check_part(uri.bucket, uri.bucket_size, rows[i].bucket);
        check_part(uri.name, uri.name_size, rows[i].name);
    }
}

static void test_the_size_ends_it(void)
{
    struct rg_uri uri;
    RG_CHECK_EQ(rg_uri_split("gs://bucket/name", 14, &uri), 0);
    check_part(uri.name, uri.name_size, "na");
    RG_CHECK_EQ(rg_uri_split("gs://bucket/name", 10, &uri), 0);
    RG_CHECK(!uri.has_slash);
    check_part(uri.bucket, uri.bucket_size, "bucke");
    RG_CHECK_EQ(rg_uri_split("gs://bucket/name", 4, &uri), -EINVAL);
    RG_CHECK_EQ(rg_uri_split("gs://b/a\0b", 10, &uri), 0);
    RG_CHECK_EQ(uri.name_size, 3);
}

static void test_other_texts_are_refused(void)
{
    static const char *const texts[] = {
        "",           "gs:",     "gs:/",       "GS://b/o",    "s3://b/o", "bucket/o", " gs://b/o",
        "gs:/bucket", "g://b/o", "gcss://b/o", "https://b/o", "gs",       "gc://b/o", "/gs://b/o"};
    struct rg_uri uri;
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        RG_CHECK_EQ(rg_uri_split(texts[i], strlen(texts[i]), &uri), -EINVAL);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_uri_is_cut_behind_the_bucket),
        RG_TEST(test_the_size_ends_it),
        RG_TEST(test_other_texts_are_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
