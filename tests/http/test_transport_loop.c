/* What the transports of a loop share, and how much memory that is said to be. */
#include "http/transport_loop.h"

#include "tests/support/loop.h"
#include "tests/support/test.h"

static void test_memory_is_counted_from_its_first_use_on(void)
{
    struct rg_loop *loop = rg_test_loop_start(0);
    struct rg_transport_loop *shared;
    struct rg_transport_memory memory;
    RG_CHECK_EQ(rg_transport_loop_create(&shared, loop, 2), 0);
    rg_transport_loop_memory(shared, &memory);
    RG_CHECK_EQ(memory.lent_bytes + memory.kept_bytes + memory.shared_bytes, 0);
    uint8_t *unwrapped = rg_transport_loop_unwrapped(shared);
    RG_CHECK(unwrapped != NULL);
    RG_CHECK(rg_transport_loop_unwrapped(shared) == unwrapped);
    struct rg_send_buffer *buffer = rg_send_buffer_borrow(&shared->buffers, false);
    rg_transport_loop_memory(shared, &memory);
    RG_CHECK_EQ(memory.lent_bytes, RG_SEND_SMALL_SIZE);
    RG_CHECK_EQ(memory.shared_bytes, RG_TRANSPORT_UNWRAPPED_SIZE);
    rg_send_buffer_return(&shared->buffers, buffer);
    rg_transport_loop_memory(shared, &memory);
    RG_CHECK_EQ(memory.lent_bytes, 0);
    RG_CHECK_EQ(memory.kept_bytes, RG_SEND_SMALL_SIZE);
    rg_transport_loop_destroy(shared);
    rg_transport_loop_destroy(NULL);
    rg_test_loop_stop(loop);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_memory_is_counted_from_its_first_use_on),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
