/* MD5 by the vectors of RFC 1321, whole and in pieces. */
#include "emulator/wire/md5.h"
#include "tests/support/test.h"

static void check_digest(const char *text, size_t piece, const char *want)
{
    struct rg_md5 md5;
    uint8_t digest[RG_MD5_SIZE];
    char hex[2 * RG_MD5_SIZE + 1];
    rg_md5_init(&md5);
    for (size_t left = strlen(text); left > 0;) {
        size_t count = RG_MIN(left, piece);
        rg_md5_update(&md5, text, count);
        text += count;
        left -= count;
    }
    rg_md5_final(&md5, digest);
    for (size_t i = 0; i < RG_MD5_SIZE; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    RG_CHECK_STR(hex, want);
}

static void test_the_vectors_of_the_rfc(void)
{
    static const struct {
        const char *text, *digest;
    } rows[] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"a", "0cc175b9c0f1b6a831c399e269772661"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
         "d174ab98d277d9f5a5611c2c9f419d9f"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        for (size_t piece = 1; piece < 90; piece++) {
            check_digest(rows[i].text, piece, rows[i].digest);
        }
    }
}

static void test_sizes_around_the_end_of_a_block(void)
{
    static const char *const digests[] = {
        "ef1772b6dff9a122358552954ad0df65", "3b0c8ac703f828b04c6c197006d17218",
        "652b906d60af96844ebd21b674f35e93", "b06521f39153d618550606be297466d5",
        "014842d480b571495a4a0363793f7367", "c743a45e0d2e6a95cb859adae0248435"};
    static const size_t sizes[] = {55, 56, 57, 63, 64, 65};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        char text[80] = "";
        memset(text, 'a', sizes[i]);
        check_digest(text, 7, digests[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_vectors_of_the_rfc),
        RG_TEST(test_sizes_around_the_end_of_a_block),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
