/* Buffers that a server's connections borrow. */
#include "http/server_buffer.h"
#include "tests/support/test.h"

static void test_the_last_one_returned_is_the_next(void)
{
    struct rg_server_buffers buffers = {.size = 100};
    struct rg_server_buffer *a = rg_server_buffer_borrow(&buffers);
    struct rg_server_buffer *b = rg_server_buffer_borrow(&buffers);
    const struct rg_server_buffer *last = b;
    RG_CHECK(a != NULL && b != NULL && a != b);
    memset(a->data, 1, 100);
    rg_server_buffer_return(&buffers, &a);
    rg_server_buffer_return(&buffers, &b);
    RG_CHECK(a == NULL && b == NULL);
    RG_CHECK_EQ(buffers.count, 2);
    b = rg_server_buffer_borrow(&buffers);
    RG_CHECK(b == last);
    rg_server_buffer_return(&buffers, &b);
    rg_server_buffer_return(&buffers, &b); /* none: nothing happens */
    RG_CHECK_EQ(buffers.count, 2);
    rg_server_buffers_free(&buffers);
    RG_CHECK_EQ(buffers.count, 0);
}

static void test_no_more_are_kept_than_the_limit(void)
{
    struct rg_server_buffers buffers = {.size = 10};
    struct rg_server_buffer *out[RG_SERVER_BUFFERS_KEPT + 5];
    for (size_t i = 0; i < RG_ARRAY_LEN(out); i++) {
        out[i] = rg_server_buffer_borrow(&buffers);
        RG_CHECK(out[i] != NULL);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(out); i++) {
        rg_server_buffer_return(&buffers, &out[i]);
    }
    RG_CHECK_EQ(buffers.count, RG_SERVER_BUFFERS_KEPT);
    rg_server_buffers_free(&buffers);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_last_one_returned_is_the_next),
        RG_TEST(test_no_more_are_kept_than_the_limit),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
