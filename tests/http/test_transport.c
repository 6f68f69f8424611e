/* Byte streams: what an owner is told, in which order, and what the peer sees of how they end. */
#include "http/transport.h"

#include "tests/support/loop.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RECEIVED_MAX = 1 << 20 };

/* A transport on a loop, and the other end of its socket in our hands. */
struct stream {
    struct rg_loop *loop;
    struct rg_transport_loop *shared;
    struct rg_transport transport;
    int peer;
    bool pause_first;  /* on_data pauses without reading, once */
    bool receive_into; /* everything goes straight to `received` */
    const uint8_t *send;
    size_t send_size;
    /* Written on the loop. */
    uint8_t received[RECEIVED_MAX];
    _Atomic size_t received_size;
    _Atomic unsigned data_count, sent_count, ended_count, closed_count;
    struct rg_transport_failure failure;
    sem_t told; /* ended, closed, sent or data */
};

static struct stream *stream_of(struct rg_transport *transport)
{
    return RG_CONTAINER_OF(transport, struct stream, transport);
}

static void receive_more(struct stream *stream)
{
    if (stream->receive_into) {
        rg_transport_receive_into(&stream->transport, stream->received + stream->received_size,
                                  RECEIVED_MAX - stream->received_size);
    }
}

static void on_ready(struct rg_transport *transport)
{
    sem_post(&stream_of(transport)->told);
}

static void on_data(struct rg_transport *transport)
{
    struct stream *stream = stream_of(transport);
    stream->data_count++;
    if (stream->pause_first) {
        stream->pause_first = false;
        rg_transport_pause(transport);
        sem_post(&stream->told);
        return;
    }
    ssize_t got;
    do {
        got = rg_transport_read(transport, stream->received + stream->received_size, 7);
        stream->received_size += got > 0 ? (size_t)got : 0;
    } while (got > 0);
    RG_ASSERT(got == -EAGAIN);
    receive_more(stream);
    sem_post(&stream->told);
}

static void on_direct(struct rg_transport *transport, size_t size)
{
    struct stream *stream = stream_of(transport);
    stream->received_size += size;
    receive_more(stream);
    sem_post(&stream->told);
}

static void on_sent(struct rg_transport *transport)
{
    stream_of(transport)->sent_count++;
    sem_post(&stream_of(transport)->told);
}

static void on_ended(struct rg_transport *transport)
{
    struct stream *stream = stream_of(transport);
    stream->failure = transport->failure;
    stream->ended_count++;
    sem_post(&stream->told);
}

static void on_closed(struct rg_transport *transport)
{
    stream_of(transport)->closed_count++;
    sem_post(&stream_of(transport)->told);
}

static const struct rg_transport_owner owner = {
    .on_ready = on_ready,
    .on_data = on_data,
    .on_direct = on_direct,
    .on_sent = on_sent,
    .on_ended = on_ended,
    .on_closed = on_closed,
};

static void wait_told(struct stream *stream)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    int rc;
    do {
        rc = sem_timedwait(&stream->told, &until);
    } while (rc < 0 && errno == EINTR);
    RG_CHECK_EQ(rc, 0);
}

static void wait_received(struct stream *stream, size_t size)
{
    while (stream->received_size < size) {
        wait_told(stream);
    }
}

/* Two ends of one TCP connection. */
static void pair_make(int ends[static 2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(bind(listener, (struct sockaddr *)&address, size), 0);
    RG_CHECK_EQ(listen(listener, 1), 0);
    RG_CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(connect(ends[0], (struct sockaddr *)&address, size), 0);
    ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    RG_CHECK(ends[1] >= 0);
    close(listener);
}

struct accept {
    struct stream *stream;
    int fd;
};

static void accept_run(void *context)
{
    struct accept *accepting = context;
    struct stream *stream = accepting->stream;
    rg_transport_init(&stream->transport, stream->shared, &owner);
    RG_ASSERT(rg_transport_accept(&stream->transport, accepting->fd, NULL) == 0);
}

static struct stream *stream_make(void)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    stream->peer = -1;
    stream->loop = rg_test_loop_start(0);
    sem_init(&stream->told, 0, 0);
    RG_CHECK_EQ(rg_transport_loop_create(&stream->shared, stream->loop, 4), 0);
    return stream;
}

static void stream_open(struct stream *stream)
{
    int ends[2];
    pair_make(ends);
    stream->peer = ends[0];
    struct accept accepting = {stream, ends[1]};
    rg_loop_call(stream->loop, accept_run, &accepting);
}

static void close_run(void *context)
{
    rg_transport_close(context, false);
}

static void reset_run(void *context)
{
    rg_transport_close(context, true);
}

