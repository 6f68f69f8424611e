/* The event loop and both of its real backends, on real sockets. Each case runs once per backend;
 * RINGEST_BACKEND=uring or epoll picks one. */
#include "runtime/clock.h"
#include "runtime/loop.h"

#include "tests/support/loop.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATIENCE_NS (60 * RG_NS_PER_S)

/* One pass after the other until the condition holds. */
#define PASS_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t rg_end_ns = rg_now_ns() + PATIENCE_NS;                                            \
        while (!(condition)) {                                                                     \
            if (rg_now_ns() > rg_end_ns) {                                                         \
                rg_test_fail(__FILE__, __LINE__, "waited in vain for %s", #condition);             \
            }                                                                                      \
            rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_S);                                         \
        }                                                                                          \
    } while (0)

static const struct rg_backend_ops *backend;
static struct rg_loop *loop;

/* An op and what became of it. */
struct probe {
    struct rg_op op;
    struct rg_socket socket;
    int32_t result;
    unsigned done_count;
    struct rg_socket *cancels_reader_of; /* when done */
    size_t again;                        /* receive this much once more when done; 0: do not */
    uint8_t *sink;                       /* where received bytes go; NULL: dropped */
    size_t received;
};

static void probe_done(struct rg_op *op)
{
    struct probe *probe = RG_CONTAINER_OF(op, struct probe, op);
    RG_ASSERT(rg_op_idle(op));
    probe->result = op->result;
    probe->done_count++;
    bool receives = op->kind == RG_OP_RECV || op->kind == RG_OP_RECV_INTO;
    if (receives && op->result > 0) {
        if (probe->sink != NULL) {
            memcpy(probe->sink + probe->received, op->data, (size_t)op->result);
        }
        probe->received += (size_t)op->result;
    }
    if (probe->cancels_reader_of != NULL) {
        rg_op_cancel(loop, probe->cancels_reader_of->reading);
    }
    if (probe->again > 0 && op->result > 0) {
        rg_op_recv(loop, op, &probe->socket, probe->again);
    }
}

static void probe_init(struct probe *probe)
{
    *probe = (struct probe){.socket.fd = -1};
    rg_op_init(&probe->op, probe_done);
}

static void probe_adopt(struct probe *probe, int fd)
{
    probe_init(probe);
    RG_CHECK_EQ(rg_socket_adopt(loop, &probe->socket, fd), 0);
}

static void probe_recv(struct probe *probe, size_t size_max)
{
    rg_op_recv(loop, &probe->op, &probe->socket, size_max);
}

static void probe_close(struct probe *probe)
{
    rg_socket_close(loop, &probe->socket, false);
    RG_CHECK_EQ(probe->socket.fd, -1);
}

static void setup_with_memory(uint64_t memory_max)
{
    const struct rg_loop_options options = {
        .backend = backend,
        .placement = {.cpu = -1, .node = -1},
        .memory_max = memory_max,
    };
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
}

static void setup(void)
{
    setup_with_memory(0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
}

static void teardown(void)
{
    rg_loop_destroy(loop);
    loop = NULL;
}

static int listen_loopback(int backlog, struct sockaddr_in *out_address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    RG_CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    if (backlog >= 0) {
        RG_CHECK_EQ(listen(fd, backlog), 0);
    }
    socklen_t size = sizeof(address);
    RG_CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *out_address = address;
    return fd;
}

static void make_tcp_pair(int out_fds[2])
{
    struct sockaddr_in address;
    int listener = listen_loopback(1, &address);
    out_fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(connect(out_fds[0], (struct sockaddr *)&address, sizeof(address)), 0);
    do {
        out_fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    } while (out_fds[1] < 0 && errno == EAGAIN);
    RG_CHECK(out_fds[1] >= 0);
    close(listener);
}

static void make_pair(int out_fds[2])
{
    RG_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out_fds), 0);
}

