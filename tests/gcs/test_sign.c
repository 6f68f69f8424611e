/* Signatures against published vectors: RFC 7515 appendix A.2, RFC 4231, FIPS 180. */
#include "gcs/sign.h"
#include "tests/gcs/rfc7515_key.h"
#include "tests/support/test.h"

#define SIGNING_INPUT                                                                              \
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmN" \
    "vbS9pc19yb290Ijp0cnVlfQ"
#define SIGNATURE                                                                                  \
    "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5" \
    "jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb" \
    "1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QO" \
    "YEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"

static void test_rs256_of_rfc_7515(void)
{
    uint8_t signature[RG_RSA_SIGNATURE_SIZE_MAX];
    char text[RG_BASE64URL_SIZE(RG_RSA_SIGNATURE_SIZE_MAX)];
    int size = rg_rsa_sha256_sign(RFC7515_KEY, SIGNING_INPUT, strlen(SIGNING_INPUT), signature);
    RG_CHECK_EQ(size, 256);
    RG_CHECK_EQ(rg_base64url_encode(signature, (size_t)size, text), strlen(SIGNATURE));
    RG_CHECK_STR(text, SIGNATURE);
}

static void test_keys_that_are_none(void)
{
    static const char *const keys[] = {
        "", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        /* ECDSA, P-256 */
        "-----BEGIN PRIVATE KEY-----\n"
        "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2\n"
        "OF/2NxApJCzGCEDdfSp6VQO30hyhRANCAAQRWz+jn65BtOMvdyHKcvjBeBSDZH2r\n"
        "1RTwjmYSi9R/zpBnuQ4EiMnCqfMPWiZqB4QdbAd0E7oH50VpuZ1P087G\n"
        "-----END PRIVATE KEY-----\n"};
    uint8_t signature[RG_RSA_SIGNATURE_SIZE_MAX];
    RG_CHECK_EQ(rg_rsa_key_check(RFC7515_KEY), 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(keys); i++) {
        RG_CHECK_EQ(rg_rsa_key_check(keys[i]), -EINVAL);
        RG_CHECK_EQ(rg_rsa_sha256_sign(keys[i], "x", 1, signature), -EINVAL);
    }
}

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
        RG_TEST(test_rs256_of_rfc_7515),
        RG_TEST(test_keys_that_are_none),
        RG_TEST(test_sha256_and_hmac),
        RG_TEST(test_base64_in_both_alphabets),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
