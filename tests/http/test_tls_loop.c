/* The BIO that leads to the spans of the call in progress. */
#include "http/tls_loop.h"

#include "tests/support/test.h"

#include <openssl/bio.h>

static void test_reading_takes_from_the_span_that_is_lent(void)
{
    struct rg_tls_loop loop;
    uint8_t got[8], sent[4];
    struct rg_tls_in in = {(const uint8_t *)"abcdef", 6};
    struct rg_tls_out out = {sent, 0, sizeof(sent)};
    RG_CHECK_EQ(rg_tls_loop_init(&loop, 1), 0);
    rg_tls_loop_lend(&loop, &in, &out);
    RG_CHECK_EQ(BIO_read(loop.bio, got, 4), 4);
    RG_CHECK_MEM(got, 4, "abcd", 4);
    RG_CHECK_EQ(in.size, 2);
    RG_CHECK_EQ(BIO_read(loop.bio, got, sizeof(got)), 2);
    RG_CHECK_EQ(BIO_read(loop.bio, got, sizeof(got)), -1);
    RG_CHECK(BIO_should_read(loop.bio));
    rg_tls_loop_take_back(&loop);
    rg_tls_loop_lend(&loop, NULL, &out);
    RG_CHECK_EQ(BIO_read(loop.bio, got, sizeof(got)), -1);
    rg_tls_loop_take_back(&loop);
    rg_tls_loop_fini(&loop);
}

static void test_writing_appends_as_much_as_there_is_room_for(void)
{
    struct rg_tls_loop loop;
    uint8_t sent[6] = "x";
    struct rg_tls_out out = {sent, 1, sizeof(sent)};
    RG_CHECK_EQ(rg_tls_loop_init(&loop, 1), 0);
    rg_tls_loop_lend(&loop, NULL, &out);
    RG_CHECK_EQ(BIO_write(loop.bio, "abc", 3), 3);
    RG_CHECK_EQ(BIO_write(loop.bio, "def", 3), 2);
    RG_CHECK_MEM(sent, out.size, "xabcde", 6);
    RG_CHECK_EQ(BIO_write(loop.bio, "f", 1), -1);
    RG_CHECK(BIO_should_write(loop.bio));
    RG_CHECK_EQ(BIO_flush(loop.bio), 1);
    rg_tls_loop_take_back(&loop);
    rg_tls_loop_fini(&loop);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_reading_takes_from_the_span_that_is_lent),
        RG_TEST(test_writing_appends_as_much_as_there_is_room_for),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
