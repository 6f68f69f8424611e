/* UTF-8: the borders of RFC 3629, and every character there and back. */
#include "gcs/wire/utf8.h"

#include "tests/support/test.h"

static int decode(const char *text)
{
    uint32_t code = 0;
    return rg_utf8_decode(text, strlen(text), &code);
}

static void test_every_character_there_and_back(void)
{
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char text[RG_UTF8_SIZE_MAX];
        uint32_t back = 0;
        if (!rg_utf8_code_valid(code)) {
            continue;
        }
        int size = rg_utf8_encode(code, text);
        RG_CHECK_EQ(size, code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4);
        RG_CHECK_EQ(rg_utf8_decode(text, (size_t)size, &back), size);
        RG_CHECK_EQ(back, code);
        if (size > 1) {
            RG_CHECK_EQ(rg_utf8_decode(text, (size_t)size - 1, &back), -EILSEQ);
        }
    }
}

static void test_known_characters(void)
{
    static const struct {
        const char *text;
        uint32_t code;
    } characters[] = {{"a", 'a'},
                      {"\xc2\xa3", 0xa3},
                      {"\xe2\x82\xac", 0x20ac},
                      {"\xed\x9f\xbf", 0xd7ff},
                      {"\xee\x80\x80", 0xe000},
                      {"\xf0\x9f\x98\x80", 0x1f600},
                      {"\xf4\x8f\xbf\xbf", 0x10ffff}};
    for (size_t i = 0; i < RG_ARRAY_LEN(characters); i++) {
        const char *text = characters[i].text;
        uint32_t code = 0;
        RG_CHECK_EQ(rg_utf8_decode(text, strlen(text), &code), strlen(text));
        RG_CHECK_EQ(code, characters[i].code);
    }
}

static void test_what_is_no_character_is_refused(void)
{
    static const char *const wrong[] = {
        "\x80", /* begins with a continuation */
        "\xbf",
        "\xc0\x80",         /* U+0000 in two bytes */
        "\xc1\xbf",         /* U+007F in two bytes */
        "\xe0\x9f\xbf",     /* U+07FF in three */
        "\xf0\x8f\xbf\xbf", /* U+FFFF in four */
        "\xed\xa0\x80",     /* surrogates */
        "\xed\xbf\xbf",
        "\xf4\x90\x80\x80", /* U+110000 */
        "\xf5\x80\x80\x80",
        "\xf8\x88\x80\x80\x80",
        "\xff",
        "\xfe",
        "\xc3(", /* no continuation */
        "\xe2\x82(",
        "\xf0\x9f\x98(",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        RG_CHECK_EQ(decode(wrong[i]), -EILSEQ);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_character_there_and_back),
        RG_TEST(test_known_characters),
        RG_TEST(test_what_is_no_character_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
