/* Sizes and durations as people read them. */
#include "cli/quantity.h"
#include "tests/support/test.h"

static void test_sizes(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0 B"},
                {1023, "1023 B"},
                {1024, "1.0 KiB"},
                {17 << 20, "17.0 MiB"},
                {UINT64_C(3) << 40, "3.0 TiB"},
                {UINT64_MAX, "16777216.0 TiB"}};
    char buffer[CLI_QUANTITY_SIZE];
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_STR(cli_format_size(rows[i].bytes, buffer), rows[i].text);
    }
}

static void test_durations(void)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{0, "00:00"},    {-1, "00:00"},     {59.9, "00:59"},       {127, "02:07"},
                {3599, "59:59"}, {3600, "1:00:00"}, {86399.0, "23:59:59"}, {1e30, "99:59:59"}};
    char buffer[CLI_QUANTITY_SIZE];
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        RG_CHECK_STR(cli_format_duration(rows[i].seconds, buffer), rows[i].text);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {RG_TEST(test_sizes), RG_TEST(test_durations)};
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
