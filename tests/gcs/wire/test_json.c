/* Writing and reading the service's JSON. */
#include "gcs/wire/json.h"

#include "tests/support/test.h"

static int write_update(const struct rg_metadata *metadata, size_t count, const char *type,
                        char **out_text)
{
    struct rg_json_writer writer;
    size_t size = 0;
    rg_json_begin(&writer);
    rg_json_add_text(&writer, writer.root, "contentType", type);
    rg_json_add_text(&writer, writer.root, "cacheControl", "");
    rg_json_add_text(&writer, writer.root, "contentEncoding", NULL);
    rg_json_add_i64(&writer, writer.root, "generation", 1700000000000001);
    rg_json_add_i64(&writer, writer.root, "none", 0);
    rg_json_add_metadata(&writer, writer.root, metadata, count, "");
    int rc = rg_json_write(&writer, out_text, &size);
    if (rc == 0) {
        RG_CHECK_EQ(size, strlen(*out_text));
    }
    return rc;
}

static void test_write(void)
{
    static const struct rg_metadata metadata[] = {{"a", "1\n\"2\""}, {"gone", NULL}, {"e", ""}};
    char *text;
    RG_CHECK_EQ(write_update(metadata, 3, "text/plain", &text), 0);
    RG_CHECK_STR(text, "{\"contentType\":\"text/plain\",\"cacheControl\":null,"
                       "\"generation\":\"1700000000000001\","
                       "\"metadata\":{\"a\":\"1\\n\\\"2\\\"\",\"gone\":null,\"e\":\"\"}}");
    free(text);
    RG_CHECK_EQ(write_update(NULL, 0, NULL, &text), 0);
    RG_CHECK_STR(text, "{\"cacheControl\":null,\"generation\":\"1700000000000001\"}");
    free(text);
}

static void test_what_cannot_be_written(void)
{
    char *text, *large = calloc(1, RG_METADATA_SIZE_MAX + 1);
    RG_CHECK_EQ(write_update(&(struct rg_metadata){NULL, "x"}, 1, NULL, &text), -EINVAL);
    RG_CHECK_EQ(write_update(&(struct rg_metadata){"", "x"}, 1, NULL, &text), -EINVAL);
    RG_CHECK_EQ(write_update(&(struct rg_metadata){"k", "\xff"}, 1, NULL, &text), -EINVAL);
    RG_CHECK_EQ(write_update(NULL, 0, "\xc3", &text), -EINVAL);
    memset(large, 'x', RG_METADATA_SIZE_MAX);
    RG_CHECK_EQ(write_update(&(struct rg_metadata){"k", large}, 1, NULL, &text), -EINVAL);
    RG_CHECK_EQ(write_update(&(struct rg_metadata){"k", large + 1}, 1, NULL, &text), 0);
    free(text);
    free(large);
}

static void test_read(void)
{
    static const char json[] = "[\"18446744073709551615\",12,\"18446744073709551616\",\"-1\",\"\","
                               "\"9223372036854775808\",\"xFDWlw==\",\"a\\u0000b\",null,1.5]";
    yyjson_doc *doc = yyjson_read(json, sizeof(json) - 1, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    uint64_t number = 7;
    int64_t generation = 7;
    uint32_t crc = 7;
    const char *text = "?";
    RG_CHECK(rg_json_read_u64(yyjson_arr_get(root, 0), &number) && number == UINT64_MAX);
    RG_CHECK(!rg_json_read_i64(yyjson_arr_get(root, 0), &generation));
    RG_CHECK(rg_json_read_i64(yyjson_arr_get(root, 1), &generation) && generation == 12);
    RG_CHECK(!rg_json_read_i64(yyjson_arr_get(root, 5), &generation));
    for (size_t i = 2; i < 10; i++) {
        bool is_number = rg_json_read_u64(yyjson_arr_get(root, i), &number);
        RG_CHECK_EQ(is_number, i == 5);
    }
    RG_CHECK(rg_json_read_crc32c(yyjson_arr_get(root, 6), &crc) && crc == 0xc450d697);
    RG_CHECK(!rg_json_read_crc32c(yyjson_arr_get(root, 1), &crc));
    RG_CHECK(!rg_json_read_crc32c(yyjson_arr_get(root, 8), &crc));
    RG_CHECK(!rg_json_read_text(yyjson_arr_get(root, 7), &text));
    RG_CHECK(!rg_json_read_text(yyjson_arr_get(root, 8), &text));
    RG_CHECK(!rg_json_read_text(NULL, &text) && !rg_json_read_u64(NULL, &number));
    RG_CHECK_STR(text, "?");
    RG_CHECK(rg_json_read_text(yyjson_arr_get(root, 6), &text));
    RG_CHECK_STR(text, "xFDWlw==");
    yyjson_doc_free(doc);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_write),
        RG_TEST(test_what_cannot_be_written),
        RG_TEST(test_read),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