static void write_all(int fd, const void *data, size_t size)
{
    RG_CHECK_EQ(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

/* Closes by RST. */
static void close_reset(int fd)
{
    struct linger linger = {.l_onoff = 1};
    RG_CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    close(fd);
}

static void fill_random(uint8_t *data, size_t size)
{
    uint64_t word = rg_test_random();
    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(word >> (i % 8 * 8)) ^ (uint8_t)(i / 8 * 151);
    }
}

/* Takes everything out of a raw descriptor without waiting. Returns how much. */
static size_t drain_raw(int fd, uint8_t *data, size_t room)
{
    size_t total = 0;
    ssize_t got;
    while (total < room && (got = recv(fd, data + total, room - total, MSG_DONTWAIT)) > 0) {
        total += (size_t)got;
    }
    return total;
}

/* Sends data[0..size) from one probe and collects it at the other, in receives of random kinds. */
static void transfer(struct probe *from, struct probe *to, const uint8_t *data, size_t size)
{
    uint8_t *got = malloc(size);
    unsigned sends = from->done_count;
    rg_op_send(loop, &from->op, &from->socket, data, size);
    to->received = 0;
    while (to->received < size) {
        unsigned before = to->done_count;
        size_t size_max = 1 + rg_test_random_below(RG_KIB(300));
        if (rg_test_random() % 2 == 0) {
            to->sink = got;
            probe_recv(to, size_max);
        } else {
            to->sink = NULL;
            rg_op_recv_into(loop, &to->op, &to->socket, got + to->received,
                            RG_MIN(size_max, size - to->received));
        }
        PASS_UNTIL(to->done_count > before);
        RG_CHECK(to->result > 0);
        RG_CHECK((size_t)to->result <= size_max);
    }
    PASS_UNTIL(from->done_count > sends);
    RG_CHECK_EQ(from->result, size);
    RG_CHECK_MEM(got, to->received, data, size);
    free(got);
}

static void test_bytes_of_random_sizes_go_there_and_back(void)
{
    setup();
    uint8_t *data = malloc(RG_OP_SIZE_MAX);
    for (int round = 0; round < 12; round++) {
        int fds[2];
        (round % 2 == 0 ? make_pair : make_tcp_pair)(fds);
        struct probe a, b;
        probe_adopt(&a, fds[0]);
        probe_adopt(&b, fds[1]);
        for (int i = 0; i < 4; i++) {
            size_t size = 1 + rg_test_random_below(UINT64_C(1) << rg_test_random_below(21));
            fill_random(data, size);
            transfer(&a, &b, data, size);
            transfer(&b, &a, data, size);
        }
        probe_close(&a);
        probe_close(&b);
    }
    RG_CHECK(rg_metric_load(&loop->metrics.recv_bytes) > 0);
    free(data);
    teardown();
}

static void test_connecting_where_nobody_listens_is_refused(void)
{
    setup();
    struct sockaddr_in address;
    int fd = listen_loopback(-1, &address);
    struct probe probe;
    probe_init(&probe);
    RG_CHECK_EQ(rg_socket_open(loop, &probe.socket, AF_INET), 0);
    rg_op_connect(loop, &probe.op, &probe.socket, (struct sockaddr *)&address, sizeof(address));
    RG_CHECK_EQ(probe.done_count, 0);
    PASS_UNTIL(probe.done_count == 1);
    RG_CHECK_EQ(probe.result, -ECONNREFUSED);
    probe_close(&probe);
    close(fd);
    teardown();
}

static void test_connections_are_accepted_one_per_op(void)
{
    setup();
    struct sockaddr_in address;
    struct probe listener, clients[3], servers[3];
    probe_adopt(&listener, listen_loopback(8, &address));
    for (unsigned i = 0; i < 3; i++) {
        probe_init(&clients[i]);
        RG_CHECK_EQ(rg_socket_open(loop, &clients[i].socket, AF_INET), 0);
        int no_delay = 0;
        socklen_t size = sizeof(no_delay);
        int fd = clients[i].socket.fd;
        RG_CHECK_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
        RG_CHECK(no_delay != 0);
        rg_op_connect(loop, &clients[i].op, &clients[i].socket, (struct sockaddr *)&address,
                      sizeof(address));
    }
    for (unsigned i = 0; i < 3; i++) {
        rg_op_accept(loop, &listener.op, &listener.socket);
        PASS_UNTIL(listener.done_count == i + 1);
        RG_CHECK(listener.result >= 0);
        RG_CHECK((fcntl(listener.result, F_GETFD) & FD_CLOEXEC) != 0);
        probe_adopt(&servers[i], listener.result);
        PASS_UNTIL(clients[i].done_count == 1);
        RG_CHECK_EQ(clients[i].result, 0);
        transfer(&clients[i], &servers[i], (const uint8_t *)"hello", 5);
        transfer(&servers[i], &clients[i], (const uint8_t *)"hello yourself", 14);
    }
    rg_op_accept(loop, &listener.op, &listener.socket);
    rg_loop_pass(loop, 0);
    rg_loop_pass(loop, 0);
    RG_CHECK_EQ(listener.done_count, 3);
    rg_op_cancel(loop, &listener.op);
    PASS_UNTIL(listener.done_count == 4);
    for (unsigned i = 0; i < 3; i++) {
        probe_close(&clients[i]);
        probe_close(&servers[i]);
    }
    probe_close(&listener);
    teardown();
}

static void test_a_send_larger_than_the_socket_buffer_is_one_op(void)
{
    setup();
    int fds[2];
    make_tcp_pair(fds);
    int small = 4096;
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    struct probe probe;
    probe_adopt(&probe, fds[0]);
    const size_t size = RG_OP_SIZE_MAX;
    uint8_t *data = malloc(size), *got = malloc(size);
    fill_random(data, size);
    rg_op_send(loop, &probe.op, &probe.socket, data, size);
    for (int i = 0; i < 5; i++) {
        rg_loop_pass(loop, rg_now_ns() + 5 * RG_NS_PER_MS);
    }
    RG_CHECK_EQ(probe.done_count, 0);
    size_t total = 0;
    while (probe.done_count == 0) {
        total += drain_raw(fds[1], got + total, RG_MIN(RG_KIB(100), size - total));
        rg_loop_pass(loop, rg_now_ns() + 5 * RG_NS_PER_MS);
    }
    RG_CHECK_EQ(probe.result, size);
    probe_close(&probe);
    ssize_t more;
    while ((more = recv(fds[1], got + total, size - total + 1, 0)) > 0) {
        total += (size_t)more;
    }
    RG_CHECK_MEM(got, total, data, size);
    close(fds[1]);
    free(data);
    free(got);
    teardown();
}

/* Makes a send block that has been started: more than any socket buffer takes. */
static uint8_t *start_blocked_send(struct probe *probe)
{
    uint8_t *data = calloc(1, RG_OP_SIZE_MAX);
    rg_op_send(loop, &probe->op, &probe->socket, data, RG_OP_SIZE_MAX);
    return data;
}

static void shrink_buffers(const int fds[2])
{
    int small = 8192;
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
}

/* Whether passes run in between decides whether the kernel has seen the op when it is cancelled. */
static void check_cancelled(struct probe *probe, int passes)
{
    for (int i = 0; i < passes; i++) {
        rg_loop_pass(loop, rg_now_ns() + 2 * RG_NS_PER_MS);
    }
    RG_CHECK_EQ(probe->done_count, 0);
    rg_op_cancel(loop, &probe->op);
    RG_CHECK_EQ(probe->done_count, 0);
    PASS_UNTIL(probe->done_count == 1);
    RG_CHECK_EQ(probe->result, -ECANCELED);
    rg_op_cancel(loop, &probe->op);
    rg_loop_pass(loop, 0);
    RG_CHECK_EQ(probe->done_count, 1);
}

static void test_receives_in_flight_can_be_cancelled(void)
{
    setup();
    for (int i = 0; i < 8; i++) {
        int fds[2];
        (i / 4 == 0 ? make_pair : make_tcp_pair)(fds);
        struct probe probe;
        probe_adopt(&probe, fds[0]);
        uint8_t into[100];
        if (i % 2 == 0) {
            probe_recv(&probe, 100);
        } else {
            rg_op_recv_into(loop, &probe.op, &probe.socket, into, sizeof(into));
        }
        check_cancelled(&probe, i % 4 / 2 * 3);
        /* The socket still works, and nothing of the cancellation is left to hit the next op. */
        probe_recv(&probe, 100);
        write_all(fds[1], "later", 5);
        PASS_UNTIL(probe.done_count == 2);
        RG_CHECK_EQ(probe.result, 5);
        probe_close(&probe);
        close(fds[1]);
    }
    teardown();
}

static void test_an_accept_in_flight_can_be_cancelled(void)
{
    setup();
    for (int passes = 0; passes < 6; passes += 3) {
        struct sockaddr_in address;
        struct probe probe;
        probe_adopt(&probe, listen_loopback(8, &address));
        rg_op_accept(loop, &probe.op, &probe.socket);
        check_cancelled(&probe, passes);
        probe_close(&probe);
    }
    teardown();
}

static void test_a_send_in_flight_can_be_cancelled(void)
{
    setup();
    for (int i = 0; i < 4; i++) {
        int fds[2];
        (i / 2 == 0 ? make_pair : make_tcp_pair)(fds);
        shrink_buffers(fds);
        struct probe probe;
        probe_adopt(&probe, fds[0]);
        uint8_t *data = start_blocked_send(&probe);
        check_cancelled(&probe, i % 2 * 3);
        free(data);
        probe_close(&probe);
        close(fds[1]);
    }
    teardown();
}

/* A listener whose queue is full, so that further connections wait for an answer. */
static int make_black_hole(struct sockaddr_in *out_address, int out_fillers[8])
{
    int listener = listen_loopback(0, out_address);
    for (int i = 0; i < 8; i++) {
        out_fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(out_fillers[i], (struct sockaddr *)out_address, sizeof(*out_address));
    }
    return listener;
}

static void start_blocked_connect(struct probe *probe, const struct sockaddr_in *address)
{
    probe_init(probe);
    RG_CHECK_EQ(rg_socket_open(loop, &probe->socket, AF_INET), 0);
    rg_op_connect(loop, &probe->op, &probe->socket, (const struct sockaddr *)address,
                  sizeof(*address));
}

static void test_a_connection_being_made_can_be_cancelled_or_shut_down(void)
{
    setup();
    struct sockaddr_in address;
    int fillers[8];
    int listener = make_black_hole(&address, fillers);
    struct probe probe;
    for (int passes = 0; passes < 6; passes += 3) {
        start_blocked_connect(&probe, &address);
        check_cancelled(&probe, passes);
        probe_close(&probe);
    }
    /* The way in which connections are closed: shut down, then cancel. */
    start_blocked_connect(&probe, &address);
    rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_MS);
    rg_socket_shutdown(loop, &probe.socket);
    rg_op_cancel(loop, &probe.op);
    PASS_UNTIL(probe.done_count == 1);
    RG_CHECK(probe.result < 0);
    probe_close(&probe);
    for (int i = 0; i < 8; i++) {
        close(fillers[i]);
    }
    close(listener);
    teardown();
}