static void stream_close(struct stream *stream, bool reset)
{
    unsigned before = stream->closed_count;
    rg_loop_call(stream->loop, reset ? reset_run : close_run, &stream->transport);
    while (stream->closed_count == before) {
        wait_told(stream);
    }
}

static void stream_free(struct stream *stream)
{
    rg_loop_stop(stream->loop);
    RG_CHECK_EQ(stream->closed_count, 1);
    rg_transport_loop_destroy(stream->shared);
    rg_loop_destroy(stream->loop);
    sem_destroy(&stream->told);
    if (stream->peer >= 0) {
        close(stream->peer);
    }
    free(stream);
}

static void peer_write(struct stream *stream, const void *data, size_t size)
{
    RG_CHECK_EQ(send(stream->peer, data, size, MSG_NOSIGNAL), size);
}

static void test_bytes_and_then_the_end(void)
{
    struct stream *stream = stream_make();
    stream_open(stream);
    peer_write(stream, "hello, world", 12);
    wait_received(stream, 12);
    peer_write(stream, "!", 1);
    shutdown(stream->peer, SHUT_WR);
    while (stream->ended_count == 0) {
        wait_told(stream);
    }
    RG_CHECK_MEM(stream->received, stream->received_size, "hello, world!", 13);
    RG_CHECK_EQ(stream->failure.status, RG_STATUS_OK);
    stream_close(stream, false);
    RG_CHECK_EQ(stream->ended_count, 1);
    stream_free(stream);
}

static void test_reset_by_the_peer(void)
{
    struct stream *stream = stream_make();
    stream_open(stream);
    struct linger linger = {.l_onoff = 1};
    setsockopt(stream->peer, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    close(stream->peer);
    stream->peer = -1;
    wait_told(stream);
    RG_CHECK_EQ(stream->ended_count, 1);
    RG_CHECK_EQ(stream->failure.status, RG_STATUS_CONNECTION_LOST);
    RG_CHECK_EQ(stream->failure.os_error, ECONNRESET);
    stream_close(stream, false);
    stream_free(stream);
}

static void resume_run(void *context)
{
    rg_transport_resume(context);
}

static void test_paused_transports_keep_what_came(void)
{
    struct stream *stream = stream_make();
    stream->pause_first = true;
    stream_open(stream);
    peer_write(stream, "kept", 4);
    wait_told(stream);
    peer_write(stream, " and more", 9);
    rg_test_loop_turn(stream->loop);
    RG_CHECK_EQ(stream->received_size, 0);
    RG_CHECK_EQ(stream->data_count, 1);
    rg_loop_call(stream->loop, resume_run, &stream->transport);
    wait_received(stream, 13);
    RG_CHECK_MEM(stream->received, stream->received_size, "kept and more", 13);
    stream_close(stream, false);
    stream_free(stream);
}

static void test_closed_while_paused(void)
{
    struct stream *stream = stream_make();
    stream->pause_first = true;
    stream_open(stream);
    peer_write(stream, "kept", 4);
    wait_told(stream);
    stream_close(stream, false);
    RG_CHECK_EQ(stream->received_size, 0);
    stream_free(stream);
}

static void test_how_the_peer_sees_the_end(void)
{
    for (unsigned reset = 0; reset < 2; reset++) {
        struct stream *stream = stream_make();
        stream_open(stream);
        stream_close(stream, reset == 1);
        char byte;
        ssize_t got = recv(stream->peer, &byte, 1, 0);
        RG_CHECK_EQ(got, reset == 1 ? -1 : 0);
        RG_CHECK(reset == 0 || errno == ECONNRESET);
        stream_free(stream);
    }
}

static void close_twice_run(void *context)
{
    rg_transport_close(context, false);
    rg_transport_close(context, true);
}

static void test_closed_twice_is_closed_once(void)
{
    struct stream *stream = stream_make();
    stream_open(stream);
    rg_loop_call(stream->loop, close_twice_run, &stream->transport);
    rg_test_loop_turn(stream->loop);
    stream_free(stream);
}

static void connect_run(void *context)
{
    static struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = 256 /* 1 */};
    struct stream *stream = context;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct rg_transport_target target = {
        .address = (struct sockaddr *)&address,
        .address_size = sizeof(address),
    };
    rg_transport_init(&stream->transport, stream->shared, &owner);
    RG_ASSERT(rg_transport_connect(&stream->transport, &target) == 0);
}

static void test_refused_connection(void)
{
    struct stream *stream = stream_make();
    rg_loop_call(stream->loop, connect_run, stream);
    wait_told(stream);
    RG_CHECK_EQ(stream->ended_count, 1);
    RG_CHECK_EQ(stream->failure.status, RG_STATUS_CONNECT);
    RG_CHECK_EQ(stream->failure.os_error, ECONNREFUSED);
    stream_close(stream, false);
    stream_free(stream);
}

