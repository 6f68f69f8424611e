/* CRC-32C against the vectors of RFC 3720 and a reference that goes bit by bit. */
#include "tests/support/test.h"

#include <ringest/gcs.h>

/* Straight from the definition: reflected polynomial, register all ones, inverted at the end. */
static uint32_t reference(uint32_t crc, const uint8_t *data, size_t size)
{
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
        }
    }
    return ~crc;
}

static void test_vectors_of_rfc_3720(void)
{
    /* Appendix B.4, whose bytes of the CRC stand in the order in which they are sent. */
    uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
    static const uint8_t read_pdu[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
                                         0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
                                         0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};
    for (size_t i = 0; i < 32; i++) {
        ones[i] = 0xff;
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    RG_CHECK_EQ(rg_crc32c(0, zeros, 32), 0x8a9136aa);
    RG_CHECK_EQ(rg_crc32c(0, ones, 32), 0x62a8ab43);
    RG_CHECK_EQ(rg_crc32c(0, up, 32), 0x46dd794e);
    RG_CHECK_EQ(rg_crc32c(0, down, 32), 0x113fdb5c);
    RG_CHECK_EQ(rg_crc32c(0, read_pdu, sizeof(read_pdu)), 0xd9963a56);
    RG_CHECK_EQ(rg_crc32c(0, "123456789", 9), 0xe3069283);
    RG_CHECK_EQ(rg_crc32c(0, NULL, 0), 0);
}

static void fill(uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)rg_test_random();
    }
}

/* CRC-32: the check value of its catalogue entry, in all divisions into two pieces. */
static void test_crc_32(void)
{
    static const char digits[] = "123456789";
    for (size_t cut = 0; cut < sizeof(digits); cut++) {
        uint32_t crc = rg_crc32(0, digits, cut);
        RG_CHECK_EQ(rg_crc32(crc, digits + cut, sizeof(digits) - 1 - cut), 0xcbf43926);
    }
}

static void test_random_pieces_are_like_the_reference(void)
{
    static uint8_t data[20000];
    fill(data, sizeof(data));
    for (int round = 0; round < 300; round++) {
        size_t start = rg_test_random_below(64);
        size_t size = rg_test_random_below(round < 200 ? 600 : sizeof(data) - 64);
        uint32_t want = reference(0, data + start, size), crc = 0;
        RG_CHECK_EQ(rg_crc32c(0, data + start, size), want);
        for (size_t done = 0; done < size;) {
            size_t piece = 1 + rg_test_random_below(size - done);
            crc = rg_crc32c(crc, data + start + done, piece);
            done += piece;
        }
        RG_CHECK_EQ(crc, want);
    }
}

static void test_combining_is_like_computing_the_whole(void)
{
    static uint8_t data[20000];
    fill(data, sizeof(data));
    for (int round = 0; round < 2000; round++) {
        size_t size = rg_test_random_below(sizeof(data) + 1);
        size_t cut = rg_test_random_below(size + 1);
        uint32_t a = rg_crc32c(0, data, cut), b = rg_crc32c(0, data + cut, size - cut);
        RG_CHECK_EQ(rg_crc32c_combine(a, b, size - cut), rg_crc32c(0, data, size));
    }
}

/* Appending the same zeros twice must be like appending twice as many, for every power of two; and
 * what can still be computed must be like the reference. */
static void test_combining_over_every_power_of_two(void)
{
    static const uint8_t block[1 << 16];
    uint32_t zeros = reference(0, block, 1), any = (uint32_t)rg_test_random();
    for (int k = 0; k < 63; k++) {
        uint64_t size = UINT64_C(1) << k;
        uint32_t doubled = rg_crc32c_combine(zeros, zeros, size);
        uint32_t once = rg_crc32c_combine(any, zeros, size);
        RG_CHECK_EQ(rg_crc32c_combine(once, zeros, size),
                    rg_crc32c_combine(any, doubled, size << 1));
        if (size <= sizeof(block)) {
            RG_CHECK_EQ(zeros, reference(0, block, size));
            RG_CHECK_EQ(once, reference(any, block, size));
        }
        zeros = doubled;
    }
}

static void test_combining_nothing_changes_nothing(void)
{
    RG_CHECK_EQ(rg_crc32c_combine(0x12345678, 0, 0), 0x12345678);
    RG_CHECK_EQ(rg_crc32c_combine(0, 0x12345678, 77), 0x12345678);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_vectors_of_rfc_3720),
        RG_TEST(test_crc_32),
        RG_TEST(test_random_pieces_are_like_the_reference),
        RG_TEST(test_combining_is_like_computing_the_whole),
        RG_TEST(test_combining_over_every_power_of_two),
        RG_TEST(test_combining_nothing_changes_nothing),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