static void test_an_op_that_is_ready_but_would_block_can_be_cancelled(void)
{
    setup();
    int full[2], first[2], second[2];
    make_pair(first);
    make_pair(second);
    make_tcp_pair(full);
    struct probe a, b;
    probe_adopt(&a, first[0]);
    probe_adopt(&b, second[0]);
    probe_recv(&a, 100);
    probe_recv(&b, 100);
    write_all(first[1], "a", 1);
    write_all(second[1], "b", 1);
    a.cancels_reader_of = &b.socket;
    /* Somebody else empties the second socket before its owner's turn. */
    rg_loop_pass(loop, 0);
    PASS_UNTIL(a.done_count == 1 && b.done_count == 1);
    RG_CHECK_EQ(a.result, 1);
    RG_CHECK(b.result == 1 || b.result == -ECANCELED);
    probe_close(&a);
    probe_close(&b);
    close(first[1]);
    close(second[1]);

    shrink_buffers(full);
    struct probe sender;
    probe_adopt(&sender, full[0]);
    uint8_t *data = start_blocked_send(&sender);
    /* The epoll backend has it on the ready list already. */
    rg_op_cancel(loop, &sender.op);
    PASS_UNTIL(sender.done_count == 1);
    RG_CHECK_EQ(sender.result, -ECANCELED);
    free(data);
    probe_close(&sender);
    close(full[1]);
    teardown();
}

