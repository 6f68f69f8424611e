/* URLs: endpoints, gs:// names, request targets and percent-decoding. */
#include "http/url.h"
#include "tests/support/test.h"

/* Parses from a block that ends where the text does, so that a sanitizer sees any byte read too
 * many. The caller frees `*out_copy`. */
static int parse_url(const char *text, struct rg_url *url, char **out_copy)
{
    size_t size = strlen(text);
    *out_copy = malloc(size == 0 ? 1 : size);
    memcpy(*out_copy, text, size);
    return rg_url_parse(*out_copy, size, url);
}

static void check_slice(struct rg_h1_slice slice, const char *text)
{
    RG_CHECK_MEM(slice.data, slice.size, text, strlen(text));
}

static struct rg_h1_slice slice_of(const char *text)
{
    return (struct rg_h1_slice){text, (uint32_t)strlen(text)};
}

static void test_endpoints_are_taken_apart(void)
{
    static const struct {
        const char *text;
        bool is_tls, is_ipv6;
        uint16_t port;
        const char *host, *authority, *path;
    } rows[] = {
        {"https://storage.googleapis.com", true, false, 443, "storage.googleapis.com",
         "storage.googleapis.com", ""},
        {"http://localhost:4443/", false, false, 4443, "localhost", "localhost:4443", ""},
        {"HTTPS://Host_1.x-y:65535/a/b//", true, false, 65535, "Host_1.x-y", "Host_1.x-y:65535",
         "/a/b"},
        {"localhost:9000", false, false, 9000, "localhost", "localhost:9000", ""},
        {"127.0.0.1:1/storage/v1", false, false, 1, "127.0.0.1", "127.0.0.1:1", "/storage/v1"},
        {"emulator", false, false, 80, "emulator", "emulator", ""},
        {"https://[::1]:8443/x", true, true, 8443, "::1", "[::1]:8443", "/x"},
        {"[2001:db8::1]", false, true, 80, "2001:db8::1", "[2001:db8::1]", ""},
        {"http://h/a%20b", false, false, 80, "h", "h", "/a%20b"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_url url;
        char *copy;
        RG_CHECK_EQ(parse_url(rows[i].text, &url, &copy), 0);
        RG_CHECK_EQ(url.is_tls, rows[i].is_tls);
        RG_CHECK_EQ(url.host_is_ipv6, rows[i].is_ipv6);
        RG_CHECK_EQ(url.port, rows[i].port);
        check_slice(url.host, rows[i].host);
        check_slice(url.authority, rows[i].authority);
        check_slice(url.path, rows[i].path);
        free(copy);
    }
}

static void test_bad_endpoints_are_refused_and_leave_the_output_alone(void)
{
    static const char *const texts[] = {
        "",
        "http://",
        "https:///x",
        "http://:80",
        "http://h:",
        "http://h:0",
        "http://h:65536",
        "http://h:123456",
        "http://h:8o",
        "http://h:+80",
        "http://h:80:80",
        "ftp://h",
        "http://u@h",
        "http://u:p@h",
        "http://h?x",
        "http://h/?x",
        "http://h/#x",
        "http://h/a b",
        "http://h h",
        " http://h",
        "http://h\r\n",
        "http://h/\r\n",
        "http://.h",
        "http://h.",
        "http://a..b",
        "http://[::1",
        "http://[]",
        "http://[::1]x",
        "http://[::g]",
        "http://[fe80::1%eth0]",
        "http://[127.0.0.1]",
        "::1",
        "http://h/\xc3\xa9",
        "http://\xc3\xa9",
        "http:/h",
        "gs://b",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        struct rg_url url = {.port = 7};
        char *copy;
        int result = parse_url(texts[i], &url, &copy);
        free(copy);
        if (result != -EINVAL || url.port != 7) {
            rg_test_fail(__FILE__, __LINE__, "%d for: %s", result, texts[i]);
        }
    }
    struct rg_url url;
    RG_CHECK_EQ(rg_url_parse("h\0", 2, &url), -EINVAL);
    RG_CHECK_EQ(rg_url_parse("[::1\0]", 6, &url), -EINVAL);
}

static void test_hosts_labels_and_paths_have_limits(void)
{
    char text[RG_URL_PATH_SIZE_MAX + 64];
    struct rg_url url;
    memset(text, 'a', sizeof(text));
    RG_CHECK_EQ(rg_url_parse(text, 63, &url), 0);
    RG_CHECK_EQ(rg_url_parse(text, 64, &url), -EINVAL);
    for (size_t i = 63; i < sizeof(text); i += 64) {
        text[i] = '.';
    }
    RG_CHECK_EQ(rg_url_parse(text, RG_URL_HOST_SIZE_MAX, &url), 0);
    RG_CHECK_EQ(rg_url_parse(text, RG_URL_HOST_SIZE_MAX + 1, &url), -EINVAL);
    text[1] = '/';
    RG_CHECK_EQ(rg_url_parse(text, 1 + RG_URL_PATH_SIZE_MAX, &url), 0);
    RG_CHECK_EQ(rg_url_parse(text, 1 + RG_URL_PATH_SIZE_MAX + 1, &url), -EINVAL);
}

static void test_targets_are_split_at_the_first_question_mark(void)
{
    static const struct {
        const char *target, *path, *query;
    } rows[] = {
        {"/", "/", ""},         {"/b/o", "/b/o", ""},     {"/b/o?a=1?b", "/b/o", "a=1?b"},
        {"/?", "/", ""},        {"*", "*", ""},           {"http://h:80/b?q", "/b", "q"},
        {"https://h", "/", ""}, {"http://h?q", "/", "q"}, {"/http://h/x", "/http://h/x", ""},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_h1_slice path, query;
        rg_url_target_split(slice_of(rows[i].target), &path, &query);
        check_slice(path, rows[i].path);
        check_slice(query, rows[i].query);
    }
}

static void test_a_query_is_walked_pair_by_pair(void)
{
    struct rg_h1_slice query = slice_of("&a=1&&b&c==2=&=d&e="), name, value;
    static const char *const pairs[][2] = {
        {"a", "1"}, {"b", ""}, {"c", "=2="}, {"", "d"}, {"e", ""}};
    for (size_t i = 0; i < RG_ARRAY_LEN(pairs); i++) {
        RG_CHECK(rg_url_query_next(&query, &name, &value));
        check_slice(name, pairs[i][0]);
        check_slice(value, pairs[i][1]);
    }
    RG_CHECK(!rg_url_query_next(&query, &name, &value));
    RG_CHECK(!rg_url_query_next(&query, &name, &value));
    query = slice_of("&&");
    RG_CHECK(!rg_url_query_next(&query, &name, &value));
}

static void test_percent_decoding(void)
{
    char out[64];
    int size =
        rg_url_percent_decode(slice_of("a%20b%2Fc%2f%00%fF+%2B"), RG_URL_PATH, out, sizeof(out));
    RG_CHECK_MEM(out, (size_t)size, "a b/c/\0\xff++", 10);
    size = rg_url_percent_decode(slice_of("a+b%2B%2525"), RG_URL_QUERY, out, sizeof(out));
    RG_CHECK_MEM(out, (size_t)size, "a b+%25", 7);
    RG_CHECK_EQ(rg_url_percent_decode(slice_of(""), RG_URL_PATH, out, 0), 0);
    RG_CHECK_EQ(rg_url_percent_decode(slice_of("%41bc"), RG_URL_PATH, out, 3), 3);
    RG_CHECK_EQ(rg_url_percent_decode(slice_of("%41bc"), RG_URL_PATH, out, 2), -ENOSPC);

    char in_place[] = "%41%42c";
    size = rg_url_percent_decode(slice_of(in_place), RG_URL_PATH, in_place, sizeof(in_place));
    RG_CHECK_MEM(in_place, (size_t)size, "ABc", 3);
    static const char *const bad[] = {"%", "%4", "a%", "%g0", "%0g", "%%20", "% 0", "%-1", "%+1"};
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        char *copy = malloc(strlen(bad[i]));
        memcpy(copy, bad[i], strlen(bad[i]));
        struct rg_h1_slice text = {copy, (uint32_t)strlen(bad[i])};
        RG_CHECK_EQ(rg_url_percent_decode(text, RG_URL_PATH, out, sizeof(out)), -EINVAL);
        free(copy);
    }
}

