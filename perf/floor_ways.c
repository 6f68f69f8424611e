/* Ways of receiving, for the floor: epoll, and what io_uring has. All but epoll take the flags that
 * ringest's rings have. docs/internals/io-uring.md says what each gave. */
#include "perf/floor.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define ENTRIES 1024
#define COMPLETION_ENTRIES 16384
#define BUFFERS_MAX 64
#define WAIT_S 1
/* The exit status where the kernel has no such way. */
#define LACKING 77
/* <linux/io_uring.h> of Linux 6.10; liburing 2.3 is older. */
#define RECVSEND_BUNDLE (1u << 4)

enum kind {
    POLL,      /* a one-shot poll, then recv() into the hot buffer: what ringest does */
    LINKED,    /* a poll with a receive linked to it, which picks a buffer */
    SELECT,    /* a receive that picks a buffer when something arrives */
    MULTISHOT, /* the same, again and again by one entry */
    BUNDLE,    /* and into several buffers at once */
};

struct way {
    enum kind kind;
    uint32_t buffers, buffer_size;
    bool fixed_files, fixed_ring;
};

static struct {
    int epoll;
    struct way way;
    struct io_uring uring;
    struct io_uring_buf_ring *ring;
    struct floor_conn *conns;
    uint8_t *memory; /* of `buffers`, each behind its head room */
    size_t stride;
} state;

static void epoll_open(struct floor_conn *conns, uint32_t count)
{
    state.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &conns[i]};
        if (epoll_ctl(state.epoll, EPOLL_CTL_ADD, conns[i].fd, &event) < 0) {
            floor_die("epoll_ctl: %s", strerror(errno));
        }
    }
}

static void epoll_pass(void)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(state.epoll, events, EVENTS_MAX, 1000 * WAIT_S);
    if (count <= 0) {
        floor_die("nothing arrived for %d s", WAIT_S);
    }
    for (int i = 0; i < count; i++) {
        while (floor_receive(events[i].data.ptr)) {
        }
    }
}

static void epoll_close(void)
{
    close(state.epoll);
}

static void check(int rc, const char *what)
{
    if (rc < 0) {
        floor_die("%s: %s", what, strerror(-rc));
    }
}

/* What this kernel may lack. */
static void need(int rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "floor: %s: %s\n", what, strerror(-rc));
        exit(LACKING);
    }
}

static uint8_t *buffer_data(uint32_t i)
{
    return state.memory + i * state.stride + FLOOR_HEAD_ROOM;
}

static void buffer_give(uint32_t i)
{
    io_uring_buf_ring_add(state.ring, buffer_data(i), state.way.buffer_size, (unsigned short)i,
                          (int)state.way.buffers - 1, 0);
    io_uring_buf_ring_advance(state.ring, 1);
}

/* Buffers of a bundle have no room between them, so that it is one piece but for the ring's end. */
static void buffers_open(void)
{
    bool bundle = state.way.kind == BUNDLE;
    state.stride = bundle ? state.way.buffer_size : state.way.buffer_size + FLOOR_HEAD_ROOM;
    size_t size = FLOOR_HEAD_ROOM + state.way.buffers * state.stride;
    state.memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t ring_size = state.way.buffers * sizeof(struct io_uring_buf);
    state.ring = mmap(NULL, ring_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (state.memory == MAP_FAILED || state.ring == MAP_FAILED) {
        floor_die("no memory for buffers");
    }
    memset(state.memory, 1, size);
    struct io_uring_buf_reg reg = {.ring_addr = (uint64_t)(uintptr_t)state.ring,
                                   .ring_entries = state.way.buffers};
    need(io_uring_register_buf_ring(&state.uring, &reg, 0), "registering buffers");
    for (uint32_t i = 0; i < state.way.buffers; i++) {
        buffer_give(i);
    }
}

static struct io_uring_sqe *take_sqe(uint32_t conn)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&state.uring);
    if (sqe == NULL) {
        check(io_uring_submit(&state.uring), "io_uring_enter");
        sqe = io_uring_get_sqe(&state.uring);
    }
    memset(sqe, 0, sizeof(*sqe));
    sqe->user_data = conn;
    sqe->fd = state.way.fixed_files ? (int)conn : state.conns[conn].fd;
    sqe->flags = state.way.fixed_files ? IOSQE_FIXED_FILE : 0;
    return sqe;
}

/* `waits`: nothing is there yet as far as is known. */
static void arm(uint32_t conn, bool waits)
{
    struct io_uring_sqe *sqe = take_sqe(conn);
    if (state.way.kind == POLL || state.way.kind == LINKED) {
        sqe->opcode = IORING_OP_POLL_ADD;
        sqe->poll32_events = POLLIN;
        if (state.way.kind == POLL) {
            return;
        }
        sqe->flags |= IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
        sqe = take_sqe(conn);
    }
    sqe->opcode = IORING_OP_RECV;
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->msg_flags = state.way.kind == LINKED ? MSG_DONTWAIT : 0;
    sqe->ioprio = waits && state.way.kind != LINKED ? IORING_RECVSEND_POLL_FIRST : 0;
    if (state.way.kind == MULTISHOT || state.way.kind == BUNDLE) {
        sqe->ioprio |= IORING_RECV_MULTISHOT;
    }
    if (state.way.kind == BUNDLE) {
        sqe->ioprio |= RECVSEND_BUNDLE;
    }
}

