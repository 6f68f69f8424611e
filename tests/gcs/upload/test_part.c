/* One part: its life, and what its request carries. */
#include "gcs/upload/part.h"

#include "tests/support/test.h"

static uint8_t bytes[100];

static void test_the_life_of_a_part(void)
{
    struct rg_upload_part part = {0};
    rg_upload_part_become(&part, RG_PART_FILLING);
    rg_upload_part_become(&part, RG_PART_FILLED);
    rg_upload_part_become(&part, RG_PART_SENDING);
    rg_upload_part_become(&part, RG_PART_FREE);
    /* What a writer has filled, and what needs no bytes. */
    rg_upload_part_become(&part, RG_PART_FILLED);
    rg_upload_part_become(&part, RG_PART_FREE);
    rg_upload_part_become(&part, RG_PART_SENDING);
    rg_upload_part_become(&part, RG_PART_FREE);
    RG_CHECK_EQ(part.state, RG_PART_FREE);
}

static void test_memory_is_carried(void)
{
    struct rg_upload_part part = {.data = bytes, .size = sizeof(bytes)};
    struct rg_exchange x = {0};
    rg_upload_part_carry(&part, 0, &x);
    RG_CHECK(x.upload == bytes && x.upload_size == 100 && x.pieces == NULL);
    rg_upload_part_carry(&part, 99, &x);
    RG_CHECK(x.upload == bytes + 99 && x.upload_size == 1);
    rg_upload_part_carry(&part, 100, &x);
    RG_CHECK_EQ(x.upload_size, 0);
}

static void test_pieces_are_carried(void)
{
    struct rg_body_piece pieces[] = {{bytes, 40}, {bytes + 50, 90}};
    struct rg_send_pace pace = {0};
    struct rg_stream_buffer buffer = {.pieces = pieces, .piece_count = 2, .pace = &pace};
    struct rg_upload_part part = {.buffer = &buffer, .size = 90};
    struct rg_exchange x = {0};
    rg_upload_part_carry(&part, 45, &x);
    RG_CHECK(x.pieces == pieces && x.piece_count == 2 && x.pace == &pace);
    RG_CHECK_EQ(x.upload_skip, 45);
    RG_CHECK_EQ(x.upload_size, 45);
}

static void test_an_empty_part(void)
{
    struct rg_stream_buffer buffer = {0};
    struct rg_upload_part part = {.buffer = &buffer};
    struct rg_exchange x = {0};
    rg_upload_part_carry(&part, 0, &x);
    RG_CHECK(x.upload == NULL && x.pieces == NULL && x.upload_size == 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_life_of_a_part),
        RG_TEST(test_memory_is_carried),
        RG_TEST(test_pieces_are_carried),
        RG_TEST(test_an_empty_part),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
