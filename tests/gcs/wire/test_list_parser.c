/* Pages of listings and resources of objects. Bodies lie in memory of exactly their size, and
 * blocks are as small as they may be, so that sanitizers see every step beyond. */
#include "gcs/wire/list_parser.h"

#include "tests/support/test.h"

static char *body;
static char *block;
static struct rg_list_page *page;
static const char *problem;

static void drop(void)
{
    free(body);
    free(block);
    body = NULL;
    block = NULL;
}

/* A page that was parsed is valid until the next call. */
static int parse_in(const char *text, size_t size, size_t block_size)
{
    drop();
    body = malloc(size + 1);
    block = malloc(block_size + 1);
    RG_CHECK(body != NULL && block != NULL);
    memcpy(body, text, size);
    page = NULL;
    problem = NULL;
    /* Without the byte behind the body, so that reading it is seen. */
    body = realloc(body, size > 0 ? size : 1);
    int status = rg_list_page_parse(body, size, block, block_size, &page, &problem);
    RG_CHECK_EQ(status == 0, page != NULL);
    RG_CHECK_EQ(status == -EBADMSG, problem != NULL);
    memset(body, '#', size);
    return status;
}

static int parse_bytes(const char *text, size_t size)
{
    return parse_in(text, size, rg_list_page_size_bound(size));
}

static int parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

static void test_a_page_of_the_service(void)
{
    RG_CHECK_EQ(parse("{\n"
                      "  \"kind\": \"storage#objects\",\n"
                      "  \"nextPageToken\": \"CgVhLnR4dA==\",\n"
                      "  \"prefixes\": [\"dir/\", \"d\\u00e9j\\u00e0/\"],\n"
                      "  \"items\": [\n"
                      "    {\n"
                      "      \"kind\": \"storage#object\",\n"
                      "      \"name\": \"a.txt\",\n"
                      "      \"bucket\": \"b\",\n"
                      "      \"generation\": \"1660000000123456\",\n"
                      "      \"metageneration\": \"1\",\n"
                      "      \"size\": \"102400\",\n"
                      "      \"crc32c\": \"4waSgw==\",\n"
                      "      \"metadata\": {\"name\": \"not this\", \"size\": [1, 2, {}]},\n"
                      "      \"componentCount\": 3,\n"
                      "      \"updated\": \"2026-01-02T03:04:05.678Z\"\n"
                      "    },\n"
                      "    {\"name\": \"b\"}\n"
                      "  ]\n"
                      "}\n"),
                0);
    RG_CHECK_STR(page->next_page_token, "CgVhLnR4dA==");
    RG_CHECK_EQ(page->prefix_count, 2);
    RG_CHECK_STR(page->prefixes[0], "dir/");
    RG_CHECK_STR(page->prefixes[1], "d\xc3\xa9j\xc3\xa0/");
    RG_CHECK_EQ(page->object_count, 2);
    const struct rg_object *object = &page->objects[0];
    RG_CHECK_STR(object->name, "a.txt");
    RG_CHECK_EQ(object->size, 102400);
    RG_CHECK_EQ(object->generation, 1660000000123456);
    RG_CHECK(object->has_crc32c);
    RG_CHECK_EQ(object->crc32c, 0xe3069283);
    RG_CHECK_STR(object->updated, "2026-01-02T03:04:05.678Z");
    object = &page->objects[1];
    RG_CHECK_STR(object->name, "b");
    RG_CHECK_EQ(object->size, 0);
    RG_CHECK_EQ(object->generation, 0);
    RG_CHECK(!object->has_crc32c);
    RG_CHECK(object->updated == NULL);
}

static void test_empty_pages(void)
{
    static const char *const pages[] = {
        "{}",
        " {\r\n} ",
        "{\"kind\":\"storage#objects\"}",
        "{\"items\":[],\"prefixes\":[]}",
        "{\"items\":null,\"prefixes\":null,\"nextPageToken\":null}",
        "{\"nextPageToken\":\"\"}",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(pages); i++) {
        RG_CHECK_EQ(parse(pages[i]), 0);
        RG_CHECK_EQ(page->object_count, 0);
        RG_CHECK_EQ(page->prefix_count, 0);
        RG_CHECK(page->next_page_token == NULL);
    }
    RG_CHECK_EQ(parse("{\"nextPageToken\":\"x\"}"), 0);
    RG_CHECK_STR(page->next_page_token, "x");
}

