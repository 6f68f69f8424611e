/* A ring that works and then fails: its loop goes on by epoll, and whatever is in flight ends,
 * once, as it would have. The linker puts functions of this file in the place of liburing's, and
 * they say that the kernel refuses; at the end a filter makes it refuse indeed. */
#include "runtime/clock.h"
#include "runtime/uring.h"
#include "tests/runtime/tcp_pair.h"
#include "tests/support/exchange.h"
#include "tests/support/seccomp.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#include "runtime/runtime.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* What entering the ring gives, instead of (or with `done`, after) doing it; 0: as it is. */
static struct {
    _Atomic int error;
    _Atomic bool done;
    _Atomic unsigned count; /* how often it was given */
    _Atomic int rings_left; /* that can be made; negative: any number */
    _Atomic bool cold;      /* nothing is in the page cache */
} fault = {.rings_left = -1};

#define WRAP_ENTER(name, parameters, arguments)                                                    \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        int error = fault.error;                                                                   \
        if (error == 0) {                                                                          \
            return __real_##name arguments;                                                        \
        }                                                                                          \
        if (fault.done) {                                                                          \
            (void)__real_##name arguments;                                                         \
        }                                                                                          \
        fault.count++;                                                                             \
        return -error;                                                                             \
    }

WRAP_ENTER(io_uring_submit, (struct io_uring * ring), (ring))
WRAP_ENTER(io_uring_submit_and_get_events, (struct io_uring * ring), (ring))
WRAP_ENTER(io_uring_enter2,
           (unsigned fd, unsigned submit, unsigned count, unsigned flags, sigset_t *wait,
            size_t size),
           (fd, submit, count, flags, wait, size))

int __real_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params);
int __wrap_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params);
int __wrap_io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
                                      struct io_uring_params *params)
{
    if (fault.rings_left == 0) {
        return -EPERM;
    }
    fault.rings_left -= fault.rings_left > 0;
    return __real_io_uring_queue_init_params(entries, ring, params);
}

ssize_t __real_preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *pieces, int count, off_t offset, int flags)
{
    if (fault.cold) {
        errno = EAGAIN;
        return -1;
    }
    return __real_preadv2(fd, pieces, count, offset, flags);
}

static struct rg_loop *loop;
/* Sockets are those that have brought little for a while: the ring tells of each arrival. */
static bool brings_little;

#define PASS_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t rg_end_ns = rg_now_ns() + RG_TEST_PATIENCE_NS;                                    \
        while (!(condition)) {                                                                     \
            if (rg_now_ns() > rg_end_ns) {                                                         \
                rg_test_fail(__FILE__, __LINE__, "waited in vain for %s", #condition);             \
            }                                                                                      \
            rg_loop_pass(loop, rg_now_ns() + 100 * RG_NS_PER_MS);                                  \
        }                                                                                          \
    } while (0)

/* A socket with an op in each direction, and what became of them. */
struct probe {
    struct rg_socket socket;
    struct rg_op reading, writing;
    int32_t read_result, write_result;
    unsigned read_count, write_count;
    uint8_t bytes[64];
};

static void read_done(struct rg_op *op)
{
    struct probe *probe = RG_CONTAINER_OF(op, struct probe, reading);
    probe->read_result = op->result;
    probe->read_count++;
    if (op->kind == RG_OP_RECV && op->result > 0) {
        memcpy(probe->bytes, op->data, RG_MIN((size_t)op->result, sizeof(probe->bytes)));
    }
}

static void write_done(struct rg_op *op)
{
    struct probe *probe = RG_CONTAINER_OF(op, struct probe, writing);
    probe->write_result = op->result;
    probe->write_count++;
}

static void probe_init(struct probe *probe)
{
    *probe = (struct probe){.socket.fd = -1};
    rg_op_init(&probe->reading, read_done);
    rg_op_init(&probe->writing, write_done);
}

static void probe_adopt(struct probe *probe, int fd)
{
    probe_init(probe);
    RG_CHECK_EQ(rg_socket_adopt(loop, &probe->socket, fd), 0);
    probe->socket.little = brings_little ? UINT8_MAX : 0;
}

static bool has_uring(void)
{
    const char *reason;
    return rg_uring_probe(&reason) == 0;
}

