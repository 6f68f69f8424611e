/* Stretches of an object that were read, in any order and overlapping, against a model of bytes. */
#include "checkpoint/coverage.h"
#include "gcs/wire/checksum.h"
#include "tests/support/scripted_server.h"
#include "tests/support/test.h"

#define SIZE 997

static uint8_t object[SIZE];

static void add(struct rg_coverage *coverage, uint64_t begin, uint64_t size)
{
    rg_coverage_add(coverage, begin, object + begin, size, rg_crc32c(0, object + begin, size));
}

static void test_all_at_once(void)
{
    struct rg_coverage coverage = {0};
    uint32_t crc = 0;
    RG_CHECK(!rg_coverage_is_whole(&coverage, SIZE, &crc));
    add(&coverage, 0, SIZE);
    RG_CHECK(rg_coverage_is_whole(&coverage, SIZE, &crc));
    RG_CHECK_EQ(crc, rg_crc32c(0, object, SIZE));
    RG_CHECK(!rg_coverage_is_whole(&coverage, SIZE + 1, &crc));
    rg_coverage_fini(&coverage);
}

/* What was read before is known where a read begins and ends with stretches. */
static void test_what_is_read_again(void)
{
    static const uint64_t known[][2] = {{5, 5}, {5, 40}, {10, 10}, {10, 20}, {40, 5}, {50, 7}};
    static const uint64_t unknown[][2] = {{5, 0},  {5, 4},  {6, 4},   {5, 41}, {0, 5},
                                          {45, 5}, {5, 52}, {40, 17}, {57, 1}};
    struct rg_coverage coverage = {0};
    uint32_t crc;
    RG_CHECK(!rg_coverage_has(&coverage, 0, 1, &crc));
    add(&coverage, 10, 10);
    add(&coverage, 50, 7);
    add(&coverage, 30, 10);
    add(&coverage, 20, 10);
    add(&coverage, 40, 5);
    add(&coverage, 5, 5);
    add(&coverage, 7, 0);
    add(&coverage, 7, 3);
    RG_CHECK_EQ(coverage.count, 6);
    RG_CHECK_EQ(coverage.covered, 47);
    for (size_t i = 0; i < RG_ARRAY_LEN(known); i++) {
        RG_CHECK(rg_coverage_has(&coverage, known[i][0], known[i][1], &crc));
        RG_CHECK_EQ(crc, rg_crc32c(0, object + known[i][0], known[i][1]));
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(unknown); i++) {
        RG_CHECK(!rg_coverage_has(&coverage, unknown[i][0], unknown[i][1], &crc));
    }
    rg_coverage_fini(&coverage);
}

/* Once they are too many. */
static void test_neighbours_join(void)
{
    struct rg_coverage coverage = {0};
    uint32_t crc;
    for (uint64_t i = 0; i <= RG_COVERAGE_SPANS_MAX; i++) {
        rg_coverage_add(&coverage, i, object + i % SIZE, 1, rg_crc32c(0, object + i % SIZE, 1));
    }
    RG_CHECK_EQ(coverage.count, 2);
    RG_CHECK_EQ(coverage.covered, RG_COVERAGE_SPANS_MAX + 1);
    uint32_t want = 0;
    for (uint64_t i = 0; i <= RG_COVERAGE_SPANS_MAX; i++) {
        want = rg_crc32c(want, object + i % SIZE, 1);
    }
    RG_CHECK(rg_coverage_is_whole(&coverage, RG_COVERAGE_SPANS_MAX + 1, &crc));
    RG_CHECK_EQ(crc, want);
    rg_coverage_fini(&coverage);
}

static void test_any_order(void)
{
    for (unsigned round = 0; round < 200; round++) {
        struct rg_coverage coverage = {0};
        bool seen[SIZE] = {false};
        uint64_t left = SIZE;
        uint32_t crc = 0;
        while (left > 0) {
            RG_CHECK(!rg_coverage_is_whole(&coverage, SIZE, &crc));
            uint64_t begin = rg_test_random_below(SIZE);
            uint64_t size = 1 + rg_test_random_below(RG_MIN(SIZE - begin, UINT64_C(90)));
            add(&coverage, begin, size);
            for (uint64_t i = begin; i < begin + size; i++) {
                left -= !seen[i];
                seen[i] = true;
            }
        }
        RG_CHECK(rg_coverage_is_whole(&coverage, SIZE, &crc));
        RG_CHECK_EQ(crc, rg_crc32c(0, object, SIZE));
        rg_coverage_fini(&coverage);
    }
}

/* Bytes that came damaged first count, and those of a read that meets others do not hide them. */
static void test_what_came_first_counts(void)
{
    struct rg_coverage coverage = {0};
    uint32_t crc = 0;
    uint8_t damaged[SIZE];
    memcpy(damaged, object, SIZE);
    damaged[50]++;
    rg_coverage_add(&coverage, 40, damaged + 40, 20, rg_crc32c(0, damaged + 40, 20));
    add(&coverage, 0, SIZE);
    RG_CHECK(rg_coverage_is_whole(&coverage, SIZE, &crc));
    RG_CHECK_EQ(crc, rg_crc32c(0, damaged, SIZE));
    rg_coverage_fini(&coverage);
}

static void test_too_many_stretches(void)
{
    struct rg_coverage coverage = {0};
    uint32_t crc;
    for (uint64_t i = 0; i <= RG_COVERAGE_SPANS_MAX; i++) {
        RG_CHECK(!coverage.is_lost);
        rg_coverage_add(&coverage, 2 * i, object, 1, 0);
    }
    RG_CHECK(coverage.is_lost && coverage.count == 0);
    add(&coverage, 0, SIZE);
    RG_CHECK(!rg_coverage_is_whole(&coverage, SIZE, &crc));
    rg_coverage_fini(&coverage);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_all_at_once),
        RG_TEST(test_what_is_read_again),
        RG_TEST(test_neighbours_join),
        RG_TEST(test_any_order),
        RG_TEST(test_what_came_first_counts),
        RG_TEST(test_too_many_stretches),
    };
    rg_script_fill(object, 0, SIZE);
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
