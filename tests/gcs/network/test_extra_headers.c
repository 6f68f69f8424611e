/* The user's own request fields. */
#include "gcs/network/extra_headers.h"

#include "tests/support/test.h"

static char error[256];

static int parse(struct rg_extra_headers **out_headers, const char *option)
{
    memset(error, 0, sizeof(error));
    return rg_extra_headers_parse(out_headers, option, error, sizeof(error));
}

static void check_refused(const char *text, const char *want)
{
    struct rg_extra_headers *headers = NULL;
    RG_CHECK_EQ(parse(&headers, text), -EINVAL);
    RG_CHECK(headers == NULL);
    RG_CHECK_STR(error, want);
}

static void check_header(const struct rg_extra_headers *headers, uint32_t index, const char *name,
                         const char *value)
{
    RG_CHECK(index < headers->count);
    RG_CHECK_STR(headers->names[index], name);
    RG_CHECK_MEM(headers->values[index].data, headers->values[index].size, value, strlen(value));
}

static void test_lines(void)
{
    struct rg_extra_headers *headers;
    RG_CHECK_EQ(parse(&headers, "x-retry-test-id: 123\nX-Trace:a:b\r\n\n  \nx-empty:\n"
                                "Authorization: \t Bearer t \t\r\nx-\xc3\xa9: no"),
                -EINVAL);
    RG_CHECK_EQ(parse(&headers, "x-retry-test-id: 123\nX-Trace:a:b\r\n\n  \nx-empty:\n"
                                "Authorization: \t Bearer t \t\r\nx-u: \xc3\xa9"),
                0);
    RG_CHECK_EQ(headers->count, 5);
    check_header(headers, 0, "x-retry-test-id", "123");
    check_header(headers, 1, "X-Trace", "a:b");
    check_header(headers, 2, "x-empty", "");
    check_header(headers, 3, "Authorization", "Bearer t");
    check_header(headers, 4, "x-u", "\xc3\xa9");
    rg_extra_headers_free(headers);
}

static void test_the_environment_counts_where_there_is_no_option(void)
{
    struct rg_extra_headers *headers;
    setenv("RINGEST_HEADERS", "x-a: 1", 1);
    RG_CHECK_EQ(parse(&headers, NULL), 0);
    check_header(headers, 0, "x-a", "1");
    rg_extra_headers_free(headers);
    RG_CHECK_EQ(parse(&headers, ""), 0);
    RG_CHECK_EQ(headers->count, 0);
    rg_extra_headers_free(headers);
    unsetenv("RINGEST_HEADERS");
    RG_CHECK_EQ(parse(&headers, NULL), 0);
    RG_CHECK_EQ(headers->count, 0);
    rg_extra_headers_free(headers);
    rg_extra_headers_free(NULL);
}

static void test_what_is_wrong_is_said_without_the_value(void)
{
    check_refused("x-a: 1\nsecret", "line 2 of the headers option has no colon");
    check_refused(": v", "line 1 of the headers option does not begin with the name of a field");
    check_refused("x y: v", "line 1 of the headers option does not begin with the name of a field");
    check_refused("\n\nx-a : v",
                  "line 3 of the headers option does not begin with the name of a field");
    check_refused(
        "Range: bytes=0-1",
        "line 1 of the headers option (Range) names a field that the library sets itself");
    check_refused("x-a: se\x01"
                  "cret",
                  "line 1 of the headers option (x-a) has a control character in its value");
    check_refused("x-a: se\rcret",
                  "line 1 of the headers option (x-a) has a control character in its value");
    setenv("RINGEST_HEADERS", "Host: h", 1);
    check_refused(NULL,
                  "line 1 of RINGEST_HEADERS (Host) names a field that the library sets itself");
    unsetenv("RINGEST_HEADERS");
}

static void test_fields_of_the_library_are_refused_in_any_case(void)
{
    static const char *const lines[] = {"host: h",
                                        "HOST: h",
                                        "Content-Length: 1",
                                        "transfer-encoding: chunked",
                                        "Connection: close",
                                        "Upgrade: x",
                                        "expect: x",
                                        "TE: trailers",
                                        "accept-encoding: br"};
    for (size_t i = 0; i < RG_ARRAY_LEN(lines); i++) {
        struct rg_extra_headers *headers;
        RG_CHECK_EQ(parse(&headers, lines[i]), -EINVAL);
    }
}

static void test_limits(void)
{
    char text[RG_EXTRA_HEADERS_SIZE_MAX + 2];
    struct rg_extra_headers *headers;
    size_t size = 0;
    for (int i = 0; i < RG_EXTRA_HEADERS_MAX; i++) {
        size += (size_t)snprintf(text + size, sizeof(text) - size, "x-%d: %d\n", i, i);
    }
    RG_CHECK_EQ(parse(&headers, text), 0);
    RG_CHECK_EQ(headers->count, RG_EXTRA_HEADERS_MAX);
    check_header(headers, RG_EXTRA_HEADERS_MAX - 1, "x-31", "31");
    rg_extra_headers_free(headers);
    strcpy(text + size, "x-one: more");
    check_refused(text, "line 33 of the headers option is one too many: 32 are allowed");

    memset(text, 'x', sizeof(text));
    memcpy(text, "a:", 2);
    text[RG_EXTRA_HEADERS_SIZE_MAX] = '\0';
    RG_CHECK_EQ(parse(&headers, text), 0);
    RG_CHECK_EQ(headers->values[0].size, RG_EXTRA_HEADERS_SIZE_MAX - 2);
    rg_extra_headers_free(headers);
    text[RG_EXTRA_HEADERS_SIZE_MAX] = 'x';
    text[RG_EXTRA_HEADERS_SIZE_MAX + 1] = '\0';
    check_refused(text, "the headers option is longer than 8192 bytes");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_lines),
        RG_TEST(test_the_environment_counts_where_there_is_no_option),
        RG_TEST(test_what_is_wrong_is_said_without_the_value),
        RG_TEST(test_fields_of_the_library_are_refused_in_any_case),
        RG_TEST(test_limits),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