static void setup(void)
{
    if (!has_uring()) {
        rg_test_skip("io_uring is not to be had here");
    }
    const struct rg_loop_options options = {.backend = &rg_uring_backend,
                                            .placement = {.cpu = -1, .node = -1}};
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
}

static void teardown(void)
{
    fault.error = 0;
    fault.done = fault.cold = false;
    rg_loop_destroy(loop);
    loop = NULL;
}

static bool has_fallen_back(void)
{
    return atomic_load(&loop->fallback_reason) != NULL;
}

/* Hands what was started to the kernel (`entered`), or not, and then breaks the ring. */
static void ring_break(bool entered)
{
    for (int i = 0; entered && i < 3; i++) {
        rg_loop_pass(loop, 0);
    }
    fault.error = EPERM;
    rg_loop_pass(loop, 0);
    RG_CHECK(has_fallen_back());
    fault.error = 0;
}

/* Both directions work, also with more than the buffers hold. */
static void check_talks(struct probe *probe, int peer)
{
    static uint8_t data[RG_OP_SIZE_MAX], got[RG_OP_SIZE_MAX];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 131 >> 7);
    }
    unsigned before = probe->write_count;
    rg_op_send(loop, &probe->writing, &probe->socket, data, sizeof(data));
    size_t total = 0;
    while (total < sizeof(got)) {
        ssize_t part = recv(peer, got + total, sizeof(got) - total, MSG_DONTWAIT);
        total += part > 0 ? (size_t)part : 0;
        rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_MS);
    }
    PASS_UNTIL(probe->write_count > before);
    RG_CHECK_EQ(probe->write_result, sizeof(data));
    RG_CHECK_MEM(got, sizeof(got), data, sizeof(data));
    before = probe->read_count;
    rg_op_recv(loop, &probe->reading, &probe->socket, 100);
    RG_CHECK_EQ(send(peer, "answer", 6, MSG_NOSIGNAL), 6);
    PASS_UNTIL(probe->read_count > before);
    RG_CHECK_MEM(probe->bytes, (size_t)probe->read_result, "answer", 6);
}

static void test_every_way_in_which_entering_can_fail(void)
{
    static const int errors[] = {EPERM,  EACCES, ENOSYS, EINVAL,     EBADF,      EBADFD,
                                 EEXIST, EFAULT, ENXIO,  EOPNOTSUPP, EOWNERDEAD, EBADR};
    for (size_t i = 0; i < RG_ARRAY_LEN(errors); i++) {
        setup();
        int fds[2];
        struct probe probe;
        make_tcp_pair(fds);
        probe_adopt(&probe, fds[0]);
        rg_op_recv(loop, &probe.reading, &probe.socket, 100);
        rg_loop_pass(loop, 0);
        fault.error = errors[i];
        fault.done = errors[i] == EBADR;
        rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_S);
        fault.error = 0;
        RG_CHECK(has_fallen_back());
        RG_CHECK_EQ(send(fds[1], "x", 1, 0), 1);
        PASS_UNTIL(probe.read_count == 1);
        RG_CHECK_EQ(probe.read_result, 1);
        check_talks(&probe, fds[1]);
        rg_socket_close(loop, &probe.socket, false);
        close(fds[1]);
        teardown();
    }
}

static void test_what_passes_is_waited_for(void)
{
    static const int errors[] = {EINTR, EAGAIN, EBUSY, ENOMEM};
    for (size_t i = 0; i < RG_ARRAY_LEN(errors); i++) {
        setup();
        int fds[2];
        struct probe probe;
        make_tcp_pair(fds);
        probe_adopt(&probe, fds[0]);
        rg_op_recv(loop, &probe.reading, &probe.socket, 100);
        fault.error = errors[i];
        for (int n = 0; n < 20; n++) {
            rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_MS);
        }
        fault.error = 0;
        RG_CHECK(!has_fallen_back());
        RG_CHECK_EQ(send(fds[1], "x", 1, 0), 1);
        PASS_UNTIL(probe.read_count == 1);
        check_talks(&probe, fds[1]);
        RG_CHECK(!has_fallen_back());
        rg_socket_close(loop, &probe.socket, false);
        close(fds[1]);
        teardown();
    }
}