static void test_shutting_down_ends_ops_in_flight(void)
{
    setup();
    for (int i = 0; i < 4; i++) {
        int fds[2];
        (i / 2 == 0 ? make_pair : make_tcp_pair)(fds);
        shrink_buffers(fds);
        struct probe reader, writer;
        probe_adopt(&reader, fds[0]);
        probe_init(&writer);
        probe_recv(&reader, 100);
        uint8_t *data = calloc(1, RG_OP_SIZE_MAX);
        rg_op_send(loop, &writer.op, &reader.socket, data, RG_OP_SIZE_MAX);
        for (int pass = 0; pass < i % 2 * 3; pass++) {
            rg_loop_pass(loop, rg_now_ns() + 2 * RG_NS_PER_MS);
        }
        RG_CHECK_EQ(reader.done_count + writer.done_count, 0);
        rg_socket_shutdown(loop, &reader.socket);
        PASS_UNTIL(reader.done_count == 1 && writer.done_count == 1);
        RG_CHECK_EQ(reader.result, 0);
        RG_CHECK_EQ(writer.result, -EPIPE);
        free(data);
        probe_close(&reader);
        close(fds[1]);
    }
    struct sockaddr_in address;
    struct probe listener;
    probe_adopt(&listener, listen_loopback(1, &address));
    rg_op_accept(loop, &listener.op, &listener.socket);
    rg_loop_pass(loop, 0);
    rg_socket_shutdown(loop, &listener.socket);
    PASS_UNTIL(listener.done_count == 1);
    RG_CHECK_EQ(listener.result, -EINVAL);
    probe_close(&listener);
    teardown();
}

static void test_a_reset_by_the_peer_is_told(void)
{
    setup();
    for (int before = 0; before < 2; before++) {
        int fds[2];
        make_tcp_pair(fds);
        struct probe probe;
        if (before == 1) {
            close_reset(fds[1]);
        }
        probe_adopt(&probe, fds[0]);
        probe_recv(&probe, 100);
        if (before == 0) {
            rg_loop_pass(loop, 0);
            close_reset(fds[1]);
        }
        PASS_UNTIL(probe.done_count == 1);
        RG_CHECK_EQ(probe.result, -ECONNRESET);
        rg_op_send(loop, &probe.op, &probe.socket, "x", 1);
        PASS_UNTIL(probe.done_count == 2);
        RG_CHECK_EQ(probe.result, -EPIPE);
        probe_close(&probe);
    }
    teardown();
}

static void test_a_blocked_send_ends_when_the_peer_goes_away(void)
{
    setup();
    for (int i = 0; i < 2; i++) {
        int fds[2];
        (i == 0 ? make_pair : make_tcp_pair)(fds);
        shrink_buffers(fds);
        struct probe probe;
        probe_adopt(&probe, fds[0]);
        uint8_t *data = start_blocked_send(&probe);
        rg_loop_pass(loop, rg_now_ns() + 2 * RG_NS_PER_MS);
        rg_loop_pass(loop, rg_now_ns() + 2 * RG_NS_PER_MS);
        RG_CHECK_EQ(probe.done_count, 0);
        close(fds[1]);
        PASS_UNTIL(probe.done_count == 1);
        RG_CHECK(probe.result == -EPIPE || probe.result == -ECONNRESET);
        free(data);
        probe_close(&probe);
    }
    teardown();
}

static void test_closing_by_reset_reaches_the_peer_as_one(void)
{
    setup();
    for (int reset = 0; reset < 2; reset++) {
        int fds[2];
        make_tcp_pair(fds);
        struct probe probe;
        probe_adopt(&probe, fds[0]);
        rg_socket_close(loop, &probe.socket, reset == 1);
        char byte;
        ssize_t got = recv(fds[1], &byte, 1, 0);
        RG_CHECK_EQ(got < 0 ? -errno : got, reset == 1 ? -ECONNRESET : 0);
        close(fds[1]);
    }
    teardown();
}

/* `sizes` of receives against 1000 bytes and an end that were there before the socket was adopted,
 * or before the op was started: the one edge that tells of both is not told twice. */
static void check_data_and_end(size_t size_max, bool adopt_first, bool tcp)
{
    int fds[2];
    (tcp ? make_tcp_pair : make_pair)(fds);
    struct probe probe;
    uint8_t data[1000], got[1000];
    fill_random(data, sizeof(data));
    if (adopt_first) {
        probe_adopt(&probe, fds[0]);
        rg_loop_pass(loop, 0);
    }
    write_all(fds[1], data, sizeof(data));
    close(fds[1]);
    if (adopt_first) {
        rg_loop_pass(loop, 0);
    } else {
        probe_adopt(&probe, fds[0]);
    }
    probe.sink = got;
    while (probe.received < sizeof(data)) {
        unsigned before = probe.done_count;
        probe_recv(&probe, size_max);
        PASS_UNTIL(probe.done_count > before);
        RG_CHECK(probe.result > 0);
    }
    RG_CHECK_MEM(got, probe.received, data, sizeof(data));
    for (int i = 0; i < 2; i++) {
        unsigned before = probe.done_count;
        probe_recv(&probe, size_max);
        PASS_UNTIL(probe.done_count > before);
        RG_CHECK_EQ(probe.result, 0);
    }
    probe_close(&probe);
}

static void test_an_end_that_comes_with_data_is_told_after_it(void)
{
    static const size_t sizes[] = {1, 999, 1000, 1001, RG_RECV_SIZE_MAX};
    setup();
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        for (int shape = 0; shape < 4; shape++) {
            check_data_and_end(sizes[i], shape % 2 == 0, shape / 2 == 0);
        }
    }
    teardown();
}