static void test_numbers_may_be_numbers(void)
{
    RG_CHECK_EQ(parse("{\"items\":[{\"name\":\"x\",\"size\":18446744073709551615,"
                      "\"generation\":9223372036854775807}]}"),
                0);
    RG_CHECK(page->objects[0].size == UINT64_MAX);
    RG_CHECK_EQ(page->objects[0].generation, INT64_MAX);
    RG_CHECK_EQ(parse("{\"items\":[{\"name\":\"x\",\"size\":\"18446744073709551615\","
                      "\"generation\":\"9223372036854775807\"}]}"),
                0);
    RG_CHECK(page->objects[0].size == UINT64_MAX);
    RG_CHECK_EQ(page->objects[0].generation, INT64_MAX);
}

static void test_null_is_like_missing_and_the_last_of_two_counts(void)
{
    RG_CHECK_EQ(parse("{\"items\":[{\"name\":\"no\"}],\"nextPageToken\":\"no\","
                      "\"items\":[{\"name\":\"a\",\"size\":\"5\",\"name\":\"b\",\"size\":null,"
                      "\"crc32c\":null}],\"nextPageToken\":\"yes\"}"),
                0);
    RG_CHECK_EQ(page->object_count, 1);
    RG_CHECK_STR(page->objects[0].name, "b");
    RG_CHECK_EQ(page->objects[0].size, 5);
    RG_CHECK(!page->objects[0].has_crc32c);
    RG_CHECK_STR(page->next_page_token, "yes");
}

static void test_names_of_any_characters(void)
{
    static const struct {
        const char *json, *name;
    } names[] = {
        {"a/b//c/../.", "a/b//c/../."},
        {"%2F+%20", "%2F+%20"},
        {"\\\"\\\\\\/", "\"\\/"},
        {"\\u0001\\n\\t\\r\\b\\f\\u001f", "\x01\n\t\r\b\f\x1f"},
        {"\\u007f", "\x7f"},
        {"\\u00e9\xc3\xa9", "\xc3\xa9\xc3\xa9"},
        {"\\ud83d\\ude00", "\xf0\x9f\x98\x80"},
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"\\uffff", "\xef\xbf\xbf"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        char text[128];
        snprintf(text, sizeof(text), "{\"items\":[{\"name\":\"%s\"}],\"prefixes\":[\"%s\"]}",
                 names[i].json, names[i].json);
        RG_CHECK_EQ(parse(text), 0);
        RG_CHECK_STR(page->objects[0].name, names[i].name);
        RG_CHECK_STR(page->prefixes[0], names[i].name);
    }
}

static void test_what_is_no_page_is_refused_saying_why(void)
{
    static const struct {
        const char *body, *problem;
    } cases[] = {
        {"", "is not JSON"},
        {" ", "is not JSON"},
        {"<html>", "is not JSON"},
        {"{", "is not JSON"},
        {"{}}", "is not JSON"},
        {"{} x", "is not JSON"},
        {"{'items':[]}", "is not JSON"},
        {"{\"items\":[],}", "is not JSON"},
        {"\xef\xbb\xbf{}", "is not JSON"},
        {"{\"nextPageToken\":\"\xff\"}", "is not JSON"},
        {"{\"nextPageToken\":\"\xed\xa0\x80\"}", "is not JSON"},
        {"{\"nextPageToken\":\"\\ud800\"}", "is not JSON"},
        {"{\"nextPageToken\":\"\n\"}", "is not JSON"},
        {"[]", "is not a JSON object"},
        {"null", "is not a JSON object"},
        {"\"items\"", "is not a JSON object"},
        {"{\"items\":{}}", "has items that are no array"},
        {"{\"items\":\"\"}", "has items that are no array"},
        {"{\"items\":[1]}", "has an object that is not a JSON object"},
        {"{\"items\":[null]}", "has an object that is not a JSON object"},
        {"{\"items\":[{}]}", "has an object without a name"},
        {"{\"items\":[{},{},{},{},{},{},{},{},{},{}]}", "has an object without a name"},
        {"{\"items\":[{\"name\":null}]}", "has an object without a name"},
        {"{\"items\":[{\"name\":\"\"}]}", "has an object whose name is no text"},
        {"{\"items\":[{\"name\":5}]}", "has an object whose name is no text"},
        {"{\"items\":[{\"name\":\"a\\u0000b\"}]}", "has an object whose name is no text"},
        {"{\"items\":[{\"name\":\"\\u0000\"}]}", "has an object whose name is no text"},
        {"{\"items\":[{\"name\":\"x\",\"size\":\"\"}]}", "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":\"-1\"}]}", "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":-1}]}", "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":1.5}]}", "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":\"1e3\"}]}",
         "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":\" 1\"}]}", "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":\"18446744073709551616\"}]}",
         "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":\"99999999999999999999\"}]}",
         "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":\"000000000000000000001\"}]}",
         "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"size\":18446744073709551616}]}",
         "has an object whose size is no number"},
        {"{\"items\":[{\"name\":\"x\",\"generation\":\"9223372036854775808\"}]}",
         "has an object whose generation is no number"},
        {"{\"items\":[{\"name\":\"x\",\"generation\":true}]}",
         "has an object whose generation is no number"},
        {"{\"items\":[{\"name\":\"x\",\"crc32c\":\"x\"}]}",
         "has an object whose CRC32C is not one"},
        {"{\"items\":[{\"name\":\"x\",\"crc32c\":1}]}", "has an object whose CRC32C is not one"},
        {"{\"items\":[{\"name\":\"x\",\"updated\":1}]}", "has an object whose time is no text"},
        {"{\"prefixes\":{}}", "has prefixes that are no array"},
        {"{\"prefixes\":[1]}", "has a prefix that is no text"},
        {"{\"prefixes\":[\"\"]}", "has a prefix that is no text"},
        {"{\"prefixes\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}", "has a prefix that is no text"},
        {"{\"prefixes\":[\"a\\u0000\"]}", "has a prefix that is no text"},
        {"{\"nextPageToken\":1}", "has a page token that is no text"},
        {"{\"nextPageToken\":\"a\\u0000\"}", "has a page token that is no text"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        RG_CHECK_EQ(parse(cases[i].body), -EBADMSG);
        RG_CHECK_STR(problem, cases[i].problem);
    }
    RG_CHECK_EQ(parse_bytes("{\0}", 3), -EBADMSG);
    RG_CHECK_EQ(parse_bytes("{}\0", 3), -EBADMSG);
}

