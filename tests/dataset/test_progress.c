/* What is done with: against an array of booleans. */
#include "dataset/progress.h"
#include "tests/support/test.h"

#include <string.h>

#define NUMBERS 3000

static bool done[NUMBERS];

static void check_same(const struct rg_progress *progress)
{
    uint64_t first = 0;
    uint32_t ahead = 0;
    while (first < NUMBERS && done[first]) {
        first++;
    }
    RG_CHECK_EQ(progress->first, first);
    for (uint64_t i = first; i < NUMBERS; i++) {
        RG_CHECK_EQ(rg_progress_has(progress, i), done[i]);
        ahead += done[i];
    }
    RG_CHECK_EQ(progress->ahead, ahead);
}

/* Adds numbers from the next `capacity` at random, until all are done with; now and then what is
 * done with is written and read. */
static void numbers_add(uint32_t capacity)
{
    struct rg_progress progress, copy;
    uint8_t bits[128];
    memset(done, 0, sizeof(done));
    RG_CHECK_EQ(rg_progress_init(&progress, capacity), 0);
    RG_CHECK_EQ(rg_progress_init(&copy, capacity), 0);
    while (progress.first < NUMBERS) {
        uint64_t number = progress.first + rg_test_random_below(capacity);
        if (number < NUMBERS && !done[number]) {
            done[number] = true;
            rg_progress_add(&progress, number);
        }
        if (rg_test_random_below(10) == 0) {
            check_same(&progress);
            uint32_t count = rg_progress_bits(&progress, bits);
            RG_CHECK_EQ(count, (rg_progress_end(&progress) - progress.first + 7) / 8 * 8);
            rg_progress_begin(&copy, progress.first, bits, count);
            check_same(&copy);
            rg_progress_begin(&copy, 7, bits, 0);
            rg_progress_copy(&copy, &progress);
            check_same(&copy);
        }
    }
    RG_CHECK_EQ(rg_progress_bits(&progress, bits), 0);
    rg_progress_copy(&copy, &progress);
    check_same(&copy);
    rg_progress_fini(&copy);
    rg_progress_fini(&progress);
    rg_progress_fini(&progress);
}

static void test_numbers_in_any_order(void)
{
    for (uint32_t capacity = 1; capacity <= 1024; capacity *= 4) {
        numbers_add(capacity);
    }
}

static void test_it_begins_behind_what_is_done_with(void)
{
    static const uint8_t bits[] = {0x07, 0x02};
    struct rg_progress progress;
    RG_CHECK_EQ(rg_progress_init(&progress, 16), 0);
    rg_progress_begin(&progress, 100, bits, 16);
    RG_CHECK_EQ(progress.first, 103);
    RG_CHECK_EQ(progress.ahead, 1);
    RG_CHECK(rg_progress_has(&progress, 109));
    RG_CHECK(!rg_progress_has(&progress, 109 + 16));
    RG_CHECK_EQ(rg_progress_end(&progress), 110);
    rg_progress_fini(&progress);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_numbers_in_any_order),
        RG_TEST(test_it_begins_behind_what_is_done_with),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
