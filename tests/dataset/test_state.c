/* The bytes of a saved state: they come back as they were, and damage is noticed. */
#include "dataset/state.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

static const uint8_t bits[] = {0x81, 0, 0x10};

static const struct rg_state example = {
    .flags = RG_STATE_SHUFFLE | RG_STATE_UNORDERED,
    .count = UINT64_C(0x123456789ab),
    .fingerprint = 0xfedcba98,
    .seed = UINT64_MAX,
    .epoch = 7,
    .consumed = 99,
    .rank = 1,
    .world_size = 2,
    .worker = 3,
    .worker_count = 4,
    .batch_size = 5,
    .remainder = 2,
    .taken = 1000,
    .bit_count = 24,
    .bits = bits,
};

static void test_a_state_comes_back(void)
{
    uint8_t data[RG_STATE_SIZE_MIN + 3];
    struct rg_state back;
    RG_CHECK_EQ(rg_state_encode(&example, NULL, 0), sizeof(data));
    RG_CHECK_EQ(rg_state_encode(&example, data, sizeof(data)), sizeof(data));
    RG_CHECK_EQ(rg_state_decode(data, sizeof(data), &back), 0);
    RG_CHECK_EQ(back.flags, example.flags);
    RG_CHECK_EQ(back.count, example.count);
    RG_CHECK_EQ(back.fingerprint, example.fingerprint);
    RG_CHECK_EQ(back.seed, example.seed);
    RG_CHECK_EQ(back.epoch, example.epoch);
    RG_CHECK_EQ(back.consumed, example.consumed);
    RG_CHECK_EQ(back.rank, example.rank);
    RG_CHECK_EQ(back.world_size, example.world_size);
    RG_CHECK_EQ(back.worker, example.worker);
    RG_CHECK_EQ(back.worker_count, example.worker_count);
    RG_CHECK_EQ(back.batch_size, example.batch_size);
    RG_CHECK_EQ(back.remainder, example.remainder);
    RG_CHECK_EQ(back.taken, example.taken);
    RG_CHECK_EQ(back.bit_count, example.bit_count);
    RG_CHECK(memcmp(back.bits, bits, sizeof(bits)) == 0);
}

static void test_a_small_buffer_is_left_alone(void)
{
    uint8_t data[RG_STATE_SIZE_MIN + 2];
    memset(data, 0x55, sizeof(data));
    RG_CHECK_EQ(rg_state_encode(&example, data, sizeof(data)), RG_STATE_SIZE_MIN + 3);
    for (size_t i = 0; i < sizeof(data); i++) {
        RG_CHECK_EQ(data[i], 0x55);
    }
}

static void test_every_damage_is_noticed(void)
{
    uint8_t data[RG_STATE_SIZE_MIN + 3];
    struct rg_state back;
    RG_CHECK_EQ(rg_state_encode(&example, data, sizeof(data)), sizeof(data));
    for (size_t size = 0; size < sizeof(data); size++) {
        RG_CHECK_EQ(rg_state_decode(data, size, &back), -EBADMSG);
    }
    for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
        data[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        RG_CHECK_EQ(rg_state_decode(data, sizeof(data), &back), -EBADMSG);
        data[bit / 8] ^= (uint8_t)(1 << (bit % 8));
    }
    RG_CHECK_EQ(rg_state_decode(data, sizeof(data), &back), 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_state_comes_back),
        RG_TEST(test_a_small_buffer_is_left_alone),
        RG_TEST(test_every_damage_is_noticed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
