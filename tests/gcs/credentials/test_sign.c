/* Signatures against published vectors: RFC 7515 appendix A.2. */
#include "gcs/credentials/sign.h"
#include "gcs/wire/digest.h"
#include "tests/gcs/credentials/rfc7515_key.h"
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

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_rs256_of_rfc_7515),
        RG_TEST(test_keys_that_are_none),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
