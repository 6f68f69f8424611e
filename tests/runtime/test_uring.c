/* What the io_uring backend says when the system refuses it, and how it asks the ring to wait. How
 * it works is tested in test_loop and test_loop_sockets. */
#include "runtime/clock.h"
#include "runtime/uring.h"

#include "tests/support/seccomp.h"
#include "tests/support/test.h"

#include <liburing.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Probes in a child in which `error` is what io_uring_setup gives; the child's exit status. */
static int probe_refused(int error, const char *wanted)
{
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        if (rg_test_forbid_uring(error) < 0) {
            _exit(77);
        }
        const char *reason = "";
        int rc = rg_uring_probe(&reason);
        _exit(rc == -error && strstr(reason, wanted) != NULL ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void check_refusal(int error, const char *wanted)
{
    int status = probe_refused(error, wanted);
    if (status == 77) {
        rg_test_skip("this system has no seccomp filters");
    }
    RG_CHECK_EQ(status, 0);
}

static void test_a_seccomp_profile_is_named(void)
{
    check_refusal(EPERM, "seccomp");
}

static void test_a_kernel_without_io_uring_is_named(void)
{
    check_refusal(ENOSYS, "no io_uring");
}

static void test_an_old_kernel_is_named(void)
{
    check_refusal(EINVAL, "Linux 6.1");
}

static void test_too_little_locked_memory_is_named(void)
{
    check_refusal(ENOMEM, "ulimit -l");
}

static void test_too_few_descriptors_are_named(void)
{
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
        setrlimit(RLIMIT_NOFILE, &limit);
        const char *reason = "";
        int rc = rg_uring_probe(&reason);
        bool forbidden = rc == -EPERM || rc == -ENOSYS;
        _exit(forbidden ? 77 : rc == -EMFILE && strstr(reason, "ulimit -n") != NULL ? 0 : 1);
    }
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        rg_test_skip("io_uring is forbidden here");
    }
    RG_CHECK_EQ(status, 0);
}

/* The flags of the last wait for the ring. */
static unsigned wait_flags;

int __real_io_uring_enter2(unsigned fd, unsigned submit, unsigned count, unsigned flags,
                           sigset_t *wait, size_t size);
int __wrap_io_uring_enter2(unsigned fd, unsigned submit, unsigned count, unsigned flags,
                           sigset_t *wait, size_t size);
int __wrap_io_uring_enter2(unsigned fd, unsigned submit, unsigned count, unsigned flags,
                           sigset_t *wait, size_t size)
{
    wait_flags = flags;
    return __real_io_uring_enter2(fd, submit, count, flags, wait, size);
}

/* What handing over entries without waiting gives; 0: as it is. */
static int submit_error;

int __real_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring)
{
    return submit_error != 0 ? -submit_error : __real_io_uring_submit_and_get_events(ring);
}

/* Only Linux 6.15 and newer can be told. */
static bool kernel_tells_waits_apart(void)
{
    struct io_uring ring;
    if (io_uring_queue_init(1, &ring, 0) < 0) {
        rg_test_skip("io_uring is not to be had here");
    }
    bool tells = (ring.features & 1U << 17) != 0;
    io_uring_queue_exit(&ring);
    return tells;
}

static void test_an_idle_loop_does_not_wait_for_a_disk(void)
{
    bool tells = kernel_tells_waits_apart();
    const struct rg_loop_options options = {.backend = &rg_uring_backend,
                                            .placement = {.cpu = -1, .node = -1}};
    struct rg_loop *loop;
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
    uint64_t deadline_ns = rg_now_ns() + RG_NS_PER_MS;
    /* Several: the end of the ring above may interrupt a wait. */
    while (rg_now_ns() < deadline_ns) {
        rg_loop_pass(loop, deadline_ns);
    }
    RG_CHECK_EQ(wait_flags & 1U << 7, tells ? 1U << 7 : 0);
    RG_CHECK(loop->fallback_reason == NULL);
    rg_loop_destroy(loop);
}

/* A loop with one socket, its peer, and what receives brought. */
static struct {
    struct rg_loop *loop;
    struct rg_uring *uring;
    struct rg_socket socket;
    struct rg_op op;
    int peer;
    unsigned count;
    int32_t result;
} one;

