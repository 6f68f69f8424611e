/* The clock and what becomes of its values in system calls. */
#include "runtime/clock.h"

#include "tests/support/test.h"

static void test_the_clock_is_monotonic_and_counts_nanoseconds(void)
{
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    uint64_t now_ns = rg_now_ns();
    clock_gettime(CLOCK_MONOTONIC, &after);
    uint64_t before_ns = (uint64_t)before.tv_sec * RG_NS_PER_S + (uint64_t)before.tv_nsec;
    uint64_t after_ns = (uint64_t)after.tv_sec * RG_NS_PER_S + (uint64_t)after.tv_nsec;
    RG_CHECK(before_ns <= now_ns && now_ns <= after_ns);
}

static void test_times_keep_their_nanoseconds(void)
{
    struct timespec time = rg_timespec_from_ns(UINT64_C(3000000001));
    RG_CHECK_EQ(time.tv_sec, 3);
    RG_CHECK_EQ(time.tv_nsec, 1);
}

static void test_forever_is_a_valid_time_far_away(void)
{
    struct timespec time = rg_timespec_from_ns(RG_FOREVER);
    RG_CHECK(time.tv_sec > 500L * 365 * 86400);
    RG_CHECK(time.tv_nsec >= 0 && time.tv_nsec < (long)RG_NS_PER_S);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_clock_is_monotonic_and_counts_nanoseconds),
        RG_TEST(test_times_keep_their_nanoseconds),
        RG_TEST(test_forever_is_a_valid_time_far_away),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