static void ring_open(struct floor_conn *conns, uint32_t count)
{
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER |
                                              IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL |
                                              IORING_SETUP_CQSIZE,
                                     .cq_entries = COMPLETION_ENTRIES};
    need(io_uring_queue_init_params(ENTRIES, &state.uring, &params), "io_uring_setup");
    state.conns = conns;
    if (state.way.fixed_ring) {
        need(io_uring_register_ring_fd(&state.uring), "registering the ring");
    }
    if (state.way.fixed_files) {
        int files[ENTRIES];
        if (count > ENTRIES) {
            floor_die("at most %d connections with registered files", ENTRIES);
        }
        for (uint32_t i = 0; i < count; i++) {
            files[i] = conns[i].fd;
        }
        need(io_uring_register_files(&state.uring, files, count), "registering files");
    }
    if (state.way.kind != POLL) {
        buffers_open();
    }
    for (uint32_t i = 0; i < count; i++) {
        arm(i, true);
    }
}

/* The bytes of consecutive buffers, which go round the ring in order. */
static void take_bundle(struct floor_conn *conn, uint32_t first, uint32_t size)
{
    while (size > 0) {
        uint32_t left = (state.way.buffers - first) * state.way.buffer_size;
        uint32_t part = size < left ? size : left;
        uint32_t used = (part + state.way.buffer_size - 1) / state.way.buffer_size;
        floor_take(conn, buffer_data(first), part, false);
        for (uint32_t i = 0; i < used; i++) {
            buffer_give(first + i);
        }
        first = (first + used) % state.way.buffers;
        size -= part;
    }
}

static void take_completion(uint32_t i, int result, uint32_t flags)
{
    struct floor_conn *conn = &state.conns[i];
    if (state.way.kind == POLL) {
        check(result, "polling");
        while (floor_receive(conn)) {
        }
        arm(i, true);
        return;
    }
    need(result == -EINVAL ? result : 0, "this way of receiving");
    if (result > 0) {
        uint32_t id = flags >> IORING_CQE_BUFFER_SHIFT;
        if (state.way.kind == BUNDLE) {
            take_bundle(conn, id, (uint32_t)result);
        } else {
            floor_take(conn, buffer_data(id), (size_t)result, true);
            buffer_give(id);
        }
    } else if (result != -ENOBUFS && result != -EAGAIN) {
        floor_die("receiving: %s",
                  result == 0 ? "the server closed the connection" : strerror(-result));
    }
    if ((flags & IORING_CQE_F_MORE) == 0) {
        arm(i, result > 0 && (flags & IORING_CQE_F_SOCK_NONEMPTY) == 0);
    }
}

static void ring_pass(void)
{
    struct __kernel_timespec wait = {.tv_sec = WAIT_S};
    struct io_uring_cqe *cqe;
    int rc = io_uring_submit_and_wait_timeout(&state.uring, &cqe, 1, &wait, NULL);
    if (rc == -ETIME) {
        floor_die("nothing arrived for %d s", WAIT_S);
    }
    check(rc == -EINTR ? 0 : rc, "io_uring_enter");
    while (io_uring_peek_cqe(&state.uring, &cqe) == 0) {
        uint32_t conn = (uint32_t)cqe->user_data, flags = cqe->flags;
        int result = cqe->res;
        io_uring_cqe_seen(&state.uring, cqe);
        take_completion(conn, result, flags);
    }
}

static void ring_close(void)
{
    io_uring_queue_exit(&state.uring);
}

static const struct {
    struct floor_way way;
    struct way ring;
} ways[] = {
#define RING(name, ...)                                                                            \
    {                                                                                              \
        {name, ring_open, ring_pass, ring_close},                                                  \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    {{"epoll", epoll_open, epoll_pass, epoll_close}, {0}},
    RING("poll", .kind = POLL),
    RING("poll+ring", .kind = POLL, .fixed_ring = true),
    RING("poll+files", .kind = POLL, .fixed_files = true),
    RING("poll+both", .kind = POLL, .fixed_files = true, .fixed_ring = true),
    RING("linked", .kind = LINKED, .buffers = 8, .buffer_size = FLOOR_HOT_SIZE),
    RING("linked-32", .kind = LINKED, .buffers = 32, .buffer_size = FLOOR_HOT_SIZE),
    RING("select-1", .kind = SELECT, .buffers = 1, .buffer_size = FLOOR_HOT_SIZE),
    RING("select-4", .kind = SELECT, .buffers = 4, .buffer_size = FLOOR_HOT_SIZE),
    RING("select-32", .kind = SELECT, .buffers = 32, .buffer_size = FLOOR_HOT_SIZE),
    RING("select-small", .kind = SELECT, .buffers = 32, .buffer_size = 16384),
    RING("select+both", .kind = SELECT, .buffers = 32, .buffer_size = 16384, .fixed_files = true,
         .fixed_ring = true),
    RING("multishot", .kind = MULTISHOT, .buffers = 32, .buffer_size = 65536),
    RING("bundle", .kind = BUNDLE, .buffers = 32, .buffer_size = 32768),
    RING("bundle-small", .kind = BUNDLE, .buffers = 64, .buffer_size = 8192),
#undef RING
};

const struct floor_way *floor_way_find(const char *name)
{
    size_t count = sizeof(ways) / sizeof(ways[0]);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(ways[i].way.name, name) == 0) {
            state.way = ways[i].ring;
            return &ways[i].way;
        }
    }
    char known[512] = "";
    for (size_t i = 0; i < count; i++) {
        strcat(strcat(known, " "), ways[i].way.name);
    }
    floor_die("no way \"%s\"; there are%s", name, known);
}
