/* Signed URLs, compared with what google-cloud-storage 3.17.1 makes of the same key and time. */
#include "gcs/credentials/sign_url.h"
#include "tests/gcs/credentials/rfc7515_key.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>

#define OF_A_READ                                                                                  \
    "https://storage.googleapis.com/test-bucket/path/with/%C3%A4%26b/file.ext?X-Goog-Algorith"     \
    "m=GOOG4-RSA-SHA256&X-Goog-Credential=reader%40project.iam.gserviceaccount.com%2F20190201"     \
    "%2Fauto%2Fstorage%2Fgoog4_request&X-Goog-Date=20190201T090000Z&X-Goog-Expires=10&X-Goog-"     \
    "SignedHeaders=host&X-Goog-Signature=88138ec40d2a81f46def295fe4d8261c30c84907f4c5d7f3b1e6"     \
    "b1160f8231fd567846549ab1a7053b8c921a9d02fbbe620322b818837b8df5083f6057966fa971a534714271"     \
    "d1fb67a94b3be530bbbfbdf0827cec07c9993df35c7f278f724bd7e473cf0afd628eecd1ad7650dc28c44134"     \
    "dccc52cb8f21f33d8a7f6df0b050456850706c0ddce5497f37c060fac01f16090c737ebc728a9e98401a948c"     \
    "ba10292fe9ead85cfca2d0cb1d7ec8c062d0a0262c0e7527eaf41ed6324603e7da29b216aad056e69d0eddca"     \
    "00303cbd37f3d5db07b7fde64cddeb6593bbb60b7ee1e6405ff0df926d36e0f40d5efae62d492f6676c6137c"     \
    "3acbfaefa9dbc62e0c34"
#define OF_A_WRITE                                                                                 \
    "https://storage.googleapis.com/test-bucket/a%20b~c%25/..//%2B%3D%3F%23%2A?X-Goog-Algorit"     \
    "hm=GOOG4-RSA-SHA256&X-Goog-Credential=reader%40project.iam.gserviceaccount.com%2F2019020"     \
    "1%2Fauto%2Fstorage%2Fgoog4_request&X-Goog-Date=20190201T090000Z&X-Goog-Expires=604800&X-"     \
    "Goog-SignedHeaders=content-type%3Bhost&X-Goog-Signature=1aa2966ff998e9a3a6f9adca3fde0a2f"     \
    "4101453a5d2d2dd97de6ad013ce613c121736f1a869530bc75c89dee78abac6b1e114cbd6afb280e960f5bd2"     \
    "1781db833a827c78c664781fa9da4de2f09f1a93189c4b9049098d28a5f00f0c6af63e18332bb44be4d90925"     \
    "830f884340ef6de6d6323caa5c808627befdc39f2c61035b6e614f67dd8d5f27ea790e9420ed7fd713960b22"     \
    "e9cafadddbf4c154243fd9270dc00baa48457213eddf4be2bc2e26939b370bb555cbd3504d0e1f68521844fa"     \
    "4703e43e8e8d2a6b52b341bffac5bdf643adb07a67bd266616f875116d7cd714bf133c155a6e702c5d10b924"     \
    "32cbea947cefb397adb961d8adf8f6f93c8a67e1"
#define OF_A_PAYER                                                                                 \
    "https://storage.googleapis.com/test-bucket/path/with/%C3%A4%26b/file.ext?X-Goog-Algor"        \
    "ithm=GOOG4-RSA-SHA256&X-Goog-Credential=reader%40project.iam.gserviceaccount.com%2F20"        \
    "190201%2Fauto%2Fstorage%2Fgoog4_request&X-Goog-Date=20190201T090000Z&X-Goog-Expires=1"        \
    "0&X-Goog-SignedHeaders=host&userProject=my-project&X-Goog-Signature=6c2e2caed9a96f325"        \
    "f606262b98e8d6e3c37f43876ab862ea11f733e952e303fcba970927ecefbfee9e7a62a7e2389293c1d96"        \
    "78ac10d1a045ed3b5c0caa5fe37e0ade3284236a53da8fe740d1fd67ce59c1dd857168eab3a482b2e30a4"        \
    "17152964b6b2b41ffb4d4b21f7b0e434ec04bab45441390c1f1fcf555910fe6a826e5b9925c82e3b9fd62"        \
    "4665c78e780327d8cc64852fed69b100ae438940a1191eb5855f4ed1ad8137055ba5072cb2e12df085f30"        \
    "8ab0a29153dc4a04e3867be73c9a115fe5a8573e15fe26f1cf69d06da76a787fdd010cf6fd0e231845076"        \
    "45e224d1f3d84c234baccc4039d23e722250c1aa9be5cee10e1529b3388cd1e98ad2ca"

static struct rg_signed_url some_url(void)
{
    return (struct rg_signed_url){
        .email = "reader@project.iam.gserviceaccount.com",
        .pem = RFC7515_KEY,
        .scheme = "https",
        .host = "storage.googleapis.com",
        .bucket = "test-bucket",
        .object = "path/with/\u00e4&b/file.ext",
        .method = "GET",
        .seconds = 10,
        .now = 1549011600, /* 2019-02-01T09:00:00Z */
    };
}

static void test_urls_of_the_official_client(void)
{
    struct rg_signed_url url = some_url();
    char *text = NULL;
    RG_CHECK_EQ(rg_sign_url(&url, &text), 0);
    RG_CHECK_STR(text, OF_A_READ);
    free(text);
    url.user_project = "my-project";
    RG_CHECK_EQ(rg_sign_url(&url, &text), 0);
    RG_CHECK_STR(text, OF_A_PAYER);
    free(text);
    url.user_project = NULL;
    url.object = "a b~c%/..//+=?#*";
    url.method = "PUT";
    url.content_type = "text/plain";
    url.seconds = RG_SIGNED_URL_SECONDS_MAX;
    RG_CHECK_EQ(rg_sign_url(&url, &text), 0);
    RG_CHECK_STR(text, OF_A_WRITE);
    free(text);
}

static void test_what_cannot_be_signed(void)
{
    struct rg_signed_url url = some_url();
    char *text = NULL;
    url.seconds = 0;
    RG_CHECK_EQ(rg_sign_url(&url, &text), -ERANGE);
    url.seconds = RG_SIGNED_URL_SECONDS_MAX + 1;
    RG_CHECK_EQ(rg_sign_url(&url, &text), -ERANGE);
    url.seconds = 1;
    url.pem = "no key";
    RG_CHECK_EQ(rg_sign_url(&url, &text), -EINVAL);
    RG_CHECK(text == NULL);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_urls_of_the_official_client),
        RG_TEST(test_what_cannot_be_signed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