/* Bodies that need the most memory for their size: pages of the shortest entries, and values that
 * are passed over. */
static void test_the_bound_holds_for_the_worst_pages(void)
{
    static const char *const shapes[][3] = {
        {"{\"items\":[", "{\"name\":\"x\"}", "]}"},
        {"{\"prefixes\":[", "\"x\"", "]}"},
        {"{\"x\":[", "0", "]}"},
        {"{\"x\":[", "{}", "]}"},
        {"{\"x\":[", "[[]]", "]}"},
        {"{\"x\":[", "\"\"", "]}"},
        {"{\"x\":[", "{\"\":0}", "]}"},
        {"{", "\"\":0", "}"},
        {"{", "\"items\":[]", "}"},
    };
    static char text[8192];
    for (size_t s = 0; s < RG_ARRAY_LEN(shapes); s++) {
        for (size_t count = 1; count < 500; count += 1 + count / 8) {
            size_t size = (size_t)sprintf(text, "%s", shapes[s][0]);
            for (size_t i = 0; i < count; i++) {
                size += (size_t)sprintf(text + size, "%s%s", i == 0 ? "" : ",", shapes[s][1]);
            }
            size += (size_t)sprintf(text + size, "%s", shapes[s][2]);
            RG_CHECK_EQ(parse_bytes(text, size), 0);
        }
    }
}

static void test_deep_nesting_is_survived(void)
{
    enum { DEPTH = 100000 };
    static char text[2 * DEPTH + 16];
    size_t size = (size_t)sprintf(text, "{\"x\":");
    memset(text + size, '[', DEPTH);
    memset(text + size + DEPTH, ']', DEPTH);
    text[size + 2 * (size_t)DEPTH] = '}';
    RG_CHECK_EQ(parse_bytes(text, size + 2 * (size_t)DEPTH + 1), 0);
    RG_CHECK_EQ(parse_bytes(text, size + DEPTH), -EBADMSG);
    RG_CHECK_STR(problem, "is not JSON");
}

static size_t write_page(char *text, size_t count)
{
    size_t size = (size_t)sprintf(text, "{\"items\":[");
    for (size_t i = 0; i < count; i++) {
        size += (size_t)sprintf(text + size,
                                "%s{\"name\":\"train/%08zu.tfrecord\",\"size\":\"%zu\","
                                "\"generation\":\"16600000%08zu\",\"crc32c\":\"AAAAAA==\","
                                "\"updated\":\"2026-01-02T03:04:05.678Z\"}",
                                i == 0 ? "" : ",", i, i * 1000, i);
    }
    return size + (size_t)sprintf(text + size, "]}");
}

static void test_a_full_page(void)
{
    enum { COUNT = 1000 };
    static char text[COUNT * 200];
    size_t size = write_page(text, COUNT);
    RG_CHECK_EQ(parse_bytes(text, size), 0);
    RG_CHECK_EQ(page->object_count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        char name[64];
        snprintf(name, sizeof(name), "train/%08zu.tfrecord", i);
        RG_CHECK_STR(page->objects[i].name, name);
        RG_CHECK_EQ(page->objects[i].size, i * 1000);
        RG_CHECK_EQ(page->objects[i].generation, INT64_C(1660000000000000) + (int64_t)i);
        RG_CHECK(page->objects[i].has_crc32c);
    }
}