static void test_data_and_end_between_a_short_receive_and_the_next(void)
{
    setup();
    int fds[2];
    make_tcp_pair(fds);
    struct probe probe;
    probe_adopt(&probe, fds[0]);
    probe_recv(&probe, 100);
    write_all(fds[1], "one", 3);
    PASS_UNTIL(probe.done_count == 1);
    RG_CHECK_EQ(probe.result, 3);
    write_all(fds[1], "three", 5);
    close(fds[1]);
    probe_recv(&probe, 100);
    PASS_UNTIL(probe.done_count == 2);
    RG_CHECK_EQ(probe.result, 5);
    probe_recv(&probe, 100);
    PASS_UNTIL(probe.done_count == 3);
    RG_CHECK_EQ(probe.result, 0);
    probe_close(&probe);
    teardown();
}

static void test_a_half_closed_peer_does_not_make_a_blocked_send_spin(void)
{
    setup();
    int fds[2];
    make_tcp_pair(fds);
    shrink_buffers(fds);
    struct probe probe;
    probe_adopt(&probe, fds[0]);
    RG_CHECK_EQ(shutdown(fds[1], SHUT_WR), 0);
    uint8_t *data = start_blocked_send(&probe);
    uint64_t begin_ns = rg_now_ns();
    unsigned passes = 0;
    while (rg_now_ns() < begin_ns + 100 * RG_NS_PER_MS) {
        rg_loop_pass(loop, begin_ns + 100 * RG_NS_PER_MS);
        passes++;
    }
    RG_CHECK(passes < 30);
    RG_CHECK_EQ(probe.done_count, 0);
    uint8_t *sink = malloc(RG_OP_SIZE_MAX);
    size_t total = 0;
    while (probe.done_count == 0) {
        total += drain_raw(fds[1], sink, RG_OP_SIZE_MAX);
        rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_MS);
    }
    RG_CHECK_EQ(probe.result, RG_OP_SIZE_MAX);
    RG_CHECK(total > 0);
    free(sink);
    free(data);
    probe_close(&probe);
    close(fds[1]);
    teardown();
}

static void test_many_sockets_become_ready_at_once(void)
{
    enum { COUNT = 100, SIZE = 3000, ROUNDS = 3 };
    setup();
    static struct probe probes[COUNT];
    int peers[COUNT];
    uint8_t data[SIZE], got[SIZE];
    for (int i = 0; i < COUNT; i++) {
        int fds[2];
        make_pair(fds);
        probe_adopt(&probes[i], fds[0]);
        peers[i] = fds[1];
    }
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) {
            probe_recv(&probes[i], RG_RECV_SIZE_MAX);
            probes[i].sink = got;
        }
        rg_loop_pass(loop, 0);
        for (int i = 0; i < COUNT; i++) {
            memset(data, i, SIZE);
            write_all(peers[i], data, SIZE);
        }
        for (int i = 0; i < COUNT; i++) {
            probes[i].received = 0;
            PASS_UNTIL(probes[i].done_count == round);
            RG_CHECK_EQ(probes[i].result, SIZE);
        }
    }
    RG_CHECK_EQ(rg_metric_load(&loop->metrics.recv_bytes), COUNT * SIZE * ROUNDS);
    for (int i = 0; i < COUNT; i++) {
        probe_close(&probes[i]);
        close(peers[i]);
    }
    teardown();
}

static void test_sockets_that_share_a_buffer_get_their_own_bytes(void)
{
    enum { COUNT = 64, SIZE = 5000 };
    setup();
    static struct probe probes[COUNT];
    int peers[COUNT];
    uint8_t data[SIZE];
    static uint8_t got[COUNT][SIZE];
    for (int i = 0; i < COUNT; i++) {
        int fds[2];
        make_tcp_pair(fds);
        probe_adopt(&probes[i], fds[0]);
        probes[i].sink = got[i];
        peers[i] = fds[1];
        memset(data, 'A' + i, SIZE);
        write_all(peers[i], data, SIZE);
        probe_recv(&probes[i], RG_RECV_SIZE_MAX);
    }
    for (int i = 0; i < COUNT; i++) {
        PASS_UNTIL(probes[i].done_count == 1);
        memset(data, 'A' + i, SIZE);
        RG_CHECK_MEM(got[i], probes[i].received, data, SIZE);
        probe_close(&probes[i]);
        close(peers[i]);
    }
    teardown();
}

static void test_an_owner_has_so_many_turns_in_a_pass(void)
{
    enum { SIZE = 100 };
    setup();
    struct probe probes[2];
    int peers[2];
    uint8_t data[SIZE] = {0};
    for (int i = 0; i < 2; i++) {
        int fds[2];
        make_pair(fds);
        probe_adopt(&probes[i], fds[0]);
        probes[i].again = 1;
        peers[i] = fds[1];
        write_all(peers[i], data, SIZE);
        probe_recv(&probes[i], 1);
    }
    bool several = false;
    while (probes[0].received < SIZE || probes[1].received < SIZE) {
        unsigned before[2] = {probes[0].done_count, probes[1].done_count};
        rg_loop_pass(loop, 0);
        for (int i = 0; i < 2; i++) {
            unsigned turns = probes[i].done_count - before[i];
            /* Ready ops are run twice in a pass: as it begins, and as it ends. */
            RG_CHECK(turns <= 2 * RG_LOOP_TURNS_MAX);
            several |= turns > 2;
        }
    }
    RG_CHECK(several);
    for (int i = 0; i < 2; i++) {
        close(peers[i]);
        PASS_UNTIL(probes[i].result == 0);
        probe_close(&probes[i]);
    }
    teardown();
}

static void test_too_few_descriptors_are_an_error_of_open(void)
{
    setup();
    struct rlimit before, now;
    RG_CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = 0;
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
    struct rg_socket socket;
    int rc = rg_socket_open(loop, &socket, AF_INET);
    RG_CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    RG_CHECK_EQ(rc, -EMFILE);
    RG_CHECK_EQ(socket.fd, -1);
    rg_socket_shutdown(loop, &socket);
    rg_socket_close(loop, &socket, true);
    teardown();
}

