/* Escapes, base64, dates, UTF-8. */
#include "emulator/wire/text.h"
#include "tests/support/test.h"

#include <time.h>

static const char *built(struct rg_text *text)
{
    static char copy[256];
    RG_CHECK(!text->failed && text->size < sizeof(copy));
    memcpy(copy, text->data, text->size);
    copy[text->size] = '\0';
    rg_text_fini(text);
    return copy;
}

static void test_json_escapes(void)
{
    struct rg_text text = {0};
    static const char raw[] = "a\"b\\c\n\t\x01\x7fé\xff/";
    rg_text_append_json(&text, raw, sizeof(raw) - 1);
    RG_CHECK_STR(built(&text), "\"a\\\"b\\\\c\\n\\t\\u0001\\u007fé\xef\xbf\xbd/\"");
}

static void test_xml_escapes(void)
{
    struct rg_text text = {0};
    static const char raw[] = "<a&'\"> \x01\n中";
    rg_text_append_xml(&text, raw, sizeof(raw) - 1);
    RG_CHECK_STR(built(&text), "&lt;a&amp;&#39;&quot;&gt; \xef\xbf\xbd&#10;中");
}

static void test_percent_escapes(void)
{
    struct rg_text text = {0};
    rg_text_append_percent(&text, "a/b c~é%", strlen("a/b c~é%"));
    RG_CHECK_STR(built(&text), "a/b%20c~%C3%A9%25");
}

static void test_texts_grow(void)
{
    struct rg_text text = {0};
    for (int i = 0; i < 10000; i++) {
        rg_text_printf(&text, "%05d,", i);
    }
    RG_CHECK_EQ(text.size, 60000);
    RG_CHECK_MEM(text.data + 59994, 6, "09999,", 6);
    rg_text_fini(&text);
}

static void test_utf8(void)
{
    static const char *const good[] = {"", "a", "é", "中", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc3",
                                      "\xc0\x80",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "a\xff",
                                      "\xe4\xb8"};
    for (size_t i = 0; i < RG_ARRAY_LEN(good); i++) {
        RG_CHECK(rg_text_is_utf8(rg_text_slice(good[i])));
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK(!rg_text_is_utf8(rg_text_slice(bad[i])));
    }
}

static void test_base64_round_trips(void)
{
    for (size_t size = 0; size < 40; size++) {
        uint8_t data[40], back[40];
        char text[64];
        for (size_t i = 0; i < size; i++) {
            data[i] = (uint8_t)rg_test_random();
        }
        rg_text_format_base64(text, data, size);
        uint32_t text_size = (uint32_t)RG_TEXT_BASE64_SIZE(size);
        int back_size = rg_text_parse_base64((struct rg_h1_slice){text, text_size}, back, 40);
        RG_CHECK_MEM(back, (size_t)back_size, data, size);
        while (text_size > 0 && text[text_size - 1] == '=') {
            text_size--;
        }
        back_size = rg_text_parse_base64((struct rg_h1_slice){text, text_size}, back, 40);
        RG_CHECK_MEM(back, (size_t)back_size, data, size);
    }
}

static void test_base64_that_is_none(void)
{
    static const char *const texts[] = {"A", "AAAAA", "A===", "AA=", "A A=", "AA==A", "?AAA"};
    uint8_t out[16];
    for (size_t i = 0; i < RG_ARRAY_LEN(texts); i++) {
        RG_CHECK_EQ(rg_text_parse_base64(rg_text_slice(texts[i]), out, sizeof(out)), -EINVAL);
    }
    RG_CHECK_EQ(rg_text_parse_base64(rg_text_slice("AAAAAAAA"), out, 5), -EMSGSIZE);
    RG_CHECK_EQ(rg_text_parse_base64(rg_text_slice("_-+/"), out, 3), 3);
    RG_CHECK_MEM(out, 3, "\xff\xef\xbf", 3);
}

static void test_dates_are_those_of_the_c_library(void)
{
    for (int i = 0; i < 20000; i++) {
        char got[RG_TEXT_HTTP_DATE_SIZE + 1], want[64];
        time_t seconds = (time_t)rg_test_random_below(UINT64_C(250000000000));
        struct tm broken;
        gmtime_r(&seconds, &broken);
        strftime(want, sizeof(want), "%a, %d %b %Y %H:%M:%S GMT", &broken);
        rg_text_format_http_date(got, seconds);
        RG_CHECK_STR(got, want);
        char rfc[RG_TEXT_RFC3339_SIZE + 1];
        strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S.789Z", &broken);
        rg_text_format_rfc3339(rfc, (int64_t)seconds * 1000000 + 789012);
        RG_CHECK_STR(rfc, want);
    }
    char got[RG_TEXT_HTTP_DATE_SIZE + 1];
    rg_text_format_http_date(got, 784111777);
    RG_CHECK_STR(got, "Sun, 06 Nov 1994 08:49:37 GMT");
    rg_text_format_http_date(got, -1);
    RG_CHECK_STR(got, "Wed, 31 Dec 1969 23:59:59 GMT");
}

static void test_numbers(void)
{
    int64_t value;
    char digits[20];
    RG_CHECK_EQ(rg_text_parse_int64(rg_text_slice("9223372036854775807"), &value), 0);
    RG_CHECK_EQ(value, INT64_MAX);
    RG_CHECK_EQ(rg_text_parse_int64(rg_text_slice("9223372036854775808"), &value), -EINVAL);
    RG_CHECK_EQ(rg_text_parse_int64(rg_text_slice(""), &value), -EINVAL);
    RG_CHECK_EQ(rg_text_parse_int64(rg_text_slice("-1"), &value), -EINVAL);
    RG_CHECK_EQ(rg_text_format_u64(digits, UINT64_MAX), 20);
    RG_CHECK_MEM(digits, 20, "18446744073709551615", 20);
    RG_CHECK_EQ(rg_text_format_u64(digits, 0), 1);
    RG_CHECK_EQ(digits[0], '0');
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_json_escapes),
        RG_TEST(test_xml_escapes),
        RG_TEST(test_percent_escapes),
        RG_TEST(test_texts_grow),
        RG_TEST(test_utf8),
        RG_TEST(test_base64_round_trips),
        RG_TEST(test_base64_that_is_none),
        RG_TEST(test_dates_are_those_of_the_c_library),
        RG_TEST(test_numbers),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