static void test_a_shortage_that_does_not_pass(void)
{
    setup();
    fault.error = EAGAIN;
    fault.count = 0;
    PASS_UNTIL(has_fallen_back());
    RG_CHECK(fault.count > 100);
    teardown();
}

static void test_receives_go_on(void)
{
    for (int entered = 0; entered < 2; entered++) {
        setup();
        int fds[2][2];
        struct probe probes[2];
        uint8_t place[16];
        for (int i = 0; i < 2; i++) {
            make_tcp_pair(fds[i]);
            probe_adopt(&probes[i], fds[i][0]);
        }
        rg_op_recv(loop, &probes[0].reading, &probes[0].socket, 100);
        rg_op_recv_into(loop, &probes[1].reading, &probes[1].socket, place, sizeof(place));
        ring_break(entered);
        for (int i = 0; i < 2; i++) {
            RG_CHECK_EQ(probes[i].read_count, 0);
            RG_CHECK_EQ(send(fds[i][1], "hello", 5, 0), 5);
            PASS_UNTIL(probes[i].read_count == 1);
            RG_CHECK_EQ(probes[i].read_result, 5);
        }
        RG_CHECK_MEM(probes[0].bytes, 5, "hello", 5);
        RG_CHECK_MEM(place, 5, "hello", 5);
        for (int i = 0; i < 2; i++) {
            check_talks(&probes[i], fds[i][1]);
            rg_socket_close(loop, &probes[i].socket, false);
            close(fds[i][1]);
        }
        teardown();
    }
}

static void test_bytes_that_were_there_before_are_received(void)
{
    setup();
    int fds[2];
    struct probe probe;
    make_tcp_pair(fds);
    probe_adopt(&probe, fds[0]);
    RG_CHECK_EQ(send(fds[1], "early", 5, 0), 5);
    ring_break(true);
    rg_op_recv(loop, &probe.reading, &probe.socket, 100);
    PASS_UNTIL(probe.read_count == 1);
    RG_CHECK_MEM(probe.bytes, (size_t)probe.read_result, "early", 5);
    /* The end of the peer, too. */
    shutdown(fds[1], SHUT_WR);
    rg_op_recv(loop, &probe.reading, &probe.socket, 100);
    PASS_UNTIL(probe.read_count == 2);
    RG_CHECK_EQ(probe.read_result, 0);
    rg_socket_close(loop, &probe.socket, false);
    close(fds[1]);
    teardown();
}

static void test_accepting_goes_on(void)
{
    for (int entered = 0; entered < 2; entered++) {
        setup();
        struct sockaddr_in address;
        struct probe listener, client, server;
        probe_adopt(&listener, listen_loopback(4, &address));
        rg_op_accept(loop, &listener.reading, &listener.socket);
        ring_break(entered);
        probe_init(&client);
        RG_CHECK_EQ(rg_socket_open(loop, &client.socket, AF_INET), 0);
        rg_op_connect(loop, &client.writing, &client.socket, (struct sockaddr *)&address,
                      sizeof(address));
        PASS_UNTIL(listener.read_count == 1 && client.write_count == 1);
        RG_CHECK(listener.read_result >= 0);
        RG_CHECK_EQ(client.write_result, 0);
        probe_adopt(&server, listener.read_result);
        check_talks(&server, client.socket.fd);
        rg_socket_close(loop, &server.socket, false);
        rg_socket_close(loop, &client.socket, false);
        rg_socket_close(loop, &listener.socket, false);
        teardown();
    }
}

/* One that is refused, one that is made, and one that is under way: its listener's queue is full.
 */