static void idle_run(void *context)
{
    struct stream *stream = context;
    rg_transport_init(&stream->transport, stream->shared, &owner);
    rg_transport_close(&stream->transport, false);
}

static void test_closed_without_ever_being_open(void)
{
    struct stream *stream = stream_make();
    rg_loop_call(stream->loop, idle_run, stream);
    wait_told(stream);
    stream_free(stream);
}

struct borrows {
    struct stream *stream;
    bool is_true;
};

static void borrows_run(void *context)
{
    struct borrows *borrows = context;
    borrows->is_true = rg_transport_borrows(&borrows->stream->transport);
}

static bool stream_borrows(struct stream *stream)
{
    struct borrows borrows = {.stream = stream};
    rg_loop_call(stream->loop, borrows_run, &borrows);
    return borrows.is_true;
}

static void test_received_straight_into_its_place(void)
{
    struct stream *stream = stream_make();
    stream->receive_into = true;
    stream_open(stream);
    RG_CHECK(!stream_borrows(stream));
    peer_write(stream, "first", 5);
    wait_received(stream, 5);
    RG_CHECK(stream_borrows(stream));
    uint8_t *data = malloc(300000);
    memset(data, 'x', 300000);
    peer_write(stream, data, 300000);
    wait_received(stream, 300005);
    RG_CHECK_EQ(stream->data_count, 1);
    RG_CHECK_MEM(stream->received + 5, 300000, data, 300000);
    stream_close(stream, true);
    RG_CHECK(!stream_borrows(stream));
    stream_free(stream);
    free(data);
}

static void send_from_run(void *context)
{
    struct stream *stream = context;
    rg_transport_send_from(&stream->transport, stream->send, stream->send_size);
    RG_ASSERT(rg_transport_sending(&stream->transport));
    RG_ASSERT(rg_transport_borrows(&stream->transport));
}

/* Nobody reads, so that the send cannot finish before the transport is closed. */
static void test_memory_that_is_sent_from_is_lent_until_the_end(void)
{
    struct stream *stream = stream_make();
    int small = 4096;
    stream_open(stream);
    setsockopt(stream->peer, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    uint8_t *data = calloc(1, RG_OP_SIZE_MAX);
    stream->send = data;
    stream->send_size = RG_OP_SIZE_MAX;
    for (unsigned i = 0; i < 20 && stream->sent_count == i; i++) {
        rg_loop_call(stream->loop, send_from_run, stream);
        rg_test_loop_turn(stream->loop);
    }
    RG_CHECK(stream_borrows(stream));
    stream_close(stream, true);
    RG_CHECK(!stream_borrows(stream));
    free(data);
    stream_free(stream);
}

static void write_run(void *context)
{
    struct stream *stream = context;
    ssize_t taken = rg_transport_write(&stream->transport, stream->send, stream->send_size, false);
    RG_ASSERT(taken == RG_SEND_SMALL_SIZE);
    rg_transport_flush(&stream->transport);
    rg_transport_flush(&stream->transport);
}

static void test_written_bytes_fill_the_buffer_and_are_told_when_sent(void)
{
    struct stream *stream = stream_make();
    stream_open(stream);
    uint8_t *data = malloc(RG_SEND_LARGE_SIZE);
    for (size_t i = 0; i < RG_SEND_LARGE_SIZE; i++) {
        data[i] = (uint8_t)rg_test_random();
    }
    stream->send = data;
    stream->send_size = RG_SEND_LARGE_SIZE;
    rg_loop_call(stream->loop, write_run, stream);
    uint8_t *got = malloc(RG_SEND_SMALL_SIZE);
    RG_CHECK_EQ(recv(stream->peer, got, RG_SEND_SMALL_SIZE, MSG_WAITALL), RG_SEND_SMALL_SIZE);
    RG_CHECK_MEM(got, RG_SEND_SMALL_SIZE, data, RG_SEND_SMALL_SIZE);
    wait_told(stream);
    RG_CHECK_EQ(stream->sent_count, 1);
    stream_close(stream, false);
    stream_free(stream);
    free(data);
    free(got);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_bytes_and_then_the_end),
        RG_TEST(test_reset_by_the_peer),
        RG_TEST(test_paused_transports_keep_what_came),
        RG_TEST(test_closed_while_paused),
        RG_TEST(test_how_the_peer_sees_the_end),
        RG_TEST(test_closed_twice_is_closed_once),
        RG_TEST(test_refused_connection),
        RG_TEST(test_closed_without_ever_being_open),
        RG_TEST(test_received_straight_into_its_place),
        RG_TEST(test_memory_that_is_sent_from_is_lent_until_the_end),
        RG_TEST(test_written_bytes_fill_the_buffer_and_are_told_when_sent),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