struct alarm_probe {
    struct rg_alarm alarm;
    uint64_t fired_ns;
    unsigned count, again, place; /* place: how many of all alarms had fired before */
};
static unsigned alarms_fired;

static void alarm_fire(struct rg_alarm *alarm)
{
    struct alarm_probe *probe = RG_CONTAINER_OF(alarm, struct alarm_probe, alarm);
    probe->fired_ns = loop->now_ns;
    probe->place = alarms_fired++;
    probe->count++;
    if (probe->again > 0) {
        probe->again--;
        rg_loop_set_alarm(loop, alarm, loop->now_ns + 5 * RG_NS_PER_MS);
    }
}

static void test_alarms_fire_in_order_and_not_early(void)
{
    setup();
    static const uint64_t delays_ms[] = {40, 10, 25};
    struct alarm_probe probes[3] = {0}, cancelled = {0};
    uint64_t begin_ns = rg_now_ns();
    for (int i = 0; i < 3; i++) {
        rg_alarm_init(&probes[i].alarm, alarm_fire);
        rg_loop_set_alarm(loop, &probes[i].alarm, begin_ns + delays_ms[i] * RG_NS_PER_MS);
    }
    rg_alarm_init(&cancelled.alarm, alarm_fire);
    rg_loop_set_alarm(loop, &cancelled.alarm, begin_ns + 15 * RG_NS_PER_MS);
    rg_loop_cancel_alarm(loop, &cancelled.alarm);
    /* The loop wakes by itself for each: no deadline is given. */
    while (probes[0].count == 0) {
        rg_loop_pass(loop, UINT64_MAX);
    }
    for (int i = 0; i < 3; i++) {
        RG_CHECK_EQ(probes[i].count, 1);
        RG_CHECK(probes[i].fired_ns >= begin_ns + delays_ms[i] * RG_NS_PER_MS);
    }
    RG_CHECK(probes[1].place < probes[2].place && probes[2].place < probes[0].place);
    RG_CHECK_EQ(cancelled.count, 0);
    teardown();
}

static void test_an_alarm_may_be_set_again_while_it_fires(void)
{
    setup();
    struct alarm_probe probe = {.again = 4};
    rg_alarm_init(&probe.alarm, alarm_fire);
    uint64_t begin_ns = rg_now_ns();
    rg_loop_set_alarm(loop, &probe.alarm, begin_ns + 5 * RG_NS_PER_MS);
    while (probe.count < 5) {
        rg_loop_pass(loop, UINT64_MAX);
    }
    RG_CHECK(rg_now_ns() - begin_ns >= 25 * RG_NS_PER_MS);
    rg_loop_pass(loop, rg_now_ns() + 20 * RG_NS_PER_MS);
    RG_CHECK_EQ(probe.count, 5);
    teardown();
}

static void test_an_idle_pass_ends_at_its_deadline(void)
{
    setup();
    rg_loop_pass(loop, 0);
    uint64_t deadline_ns = rg_now_ns() + 30 * RG_NS_PER_MS;
    rg_loop_pass(loop, deadline_ns);
    RG_CHECK(rg_now_ns() >= deadline_ns);
    uint64_t past_ns = rg_now_ns() - RG_NS_PER_S;
    rg_loop_pass(loop, past_ns);
    RG_CHECK(rg_now_ns() < past_ns + RG_NS_PER_S + 10 * RG_NS_PER_S);
    teardown();
}

struct task_probe {
    struct rg_task task;
    unsigned count;
    unsigned again;
    struct rg_task *undefers;
};

static void task_run(struct rg_task *task)
{
    struct task_probe *probe = RG_CONTAINER_OF(task, struct task_probe, task);
    probe->count++;
    if (probe->undefers != NULL) {
        rg_loop_undefer(probe->undefers);
    }
    if (probe->again > 0) {
        probe->again--;
        rg_loop_defer(loop, task);
    }
}

static void test_tasks_deferred_by_tasks_run_in_the_next_pass(void)
{
    setup();
    struct task_probe again = {.task.run = task_run, .again = 3};
    struct task_probe never = {.task.run = task_run};
    struct task_probe undefers = {.task.run = task_run, .undefers = &never.task};
    rg_loop_defer(loop, &again.task);
    rg_loop_defer(loop, &again.task);
    rg_loop_defer(loop, &undefers.task);
    rg_loop_defer(loop, &never.task);
    for (unsigned pass = 1; pass <= 4; pass++) {
        /* Not a second of waiting: a loop with tasks is busy. */
        rg_loop_pass(loop, rg_now_ns() + PATIENCE_NS);
        RG_CHECK_EQ(again.count, pass);
    }
    RG_CHECK_EQ(undefers.count, 1);
    RG_CHECK_EQ(never.count, 0);
    rg_loop_undefer(&never.task);
    teardown();
}

enum { POSTERS = 4, POSTS = 5000 };

struct post {
    struct rg_mail mail;
    unsigned poster, number;
};

static struct post posts[POSTERS][POSTS];
static unsigned post_next[POSTERS];
static bool post_order_broken;

static void post_run(struct rg_mail *mail)
{
    struct post *post = RG_CONTAINER_OF(mail, struct post, mail);
    post_order_broken |= post->number != post_next[post->poster];
    post_next[post->poster] = post->number + 1;
}

static void *poster_thread(void *context)
{
    struct post *mine = context;
    for (unsigned i = 0; i < POSTS; i++) {
        mine[i].mail.run = post_run;
        mine[i].number = i;
        if (i % 64 == 0) {
            sched_yield();
        }
        rg_loop_post(loop, &mine[i].mail);
    }
    return NULL;
}

