/* Objects that are read with the key that they were written with. */
#include "emulator/api/encryption.h"

#include "tests/emulator/driver.h"

#define KEY_A "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
#define KEY_B "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVpBQkNERUY="
#define FIELDS(prefix, key)                                                                        \
    prefix "-algorithm: AES256\r\n" prefix "-key: " key "\r\n" prefix "-key-sha256: " key "\r\n"
#define WITH(key) FIELDS("x-goog-encryption", key)
#define SOURCE(key) FIELDS("x-goog-copy-source-encryption", key)

static unsigned send_with(const char *method, const char *target, const char *fields,
                          const char *body)
{
    rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %zu\r\n\r\n%s",
                   method, target, fields, strlen(body), body);
    return reply.status;
}

static void test_only_who_has_the_key_reads(void)
{
    static const char *const media[] = {"/bucket/o", "/storage/v1/b/bucket/o/o?alt=media"};
    open_api(NULL, 0);
    RG_CHECK_EQ(send_with("PUT", "/bucket/o", WITH(KEY_A), "secret"), 200);
    put_xml("/bucket/plain", "open");
    for (size_t i = 0; i < RG_ARRAY_LEN(media); i++) {
        RG_CHECK_EQ(send_with("GET", media[i], WITH(KEY_A), ""), 200);
        RG_CHECK_STR(reply.body.data, "secret");
        RG_CHECK_EQ(send_with("GET", media[i], WITH(KEY_B), ""), 400);
        check_body_has("incorrect");
        RG_CHECK_EQ(send_with("GET", media[i], "", ""), 400);
        check_body_has("is encrypted by");
    }
    RG_CHECK_EQ(send_with("GET", "/bucket/plain", WITH(KEY_A), ""), 400);
    check_body_has("is not encrypted by");
    get("/storage/v1/b/bucket/o/o");
    check_body_has(
        "\"customerEncryption\":{\"encryptionAlgorithm\":\"AES256\",\"keySha256\":\"" KEY_A "\"}");
    close_api();
}

static void test_copies_and_compositions(void)
{
    open_api(NULL, 0);
    RG_CHECK_EQ(send_with("PUT", "/bucket/o", WITH(KEY_A), "secret"), 200);
    static const char rotate[] = "/storage/v1/b/bucket/o/o/rewriteTo/b/bucket/o/o";
    RG_CHECK_EQ(send_with("POST", rotate, "", ""), 400);
    RG_CHECK_EQ(send_with("POST", rotate, SOURCE(KEY_B) WITH(KEY_B), ""), 400);
    RG_CHECK_EQ(send_with("POST", rotate, SOURCE(KEY_A) WITH(KEY_B), ""), 200);
    RG_CHECK_EQ(send_with("GET", "/bucket/o", WITH(KEY_B), ""), 200);
    static const char join[] = "{\"sourceObjects\":[{\"name\":\"o\"}]}";
    RG_CHECK_EQ(send_with("POST", "/storage/v1/b/bucket/o/p/compose", "", join), 400);
    RG_CHECK_EQ(send_with("POST", "/storage/v1/b/bucket/o/p/compose", WITH(KEY_B), join), 200);
    RG_CHECK_EQ(send_with("GET", "/bucket/p", WITH(KEY_B), ""), 200);
    /* What is moved keeps its key; what is copied without one is open. */
    RG_CHECK_EQ(send_with("POST", "/storage/v1/b/bucket/o/o/moveTo/o/moved", "", ""), 200);
    RG_CHECK_EQ(send_with("GET", "/bucket/moved", WITH(KEY_B), ""), 200);
    RG_CHECK_EQ(
        send_with("POST", "/storage/v1/b/bucket/o/p/rewriteTo/b/bucket/o/q", SOURCE(KEY_B), ""),
        200);
    RG_CHECK_EQ(send_with("GET", "/bucket/q", "", ""), 200);
    close_api();
}

static void test_keys_that_are_none(void)
{
    static const char *const bad[] = {
        "x-goog-encryption-key: " KEY_A "\r\n",
        "x-goog-encryption-algorithm: ROT13\r\nx-goog-encryption-key: " KEY_A
        "\r\nx-goog-encryption-key-sha256: " KEY_A "\r\n",
        WITH("AAAA"),
    };
    open_api(NULL, 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(bad); i++) {
        RG_CHECK_EQ(send_with("PUT", "/bucket/o", bad[i], "x"), 400);
    }
    close_api();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_only_who_has_the_key_reads),
        RG_TEST(test_copies_and_compositions),
        RG_TEST(test_keys_that_are_none),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
