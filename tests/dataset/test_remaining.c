/* What is left of numbers: against an array of booleans. */
#include "dataset/remaining.h"
#include "runtime/clock.h"
#include "tests/support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 5000

static bool done[COUNT_MAX];

static void check_same(const struct rg_remaining *left, uint64_t count)
{
    uint64_t place = 0, low = count, high = 0;
    for (uint64_t number = 0; number < count; number++) {
        RG_CHECK_EQ(rg_remaining_is_done(left, number), done[number]);
        if (!done[number]) {
            low = RG_MIN(low, number);
            RG_CHECK_EQ(rg_remaining_at(left, place), number);
            place++;
        } else {
            high = number + 1;
        }
    }
    RG_CHECK_EQ(rg_remaining_total(left), place);
    RG_CHECK_EQ(left->low, low);
    RG_CHECK_EQ(left->high, RG_MAX(low, high));
}

/* Marks numbers in one of several ways: few, many, in a pattern, in runs. */
static void numbers_mark(uint64_t count)
{
    uint64_t kind = rg_test_random_below(5), step = 2 + rg_test_random_below(70);
    memset(done, 0, sizeof(done));
    for (uint64_t i = 0; i < count; i++) {
        done[i] = kind == 0   ? rg_test_random_below(100) == 0
                  : kind == 1 ? rg_test_random_below(100) != 0
                  : kind == 2 ? i % step == 0
                  : kind == 3 ? i / step % 2 == 0
                              : i < step;
    }
}

/* What is left when the marked numbers are gone, with a `low` below which all are. */
static void left_make(struct rg_remaining *left, uint64_t count)
{
    uint64_t low = 0;
    while (low < count && done[low] && rg_test_random_below(20) != 0) {
        low++;
    }
    uint8_t bits[COUNT_MAX / 8 + 1] = {0};
    for (uint64_t i = low; i < count; i++) {
        bits[(i - low) / 8] |= (uint8_t)(done[i] << ((i - low) % 8));
    }
    RG_CHECK_EQ(rg_remaining_init(left, count, low, bits, (count - low + 7) / 8 * 8), 0);
}

static void test_numbers_are_found_by_their_places(void)
{
    for (int round = 0; round < 60; round++) {
        uint64_t count = round < 10 ? (uint64_t)round : rg_test_random_below(COUNT_MAX) + 1;
        struct rg_remaining left;
        numbers_mark(count);
        left_make(&left, count);
        check_same(&left, count);
        rg_remaining_fini(&left);
        rg_remaining_fini(&left);
    }
}

static void test_bits_come_back(void)
{
    for (int round = 0; round < 40; round++) {
        uint64_t count = rg_test_random_below(COUNT_MAX) + 1;
        struct rg_remaining left, again;
        uint8_t bits[COUNT_MAX / 8 + 1], bits_again[COUNT_MAX / 8 + 1];
        numbers_mark(count);
        left_make(&left, count);
        rg_remaining_bits(&left, bits);
        uint64_t bit_count = 8 * rg_remaining_bits_size(&left);
        RG_CHECK_EQ(rg_remaining_init(&again, count, left.low, bits, bit_count), 0);
        check_same(&again, count);
        rg_remaining_bits(&again, bits_again);
        RG_CHECK_MEM(bits_again, rg_remaining_bits_size(&again), bits, bit_count / 8);
        rg_remaining_fini(&left);
        rg_remaining_fini(&again);
    }
}

/* By place, whether the change says so. */
static bool changed[COUNT_MAX];

static bool place_is_changed(const void *context, uint64_t place)
{
    const struct rg_remaining_change *change = context;
    RG_CHECK(place >= change->low && place < change->high);
    return changed[place];
}

static void change_make(struct rg_remaining_change *change, const struct rg_remaining *left)
{
    uint64_t total = rg_remaining_total(left);
    *change = (struct rg_remaining_change){.is_done = place_is_changed, .context = change};
    change->low = rg_test_random_below(total + 1);
    change->high = change->low + rg_test_random_below(total - change->low + 1);
    for (uint64_t place = 0; place < total; place++) {
        changed[place] =
            place < change->low || (place < change->high && rg_test_random_below(3) == 0);
    }
}

static void test_a_change_is_by_places(void)
{
    for (int round = 0; round < 60; round++) {
        uint64_t count = rg_test_random_below(COUNT_MAX) + 1;
        struct rg_remaining left, after;
        struct rg_remaining_change change;
        numbers_mark(count);
        left_make(&left, count);
        change_make(&change, &left);
        uint64_t extra[3];
        for (size_t i = 0; i < RG_ARRAY_LEN(extra); i++) {
            extra[i] = rg_test_random_below(count);
        }
        change.numbers = extra;
        change.number_count = rg_test_random_below(RG_ARRAY_LEN(extra) + 1);
        RG_CHECK_EQ(rg_remaining_after(&after, &left, &change), 0);
        for (uint64_t place = 0; place < rg_remaining_total(&left); place++) {
            done[rg_remaining_at(&left, place)] = changed[place];
        }
        for (size_t i = 0; i < change.number_count; i++) {
            done[extra[i]] = true;
        }
        check_same(&after, count);
        rg_remaining_fini(&left);
        rg_remaining_fini(&after);
    }
}

static void test_what_cannot_be_is_refused(void)
{
    static const uint8_t bits[] = {0, 2};
    struct rg_remaining left;
    RG_CHECK_EQ(rg_remaining_init(&left, 9, 10, NULL, 0), -EINVAL);
    RG_CHECK_EQ(rg_remaining_init(&left, 9, 0, bits, 16), -EINVAL);
    RG_CHECK_EQ(rg_remaining_init(&left, 10, 0, bits, 16), 0);
    rg_remaining_fini(&left);
    /* Two samples, further apart than bits are kept. */
    uint64_t last = 2 * RG_REMAINING_BITS_MAX - 1;
    struct rg_remaining whole = rg_remaining_from(last + 1, 0);
    struct rg_remaining_change change = {.numbers = &last, .number_count = 1};
    RG_CHECK_EQ(rg_remaining_after(&left, &whole, &change), -EFBIG);
}

static bool is_odd(const void *context, uint64_t place)
{
    (void)context;
    return place % 2 == 1;
}

/* One of two ranks has read its half of an epoch of ten million, and the other nothing. */
static void test_many_millions(void)
{
    static const uint64_t count = 10000000;
    struct rg_remaining whole = rg_remaining_from(count, 0), left;
    struct rg_remaining_change change = {.is_done = is_odd, .high = count};
    RG_CHECK_EQ(rg_remaining_after(&left, &whole, &change), 0);
    RG_CHECK_EQ(rg_remaining_total(&left), count / 2);
    for (uint64_t place = 0; place < count / 2; place++) {
        RG_CHECK_EQ(rg_remaining_at(&left, place), 2 * place);
    }
    RG_CHECK_EQ(rg_remaining_bits_size(&left), (count + 7) / 8);
    rg_remaining_fini(&left);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_numbers_are_found_by_their_places),
        RG_TEST(test_bits_come_back),
        RG_TEST(test_a_change_is_by_places),
        RG_TEST(test_what_cannot_be_is_refused),
        RG_TEST(test_many_millions),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