static void test_connecting_goes_on(void)
{
    for (int entered = 0; entered < 2; entered++) {
        setup();
        struct sockaddr_in address, full, closed;
        int listener = listen_loopback(4, &address), narrow = listen_loopback(0, &full);
        int nobody = listen_loopback(0, &closed);
        close(nobody);
        int filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        RG_CHECK_EQ(connect(filler, (struct sockaddr *)&full, sizeof(full)), 0);
        const struct sockaddr_in *targets[] = {&closed, &address, &full};
        struct probe probes[3];
        for (int i = 0; i < 3; i++) {
            probe_init(&probes[i]);
            RG_CHECK_EQ(rg_socket_open(loop, &probes[i].socket, AF_INET), 0);
            rg_op_connect(loop, &probes[i].writing, &probes[i].socket,
                          (const struct sockaddr *)targets[i], sizeof(*targets[i]));
        }
        ring_break(entered);
        PASS_UNTIL(probes[0].write_count == 1 && probes[1].write_count == 1);
        RG_CHECK_EQ(probes[0].write_result, -ECONNREFUSED);
        RG_CHECK_EQ(probes[1].write_result, 0);
        int peer;
        RG_AWAIT((peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0);
        check_talks(&probes[1], peer);
        RG_CHECK_EQ(probes[2].write_count, 0);
        int first = accept4(narrow, NULL, NULL, SOCK_CLOEXEC);
        RG_CHECK(first >= 0);
        PASS_UNTIL(probes[2].write_count == 1);
        RG_CHECK_EQ(probes[2].write_result, 0);
        for (int i = 0; i < 3; i++) {
            rg_socket_close(loop, &probes[i].socket, false);
        }
        close(first), close(peer), close(filler), close(listener), close(narrow);
        teardown();
    }
}

/* A send that the kernel has not seen goes on behind what was taken; one that it has ends, and with
 * it the connection, so that no byte is sent twice or left out. */
static void test_sends_go_on_or_end(void)
{
    for (int entered = 0; entered < 2; entered++) {
        setup();
        int fds[2], small = 8192;
        struct probe probe;
        make_tcp_pair(fds);
        setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
        setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        probe_adopt(&probe, fds[0]);
        static uint8_t data[RG_KIB(128)], got[RG_KIB(128)];
        for (size_t i = 0; i < sizeof(data); i++) {
            data[i] = (uint8_t)(i * 77 >> 5);
        }
        rg_op_send(loop, &probe.writing, &probe.socket, data, sizeof(data));
        ring_break(entered);
        RG_CHECK_EQ(probe.write_count, entered);
        size_t total = 0;
        for (ssize_t part = 1; part != 0 && total < sizeof(got);) {
            part = recv(fds[1], got + total, sizeof(got) - total, MSG_DONTWAIT);
            total += part > 0 ? (size_t)part : 0;
            rg_loop_pass(loop, rg_now_ns() + RG_NS_PER_MS);
        }
        PASS_UNTIL(probe.write_count == 1);
        RG_CHECK_EQ(probe.write_result, entered ? -EIO : (int)sizeof(data));
        RG_CHECK(entered ? total < sizeof(data) : total == sizeof(data));
        RG_CHECK_MEM(got, total, data, total);
        rg_socket_close(loop, &probe.socket, false);
        close(fds[1]);
        teardown();
    }
}

/* Once its end is told, its memory is the owner's again, though the ring may not be gone yet:
 * nothing of it can be sent any more. */
static void test_a_cancelled_send_sends_no_more(void)
{
    setup();
    int fds[2], small = 8192;
    struct probe probe;
    make_tcp_pair(fds);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    probe_adopt(&probe, fds[0]);
    static uint8_t data[RG_KIB(128)], got[RG_KIB(128)];
    memset(data, 'a', sizeof(data));
    rg_op_send(loop, &probe.writing, &probe.socket, data, sizeof(data));
    for (int i = 0; i < 3; i++) {
        rg_loop_pass(loop, 0);
    }
    rg_op_cancel(loop, &probe.writing);
    ring_break(false);
    PASS_UNTIL(probe.write_count == 1);
    RG_CHECK_EQ(probe.write_result, -ECANCELED);
    memset(data, 'b', sizeof(data));
    size_t total = 0;
    ssize_t part;
    RG_AWAIT((part = recv(fds[1], got + total, sizeof(got) - total, MSG_DONTWAIT)) == 0 ||
             (total += part > 0 ? (size_t)part : 0) == sizeof(got));
    RG_CHECK(total < sizeof(got));
    RG_CHECK(memchr(got, 'b', total) == NULL);
    rg_socket_close(loop, &probe.socket, true);
    close(fds[1]);
    teardown();
}

/* The kernel has told that all of it is sent, and not yet that there is nothing left to cancel,
 * when the ring fails: it is done, and nothing is sent again. */
static void test_a_cancelled_send_that_was_done_is_not_made_again(void)
{
    setup();
    int fds[2], small = 8192;
    struct probe probe;
    make_tcp_pair(fds);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    probe_adopt(&probe, fds[0]);
    static uint8_t data[RG_KIB(128)], got[2 * sizeof(data)];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 77 >> 5);
    }
    rg_op_send(loop, &probe.writing, &probe.socket, data, sizeof(data));
    for (int i = 0; i < 3; i++) {
        rg_loop_pass(loop, 0);
    }
    RG_CHECK_EQ(probe.write_count, 0);
    /* The loop does not look, and so it cancels what has been done. */
    struct rg_uring *uring = loop->backend_self;
    size_t total = 0;
    while (io_uring_cq_ready(&uring->ring) == 0) {
        ssize_t part = recv(fds[1], got + total, sizeof(got) - total, MSG_DONTWAIT);
        total += part > 0 ? (size_t)part : 0;
        RG_CHECK(io_uring_get_events(&uring->ring) >= 0);
    }
    rg_op_cancel(loop, &probe.writing);
    ring_break(false);
    PASS_UNTIL(probe.write_count == 1);
    RG_CHECK_EQ(probe.write_result, sizeof(data));
    rg_socket_close(loop, &probe.socket, false);
    ssize_t part;
    while ((part = recv(fds[1], got + total, sizeof(got) - total, 0)) > 0) {
        total += (size_t)part;
    }
    RG_CHECK_MEM(got, total, data, sizeof(data));
    close(fds[1]);
    teardown();
}