static void one_done(struct rg_op *op)
{
    one.count++;
    one.result = op->result;
}

static void one_open(void)
{
    const char *reason;
    if (rg_uring_probe(&reason) < 0) {
        rg_test_skip("%s", reason);
    }
    const struct rg_loop_options options = {.backend = &rg_uring_backend,
                                            .placement = {.cpu = -1, .node = -1}};
    int fds[2];
    memset(&one, 0, sizeof(one));
    RG_CHECK_EQ(rg_loop_create(&one.loop, &options), 0);
    RG_CHECK_EQ(rg_loop_attach(one.loop), 0);
    RG_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    RG_CHECK_EQ(rg_socket_adopt(one.loop, &one.socket, fds[0]), 0);
    rg_op_init(&one.op, one_done);
    one.uring = one.loop->backend_self;
    one.peer = fds[1];
}

static void one_close(void)
{
    rg_socket_close(one.loop, &one.socket, false);
    close(one.peer);
    RG_AWAIT((rg_loop_pass(one.loop, 0), rg_list_empty(&one.uring->polls)));
    RG_CHECK(one.loop->fallback_reason == NULL);
    rg_loop_destroy(one.loop);
}

/* A receive that begins, and then brings so much. */
static void one_receive(size_t size)
{
    static const uint8_t data[RG_KIB(64)];
    unsigned before = one.count;
    rg_op_recv(one.loop, &one.op, &one.socket, RG_RECV_SIZE_MAX);
    rg_loop_pass(one.loop, 0);
    RG_CHECK_EQ(one.count, before);
    RG_CHECK_EQ(send(one.peer, data, size, 0), (ssize_t)size);
    RG_AWAIT((rg_loop_pass(one.loop, 0), one.count > before));
    RG_CHECK_EQ(one.result, size);
}

static void receive_little_until_polled(void)
{
    for (int i = 0; i < 20; i++) {
        one_receive(100);
    }
    RG_CHECK(one.socket.poll != NULL);
}

/* One poll for all receives of what brings little, and one for each of what brings much. */
static void test_what_a_socket_brings_decides_how_it_is_waited_for(void)
{
    one_open();
    one_receive(100);
    RG_CHECK(one.socket.poll == NULL);
    for (int round = 0; round < 3; round++) {
        receive_little_until_polled();
        one_receive(RG_KIB(64));
        RG_CHECK(one.socket.poll == NULL);
        one_receive(100);
        RG_CHECK(one.socket.poll == NULL);
    }
    one_close();
}

/* As the kernel may do at any time. A wait for the socket is in flight (`waiting`), or begins. */
static void test_a_poll_that_ends_is_not_missed(void)
{
    for (int waiting = 0; waiting < 2; waiting++) {
        one_open();
        receive_little_until_polled();
        unsigned before = one.count;
        if (waiting == 1) {
            rg_op_recv(one.loop, &one.op, &one.socket, 100);
        }
        struct io_uring_sqe *sqe = io_uring_get_sqe(&one.uring->ring);
        io_uring_prep_cancel64(sqe, (uintptr_t)one.socket.poll | RG_URING_POLL_TAG, 0);
        io_uring_sqe_set_data(sqe, &rg_uring_unpoll_tag);
        RG_AWAIT((rg_loop_pass(one.loop, 0), one.socket.poll == NULL));
        if (waiting == 0) {
            rg_op_recv(one.loop, &one.op, &one.socket, 100);
        }
        rg_loop_pass(one.loop, 0);
        RG_CHECK_EQ(one.count, before);
        /* It was an error, and so none begins again at once. */
        RG_CHECK(one.socket.poll == NULL);
        RG_CHECK_EQ(send(one.peer, "x", 1, 0), 1);
        RG_AWAIT((rg_loop_pass(one.loop, 0), one.count > before));
        RG_CHECK_EQ(one.result, 1);
        receive_little_until_polled();
        one_close();
    }
}

