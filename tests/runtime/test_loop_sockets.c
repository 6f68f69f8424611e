/* Ops on real sockets, through the event loop and both of its real backends. */
#include "tests/runtime/loop_case.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>

/* Closes by RST. */
static void close_reset(int fd)
{
    struct linger linger = {.l_onoff = 1};
    RG_CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    close(fd);
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

/* A loop that lingers hands over first what others wait for, and what it would only wait for
 * itself later: none of it is lost. */
static void test_what_was_started_before_a_sleep_is_done(void)
{
    setup();
    struct sockaddr_in address;
    int listener = listen_loopback(1, &address);
    struct probe client, server;
    probe_init(&client);
    RG_CHECK_EQ(rg_socket_open(loop, &client.socket, AF_INET), 0);
    rg_op_connect(loop, &client.op, &client.socket, (struct sockaddr *)&address, sizeof(address));
    loop->backend->flush(loop->backend_self);
    /* It is being made while the loop does nothing. */
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    RG_CHECK(fd >= 0);
    PASS_UNTIL(client.done_count == 1);
    RG_CHECK_EQ(client.result, 0);

    probe_recv(&client, 16);
    loop->backend->flush(loop->backend_self);
    RG_CHECK_EQ(send(fd, "hello", 5, 0), 5);
    PASS_UNTIL(client.done_count == 2);
    RG_CHECK_EQ(client.result, 5);

    /* A wait that is given up before it began. */
    probe_recv(&client, 16);
    rg_op_cancel(loop, &client.op);
    loop->backend->flush(loop->backend_self);
    PASS_UNTIL(client.done_count == 3);
    RG_CHECK_EQ(client.result, -ECANCELED);
    probe_adopt(&server, fd);
    transfer(&client, &server, (const uint8_t *)"hello", 5);
    probe_close(&client);
    probe_close(&server);
    close(listener);
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

struct later {
    int fd;
    size_t size;
};

/* Long enough for a loop to fall asleep. */
static void *write_later(void *context)
{
    static const uint8_t data[64];
    const struct later *later = context;
    const struct timespec pause = rg_timespec_from_ns(10 * RG_NS_PER_MS);
    (void)nanosleep(&pause, NULL);
    write_all(later->fd, data, later->size);
    return NULL;
}

/* What comes at once while a loop sleeps is one pass: with each more, whoever takes completions
 * would be woken once more. One write makes all descriptors of a socket readable. Whether the loop
 * wakes before all have been told is chance, so it is tried again. */
static void test_what_comes_at_once_in_a_sleep_is_one_pass(void)
{
    enum { COUNT = 8, TRIES = 50 };
    setup();
    int fds[2];
    make_pair(fds);
    struct probe probes[COUNT];
    for (int i = 0; i < COUNT; i++) {
        probe_adopt(&probes[i], i == 0 ? fds[0] : fcntl(fds[0], F_DUPFD_CLOEXEC, 0));
    }
    struct later later = {.fd = fds[1], .size = COUNT};
    unsigned best = 0, total = 0;
    for (int try = 0; try < TRIES && best < COUNT; try++) {
        for (int i = 0; i < COUNT; i++) {
            probe_recv(&probes[i], 1);
        }
        pthread_t thread;
        RG_CHECK_EQ(pthread_create(&thread, NULL, write_later, &later), 0);
        unsigned end = total + COUNT;
        while (total < end) {
            unsigned before = total;
            rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_S);
            total = 0;
            for (int i = 0; i < COUNT; i++) {
                total += probes[i].done_count;
            }
            best = RG_MAX(best, total - before);
        }
        pthread_join(thread, NULL);
    }
    RG_CHECK_EQ(best, COUNT);
    for (int i = 0; i < COUNT; i++) {
        probe_close(&probes[i]);
    }
    close(fds[1]);
    teardown();
}

/* Starting a send makes no system call: what starts many would find its code and memory in the
 * cache no more. */
static void test_a_send_is_made_when_its_turn_comes(void)
{
    setup();
    int fds[2];
    make_pair(fds);
    struct probe probe;
    probe_adopt(&probe, fds[0]);
    char got[8];
    rg_op_send(loop, &probe.op, &probe.socket, "hello", 5);
    RG_CHECK_EQ(recv(fds[1], got, sizeof(got), MSG_DONTWAIT), -1);
    RG_CHECK_EQ(probe.done_count, 0);
    rg_loop_pass(loop, 0);
    RG_CHECK_EQ(recv(fds[1], got, sizeof(got), MSG_DONTWAIT), 5);
    RG_CHECK_EQ(probe.done_count, 1);
    RG_CHECK_EQ(probe.result, 5);
    probe_close(&probe);
    close(fds[1]);
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

#define TESTS(XX)                                                                                  \
    XX(test_bytes_of_random_sizes_go_there_and_back)                                               \
    XX(test_connecting_where_nobody_listens_is_refused)                                            \
    XX(test_connections_are_accepted_one_per_op)                                                   \
    XX(test_what_was_started_before_a_sleep_is_done)                                               \
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
    XX(test_a_half_closed_peer_does_not_make_a_blocked_send_spin)                                  \
    XX(test_many_sockets_become_ready_at_once)                                                     \
    XX(test_what_comes_at_once_in_a_sleep_is_one_pass)                                             \
    XX(test_a_send_is_made_when_its_turn_comes)                                                    \
    XX(test_sockets_that_share_a_buffer_get_their_own_bytes)                                       \
    XX(test_an_owner_has_so_many_turns_in_a_pass)                                                  \
    XX(test_too_few_descriptors_are_an_error_of_open)

TESTS(LOOP_CASE)

int main(int argc, char **argv)
{
    static const struct rg_test epoll_tests[] = {TESTS(LOOP_CASE_EPOLL)};
    static const struct rg_test uring_tests[] = {TESTS(LOOP_CASE_URING)};
    return loop_case_main(argc, argv, epoll_tests, uring_tests, RG_ARRAY_LEN(epoll_tests));
}
