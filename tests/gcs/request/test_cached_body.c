/* What of a record a get may take: by sizes and places alone. */
#include "gcs/request/cached_body.h"

#include "gcs/request/request_type.h"
#include "tests/support/test.h"

static void test_the_end_is_that_of_the_range_or_of_the_object(void)
{
    struct rg_get_state get = {.offset = 10, .length = RG_WHOLE};
    RG_CHECK(rg_cached_end(&get) == UINT64_MAX && !rg_cached_is_complete(&get));
    get.length = 30;
    RG_CHECK_EQ(rg_cached_end(&get), 40);
    rg_cached_note(&get, &(struct rg_cache_record){.object_size = 25, .object_crc32c = 3});
    RG_CHECK_EQ(rg_cached_end(&get), 25);
    RG_CHECK(!get.has_object_crc && rg_cached_is_guess(&get));
    get.received = 15;
    RG_CHECK(rg_cached_is_complete(&get));
}

static void test_which_records_fit(void)
{
    struct rg_get_state get = {.offset = 1000, .length = 100, .received = 50};
    struct rg_cache_record record = {.object_size = 2000, .body_size = 200, .piece_size = 65536};
    get.has_object_size = true;
    get.object_size = 2000;
    RG_CHECK(rg_cached_fits(&get, &record, 1000));
    RG_CHECK(!rg_cached_fits(&get, &record, 850));
    RG_CHECK(!rg_cached_fits(&get, &record, 1900));
    record.object_size = 1999;
    RG_CHECK(!rg_cached_fits(&get, &record, 1000));
    get.received = 0;
    RG_CHECK(rg_cached_fits(&get, &record, 1000));
    record.piece_size = 0;
    RG_CHECK(!rg_cached_fits(&get, &record, 1000));
}

static void test_only_all_of_an_answer_takes_a_lease(void)
{
    uint8_t own[10];
    struct rg_get_state get = {.offset = 5, .length = 10};
    RG_CHECK(rg_cached_is_answer(&get, 10) && !rg_cached_is_answer(&get, 9));
    get.buf = own;
    RG_CHECK(!rg_cached_is_answer(&get, 10));
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_end_is_that_of_the_range_or_of_the_object),
        RG_TEST(test_which_records_fit),
        RG_TEST(test_only_all_of_an_answer_takes_a_lease),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
