/* The files' bytes: there and back, and each bit of each structure damaged. */
#include "cache/format.h"

#include "tests/support/test.h"

#include <ringest/gcs.h>

static const struct rg_cache_key key = {"host", "bucket", "some/object", 1700000000000001, 3};

static void fill(uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)rg_test_random();
    }
}

static size_t header_make(const uint8_t *body, size_t size, uint8_t *out)
{
    struct rg_cache_key_sizes sizes;
    struct rg_cache_record record = {
        .object_size = 3 * RG_CACHE_BLOCK_SIZE + size,
        .object_crc32c = 77,
        .has_object_crc32c = true,
    };
    RG_CHECK(rg_cache_key_measure(&key, &sizes));
    rg_cache_header_write(&key, &sizes, rg_cache_key_hash(&key, &sizes), &record, body, size, out);
    return rg_cache_header_size(&sizes, size);
}

static void check_header(const uint8_t *bytes, size_t header_size, const uint8_t *body,
                         size_t body_size)
{
    struct rg_cache_key found;
    struct rg_cache_record record;
    uint64_t hash;
    RG_CHECK_EQ(rg_cache_header_read(bytes, header_size, &found, &record, &hash), 0);
    RG_CHECK_STR(found.origin, key.origin);
    RG_CHECK_STR(found.bucket, key.bucket);
    RG_CHECK_STR(found.object, key.object);
    RG_CHECK_EQ(found.generation, key.generation);
    RG_CHECK_EQ(found.block, key.block);
    RG_CHECK_EQ(record.header_size, header_size);
    RG_CHECK_EQ(record.body_size, body_size);
    RG_CHECK_EQ(record.object_size, 3 * RG_CACHE_BLOCK_SIZE + body_size);
    RG_CHECK(record.has_object_crc32c && record.object_crc32c == 77);
    RG_CHECK_EQ(rg_cache_body_check(&record, 0, body, body_size), 0);
}

static void test_headers_of_every_size_of_body(void)
{
    static const size_t sizes[] = {0,      1,      65535,  65536,  65537,
                                   262143, 262144, 262145, 327680, RG_CACHE_BLOCK_SIZE};
    static uint8_t body[RG_CACHE_BLOCK_SIZE], header[RG_CACHE_HEADER_SIZE_MAX];
    fill(body, sizeof(body));
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        size_t size = header_make(body, sizes[i], header);
        check_header(header, size, body, sizes[i]);
    }
}

/* A small object has its own checksum as that of its only piece. */
static void test_a_known_checksum_is_taken(void)
{
    static uint8_t body[1000], header[RG_CACHE_HEADER_SIZE_MAX];
    struct rg_cache_key small = {"host", "bucket", "small", 1, 0}, found;
    struct rg_cache_record record = {.object_size = sizeof(body), .has_object_crc32c = true};
    struct rg_cache_key_sizes sizes;
    uint64_t hash;
    fill(body, sizeof(body));
    record.object_crc32c = rg_crc32c(0, body, sizeof(body));
    RG_CHECK(rg_cache_key_measure(&small, &sizes));
    for (unsigned wrong = 0; wrong < 2; wrong++) {
        record.object_crc32c ^= wrong;
        rg_cache_header_write(&small, &sizes, 1, &record, body, sizeof(body), header);
        struct rg_cache_record read;
        size_t size = rg_cache_header_size(&sizes, sizeof(body));
        RG_CHECK_EQ(rg_cache_header_read(header, size, &found, &read, &hash), 0);
        RG_CHECK_EQ(rg_cache_body_check(&read, 0, body, sizeof(body)), wrong ? -EBADMSG : 0);
    }
}

