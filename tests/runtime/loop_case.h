/* What the tests of the event loop share: a loop of either backend, ops that tell what became of
 * them, pairs of sockets, and a main function that runs each case once for each backend.
 * RINGEST_BACKEND=uring or epoll picks one. */
#ifndef RG_TESTS_RUNTIME_LOOP_CASE_H
#define RG_TESTS_RUNTIME_LOOP_CASE_H

#include "runtime/clock.h"
#include "runtime/loop.h"
#include "tests/runtime/tcp_pair.h"
#include "tests/support/test.h"

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
/* With io_uring: sockets are those that have brought little for a while. */
static bool brings_little;
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

static inline void probe_done(struct rg_op *op)
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

static inline void probe_init(struct probe *probe)
{
    *probe = (struct probe){.socket.fd = -1};
    rg_op_init(&probe->op, probe_done);
}

static inline void probe_adopt(struct probe *probe, int fd)
{
    probe_init(probe);
    RG_CHECK_EQ(rg_socket_adopt(loop, &probe->socket, fd), 0);
    probe->socket.little = brings_little ? UINT8_MAX : 0;
}

static inline void probe_recv(struct probe *probe, size_t size_max)
{
    rg_op_recv(loop, &probe->op, &probe->socket, size_max);
}

static inline void probe_close(struct probe *probe)
{
    rg_socket_close(loop, &probe->socket, false);
    RG_CHECK_EQ(probe->socket.fd, -1);
}

static inline void setup_with_memory(uint64_t memory_max)
{
    const struct rg_loop_options options = {
        .backend = backend,
        .placement = {.cpu = -1, .node = -1},
        .memory_max = memory_max,
    };
    RG_CHECK_EQ(rg_loop_create(&loop, &options), 0);
}

static inline void setup(void)
{
    setup_with_memory(0);
    RG_CHECK_EQ(rg_loop_attach(loop), 0);
}

static inline void teardown(void)
{
    rg_loop_destroy(loop);
    loop = NULL;
}

static inline void make_pair(int out_fds[2])
{
    RG_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out_fds), 0);
}

static inline void write_all(int fd, const void *data, size_t size)
{
    RG_CHECK_EQ(send(fd, data, size, MSG_NOSIGNAL), (ssize_t)size);
}

static inline void fill_random(uint8_t *data, size_t size)
{
    uint64_t word = rg_test_random();
    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(word >> (i % 8 * 8)) ^ (uint8_t)(i / 8 * 151);
    }
}

/* Sends data[0..size) from one probe and collects it at the other, in receives of random kinds. */
static inline void transfer(struct probe *from, struct probe *to, const uint8_t *data, size_t size)
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

static inline void use_epoll(void)
{
    backend = &rg_epoll_backend;
}

static inline void use_uring(void)
{
    const char *reason;
    if (rg_uring_probe(&reason) < 0) {
        rg_test_skip("%s", reason);
    }
    backend = &rg_uring_backend;
}

/* The case for each backend, with io_uring in both ways of waiting, and its lines in the lists that
 * loop_case_main takes. */
#define LOOP_CASE(name)                                                                            \
    static void name##_epoll(void)                                                                 \
    {                                                                                              \
        use_epoll();                                                                               \
        name();                                                                                    \
    }                                                                                              \
    static void name##_uring(void)                                                                 \
    {                                                                                              \
        use_uring();                                                                               \
        brings_little = false;                                                                     \
        name();                                                                                    \
        brings_little = true;                                                                      \
        name();                                                                                    \
    }
#define LOOP_CASE_EPOLL(name) RG_TEST(name##_epoll),
#define LOOP_CASE_URING(name) RG_TEST(name##_uring),

#define LOOP_CASES_MAX 64

static inline int loop_case_main(int argc, char **argv, const struct rg_test *epoll_tests,
                                 const struct rg_test *uring_tests, size_t test_count)
{
    struct rg_test tests[LOOP_CASES_MAX];
    const char *wanted = getenv("RINGEST_BACKEND");
    size_t count = 0;
    RG_ASSERT(2 * test_count <= LOOP_CASES_MAX);
    if (wanted == NULL || strcmp(wanted, "epoll") == 0) {
        memcpy(tests, epoll_tests, test_count * sizeof(*tests));
        count = test_count;
    }
    if (wanted == NULL || strcmp(wanted, "uring") == 0) {
        memcpy(tests + count, uring_tests, test_count * sizeof(*tests));
        count += test_count;
    }
    return rg_test_main(argc, argv, tests, count);
}

#endif
