/* Against published vectors: FIPS 180, RFC 4231, RFC 4648. */
#include "gcs/wire/digest.h"
#include "tests/support/test.h"

#include <string.h>

static void test_sha256_and_hmac(void)
{
    uint8_t out[RG_SHA256_SIZE];
    char hex[2 * RG_SHA256_SIZE + 1];
    rg_sha256("abc", 3, out);
    rg_hex_encode(out, sizeof(out), hex);
    RG_CHECK_STR(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    /* RFC 4231, test case 2. */
    rg_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out);
    rg_hex_encode(out, sizeof(out), hex);
    RG_CHECK_STR(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void test_base64_in_both_alphabets(void)
{
    static const struct {
        const char *data, *base64, *url;
    } rows[] = {
        {"", "", ""},
        {"f", "Zg==", "Zg"},
        {"fo", "Zm8=", "Zm8"},
        {"foo", "Zm9v", "Zm9v"},
        {"\xfb\xff\xbe", "+/++", "-_--"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        char out[16];
        size_t size = strlen(rows[i].data);
        RG_CHECK_EQ(rg_base64_encode(rows[i].data, size, out), strlen(rows[i].base64));
        RG_CHECK_STR(out, rows[i].base64);
        RG_CHECK_EQ(rg_base64url_encode(rows[i].data, size, out), strlen(rows[i].url));
        RG_CHECK_STR(out, rows[i].url);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_sha256_and_hmac),
        RG_TEST(test_base64_in_both_alphabets),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