/* Too small a block is told from a bad body, at every size. */
static void test_every_size_of_the_block(void)
{
    static char text[4096];
    size_t size = write_page(text, 8);
    size_t bound = rg_list_page_size_bound(size);
    bool fits = false;
    for (size_t block_size = 0; block_size <= bound; block_size += 1 + block_size / 64) {
        int status = parse_in(text, size, block_size);
        RG_CHECK(status == 0 || status == -ENOSPC);
        RG_CHECK(!fits || status == 0);
        fits = status == 0;
    }
    RG_CHECK(fits);
}

static void test_blocks_need_no_alignment(void)
{
    static char text[4096], memory[65536];
    size_t size = write_page(text, 8);
    for (size_t offset = 0; offset < 32; offset++) {
        struct rg_list_page *found;
        RG_CHECK_EQ(rg_list_page_parse(text, size, memory + offset, rg_list_page_size_bound(size),
                                       &found, &problem),
                    0);
        RG_CHECK_STR(found->objects[7].name, "train/00000007.tfrecord");
    }
}

static void test_every_prefix_of_a_page_is_refused(void)
{
    static char text[2048];
    size_t size = write_page(text, 3);
    for (size_t cut = 0; cut < size; cut++) {
        RG_CHECK_EQ(parse_bytes(text, cut), -EBADMSG);
    }
}

static void test_object_resources(void)
{
    struct rg_object_resource resource;
    const char *text = "{\"kind\":\"storage#object\",\"name\":\"x\",\"size\":\"10\","
                       "\"generation\":\"1234567890123456\",\"crc32c\":\"4waSgw==\"}";
    RG_CHECK_EQ(rg_object_resource_parse(text, strlen(text), &resource, &problem), 0);
    RG_CHECK_EQ(resource.size, 10);
    RG_CHECK_EQ(resource.generation, 1234567890123456);
    RG_CHECK(resource.has_crc32c);
    RG_CHECK_EQ(resource.crc32c, 0xe3069283);

    static const struct {
        const char *text, *nonce;
    } nonces[] = {
        {"{\"metadata\":{\"a\":\"b\",\"ringest-nonce\":\"00112233445566778899aabbccddeeff\"}}",
         "00112233445566778899aabbccddeeff"},
        {"{\"metadata\":{\"ringest-nonce\":\"00112233445566778899aabbccddeeff0\"}}", ""},
        {"{\"metadata\":{\"ringest-nonce\":7}}", ""},
        {"{\"metadata\":[]}", ""},
        {"{\"ringest-nonce\":\"00112233445566778899aabbccddeeff\"}", ""},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(nonces); i++) {
        RG_CHECK_EQ(
            rg_object_resource_parse(nonces[i].text, strlen(nonces[i].text), &resource, &problem),
            0);
        RG_CHECK_STR(resource.nonce, nonces[i].nonce);
    }
    RG_CHECK_EQ(rg_object_resource_parse("{}", 2, &resource, &problem), 0);
    RG_CHECK_EQ(resource.size, 0);
    RG_CHECK_EQ(resource.generation, 0);
    RG_CHECK(!resource.has_crc32c);
}

static void test_bad_object_resources_change_nothing(void)
{
    static const char *const texts[] = {"", "[]", "OK", "{\"size\":\"x\"}", "{\"crc32c\":\"\"}"};
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        struct rg_object_resource resource = {.size = 7};
        problem = NULL;
        RG_CHECK_EQ(rg_object_resource_parse(texts[i], strlen(texts[i]), &resource, &problem),
                    -EBADMSG);
        RG_CHECK(problem != NULL);
        RG_CHECK_EQ(resource.size, 7);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_page_of_the_service),
        RG_TEST(test_empty_pages),
        RG_TEST(test_numbers_may_be_numbers),
        RG_TEST(test_null_is_like_missing_and_the_last_of_two_counts),
        RG_TEST(test_names_of_any_characters),
        RG_TEST(test_what_is_no_page_is_refused_saying_why),
        RG_TEST(test_the_bound_holds_for_the_worst_pages),
        RG_TEST(test_deep_nesting_is_survived),
        RG_TEST(test_a_full_page),
        RG_TEST(test_every_size_of_the_block),
        RG_TEST(test_blocks_need_no_alignment),
        RG_TEST(test_every_prefix_of_a_page_is_refused),
        RG_TEST(test_object_resources),
        RG_TEST(test_bad_object_resources_change_nothing),
    };
    int status = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    drop();
    return status;
}
