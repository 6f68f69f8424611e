/* One readable line out of whatever an error comes with. */
#include "gcs/wire/error_body.h"

#include "gcs/wire/utf8.h"
#include "tests/support/test.h"

static char line[2 * RG_ERROR_MESSAGE_SIZE_MAX];

static const char *message_bytes(const char *body, size_t size)
{
    size_t got = rg_error_message(body, size, line, sizeof(line));
    RG_CHECK_EQ(got, strlen(line));
    return line;
}

static const char *message(const char *body)
{
    return message_bytes(body, strlen(body));
}

static void test_json_of_the_service(void)
{
    RG_CHECK_STR(
        message("{\"error\":{\"code\":404,\"message\":\"No such object: b/o\",\"errors\":"
                "[{\"domain\":\"global\",\"reason\":\"notFound\",\"message\":\"again\"}]}}"),
        "No such object: b/o");
    RG_CHECK_STR(message("{\n  \"error\" : {\n \"message\"\t:\r\n  \"spaced\"}}"), "spaced");
    RG_CHECK_STR(message("{\"error\":\"invalid_grant\",\"error_description\":\"Bad token\"}"),
                 "Bad token");
    RG_CHECK_STR(message("{\"error\":\"invalid_grant\"}"), "invalid_grant");
}

static void test_json_of_others(void)
{
    /* The message is an object, or a text that holds JSON, or comes late. */
    RG_CHECK_STR(message("{\"message\":{\"code\":5,\"message\":\"inner\"}}"), "inner");
    RG_CHECK_STR(message("{\"error\":{\"message\":\"{\\\"error\\\": {\\\"message\\\": "
                         "\\\"in \\\\\\\"text\\\\\\\"\\\"}}\"}}"),
                 "in \"text\"");
    RG_CHECK_STR(message("{\"message\":null,\"x\":{\"message\":\"late\"}}"), "late");
    RG_CHECK_STR(message("{\"message\":\"{no json}\"}"), "{no json}");
    RG_CHECK_STR(message("{\"message\":\"cut of"), "cut of");
    RG_CHECK_STR(message("{\"message\":\"cut in an escape \\"), "cut in an escape \\");
}

static void test_escapes_of_json(void)
{
    RG_CHECK_STR(message("{\"message\":\"a\\n\\tb\\\"c\\\\d\\/e\"}"), "a b\"c\\d/e");
    RG_CHECK_STR(message("{\"message\":\"\\u00e9 \\u20ac \\ud83d\\ude00\"}"),
                 "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    RG_CHECK_STR(message("{\"message\":\"\\ud83d \\ude00 \\ud83dx \\u12\"}"), "? ? ?x ?12");
    RG_CHECK_STR(message("{\"message\":\"\\u0000\\u001b[31mred\\u009b\"}"), "[31mred");
}

static void test_xml_of_the_service(void)
{
    RG_CHECK_STR(message("<?xml version='1.0' encoding='UTF-8'?><Error><Code>NoSuchKey</Code>"
                         "<Message>The specified key does not exist.</Message>"
                         "<Details>No such object: b/o</Details></Error>"),
                 "NoSuchKey: The specified key does not exist.");
    RG_CHECK_STR(message("<Error><Code>AccessDenied</Code><Message>Access denied.</Message>"
                         "<Details>a@b does not have storage.objects.get access.</Details>"),
                 "AccessDenied: a@b does not have storage.objects.get access.");
    RG_CHECK_STR(message("<Error><Code>SlowDown</Code></Error>"), "SlowDown");
    RG_CHECK_STR(message("<Error><Message>a &lt;b&gt; &amp;amp; &quot;c&apos; &nbsp;</Message>"),
                 "a <b> &amp; \"c' &nbsp;");
}

static void test_pages_of_proxies(void)
{
    RG_CHECK_STR(message("<!DOCTYPE html>\n<html><head>\n<title>502 Bad\n Gateway</title>"),
                 "502 Bad Gateway");
    RG_CHECK_STR(message("<html>no title"), "<html>no title");
    RG_CHECK_STR(message("upstream connect error\r\n  or disconnect\n"),
                 "upstream connect error or disconnect");
}

static void test_garbage_becomes_printable(void)
{
    RG_CHECK_STR(message(""), "");
    RG_CHECK_STR(message(" \r\n\t "), "");
    RG_CHECK_STR(message_bytes("\0\0a\0b\0", 6), "a b");
    RG_CHECK_STR(message("\x1b[2Jx\x7fy\xc2\x9bz\xff\xe2\x80\xa8w"), "[2Jx y z? w");
    RG_CHECK_STR(message_bytes(NULL, 0), "");
}

static void test_long_bodies_are_cut_at_a_character(void)
{
    char body[1000];
    memset(body, 'x', sizeof(body));
    RG_CHECK_EQ(strlen(message_bytes(body, sizeof(body))), RG_ERROR_EXCERPT_SIZE_MAX);
    for (size_t i = 0; i + 1 < sizeof(body); i += 2) {
        memcpy(body + i, "\xc3\xa9", 2);
    }
    body[0] = 'a';
    body[1] = 'b';
    body[2] = 'c';
    body[3] = '.';
    memmove(body + 1, body + 2, sizeof(body) - 2);
    RG_CHECK_EQ(strlen(message_bytes(body, sizeof(body))), RG_ERROR_EXCERPT_SIZE_MAX - 1);
}

static void test_long_messages_are_cut(void)
{
    char body[2000] = "{\"message\":\"";
    memset(body + strlen(body), 'm', 1500);
    RG_CHECK_EQ(strlen(message(body)), RG_ERROR_MESSAGE_SIZE_MAX - 1);
}

static void test_far_behind_nothing_is_looked_for(void)
{
    size_t size = RG_ERROR_BODY_SCAN_MAX;
    char *body = malloc(size + 32);
    RG_CHECK(body != NULL);
    memset(body, ' ', size);
    memcpy(body + size, "{\"message\":\"far\"}", 17);
    RG_CHECK_STR(message_bytes(body, size + 17), "");
    RG_CHECK_STR(message_bytes(body + 20, size - 3), "far");
    free(body);
}

/* Any capacity gives a prefix of the same line, in UTF-8. */
static void test_every_capacity(void)
{
    const char *body = "{\"message\":\"one \xc3\xa9 two \\ud83d\\ude00 \xe2\x82\xac three\"}";
    char whole[RG_ERROR_MESSAGE_SIZE_MAX];
    size_t size = rg_error_message(body, strlen(body), whole, sizeof(whole));
    for (size_t capacity = 1; capacity <= size + 2; capacity++) {
        char *out = malloc(capacity);
        RG_CHECK(out != NULL);
        size_t got = rg_error_message(body, strlen(body), out, capacity);
        RG_CHECK(got < capacity && got == strlen(out));
        RG_CHECK(memcmp(out, whole, got) == 0);
        RG_CHECK(got + RG_UTF8_SIZE_MAX + 1 >= RG_MIN(size, capacity - 1));
        free(out);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_json_of_the_service),
        RG_TEST(test_json_of_others),
        RG_TEST(test_escapes_of_json),
        RG_TEST(test_xml_of_the_service),
        RG_TEST(test_pages_of_proxies),
        RG_TEST(test_garbage_becomes_printable),
        RG_TEST(test_long_bodies_are_cut_at_a_character),
        RG_TEST(test_long_messages_are_cut),
        RG_TEST(test_far_behind_nothing_is_looked_for),
        RG_TEST(test_every_capacity),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
