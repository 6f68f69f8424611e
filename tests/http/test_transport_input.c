/* What was received and not read: what is kept beyond the call, and where. */
#include "http/transport_input.h"

#include "tests/support/test.h"

static uint8_t received[] = "abcdef";

static void bytes_come(struct rg_transport_input *input)
{
    memcpy(received, "abcdef", sizeof(received));
    input->in = (struct rg_tls_in){received, 6};
    rg_transport_input_enter(input, RG_TRANSPORT_DELIVERING);
}

static void test_what_is_read_is_gone(void)
{
    struct rg_transport_input input = {0};
    uint8_t got[8];
    bytes_come(&input);
    RG_CHECK_EQ(rg_transport_input_take(&input, got, 4), 4);
    RG_CHECK_EQ(rg_transport_input_take(&input, got + 4, 4), 2);
    RG_CHECK_EQ(rg_transport_input_take(&input, got, 4), 0);
    RG_CHECK_MEM(got, 6, "abcdef", 6);
    rg_transport_input_enter(&input, RG_TRANSPORT_FLOWING);
    RG_CHECK_EQ(rg_transport_input_end(&input), 0);
    RG_CHECK(input.stash == NULL);
}

static void test_what_is_left_of_a_pause_outlasts_the_receive_buffer(void)
{
    struct rg_transport_input input = {0};
    uint8_t got[8];
    bytes_come(&input);
    RG_CHECK_EQ(rg_transport_input_take(&input, got, 2), 2);
    rg_transport_input_enter(&input, RG_TRANSPORT_PAUSED);
    RG_CHECK_EQ(rg_transport_input_end(&input), 0);
    memset(received, 'x', sizeof(received));
    rg_transport_input_enter(&input, RG_TRANSPORT_RESUMING);
    rg_transport_input_enter(&input, RG_TRANSPORT_DELIVERING);
    RG_CHECK_EQ(rg_transport_input_take(&input, got + 2, 1), 1);
    /* Paused once more, nothing moves. */
    uint8_t *stash = input.stash;
    rg_transport_input_enter(&input, RG_TRANSPORT_PAUSED);
    RG_CHECK_EQ(rg_transport_input_end(&input), 0);
    RG_CHECK(input.stash == stash);
    rg_transport_input_enter(&input, RG_TRANSPORT_RESUMING);
    rg_transport_input_enter(&input, RG_TRANSPORT_DELIVERING);
    RG_CHECK_EQ(rg_transport_input_take(&input, got + 3, 5), 3);
    RG_CHECK_MEM(got, 6, "abcdef", 6);
    rg_transport_input_enter(&input, RG_TRANSPORT_FLOWING);
    RG_CHECK_EQ(rg_transport_input_end(&input), 0);
    RG_CHECK(input.stash == NULL);
}

static void test_a_pause_with_nothing_left_keeps_no_memory(void)
{
    struct rg_transport_input input = {0};
    uint8_t got[8];
    bytes_come(&input);
    RG_CHECK_EQ(rg_transport_input_take(&input, got, sizeof(got)), 6);
    rg_transport_input_enter(&input, RG_TRANSPORT_PAUSED);
    RG_CHECK_EQ(rg_transport_input_end(&input), 0);
    RG_CHECK(input.stash == NULL);
}

static void test_a_blocked_handshake_keeps_its_input(void)
{
    struct rg_transport_input input = {.in = {received, 6}};
    rg_transport_input_enter(&input, RG_TRANSPORT_BLOCKED);
    RG_CHECK_EQ(rg_transport_input_end(&input), 0);
    RG_CHECK(input.stash != NULL);
    RG_CHECK_EQ(input.in.size, 6);
    rg_transport_input_enter(&input, RG_TRANSPORT_FLOWING);
    rg_transport_input_drop(&input);
    RG_CHECK(input.stash == NULL);
    RG_CHECK_EQ(input.in.size, 0);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_is_read_is_gone),
        RG_TEST(test_what_is_left_of_a_pause_outlasts_the_receive_buffer),
        RG_TEST(test_a_pause_with_nothing_left_keeps_no_memory),
        RG_TEST(test_a_blocked_handshake_keeps_its_input),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
