/* The bytes of a saved state: they come back as they were, and damage is noticed. */
#include "dataset/state.h"
#include "tests/support/test.h"

#include <errno.h>
#include <string.h>

static const uint8_t bits[] = {0x81, 0, 0x10};

static const struct rg_state example = {
    .of = {.count = UINT64_C(0x123456789ab),
           .fingerprint = 0xfedcba98,
           .digest = {1, 2, 3, [31] = 99},
           .seed = UINT64_MAX,
           .epoch = 7,
           .shuffle = true},
    .unordered = true,
    .has_base = true,
    .base_crc = 0x76543210,
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

static const struct rg_base_content example_base = {
    .of = {.count = 5000, .fingerprint = 1, .digest = {7}, .seed = 2, .epoch = 3},
    .positions = {.low = 77, .bit_count = 24, .bits = bits},
    .has_own = true,
    .rank = 4,
    .world_size = 5,
    .remainder = 1,
    .own = {.low = 2, .bit_count = 8, .bits = bits + 2},
};

#define STATE_SIZE (RG_STATE_SIZE_MIN + 3)
#define BASE_SIZE (116 + 4)

/* What version 1 wrote of 500 objects, shuffled by seed 11, after 20 samples of rank 1 of 3, where
 * 60 positions had been consumed before. */
static const uint8_t version_1[] = {
    0x72, 0x67, 0x64, 0x73, 0x01, 0x00, 0x01, 0x00, 0xf4, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x6a, 0x29, 0x7a, 0xfd, 0x00, 0x00, 0x00, 0x00, 0x0b, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x3c, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x44, 0xac, 0xf8,
};

static void check_epoch(const struct rg_state_epoch *got, const struct rg_state_epoch *want)
{
    RG_CHECK_EQ(got->count, want->count);
    RG_CHECK_EQ(got->fingerprint, want->fingerprint);
    RG_CHECK(memcmp(got->digest, want->digest, sizeof(got->digest)) == 0);
    RG_CHECK_EQ(got->seed, want->seed);
    RG_CHECK_EQ(got->epoch, want->epoch);
    RG_CHECK_EQ(got->shuffle, want->shuffle);
}

static void check_set(const struct rg_state_set *got, const struct rg_state_set *want)
{
    RG_CHECK_EQ(got->low, want->low);
    RG_CHECK_EQ(got->bit_count, want->bit_count);
    RG_CHECK(memcmp(got->bits, want->bits, want->bit_count / 8) == 0);
}

static void test_a_state_comes_back(void)
{
    uint8_t data[STATE_SIZE];
    struct rg_state back;
    RG_CHECK_EQ(rg_state_encode(&example, NULL, 0), sizeof(data));
    RG_CHECK_EQ(rg_state_encode(&example, data, sizeof(data)), sizeof(data));
    RG_CHECK_EQ(rg_state_decode(data, sizeof(data), &back), 0);
    check_epoch(&back.of, &example.of);
    RG_CHECK_EQ(back.unordered, example.unordered);
    RG_CHECK_EQ(back.has_base, example.has_base);
    RG_CHECK_EQ(back.base_crc, example.base_crc);
    RG_CHECK_EQ(back.consumed, 0);
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

static void test_a_base_comes_back(void)
{
    uint8_t data[BASE_SIZE], again[BASE_SIZE];
    struct rg_base_content back, other = example_base;
    uint32_t crc, other_crc;
    RG_CHECK_EQ(rg_base_encode(&example_base, NULL, 0), sizeof(data));
    RG_CHECK_EQ(rg_base_encode(&example_base, data, sizeof(data)), sizeof(data));
    RG_CHECK_EQ(rg_base_decode(data, sizeof(data), &back, &crc), 0);
    check_epoch(&back.of, &example_base.of);
    check_set(&back.positions, &example_base.positions);
    check_set(&back.own, &example_base.own);
    RG_CHECK_EQ(back.has_own, true);
    RG_CHECK_EQ(back.rank, 4);
    RG_CHECK_EQ(back.world_size, 5);
    RG_CHECK_EQ(back.remainder, 1);
    other.positions.low++;
    RG_CHECK_EQ(rg_base_encode(&other, again, sizeof(again)), sizeof(again));
    RG_CHECK_EQ(rg_base_decode(again, sizeof(again), &back, &other_crc), 0);
    RG_CHECK(crc != other_crc);
    struct rg_state state;
    RG_CHECK_EQ(rg_state_decode(data, sizeof(data), &state), -EBADMSG);
}

static void test_a_state_of_version_1_is_read(void)
{
    struct rg_state state;
    RG_CHECK_EQ(rg_state_decode(version_1, sizeof(version_1), &state), 0);
    RG_CHECK_EQ(state.of.count, 500);
    RG_CHECK_EQ(state.of.fingerprint, 0xfd7a296a);
    RG_CHECK_EQ(state.of.seed, 11);
    RG_CHECK_EQ(state.of.epoch, 0);
    RG_CHECK(state.of.shuffle && !state.unordered && !state.has_base);
    RG_CHECK_EQ(state.consumed, 60);
    RG_CHECK_EQ(state.rank, 1);
    RG_CHECK_EQ(state.world_size, 3);
    RG_CHECK_EQ(state.worker, 0);
    RG_CHECK_EQ(state.worker_count, 1);
    RG_CHECK_EQ(state.batch_size, 1);
    RG_CHECK_EQ(state.taken, 20);
    RG_CHECK_EQ(state.bit_count, 0);
}

static void test_a_small_buffer_is_left_alone(void)
{
    uint8_t data[STATE_SIZE - 1];
    memset(data, 0x55, sizeof(data));
    RG_CHECK_EQ(rg_state_encode(&example, data, sizeof(data)), STATE_SIZE);
    for (size_t i = 0; i < sizeof(data); i++) {
        RG_CHECK_EQ(data[i], 0x55);
    }
}

static int decode_state(const uint8_t *data, size_t size)
{
    struct rg_state back;
    return rg_state_decode(data, size, &back);
}

static int decode_base(const uint8_t *data, size_t size)
{
    struct rg_base_content back;
    uint32_t crc;
    return rg_base_decode(data, size, &back, &crc);
}

static void check_every_damage(uint8_t *data, size_t whole, int (*decode)(const uint8_t *, size_t))
{
    for (size_t size = 0; size < whole; size++) {
        RG_CHECK_EQ(decode(data, size), -EBADMSG);
    }
    for (size_t bit = 0; bit < 8 * whole; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        RG_CHECK_EQ(decode(data, whole), -EBADMSG);
        data[bit / 8] ^= (uint8_t)(1 << (bit % 8));
    }
    RG_CHECK_EQ(decode(data, whole), 0);
}

static void test_every_damage_is_noticed(void)
{
    uint8_t state[STATE_SIZE], base[BASE_SIZE], old[sizeof(version_1)];
    RG_CHECK_EQ(rg_state_encode(&example, state, sizeof(state)), sizeof(state));
    check_every_damage(state, sizeof(state), decode_state);
    RG_CHECK_EQ(rg_base_encode(&example_base, base, sizeof(base)), sizeof(base));
    check_every_damage(base, sizeof(base), decode_base);
    memcpy(old, version_1, sizeof(old));
    check_every_damage(old, sizeof(old), decode_state);
}

/* Intact, but nothing that a reader writes. */
static void test_what_cannot_be_is_refused(void)
{
    struct rg_state wrong[6];
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        wrong[i] = example;
    }
    wrong[0].rank = 2;
    wrong[1].worker = 4;
    wrong[2].batch_size = 0;
    wrong[3].remainder = 3;
    wrong[4].taken = wrong[4].of.count + 1;
    wrong[5].worker_count = 0;
    for (size_t i = 0; i < RG_ARRAY_LEN(wrong); i++) {
        uint8_t data[STATE_SIZE];
        RG_CHECK_EQ(rg_state_encode(&wrong[i], data, sizeof(data)), sizeof(data));
        RG_CHECK_EQ(decode_state(data, sizeof(data)), -EBADMSG);
    }
    struct rg_base_content base = example_base;
    uint8_t data[BASE_SIZE];
    base.rank = 5;
    RG_CHECK_EQ(rg_base_encode(&base, data, sizeof(data)), sizeof(data));
    RG_CHECK_EQ(decode_base(data, sizeof(data)), -EBADMSG);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_state_comes_back),           RG_TEST(test_a_base_comes_back),
        RG_TEST(test_a_state_of_version_1_is_read), RG_TEST(test_a_small_buffer_is_left_alone),
        RG_TEST(test_every_damage_is_noticed),      RG_TEST(test_what_cannot_be_is_refused),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