static void test_random_bytes_survive_encoding_and_decoding(void)
{
    for (int round = 0; round < 2000; round++) {
        char data[32], encoded[3 * sizeof(data) + 1], out[sizeof(data)];
        size_t size = rg_test_random_below(sizeof(data)), encoded_size = 0;
        for (size_t i = 0; i < size; i++) {
            data[i] = (char)rg_test_random();
            const char *format = rg_test_random_below(2) == 0 ? "%%%02X" : "%%%02x";
            bool is_plain = (data[i] >= 'a' && data[i] <= 'z') || data[i] == '/';
            encoded_size += (size_t)sprintf(encoded + encoded_size, is_plain ? "%c" : format,
                                            (unsigned char)data[i]);
        }
        struct rg_h1_slice text = {encoded, (uint32_t)encoded_size};
        int result = rg_url_percent_decode(text, RG_URL_QUERY, out, sizeof(out));
        RG_CHECK_EQ(result, size);
        RG_CHECK_MEM(out, (size_t)result, data, size);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_endpoints_are_taken_apart),
        RG_TEST(test_bad_endpoints_are_refused_and_leave_the_output_alone),
        RG_TEST(test_hosts_labels_and_paths_have_limits),
        RG_TEST(test_targets_are_split_at_the_first_question_mark),
        RG_TEST(test_a_query_is_walked_pair_by_pair),
        RG_TEST(test_percent_decoding),
        RG_TEST(test_random_bytes_survive_encoding_and_decoding),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
