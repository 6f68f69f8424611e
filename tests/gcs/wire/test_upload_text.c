/* What uploads say of an object, as JSON and as fields. */
#include "gcs/wire/upload_text.h"
#include "http/h1_encoder.h"
#include "tests/support/test.h"

static const struct rg_metadata metadata[] = {{"k", "v \"w\""}, {"l", "\xc3\xa4"}};
static const struct rg_upload_attributes attributes = {
    .content_type = "text/plain",
    .content_encoding = "gzip",
    .cache_control = "no-store",
    .storage_class = "NEARLINE",
    .metadata = metadata,
    .metadata_count = 2,
};

#define ATTRIBUTES                                                                                 \
    "\"contentType\":\"text/plain\",\"contentEncoding\":\"gzip\",\"cacheControl\":\"no-store\","   \
    "\"storageClass\":\"NEARLINE\",\"metadata\":{\"k\":\"v \\\"w\\\"\",\"l\":\"\xc3\xa4\"}"

static void test_resource(void)
{
    const uint32_t crc = 0xc450d697;
    char *json = rg_upload_resource_json(&attributes, "a\nb", &crc);
    RG_CHECK_STR(json, "{\"name\":\"a\\nb\",\"crc32c\":\"xFDWlw==\"," ATTRIBUTES "}");
    free(json);
    const struct rg_upload_attributes none = {0};
    json = rg_upload_resource_json(&none, NULL, NULL);
    RG_CHECK_STR(json, "{}");
    free(json);
}

static void test_compose(void)
{
    char first[] = "a", second[] = "b";
    char *const names[] = {first, second};
    const int64_t generations[] = {12, 0};
    char *json = rg_upload_compose_json(&attributes, names, generations, 2);
    RG_CHECK_STR(json, "{\"sourceObjects\":[{\"name\":\"a\",\"generation\":\"12\"},"
                       "{\"name\":\"b\"}],\"destination\":{" ATTRIBUTES "}}");
    free(json);
}

static void test_fields(void)
{
    char text[1024];
    struct rg_h1_encoder encoder;
    rg_h1_encoder_init(&encoder, text, sizeof(text));
    rg_h1_encode_request(&encoder, "POST", "/");
    size_t begin = encoder.size;
    rg_upload_encode_attributes(&attributes, &encoder);
    static const char want[] = "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n"
                               "Cache-Control: no-store\r\nx-goog-storage-class: NEARLINE\r\n"
                               "x-goog-meta-k: v \"w\"\r\nx-goog-meta-l: \xc3\xa4\r\n";
    RG_CHECK_EQ(encoder.error, 0);
    RG_CHECK_MEM(text + begin, encoder.size - begin, want, sizeof(want) - 1);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_resource),
        RG_TEST(test_compose),
        RG_TEST(test_fields),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
