/* Lines of progress from numbers, and rates over the last seconds. */
#include "cli/progress_line.h"
#include "tests/support/test.h"

#define MIB(n) ((uint64_t)(n) << 20)

static struct progress_numbers files_of(uint64_t done, uint64_t total, uint64_t bytes_done,
                                        uint64_t bytes_total)
{
    return (struct progress_numbers){.what = "files",
                                     .done = done,
                                     .total = total,
                                     .bytes_done = bytes_done,
                                     .bytes_total = bytes_total,
                                     .share = PROGRESS_UNKNOWN,
                                     .rate = PROGRESS_UNKNOWN,
                                     .seconds_left = PROGRESS_UNKNOWN};
}

static void check_line(const struct progress_numbers *numbers, int width, const char *line)
{
    char out[PROGRESS_LINE_SIZE_MAX];
    progress_line_make(numbers, width, out);
    RG_CHECK_STR(out, line);
    RG_CHECK((int)strlen(out) <= width);
}

static void test_a_line_of_80_and_of_200_columns(void)
{
    struct progress_numbers numbers = files_of(3, 12, MIB(256), MIB(1024));
    numbers.rate = (double)MIB(64);
    numbers.seconds_left = 12;
    check_line(&numbers, 79,
               "[####            ] 3/12 files, 256.0 MiB of 1.0 GiB, 64.0 MiB/s, 00:12 left");
    check_line(&numbers, 199,
               "[#######                       ] 3/12 files, 256.0 MiB of 1.0 GiB, 64.0 MiB/s, "
               "00:12 left");
    check_line(&numbers, 40, "[###           ] 3/12, 64.0 MiB/s, 00:12");
    check_line(&numbers, 12, "3/12");
    check_line(&numbers, 2, "3/");
    check_line(&numbers, 0, "");
}

static void test_nothing_is_said_that_nobody_knows(void)
{
    struct progress_numbers numbers = files_of(0, 2, 0, MIB(512));
    check_line(&numbers, 79, "[                ] 0/2 files, 0 B of 512.0 MiB");
    numbers.may_grow = true;
    check_line(&numbers, 79, "0/2+ files, 0 B of 512.0 MiB+");
    numbers = files_of(1234, 0, 0, 0);
    numbers.what = "names";
    numbers.rate = 400;
    check_line(&numbers, 79, "1234 names, 400/s");
}

/* All bytes are sent, and the files are not there yet. */
static void test_the_bar_is_full_when_everything_is_done(void)
{
    struct progress_numbers numbers = files_of(0, 2, MIB(512), MIB(512));
    check_line(&numbers, 79, "[############### ] 0/2 files, 512.0 MiB of 512.0 MiB, finishing");
    numbers.done = 2;
    check_line(&numbers, 79, "[################] 2/2 files, 512.0 MiB of 512.0 MiB");
    numbers = files_of(3, 3, 0, 0);
    numbers.may_grow = true;
    check_line(&numbers, 79, "3/3+ files");
}

static void test_time_can_be_what_ends_it(void)
{
    struct progress_numbers numbers = files_of(100, 0, 0, 0);
    numbers.what = "requests";
    numbers.share = 0.5;
    numbers.seconds_left = 5;
    check_line(&numbers, 79, "[########        ] 100 requests, 00:05 left");
}

static void test_the_largest_numbers_fit(void)
{
    struct progress_numbers numbers =
        files_of(UINT64_MAX - 1, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX);
    numbers.rate = 1e19;
    numbers.seconds_left = 1e19;
    char out[PROGRESS_LINE_SIZE_MAX];
    for (int width = 0; width < 2 * PROGRESS_LINE_SIZE_MAX; width++) {
        progress_line_make(&numbers, width, out);
        RG_CHECK((int)strlen(out) <= width);
    }
}

static void test_no_rate_before_there_is_one(void)
{
    struct rate_window window = {0};
    RG_CHECK(rate_window_per_second(&window) < 0);
    rate_window_add(&window, 1, 0);
    rate_window_add(&window, 1 + 1900 * RG_NS_PER_MS, 100);
    RG_CHECK(rate_window_per_second(&window) < 0);
    rate_window_add(&window, 1 + 2000 * RG_NS_PER_MS, 100);
    RG_CHECK(rate_window_per_second(&window) < 0);
    rate_window_add(&window, 1 + 2500 * RG_NS_PER_MS, 1000);
    RG_CHECK_EQ((int)rate_window_per_second(&window), 400);
}

static void test_a_rate_is_that_of_the_last_seconds(void)
{
    struct rate_window window = {0};
    uint64_t count = 0, now_ns = 0;
    /* Slow, then fast: what was before the window does not count. */
    for (int i = 0; i < 100; i++) {
        now_ns += 300 * RG_NS_PER_MS;
        count += i < 50 ? 3 : 300;
        rate_window_add(&window, now_ns, count);
    }
    RG_CHECK_EQ((int)rate_window_per_second(&window), 1000);
    /* A stall shows, and looking often does not change what is seen. */
    for (int i = 0; i < 1000; i++) {
        now_ns += 10 * RG_NS_PER_MS;
        rate_window_add(&window, now_ns, count);
    }
    RG_CHECK_EQ((int)rate_window_per_second(&window), 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_line_of_80_and_of_200_columns),
        RG_TEST(test_nothing_is_said_that_nobody_knows),
        RG_TEST(test_the_bar_is_full_when_everything_is_done),
        RG_TEST(test_time_can_be_what_ends_it),
        RG_TEST(test_the_largest_numbers_fit),
        RG_TEST(test_no_rate_before_there_is_one),
        RG_TEST(test_a_rate_is_that_of_the_last_seconds),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
