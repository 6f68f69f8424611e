/* Checksums as text. */
#include "cli/hash_text.h"
#include "tests/support/test.h"

/* The check values of both algorithms: of "123456789" (RFC 3720), and of nothing (RFC 1321). */
static void test_in_base64_and_in_hexadecimal_digits(void)
{
    char buffer[HASH_TEXT_SIZE];
    RG_CHECK_STR(hash_text_crc32c(0xe3069283, false, buffer), "4waSgw==");
    RG_CHECK_STR(hash_text_crc32c(0xe3069283, true, buffer), "e3069283");
    RG_CHECK_STR(hash_text_crc32c(0, false, buffer), "AAAAAA==");
    RG_CHECK_STR(hash_text_crc32c(UINT32_MAX, false, buffer), "/////w==");
    const char *md5 = "1B2M2Y8AsgTpgAmY7PhCfg==";
    RG_CHECK_STR(hash_text_md5(md5, false, buffer), md5);
    RG_CHECK_STR(hash_text_md5(md5, true, buffer), "d41d8cd98f00b204e9800998ecf8427e");
}

static void test_a_digest_of_ours(void)
{
    char buffer[HASH_TEXT_SIZE], hex[HASH_TEXT_SIZE];
    uint8_t md5[16] = {0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04,
                       0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8, 0x42, 0x7e};
    RG_CHECK_STR(hash_text_digest(md5, false, buffer), "1B2M2Y8AsgTpgAmY7PhCfg==");
    RG_CHECK_STR(hash_text_md5(buffer, true, hex), "d41d8cd98f00b204e9800998ecf8427e");
    RG_CHECK_STR(hash_text_digest(md5, true, buffer), hex);
}

static void test_what_is_no_md5_is_left_alone(void)
{
    char buffer[HASH_TEXT_SIZE];
    RG_CHECK(hash_text_md5(NULL, true, buffer) == NULL);
    RG_CHECK_STR(hash_text_md5("short", true, buffer), "short");
    RG_CHECK_STR(hash_text_md5("1B2M2Y8AsgTpgAmY7P!Cfg==", true, buffer),
                 "1B2M2Y8AsgTpgAmY7P!Cfg==");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_in_base64_and_in_hexadecimal_digits),
        RG_TEST(test_a_digest_of_ours),
        RG_TEST(test_what_is_no_md5_is_left_alone),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