/* The kernel ends a poll that it cannot tell of, with the last that it tells. */
static void test_a_full_queue_loses_no_arrival(void)
{
    one_open();
    receive_little_until_polled();
    struct io_uring *ring = &one.uring->ring;
    unsigned before = one.count;
    rg_op_recv(one.loop, &one.op, &one.socket, 100);
    while (io_uring_cq_ready(ring) < ring->cq.ring_entries) {
        for (unsigned i = 0; i < 512 && io_uring_sq_space_left(ring) > 0; i++) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
            io_uring_prep_nop(sqe);
            io_uring_sqe_set_data(sqe, &rg_uring_unpoll_tag);
        }
        RG_CHECK(io_uring_submit_and_get_events(ring) >= 0);
    }
    RG_CHECK_EQ(send(one.peer, "x", 1, 0), 1);
    RG_CHECK(io_uring_get_events(ring) >= 0);
    RG_AWAIT((rg_loop_pass(one.loop, 0), one.count > before));
    RG_CHECK_EQ(one.result, 1);
    RG_CHECK(one.socket.poll == NULL);
    receive_little_until_polled();
    one_close();
}

/* More than the kernel completes at a time. */
#define CROWD 100

static void test_a_pass_takes_all_that_is_there(void)
{
    static struct rg_socket sockets[CROWD];
    static struct rg_op ops[CROWD];
    int peers[CROWD];
    one_open();
    for (int i = 0; i < CROWD; i++) {
        int fds[2];
        RG_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        RG_CHECK_EQ(rg_socket_adopt(one.loop, &sockets[i], fds[0]), 0);
        rg_op_init(&ops[i], one_done);
        rg_op_recv(one.loop, &ops[i], &sockets[i], 100);
        peers[i] = fds[1];
    }
    rg_loop_pass(one.loop, 0);
    RG_CHECK_EQ(one.count, 0);
    for (int i = 0; i < CROWD; i++) {
        RG_CHECK_EQ(send(peers[i], "x", 1, 0), 1);
    }
    rg_loop_pass(one.loop, rg_now_ns() + RG_NS_PER_S);
    RG_CHECK_EQ(one.count, CROWD);
    for (int i = 0; i < CROWD; i++) {
        rg_socket_close(one.loop, &sockets[i], false);
        close(peers[i]);
    }
    one_close();
}

/* The kernel says that it has something left after it was taken. */
static void test_nothing_left_is_not_waited_for(void)
{
    one_open();
    unsigned *flags = one.uring->ring.sq.kflags;
    __atomic_fetch_or(flags, IORING_SQ_TASKRUN, __ATOMIC_RELAXED);
    rg_loop_pass(one.loop, 0);
    rg_loop_pass(one.loop, rg_now_ns() + RG_NS_PER_MS);
    RG_CHECK(__atomic_load_n(flags, __ATOMIC_RELAXED) & IORING_SQ_TASKRUN);
    receive_little_until_polled();
    one_close();
}

/* Many may close in one pass: the next one asks again, and it alone notes that and waits. */
static void test_closing_while_the_system_is_short_does_not_wait(void)
{
    one_open();
    receive_little_until_polled();
    submit_error = EAGAIN;
    rg_socket_close(one.loop, &one.socket, false);
    submit_error = 0;
    RG_CHECK_EQ(one.uring->shortages, 0);
    char byte;
    RG_AWAIT((rg_loop_pass(one.loop, 0), recv(one.peer, &byte, 1, MSG_DONTWAIT) == 0));
    one_close();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_seccomp_profile_is_named),
        RG_TEST(test_a_kernel_without_io_uring_is_named),
        RG_TEST(test_an_old_kernel_is_named),
        RG_TEST(test_too_little_locked_memory_is_named),
        RG_TEST(test_too_few_descriptors_are_named),
        RG_TEST(test_an_idle_loop_does_not_wait_for_a_disk),
        RG_TEST(test_what_a_socket_brings_decides_how_it_is_waited_for),
        RG_TEST(test_a_poll_that_ends_is_not_missed),
        RG_TEST(test_a_full_queue_loses_no_arrival),
        RG_TEST(test_a_pass_takes_all_that_is_there),
        RG_TEST(test_nothing_left_is_not_waited_for),
        RG_TEST(test_closing_while_the_system_is_short_does_not_wait),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