static void read_posts(void *context)
{
    unsigned *total = context;
    *total = 0;
    for (int i = 0; i < POSTERS; i++) {
        *total += post_next[i];
    }
}

static void test_mail_of_many_threads_arrives_in_each_ones_order(void)
{
    setup_with_memory(0);
    memset(post_next, 0, sizeof(post_next));
    post_order_broken = false;
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    pthread_t threads[POSTERS];
    for (unsigned i = 0; i < POSTERS; i++) {
        for (unsigned k = 0; k < POSTS; k++) {
            posts[i][k].poster = i;
        }
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, poster_thread, posts[i]), 0);
    }
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(threads[i], NULL);
    }
    unsigned total;
    rg_loop_call(loop, read_posts, &total);
    RG_CHECK_EQ(total, POSTERS * POSTS);
    rg_loop_stop(loop);
    RG_CHECK(!post_order_broken);
    teardown();
}

struct call_probe {
    pthread_t thread;
    unsigned count;
};

static void call_function(void *context)
{
    struct call_probe *probe = context;
    probe->thread = pthread_self();
    probe->count++;
}

static void test_calls_run_on_the_loops_thread_and_are_waited_for(void)
{
    setup_with_memory(0);
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    struct call_probe probe = {0};
    for (unsigned i = 1; i <= 200; i++) {
        rg_loop_call(loop, call_function, &probe);
        RG_CHECK_EQ(probe.count, i);
    }
    RG_CHECK(!pthread_equal(probe.thread, pthread_self()));
    rg_loop_stop(loop);
    rg_loop_stop(loop);
    teardown();
}

static void *wake_thread(void *context)
{
    rg_test_await_asleep(*(pid_t *)context);
    rg_loop_wake(loop);
    return NULL;
}

static void test_another_thread_wakes_a_sleeping_loop(void)
{
    setup();
    rg_loop_pass(loop, 0);
    pid_t self = gettid();
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        uint64_t begin_ns = rg_now_ns();
        RG_CHECK_EQ(pthread_create(&thread, NULL, wake_thread, &self), 0);
        rg_loop_pass(loop, begin_ns + PATIENCE_NS);
        RG_CHECK(rg_now_ns() < begin_ns + PATIENCE_NS / 2);
        pthread_join(thread, NULL);
    }
    teardown();
}

enum { SLABS = 64, SLAB_SIZE = 128 * 1024 };

static struct {
    struct rg_task waiter;
    struct rg_lease *leases[SLABS], *late;
    unsigned count, tries;
} slabs;

static void slab_waiter_run(struct rg_task *task)
{
    slabs.tries++;
    slabs.late = rg_loop_take_slab(loop, SLAB_SIZE, task);
}

static void take_all_slabs(void *context)
{
    RG_ASSERT(context == NULL);
    while (slabs.late == NULL) {
        struct rg_lease *lease = rg_loop_take_slab(loop, SLAB_SIZE, NULL);
        if (lease == NULL) {
            break;
        }
        RG_ASSERT(slabs.count < SLABS);
        slabs.leases[slabs.count++] = lease;
    }
    slabs.waiter.run = slab_waiter_run;
    struct rg_lease *lease = rg_loop_take_slab(loop, SLAB_SIZE, &slabs.waiter);
    RG_ASSERT(lease == NULL);
}

static void read_late(void *context)
{
    *(struct rg_lease **)context = slabs.late;
}

static void test_who_waits_for_a_slab_gets_one_that_another_thread_released(void)
{
    memset(&slabs, 0, sizeof(slabs));
    setup_with_memory(RG_MIB(4));
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    rg_loop_call(loop, take_all_slabs, NULL);
    RG_CHECK(slabs.count > 0);
    rg_test_loop_turn(loop);
    struct rg_lease *late = NULL;
    rg_loop_call(loop, read_late, &late);
    RG_CHECK(late == NULL);
    rg_lease_release(slabs.leases[0]);
    RG_AWAIT((rg_loop_call(loop, read_late, &late), late != NULL));
    RG_CHECK(late->capacity >= SLAB_SIZE);
    rg_loop_stop(loop);
    RG_CHECK_EQ(slabs.tries, 1);
    RG_CHECK_EQ(rg_metric_load(&loop->metrics.slab_starved), 1);
    rg_lease_release(late);
    for (unsigned i = 1; i < slabs.count; i++) {
        rg_lease_release(slabs.leases[i]);
    }
    teardown();
}

static void start_idle_ops(void *context)
{
    struct probe *probes = context;
    static uint8_t into[4096];
    probe_recv(&probes[0], 100);
    rg_op_accept(loop, &probes[1].op, &probes[1].socket);
    rg_op_recv_into(loop, &probes[2].op, &probes[2].socket, into, sizeof(into));
}

static void test_a_loop_can_stop_with_ops_in_flight(void)
{
    setup_with_memory(0);
    RG_CHECK_EQ(rg_loop_start(loop), 0);
    int a[2], b[2];
    make_pair(a);
    make_tcp_pair(b);
    struct sockaddr_in address;
    static struct probe probes[3];
    probe_adopt(&probes[0], a[0]);
    probe_adopt(&probes[1], listen_loopback(1, &address));
    probe_adopt(&probes[2], b[0]);
    rg_loop_call(loop, start_idle_ops, probes);
    rg_test_loop_turn(loop);
    rg_loop_stop(loop);
    teardown();
    RG_CHECK_EQ(probes[0].done_count + probes[1].done_count + probes[2].done_count, 0);
    for (int i = 0; i < 3; i++) {
        close(probes[i].socket.fd);
    }
    close(a[1]);
    close(b[1]);
}

