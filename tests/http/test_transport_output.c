/* What is to be sent: where it is kept, what is on its way, and what becomes of it when a send is
 * done or fails. The other end of the socket is the test itself. */
#include "http/transport_output.h"

#include "tests/support/loop.h"
#include "tests/support/test.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

struct end {
    struct rg_loop *loop;
    struct rg_transport_loop *shared;
    struct rg_socket socket;
    struct rg_transport_output output;
    int peer, fd;
    _Atomic uint32_t done_count;
};

/* Sends what was written meanwhile, as a transport does. */
static void send_done(struct rg_op *op)
{
    struct end *end = RG_CONTAINER_OF(op, struct end, output.op);
    rg_transport_output_done(&end->output, NULL);
    RG_ASSERT(rg_transport_output_flush(&end->output, NULL) == 0);
    end->done_count++;
}

static void open_run(void *context)
{
    struct end *end = context;
    RG_ASSERT(rg_socket_adopt(end->loop, &end->socket, end->fd) == 0);
    rg_transport_output_init(&end->output, end->shared, &end->socket, send_done);
}

static void close_run(void *context)
{
    struct end *end = context;
    RG_ASSERT(rg_op_idle(&end->output.op));
    rg_transport_output_drop(&end->output);
    RG_ASSERT(end->output.state == RG_TRANSPORT_EMPTY && end->output.buffer == NULL);
    RG_ASSERT(end->shared->buffers.lent_bytes == 0);
    rg_socket_close(end->loop, &end->socket, false);
}

static void end_open(struct end *end)
{
    int fds[2];
    RG_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    *end = (struct end){.loop = rg_test_loop_start(0), .fd = fds[0], .peer = fds[1]};
    RG_CHECK_EQ(rg_transport_loop_create(&end->shared, end->loop, 1), 0);
    rg_loop_call(end->loop, open_run, end);
}

static void end_close(struct end *end)
{
    rg_loop_call(end->loop, close_run, end);
    rg_transport_loop_destroy(end->shared);
    rg_test_loop_stop(end->loop);
    close(end->peer);
}

static void sends_await(struct end *end, uint32_t count)
{
    while (end->done_count < count) {
        rg_test_loop_turn(end->loop);
    }
}

static void check_received(struct end *end, const char *text)
{
    char got[64];
    ssize_t size = recv(end->peer, got, sizeof(got), 0);
    RG_CHECK_MEM(got, (size_t)size, text, strlen(text));
}

static void write_text(struct end *end, const char *text)
{
    ssize_t size = (ssize_t)strlen(text);
    RG_ASSERT(rg_transport_output_write(&end->output, NULL, text, (size_t)size, false) == size);
}

static void write_run(void *context)
{
    struct end *end = context;
    struct rg_transport_output *output = &end->output;
    RG_ASSERT(rg_transport_output_flush(output, NULL) == 0 && output->state == RG_TRANSPORT_EMPTY);
    write_text(end, "abc");
    write_text(end, "def");
    RG_ASSERT(output->state == RG_TRANSPORT_FILLING);
    RG_ASSERT(rg_transport_output_flush(output, NULL) == 0);
    RG_ASSERT(output->state == RG_TRANSPORT_SENDING && output->buffer->sending == 6);
    write_text(end, "ghi");
    RG_ASSERT(rg_transport_output_flush(output, NULL) == 0);
    RG_ASSERT(output->state == RG_TRANSPORT_SENDING && output->buffer->sending == 6);
}

static void test_what_is_written_during_a_send_is_sent_behind_it(void)
{
    struct end end;
    end_open(&end);
    rg_loop_call(end.loop, write_run, &end);
    sends_await(&end, 2);
    RG_CHECK_EQ(end.output.state, RG_TRANSPORT_EMPTY);
    RG_CHECK(end.output.buffer == NULL);
    check_received(&end, "abcdefghi");
    end_close(&end);
}

static void fill_run(void *context)
{
    static const uint8_t zeroes[RG_SEND_SMALL_SIZE];
    struct end *end = context;
    struct rg_transport_output *output = &end->output;
    write_text(end, "abc");
    ssize_t taken = rg_transport_output_write(output, NULL, zeroes, sizeof(zeroes), true);
    RG_ASSERT(taken == RG_SEND_SMALL_SIZE - 3); /* The buffer that is there is not exchanged. */
    RG_ASSERT(rg_transport_output_write(output, NULL, zeroes, 1, true) == 0);
}

static void test_a_full_buffer_takes_no_more(void)
{
    struct end end;
    end_open(&end);
    rg_loop_call(end.loop, fill_run, &end);
    RG_CHECK_EQ(end.output.state, RG_TRANSPORT_FILLING);
    end_close(&end);
}

static void lend_run(void *context)
{
    struct end *end = context;
    rg_transport_output_lend(&end->output, "lent", 4);
    RG_ASSERT(end->output.state == RG_TRANSPORT_LENDING && end->output.buffer == NULL);
}

