/* Checksums as text, and fields of hashes. */
#include "gcs/wire/checksum.h"

#include "tests/support/test.h"

static void test_text_of_known_checksums(void)
{
    static const struct {
        uint32_t crc;
        const char *text;
    } vectors[] = {
        {0, "AAAAAA=="},          {0xffffffff, "/////w=="}, {0xe3069283, "4waSgw=="},
        {0x00000001, "AAAAAQ=="}, {0x80000000, "gAAAAA=="}, {0x9a71bb4c, "mnG7TA=="},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(vectors); i++) {
        char text[RG_CRC32C_TEXT_SIZE + 1] = "";
        uint32_t crc = 1;
        rg_crc32c_format(vectors[i].crc, text);
        RG_CHECK_STR(text, vectors[i].text);
        RG_CHECK_STR(rg_crc32c_text(vectors[i].crc).text, vectors[i].text);
        RG_CHECK_EQ(rg_crc32c_parse(text, RG_CRC32C_TEXT_SIZE, &crc), 0);
        RG_CHECK_EQ(crc, vectors[i].crc);
    }
}

static void test_text_there_and_back(void)
{
    for (int round = 0; round < 10000; round++) {
        uint32_t crc = (uint32_t)rg_test_random(), back = ~crc;
        char text[RG_CRC32C_TEXT_SIZE];
        rg_crc32c_format(crc, text);
        RG_CHECK_EQ(rg_crc32c_parse(text, sizeof(text), &back), 0);
        RG_CHECK_EQ(back, crc);
    }
}

static void test_malformed_text_is_refused(void)
{
    static const char *const wrong[] = {
        "",         "AAAAAA",    "AAAAAA=",  "AAAAAA===", "AAAAAAA=", "AAAAAAAA", "AAAAAB==",
        "AAAA A==", "AAAA\nA==", "AAAA-A==", "AAAA_A==",  "=AAAAA==", "AAAAA===", " AAAAAA==",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        uint32_t crc = 7;
        RG_CHECK_EQ(rg_crc32c_parse(wrong[i], strlen(wrong[i]), &crc), -EINVAL);
        RG_CHECK_EQ(crc, 7);
    }
}

static int add(struct rg_object_hashes *hashes, const char *value)
{
    return rg_object_hashes_parse(hashes, value, strlen(value));
}

static void test_hash_fields_in_every_shape(void)
{
    static const char *const shapes[][2] = {
        {"crc32c=4waSgw==", NULL},
        {"crc32c=4waSgw==", "md5=CY9rzUYh03PK3k6DJie09g=="},
        {"md5=CY9rzUYh03PK3k6DJie09g==", "crc32c=4waSgw=="},
        {"crc32c=4waSgw==,md5=CY9rzUYh03PK3k6DJie09g==", NULL},
        {"md5=CY9rzUYh03PK3k6DJie09g==, crc32c=4waSgw==", NULL},
        {"md5=CY9rzUYh03PK3k6DJie09g==\t,\tcrc32c=4waSgw== ", NULL},
        {"crc32c=4waSgw==", "crc32c=4waSgw=="},
        {",, crc32c=4waSgw==,,", ""},
        {"sha256=abc, xcrc32c=no, crc32c=4waSgw==", "crc32"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(shapes); i++) {
        struct rg_object_hashes hashes = {0};
        RG_CHECK_EQ(add(&hashes, shapes[i][0]), 0);
        if (shapes[i][1] != NULL) {
            RG_CHECK_EQ(add(&hashes, shapes[i][1]), 0);
        }
        RG_CHECK(hashes.has_crc32c);
        RG_CHECK_EQ(hashes.crc32c, 0xe3069283);
    }
}

static void test_hash_fields_without_a_checksum(void)
{
    static const char *const values[] = {"", "md5=CY9rzUYh03PK3k6DJie09g==", " , ", "CRC32C", "="};
    struct rg_object_hashes hashes = {0};
    for (size_t i = 0; i < RG_ARRAY_LEN(values); i++) {
        RG_CHECK_EQ(add(&hashes, values[i]), 0);
        RG_CHECK(!hashes.has_crc32c);
    }
}

static void test_bad_hash_fields_are_refused_and_change_nothing(void)
{
    static const char *const values[] = {"crc32c=", "crc32c=4waSgw", "crc32c=4waSgx==",
                                         "crc32c=AAAAAA==", "crc32c=4waSgw==,crc32c=AAAAAA=="};
    struct rg_object_hashes hashes = {0};
    RG_CHECK_EQ(add(&hashes, "crc32c=4waSgw==,crc32c=AAAAAA=="), -EBADMSG);
    RG_CHECK(!hashes.has_crc32c);
    RG_CHECK_EQ(add(&hashes, "crc32c=4waSgw=="), 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(values); i++) {
        RG_CHECK_EQ(add(&hashes, values[i]), -EBADMSG);
        RG_CHECK_EQ(hashes.crc32c, 0xe3069283);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_text_of_known_checksums),
        RG_TEST(test_text_there_and_back),
        RG_TEST(test_malformed_text_is_refused),
        RG_TEST(test_hash_fields_in_every_shape),
        RG_TEST(test_hash_fields_without_a_checksum),
        RG_TEST(test_bad_hash_fields_are_refused_and_change_nothing),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