static void test_cancelled_ops_end(void)
{
    for (int entered = 0; entered < 3; entered++) {
        setup();
        int fds[2];
        struct probe probe;
        make_tcp_pair(fds);
        probe_adopt(&probe, fds[0]);
        rg_op_recv(loop, &probe.reading, &probe.socket, 100);
        if (entered > 0) {
            rg_loop_pass(loop, 0);
            rg_loop_pass(loop, 0);
        }
        rg_op_cancel(loop, &probe.reading);
        fault.done = entered == 2;
        ring_break(false);
        PASS_UNTIL(probe.read_count == 1);
        RG_CHECK_EQ(probe.read_result, -ECANCELED);
        /* And after it, by epoll. */
        rg_op_recv(loop, &probe.reading, &probe.socket, 100);
        rg_loop_pass(loop, 0);
        rg_op_cancel(loop, &probe.reading);
        PASS_UNTIL(probe.read_count == 2);
        RG_CHECK_EQ(probe.read_result, -ECANCELED);
        rg_socket_close(loop, &probe.socket, false);
        close(fds[1]);
        teardown();
    }
}

static void test_reads_of_files_go_on(void)
{
    setup();
    char path[RG_TEST_PATH_SIZE];
    rg_test_file_make("what the file holds", path);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct probe probe;
    uint8_t place[64];
    probe_init(&probe);
    fault.cold = true;
    rg_op_read_file(loop, &probe.reading, file, 5, place, sizeof(place));
    /* Now it is known not to be in memory, and has an entry. */
    rg_loop_pass(loop, 0);
    fault.error = EPERM;
    PASS_UNTIL(has_fallen_back() || probe.read_count == 1);
    fault.error = 0;
    PASS_UNTIL(probe.read_count == 1);
    RG_CHECK_MEM(place, (size_t)probe.read_result, "the file holds", 14);
    rg_op_read_file(loop, &probe.reading, file, 0, place, 4);
    PASS_UNTIL(probe.read_count == 2);
    RG_CHECK_MEM(place, 4, "what", 4);
    close(file);
    unlink(path);
    teardown();
}

/* The kernel has the read: of a pipe, which it can wait for as long as nobody writes. That it
 * begins again, by a call that no pipe knows, is seen from the error. */