static void test_any_flipped_bit_of_a_header_is_seen(void)
{
    static uint8_t body[70000], header[RG_CACHE_HEADER_SIZE_MAX];
    struct rg_cache_key found;
    struct rg_cache_record record;
    uint64_t hash;
    size_t size = header_make(body, sizeof(body), header);
    for (size_t bit = 0; bit < size * 8; bit++) {
        header[bit / 8] ^= (uint8_t)(1 << bit % 8);
        RG_CHECK_EQ(rg_cache_header_read(header, size, &found, &record, &hash), -EBADMSG);
        header[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < size; cut++) {
        RG_CHECK_EQ(rg_cache_header_read(header, cut, &found, &record, &hash), -EBADMSG);
    }
}

static void test_any_flipped_bit_of_a_body_is_seen(void)
{
    static uint8_t body[300000], header[RG_CACHE_HEADER_SIZE_MAX];
    struct rg_cache_key found;
    struct rg_cache_record record;
    uint64_t hash;
    fill(body, sizeof(body));
    size_t size = header_make(body, sizeof(body), header);
    RG_CHECK_EQ(rg_cache_header_read(header, size, &found, &record, &hash), 0);
    for (unsigned round = 0; round < 300; round++) {
        size_t bit = rg_test_random_below(8 * sizeof(body));
        uint32_t piece = (uint32_t)(bit / 8 / record.piece_size * record.piece_size);
        body[bit / 8] ^= (uint8_t)(1 << bit % 8);
        RG_CHECK_EQ(rg_cache_body_check(&record, 0, body, sizeof(body)), -EBADMSG);
        RG_CHECK_EQ(rg_cache_body_check(&record, piece, body + piece,
                                        RG_MIN(record.piece_size, sizeof(body) - piece)),
                    -EBADMSG);
        body[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void test_heads(void)
{
    uint8_t bytes[RG_CACHE_HEAD_SIZE];
    struct rg_cache_head head = {.nonce = {{1, 2, 3}}, .host = {{4, 5}}}, back;
    rg_cache_head_write(&head, bytes);
    RG_CHECK_EQ(rg_cache_head_read(bytes, sizeof(bytes), &back), 0);
    RG_CHECK_MEM(&back, sizeof(back), &head, sizeof(head));
    RG_CHECK_EQ(rg_cache_head_read(bytes, 63, &back), -EBADMSG);
    for (size_t bit = 0; bit < 64 * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int rc = rg_cache_head_read(bytes, sizeof(bytes), &back);
        RG_CHECK_EQ(rc, bit / 8 >= 8 && bit / 8 < 16 ? -EPROTONOSUPPORT : -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void test_trailers_and_tables(void)
{
    struct rg_cache_content table[3] = {{11, 64, 500}, {12, 72, 65}, {13, 74, 1000}};
    struct rg_cache_nonce nonce = {{9}}, other = {{8}};
    struct rg_cache_trailer trailer = {.table_offset = 8192, .count = 3}, back;
    uint8_t bytes[RG_CACHE_TRAILER_SIZE];
    trailer.table_crc = rg_crc32c(0, table, sizeof(table));
    rg_cache_trailer_write(&trailer, &nonce, bytes);
    RG_CHECK_EQ(rg_cache_trailer_read(bytes, &nonce, 12288, &back), 0);
    RG_CHECK_EQ(rg_cache_table_check(&back, table), 0);
    RG_CHECK_EQ(rg_cache_trailer_read(bytes, &other, 12288, &back), -EBADMSG);
    RG_CHECK_EQ(rg_cache_trailer_read(bytes, &nonce, 8192 + 64 + 47, &back), -EBADMSG);
    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        RG_CHECK_EQ(rg_cache_trailer_read(bytes, &nonce, 12288, &back), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < sizeof(table) * 8; bit++) {
        ((uint8_t *)table)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        RG_CHECK_EQ(rg_cache_table_check(&trailer, table), -EBADMSG);
        ((uint8_t *)table)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    /* A right checksum of places that lie outside. */
    table[2].place = 8192 / 64 - 1;
    trailer.table_crc = rg_crc32c(0, table, sizeof(table));
    RG_CHECK_EQ(rg_cache_table_check(&trailer, table), -EBADMSG);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_headers_of_every_size_of_body),
        RG_TEST(test_a_known_checksum_is_taken),
        RG_TEST(test_any_flipped_bit_of_a_header_is_seen),
        RG_TEST(test_any_flipped_bit_of_a_body_is_seen),
        RG_TEST(test_heads),
        RG_TEST(test_trailers_and_tables),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
