/* Retry-After: seconds, and dates in their three forms. */
#include "gcs/wire/retry_after.h"

#include "tests/support/test.h"

static const char *const sunday = "Sun, 06 Nov 1994 08:49:37 GMT";

static struct rg_h1_slice slice(const char *text)
{
    return (struct rg_h1_slice){text, (uint32_t)strlen(text)};
}

/* In seconds; what is left over must be nothing. */
static uint64_t parse(const char *value, const char *date)
{
    struct rg_h1_slice value_slice = slice(value), date_slice = slice(date != NULL ? date : "");
    uint64_t ns = rg_retry_after_parse(&value_slice, date != NULL ? &date_slice : NULL);
    RG_CHECK_EQ(ns % RG_NS_PER_S, 0);
    return ns / RG_NS_PER_S;
}

static void test_seconds(void)
{
    RG_CHECK_EQ(parse("0", NULL), 0);
    RG_CHECK_EQ(parse("1", NULL), 1);
    RG_CHECK_EQ(parse("120", sunday), 120);
    RG_CHECK_EQ(parse("0000000000000000000000000000005", NULL), 5);
    RG_CHECK(parse("18446744073709551616000", NULL) > 1000000000);
}

static void test_dates_count_from_the_date_of_the_answer(void)
{
    RG_CHECK_EQ(parse("Sun, 06 Nov 1994 08:49:37 GMT", sunday), 0);
    RG_CHECK_EQ(parse("Sun, 06 Nov 1994 08:49:38 GMT", sunday), 1);
    RG_CHECK_EQ(parse("Sun, 06 Nov 1994 08:50:37 GMT", sunday), 60);
    RG_CHECK_EQ(parse("Mon, 07 Nov 1994 08:49:37 GMT", sunday), 86400);
    RG_CHECK_EQ(parse("Sun, 06 Nov 1994 08:49:36 GMT", sunday), 0);
    RG_CHECK_EQ(parse("Tue, 29 Feb 2000 00:00:30 GMT", "Mon, 28 Feb 2000 23:59:50 GMT"), 40);
    RG_CHECK_EQ(parse("Sat, 01 Jan 2000 00:00:01 GMT", "Fri, 31 Dec 1999 23:59:60 GMT"), 1);
    RG_CHECK_EQ(parse("Sun, 06 Nov 1994 08:49:47 GMT", NULL), 0);
    RG_CHECK_EQ(parse("Sun, 06 Nov 1994 08:49:47 GMT", "yesterday"), 0);
    RG_CHECK(parse("Fri, 31 Dec 9999 23:59:59 GMT", sunday) > 1000000000);
}

static void test_old_forms_of_dates(void)
{
    RG_CHECK_EQ(parse("Sunday, 06-Nov-94 08:49:39 GMT", sunday), 2);
    RG_CHECK_EQ(parse("Sun Nov  6 08:49:40 1994", sunday), 3);
    RG_CHECK_EQ(parse("Wed, 16 Nov 1994 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"), 864000);
    RG_CHECK_EQ(parse("Sunday, 06-Nov-26 08:49:39 GMT", "Fri, 06 Nov 2026 08:49:37 GMT"), 2);
}

static void test_anything_else_says_nothing(void)
{
    static const char *const values[] = {
        "",
        "-1",
        "+1",
        "1.5",
        "1 ",
        "soon",
        "0x10",
        "Sun, 06 Nov 1994 08:59:37",
        "Sun, 06 Nov 1994 08:59:37 UTC",
        "Sun, 06 Nov 1994 08:59:37 GMT+1",
        "Sun, 06 Now 1994 08:59:37 GMT",
        "Sun, 06 ovD 1994 08:59:37 GMT",
        "Sun, 00 Nov 1994 08:59:37 GMT",
        "Sun, 32 Nov 1994 08:59:37 GMT",
        "Sun, 06 Nov 1994 24:59:37 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:59:61 GMT",
        "Sun, 06 Nov 1994 -8:59:37 GMT",
        "Sun Nov  6 08:59:37 94",
        "Sunday, 06-Nov-94 08:59:37 GMT and so on and so forth for ever and ever",
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(values); i++) {
        RG_CHECK_EQ(parse(values[i], "Sat, 01 Oct 1994 00:00:00 GMT"), 0);
    }
}

static void test_garbage_is_survived(void)
{
    static const char alphabet[] = "Sun, 06 Nov1994:GMT-\0\xff";
    for (int round = 0; round < 20000; round++) {
        char text[48];
        uint32_t size = (uint32_t)rg_test_random_below(sizeof(text));
        for (uint32_t i = 0; i < size; i++) {
            text[i] = alphabet[rg_test_random_below(sizeof(alphabet))];
        }
        struct rg_h1_slice value = {text, size}, date = slice(sunday);
        rg_retry_after_parse(&value, &date);
        rg_retry_after_parse(&date, &value);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_seconds),
        RG_TEST(test_dates_count_from_the_date_of_the_answer),
        RG_TEST(test_old_forms_of_dates),
        RG_TEST(test_anything_else_says_nothing),
        RG_TEST(test_garbage_is_survived),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