static void take_completions(struct rg_cq *cq, uint32_t count)
{
    uint64_t expected = 0;
    while (expected < count) {
        struct rg_completion taken[50];
        int got = rg_cq_wait(cq, taken, 50, 1, rg_now_ns() + PATIENCE_NS);
        RG_CHECK(got > 0);
        for (int i = 0; i < got; i++) {
            RG_CHECK_EQ(taken[i].user_data, expected++);
        }
    }
}

static void test_completions_of_a_pass_arrive_in_order(void)
{
    enum { COUNT = 2 * RG_LOOP_COMPLETIONS_MAX + 7 };
    struct rg_runtime *runtime;
    struct rg_cq *first, *second;
    RG_CHECK_EQ(rg_runtime_open(&runtime, NULL), 0);
    RG_CHECK_EQ(rg_cq_open(&first, runtime, 1024), 0);
    RG_CHECK_EQ(rg_cq_open(&second, runtime, 1024), 0);
    setup();
    RG_CHECK_EQ(rg_cq_reserve(first, COUNT), COUNT);
    RG_CHECK_EQ(rg_cq_reserve(second, COUNT), COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        const struct rg_completion record = {.user_data = i};
        rg_loop_complete(loop, i % 3 == 0 ? first : second, &record);
        rg_loop_complete(loop, i % 3 == 0 ? second : first, &record);
    }
    rg_loop_pass(loop, 0);
    take_completions(first, COUNT);
    take_completions(second, COUNT);
    teardown();
    rg_cq_close(first);
    rg_cq_close(second);
    rg_runtime_close(runtime);
}

#define TESTS(XX)                                                                                  \
    XX(test_bytes_of_random_sizes_go_there_and_back)                                               \
    XX(test_connecting_where_nobody_listens_is_refused)                                            \
    XX(test_connections_are_accepted_one_per_op)                                                   \
    XX(test_a_send_larger_than_the_socket_buffer_is_one_op)                                        \
    XX(test_receives_in_flight_can_be_cancelled)                                                   \
    XX(test_an_accept_in_flight_can_be_cancelled)                                                  \
    XX(test_a_send_in_flight_can_be_cancelled)                                                     \
    XX(test_a_connection_being_made_can_be_cancelled_or_shut_down)                                 \
    XX(test_an_op_that_is_ready_but_would_block_can_be_cancelled)                                  \
    XX(test_shutting_down_ends_ops_in_flight)                                                      \
    XX(test_a_reset_by_the_peer_is_told)                                                           \
    XX(test_a_blocked_send_ends_when_the_peer_goes_away)                                           \
    XX(test_closing_by_reset_reaches_the_peer_as_one)                                              \
    XX(test_an_end_that_comes_with_data_is_told_after_it)                                          \
    XX(test_data_and_end_between_a_short_receive_and_the_next)                                     \
    XX(test_a_half_closed_peer_does_not_make_a_blocked_send_spin)                                  \
    XX(test_many_sockets_become_ready_at_once)                                                     \
    XX(test_sockets_that_share_a_buffer_get_their_own_bytes)                                       \
    XX(test_an_owner_has_so_many_turns_in_a_pass)                                                  \
    XX(test_too_few_descriptors_are_an_error_of_open)                                              \
    XX(test_alarms_fire_in_order_and_not_early)                                                    \
    XX(test_an_alarm_may_be_set_again_while_it_fires)                                              \
    XX(test_an_idle_pass_ends_at_its_deadline)                                                     \
    XX(test_tasks_deferred_by_tasks_run_in_the_next_pass)                                          \
    XX(test_mail_of_many_threads_arrives_in_each_ones_order)                                       \
    XX(test_calls_run_on_the_loops_thread_and_are_waited_for)                                      \
    XX(test_another_thread_wakes_a_sleeping_loop)                                                  \
    XX(test_who_waits_for_a_slab_gets_one_that_another_thread_released)                            \
    XX(test_a_loop_can_stop_with_ops_in_flight)                                                    \
    XX(test_completions_of_a_pass_arrive_in_order)

static void use_epoll(void)
{
    backend = &rg_epoll_backend;
}

static void use_uring(void)
{
    const char *reason;
    if (rg_uring_probe(&reason) < 0) {
        rg_test_skip("%s", reason);
    }
    backend = &rg_uring_backend;
}

#define XX(name)                                                                                   \
    static void name##_epoll(void)                                                                 \
    {                                                                                              \
        use_epoll();                                                                               \
        name();                                                                                    \
    }                                                                                              \
    static void name##_uring(void)                                                                 \
    {                                                                                              \
        use_uring();                                                                               \
        name();                                                                                    \
    }
TESTS(XX)
#undef XX

int main(int argc, char **argv)
{
#define XX(name) RG_TEST(name##_epoll),
    static const struct rg_test epoll_tests[] = {TESTS(XX)};
#undef XX
#define XX(name) RG_TEST(name##_uring),
    static const struct rg_test uring_tests[] = {TESTS(XX)};
#undef XX
    enum { COUNT = RG_ARRAY_LEN(epoll_tests) };
    struct rg_test tests[2 * COUNT];
    const char *wanted = getenv("RINGEST_BACKEND");
    size_t count = 0;
    if (wanted == NULL || strcmp(wanted, "epoll") == 0) {
        memcpy(tests, epoll_tests, sizeof(epoll_tests));
        count = COUNT;
    }
    if (wanted == NULL || strcmp(wanted, "uring") == 0) {
        memcpy(tests + count, uring_tests, sizeof(uring_tests));
        count += COUNT;
    }
    return rg_test_main(argc, argv, tests, count);
}