static void test_reads_that_the_kernel_has_begin_again_when_the_ring_is_gone(void)
{
    setup();
    int ends[2];
    struct probe probe;
    uint8_t place[64];
    memset(place, 0xee, sizeof(place));
    RG_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    probe_init(&probe);
    rg_op_read_file(loop, &probe.reading, ends[0], 0, place, sizeof(place));
    for (int i = 0; i < 5; i++) {
        rg_loop_pass(loop, 0);
    }
    RG_CHECK_EQ(probe.read_count, 0);
    ring_break(true);
    PASS_UNTIL(probe.read_count == 1);
    RG_CHECK_EQ(probe.read_result, -ESPIPE);
    /* Nothing reads it any more. */
    RG_CHECK_EQ(write(ends[1], "late", 4), 4);
    rg_loop_pass(loop, rg_now_ns() + 10 * RG_NS_PER_MS);
    RG_CHECK_EQ(place[0], 0xee);
    RG_CHECK_EQ(read(ends[0], place, sizeof(place)), 4);
    close(ends[0]);
    close(ends[1]);
    teardown();
}

static void check_child(int (*function)(void))
{
    fflush(stdout);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        int status = function();
        fflush(stdout);
        _exit(status);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        rg_test_skip("this system has no seccomp filters, or no io_uring");
    }
    RG_CHECK_EQ(WEXITSTATUS(status), 0);
}

/* As a container's profile does it: nothing can be said to the ring any more, not even that it
 * shall go. What the kernel has of it ends all the same, and so do the connections that it holds.
 */
static int with_every_call_forbidden(void)
{
    static const unsigned calls[] = {__NR_io_uring_register, __NR_io_uring_enter,
                                     __NR_io_uring_setup};
    setup();
    int ends[2], fds[2];
    struct probe file, probe;
    uint8_t place[64], byte;
    RG_CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    make_tcp_pair(fds);
    probe_init(&file);
    probe_adopt(&probe, fds[0]);
    rg_op_read_file(loop, &file.reading, ends[0], 0, place, sizeof(place));
    rg_op_recv(loop, &probe.reading, &probe.socket, 100);
    for (int i = 0; i < 5; i++) {
        rg_loop_pass(loop, 0);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(calls); i++) {
        if (rg_test_forbid(calls[i], EPERM) < 0) {
            return 77;
        }
    }
    PASS_UNTIL(has_fallen_back());
    PASS_UNTIL(file.read_count == 1);
    RG_CHECK_EQ(file.read_result, -ESPIPE);
    rg_op_cancel(loop, &probe.reading);
    PASS_UNTIL(probe.read_count == 1);
    rg_socket_close(loop, &probe.socket, true);
    RG_AWAIT(recv(fds[1], &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET);
    teardown();
    return 0;
}

static void test_a_filter_that_forbids_every_call(void)
{
    check_child(with_every_call_forbidden);
}

/* Descriptors are used up at that moment: what is in flight ends and says so, and when there is one
 * again the loop works. */
static int without_descriptors(void)
{
    setup();
    int fds[2];
    struct probe probe;
    make_tcp_pair(fds);
    probe_adopt(&probe, fds[0]);
    rg_op_recv(loop, &probe.reading, &probe.socket, 100);
    rg_loop_pass(loop, 0);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &limit);
    fault.error = EPERM;
    rg_loop_pass(loop, 0);
    bool told = !has_fallen_back() && probe.read_count == 1 && probe.read_result == -EMFILE;
    rg_op_recv(loop, &probe.reading, &probe.socket, 100);
    rg_loop_pass(loop, 0);
    told = told && probe.read_count == 2 && probe.read_result == -EMFILE;
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
    rg_loop_pass(loop, 0);
    told = told && has_fallen_back();
    check_talks(&probe, fds[1]);
    rg_socket_close(loop, &probe.socket, false);
    teardown();
    return told ? 0 : 1;
}

static void test_no_descriptor_is_left_to_go_on_with(void)
{
    check_child(without_descriptors);
}

/* The same for sends: one that was about to begin is made, once, and one that the kernel was to go
 * on with ends: no byte of it is sent again. */