static void test_lent_memory_is_sent_without_a_buffer(void)
{
    struct end end;
    end_open(&end);
    rg_loop_call(end.loop, lend_run, &end);
    sends_await(&end, 1);
    RG_CHECK_EQ(end.output.state, RG_TRANSPORT_EMPTY);
    RG_CHECK_EQ(end.shared->buffers.kept_bytes, 0);
    check_received(&end, "lent");
    end_close(&end);
}

static void head_run(void *context)
{
    struct end *end = context;
    write_text(end, "head");
    RG_ASSERT(rg_transport_output_flush_more(&end->output, NULL) == 0);
    RG_ASSERT(end->output.state == RG_TRANSPORT_SENDING && end->output.op.more);
}

static void body_run(void *context)
{
    struct end *end = context;
    lend_run(end);
    RG_ASSERT(!end->output.op.more);
}

static void test_lent_memory_follows_what_waits_for_it(void)
{
    struct end end;
    end_open(&end);
    rg_loop_call(end.loop, head_run, &end);
    sends_await(&end, 1);
    rg_loop_call(end.loop, body_run, &end);
    sends_await(&end, 2);
    check_received(&end, "headlent");
    end_close(&end);
}

static void append_run(void *context)
{
    struct end *end = context;
    struct rg_transport_output *output = &end->output;
    struct rg_tls_out out = rg_transport_output_place(output);
    RG_ASSERT(!rg_transport_output_grew(output, &out));
    RG_ASSERT(rg_transport_output_take(output, &out) == 0 && output->buffer == NULL);
    memcpy(out.data, "one", 3);
    out.size += 3;
    RG_ASSERT(rg_transport_output_grew(output, &out));
    RG_ASSERT(rg_transport_output_take(output, &out) == 0);
    RG_ASSERT(output->state == RG_TRANSPORT_FILLING);
    out = rg_transport_output_place(output);
    RG_ASSERT(out.data == output->buffer->data && out.size == 3);
    memcpy(out.data + out.size, "two", 3);
    out.size += 3;
    RG_ASSERT(rg_transport_output_take(output, &out) == 0);
    RG_ASSERT(rg_transport_output_flush(output, NULL) == 0);
}

static void test_what_tls_says_is_put_behind_what_is_there(void)
{
    struct end end;
    end_open(&end);
    rg_loop_call(end.loop, append_run, &end);
    sends_await(&end, 1);
    check_received(&end, "onetwo");
    end_close(&end);
}

static void reserve_run(void *context)
{
    struct end *end = context;
    struct rg_transport_output *output = &end->output;
    RG_ASSERT(rg_transport_output_reserve(output, true));
    RG_ASSERT(output->buffer->capacity == RG_SEND_LARGE_SIZE);
    RG_ASSERT(rg_transport_output_flush(output, NULL) == 0);
    RG_ASSERT(output->state == RG_TRANSPORT_FILLING);
    struct rg_tls_out out = rg_transport_output_place(output);
    RG_ASSERT(rg_transport_output_take(output, &out) == 0);
    RG_ASSERT(output->state == RG_TRANSPORT_EMPTY);
}

static void test_a_buffer_that_stays_empty_is_returned(void)
{
    struct end end;
    end_open(&end);
    rg_loop_call(end.loop, reserve_run, &end);
    RG_CHECK_EQ(end.shared->buffers.kept_bytes, RG_SEND_LARGE_SIZE);
    end_close(&end);
}

static void end_of_stream_run(void *context)
{
    struct end *end = context;
    RG_ASSERT(shutdown(end->fd, SHUT_WR) == 0);
}

static void write_some_run(void *context)
{
    struct end *end = context;
    write_text(end, "abc");
    RG_ASSERT(rg_transport_output_flush(&end->output, NULL) == 0);
}

static void check_failure(void (*send)(void *context))
{
    struct end end;
    end_open(&end);
    rg_loop_call(end.loop, end_of_stream_run, &end);
    rg_loop_call(end.loop, send, &end);
    sends_await(&end, 1); /* And what is left is not flushed. */
    RG_CHECK_EQ(end.output.state, RG_TRANSPORT_FAILED);
    RG_CHECK_EQ(end.output.op.result, -EPIPE);
    RG_CHECK(rg_op_idle(&end.output.op));
    end_close(&end);
}

static void test_nothing_follows_a_send_that_failed(void)
{
    check_failure(write_some_run);
    check_failure(lend_run);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_what_is_written_during_a_send_is_sent_behind_it),
        RG_TEST(test_a_full_buffer_takes_no_more),
        RG_TEST(test_lent_memory_is_sent_without_a_buffer),
        RG_TEST(test_lent_memory_follows_what_waits_for_it),
        RG_TEST(test_what_tls_says_is_put_behind_what_is_there),
        RG_TEST(test_a_buffer_that_stays_empty_is_returned),
        RG_TEST(test_nothing_follows_a_send_that_failed),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
