/* Buffers that are borrowed: which one, how many are kept, and what is counted. */
#include "http/send_buffer.h"

#include "tests/support/test.h"

static void test_the_last_one_returned_is_the_first_one_lent(void)
{
    for (int large = 0; large < 2; large++) {
        struct rg_send_buffers buffers = {0};
        struct rg_send_buffer *a = rg_send_buffer_borrow(&buffers, large);
        struct rg_send_buffer *b = rg_send_buffer_borrow(&buffers, large);
        size_t size = large ? RG_SEND_LARGE_SIZE : RG_SEND_SMALL_SIZE;
        RG_CHECK_EQ(rg_send_buffer_room(a), size);
        RG_CHECK_EQ(buffers.lent_bytes, 2 * size);
        a->size = 7;
        rg_send_buffer_return(&buffers, b);
        rg_send_buffer_return(&buffers, a);
        RG_CHECK_EQ(buffers.lent_bytes, 0);
        RG_CHECK_EQ(buffers.kept_bytes, 2 * size);
        RG_CHECK(rg_send_buffer_borrow(&buffers, large) == a);
        RG_CHECK_EQ(a->size, 0);
        RG_CHECK(rg_send_buffer_borrow(&buffers, large) == b);
        struct rg_send_buffer *other = rg_send_buffer_borrow(&buffers, !large);
        RG_CHECK_EQ(buffers.lent_bytes,
                    2 * size + (large ? RG_SEND_SMALL_SIZE : RG_SEND_LARGE_SIZE));
        rg_send_buffer_return(&buffers, a);
        rg_send_buffer_return(&buffers, b);
        rg_send_buffer_return(&buffers, NULL);
        RG_CHECK_EQ(buffers.kept_bytes, 2 * size);
        rg_send_buffer_return(&buffers, other);
        rg_send_buffers_fini(&buffers);
    }
}

static void test_a_bounded_number_of_each_size_is_kept(void)
{
    enum { KEPT_MAX = RG_SEND_KEPT_BYTES / RG_SEND_SMALL_SIZE, COUNT = KEPT_MAX + 5 };
    for (int large = 0; large < 2; large++) {
        size_t size = large ? RG_SEND_LARGE_SIZE : RG_SEND_SMALL_SIZE;
        size_t kept_max = RG_SEND_KEPT_BYTES / size;
        struct rg_send_buffers buffers = {0};
        struct rg_send_buffer *lent[COUNT];
        for (size_t i = 0; i < kept_max + 5; i++) {
            lent[i] = rg_send_buffer_borrow(&buffers, large);
        }
        for (size_t i = 0; i < kept_max + 5; i++) {
            rg_send_buffer_return(&buffers, lent[i]);
        }
        RG_CHECK_EQ(buffers.lent_bytes, 0);
        RG_CHECK_EQ(buffers.kept_bytes, kept_max * size);
        rg_send_buffers_fini(&buffers);
        RG_CHECK_EQ(buffers.kept_bytes, 0);
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_last_one_returned_is_the_first_one_lent),
        RG_TEST(test_a_bounded_number_of_each_size_is_kept),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
