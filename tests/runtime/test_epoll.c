/* What only the epoll backend can get wrong: edges that come once. The rest is in test_loop. */
#include "runtime/clock.h"
#include "runtime/loop.h"

#include "tests/support/test.h"

#include <unistd.h>

struct reader {
    struct rg_op op;
    struct rg_socket socket;
    unsigned done_count;
    int32_t results[8];
};

static void reader_done(struct rg_op *op)
{
    struct reader *reader = RG_CONTAINER_OF(op, struct reader, op);
    RG_CHECK(reader->done_count < RG_ARRAY_LEN(reader->results));
    reader->results[reader->done_count++] = op->result;
}

static struct rg_loop *loop;
static struct reader reader;
static int peer;

static void setup(void)
{
    struct rg_loop_options options = {.backend = &rg_epoll_backend};
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    int fds[2];
    RG_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    reader = (struct reader){.socket.fd = -1};
    rg_op_init(&reader.op, reader_done);
    peer = fds[1];
    RG_CHECK_EQ(rg_socket_adopt(loop, &reader.socket, fds[0]), 0);
}

static void teardown(void)
{
    rg_op_cancel(loop, &reader.op);
    rg_loop_pass(loop, 0);
    rg_socket_close(loop, &reader.socket, false);
    rg_loop_destroy(loop);
    close(peer);
}

static void receive(size_t size, unsigned done_count)
{
    rg_op_recv(loop, &reader.op, &reader.socket, size);
    uint64_t end_ns = rg_now_ns() + RG_TEST_PATIENCE_NS;
    while (reader.done_count < done_count && rg_now_ns() < end_ns) {
        rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_S);
    }
    RG_CHECK_EQ(reader.done_count, done_count);
}

static void test_bytes_left_by_a_full_receive_need_no_new_edge(void)
{
    setup();
    RG_CHECK_EQ(write(peer, "abcdef", 6), 6);
    receive(4, 1);
    receive(4, 2);
    RG_CHECK_EQ(reader.results[0], 4);
    RG_CHECK_EQ(reader.results[1], 2);
    teardown();
}

static void test_the_end_behind_a_short_receive_is_seen(void)
{
    setup();
    RG_CHECK_EQ(write(peer, "ab", 2), 2);
    shutdown(peer, SHUT_WR);
    receive(100, 1);
    receive(100, 2);
    RG_CHECK_EQ(reader.results[0], 2);
    RG_CHECK_EQ(reader.results[1], 0);
    teardown();
}

static void test_an_edge_before_the_op_is_not_lost(void)
{
    setup();
    RG_CHECK_EQ(write(peer, "x", 1), 1);
    rg_loop_pass(loop, 0);
    RG_CHECK(reader.socket.readable);
    receive(100, 1);
    RG_CHECK_EQ(reader.results[0], 1);
    RG_CHECK(!reader.socket.readable);
    teardown();
}

static void test_a_loop_with_nothing_to_do_sleeps(void)
{
    setup();
    rg_op_recv(loop, &reader.op, &reader.socket, 100);
    uint64_t end_ns = rg_now_ns() + 200 * RG_NS_PER_MS;
    unsigned passes = 0;
    while (rg_now_ns() < end_ns) {
        rg_loop_pass(loop, end_ns);
        passes++;
    }
    RG_CHECK(passes < 20);
    teardown();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_bytes_left_by_a_full_receive_need_no_new_edge),
        RG_TEST(test_the_end_behind_a_short_receive_is_seen),
        RG_TEST(test_an_edge_before_the_op_is_not_lost),
        RG_TEST(test_a_loop_with_nothing_to_do_sleeps),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