static int sends_without_descriptors(void)
{
    setup();
    int fds[2], others[2], small = 8192;
    struct probe part, begun;
    make_tcp_pair(fds);
    make_tcp_pair(others);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    setsockopt(fds[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    probe_adopt(&part, fds[0]);
    probe_adopt(&begun, others[0]);
    static uint8_t data[RG_KIB(128)], got[RG_KIB(128)];
    rg_op_send(loop, &part.writing, &part.socket, data, sizeof(data));
    rg_loop_pass(loop, 0);
    while (recv(fds[1], got, sizeof(got), MSG_DONTWAIT) > 0) {
    }
    rg_op_send(loop, &begun.writing, &begun.socket, "once", 4);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &limit);
    fault.error = EPERM;
    rg_loop_pass(loop, 0);
    bool told = !has_fallen_back() && part.write_count == 1 && part.write_result == -EMFILE;
    told = told && recv(fds[1], got, sizeof(got), MSG_DONTWAIT) == -1;
    told = told && begun.write_count == 1 && begun.write_result == 4;
    return told && recv(others[1], got, sizeof(got), MSG_DONTWAIT) == 4 ? 0 : 1;
}

static void test_no_descriptor_is_left_to_send_with(void)
{
    check_child(sends_without_descriptors);
}

/* Requests in both directions over TLS, more than there are connections, while the system begins to
 * forbid the ring to every thread. */
static int with_a_filter_under_load(void)
{
    enum { ROUNDS = 6, COUNT = 40, CONNECTIONS = 8 };
    static const struct rg_step script[] = {
        RG_READ, {.kind = RG_STEP_SEND_OBJECT_WHOLE, .size = 200000}, RG_AGAIN};
    static const struct rg_step *const scripts[] = {script};
    static const uint8_t upload[400000];
    unsetenv("RINGEST_BACKEND");
    if (!has_uring()) {
        return 77;
    }
    struct rg_test_pki pki;
    rg_test_pki_init(&pki);
    struct rg_tls_context *context = rg_test_client_context(&pki, false);
    struct rg_scripted_server *server = rg_scripted_server_start(&(struct rg_script_options){
        .scripts = scripts, .script_count = 1, .certificate = &pki.leaf});
    struct rg_test_pool pool = {.options = {.tls = context, .connections_max = CONNECTIONS}};
    rg_test_pool_open(&pool, rg_scripted_server_port(server));
    unsigned good = 0, lost = 0, others = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct rg_test_exchange exchanges[COUNT] = {0};
        for (unsigned i = 0; i < COUNT; i++) {
            exchanges[i].upload = i % 2 == 0 ? upload : NULL;
            exchanges[i].upload_size = i % 2 == 0 ? sizeof(upload) : 0;
            rg_test_exchange_submit(&pool, &exchanges[i]);
        }
        if (round == 2 && rg_test_forbid(__NR_io_uring_enter, EPERM) < 0) {
            return 77;
        }
        for (unsigned i = 0; i < COUNT; i++) {
            rg_test_exchange_wait(&pool);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            bool ok = exchanges[i].status == RG_STATUS_OK &&
                      rg_script_differs(exchanges[i].body, 0, 200000) == 200000;
            good += ok;
            lost += exchanges[i].status == RG_STATUS_CONNECTION_LOST;
            others += !ok && exchanges[i].status != RG_STATUS_CONNECTION_LOST;
            rg_test_exchange_fini(&exchanges[i]);
        }
    }
    bool fell = atomic_load(&pool.loop->fallback_reason) != NULL;
    rg_test_pool_close(&pool);
    rg_scripted_server_stop(server);
    printf("  %u good, %u lost, %u otherwise\n", good, lost, others);
    return fell && others == 0 && lost <= CONNECTIONS && good + lost == ROUNDS * COUNT ? 0 : 1;
}

static void test_a_filter_that_is_installed_under_load(void)
{
    check_child(with_a_filter_under_load);
}

/* A filter against rings after the first was tried, on a runtime of many loops. */
static void test_a_ring_that_cannot_be_made_after_the_first(void)
{
    if (!has_uring()) {
        rg_test_skip("io_uring is not to be had here");
    }
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = 3;
    options.numa_policy = RG_NUMA_NONE;
    const char *was = getenv("RINGEST_BACKEND");
    char *backend = was != NULL ? strdup(was) : NULL;
    unsetenv("RINGEST_BACKEND");
    for (int rings = 1; rings <= 3; rings++) {
        struct rg_runtime *runtime = NULL;
        const char *reason = "";
        fault.rings_left = rings;
        RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
        RG_CHECK_EQ(rg_runtime_backend(runtime, &reason), RG_BACKEND_EPOLL);
        RG_CHECK(strstr(reason, "forbidden") != NULL);
        RG_CHECK_EQ(rg_runtime_threads(runtime), 3);
        rg_runtime_close(runtime);
        fault.rings_left = rings;
        options.backend = RG_BACKEND_URING;
        RG_CHECK_EQ(rg_runtime_open(&runtime, &options), -EPERM);
        options.backend = RG_BACKEND_AUTO;
    }
    fault.rings_left = -1;
    if (backend != NULL) {
        setenv("RINGEST_BACKEND", backend, 1);
    }
    free(backend);
}

static void nothing(void *context)
{
    *(bool *)context = true;
}

static void test_a_loop_with_a_thread_is_woken_as_before(void)
{
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = 1;
    options.backend = RG_BACKEND_URING;
    options.numa_policy = RG_NUMA_NONE;
    if (!has_uring()) {
        rg_test_skip("io_uring is not to be had here");
    }
    struct rg_runtime *runtime = NULL;
    RG_CHECK_EQ(rg_runtime_open(&runtime, &options), 0);
    const char *reason = "";
    fault.error = EPERM;
    for (int i = 0; i < 100; i++) {
        bool called = false;
        rg_loop_call(runtime->loops[0], nothing, &called);
        RG_CHECK(called);
    }
    RG_CHECK_EQ(rg_runtime_backend(runtime, &reason), RG_BACKEND_EPOLL);
    RG_CHECK(strstr(reason, "while it was in use") != NULL);
    rg_runtime_close(runtime);
    fault.error = 0;
}

#define WITH_LITTLE(name)                                                                          \
    static void name##_of_little(void)                                                             \
    {                                                                                              \
        brings_little = true;                                                                      \
        name();                                                                                    \
        brings_little = false;                                                                     \
    }
WITH_LITTLE(test_every_way_in_which_entering_can_fail)
WITH_LITTLE(test_what_passes_is_waited_for)
WITH_LITTLE(test_receives_go_on)
WITH_LITTLE(test_bytes_that_were_there_before_are_received)
WITH_LITTLE(test_cancelled_ops_end)
WITH_LITTLE(test_a_filter_that_forbids_every_call)
WITH_LITTLE(test_no_descriptor_is_left_to_go_on_with)

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_way_in_which_entering_can_fail),
        RG_TEST(test_what_passes_is_waited_for),
        RG_TEST(test_a_shortage_that_does_not_pass),
        RG_TEST(test_receives_go_on),
        RG_TEST(test_bytes_that_were_there_before_are_received),
        RG_TEST(test_accepting_goes_on),
        RG_TEST(test_connecting_goes_on),
        RG_TEST(test_sends_go_on_or_end),
        RG_TEST(test_a_cancelled_send_sends_no_more),
        RG_TEST(test_a_cancelled_send_that_was_done_is_not_made_again),
        RG_TEST(test_cancelled_ops_end),
        RG_TEST(test_reads_of_files_go_on),
        RG_TEST(test_reads_that_the_kernel_has_begin_again_when_the_ring_is_gone),
        RG_TEST(test_a_filter_that_forbids_every_call),
        RG_TEST(test_no_descriptor_is_left_to_go_on_with),
        RG_TEST(test_no_descriptor_is_left_to_send_with),
        RG_TEST(test_a_filter_that_is_installed_under_load),
        RG_TEST(test_a_ring_that_cannot_be_made_after_the_first),
        RG_TEST(test_a_loop_with_a_thread_is_woken_as_before),
        RG_TEST(test_every_way_in_which_entering_can_fail_of_little),
        RG_TEST(test_what_passes_is_waited_for_of_little),
        RG_TEST(test_receives_go_on_of_little),
        RG_TEST(test_bytes_that_were_there_before_are_received_of_little),
        RG_TEST(test_cancelled_ops_end_of_little),
        RG_TEST(test_a_filter_that_forbids_every_call_of_little),
        RG_TEST(test_no_descriptor_is_left_to_go_on_with_of_little),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
