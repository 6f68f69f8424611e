/* The epoll backend, for systems that forbid io_uring.
 *
 * Every socket is registered once, edge-triggered, for both directions. What an edge said is kept
 * in the socket (readable, writable, hung_up) until a call comes back short: on a stream a short
 * read means that there is no more for now (epoll(7)), except behind a hang-up, whose edge may
 * already have been told. So starting an op costs no system call, and a receive is made when its
 * owner is about to run: into one buffer that is used for every socket and stays hot in the cache.
 *
 * epoll knows nothing of regular files: what is not in the page cache is read by threads
 * (runtime/file_reader.h). */
#include "runtime/clock.h"
#include "runtime/descriptor.h"
#include "runtime/file_reader.h"
#include "runtime/loop.h"
#include "runtime/socket.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EPOLL_EVENTS_MAX 256

struct epoll_backend {
    struct rg_loop *loop;
    int epoll_fd, wake_fd;
    uint8_t *scratch; /* RG_RECV_SIZE_MAX bytes, not inherited over fork */
    struct rg_file_reader *files;
    struct epoll_event events[EPOLL_EVENTS_MAX];
};

static void epoll_destroy(void *self)
{
    struct epoll_backend *backend = self;
    rg_file_reader_destroy(backend->files);
    rg_scratch_unmap(backend->scratch);
    rg_fd_drop(backend->wake_fd);
    rg_fd_drop(backend->epoll_fd);
    free(backend);
}

static void epoll_wake(void *self)
{
    struct epoll_backend *backend = self;
    (void)eventfd_write(backend->wake_fd, 1);
}

int rg_epoll_add_wake(void *self, int fd)
{
    struct epoll_backend *backend = self;
    /* Edge-triggered: the counter need never be read, each write is an edge. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    return epoll_ctl(backend->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int epoll_setup(struct epoll_backend *backend)
{
    rg_fd_hold();
    backend->epoll_fd = rg_fd_track(epoll_create1(EPOLL_CLOEXEC));
    if (backend->epoll_fd >= 0) {
        backend->wake_fd = rg_fd_track(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    int error = backend->wake_fd < 0 ? errno : 0;
    rg_fd_release();
    if (error != 0) {
        return -error;
    }
    int rc = rg_epoll_add_wake(backend, backend->wake_fd);
    if (rc < 0) {
        return rc;
    }
    rc = rg_file_reader_create(&backend->files, epoll_wake, backend);
    return rc < 0 ? rc : rg_scratch_map(&backend->scratch);
}

static int epoll_create_backend(struct rg_loop *loop, void **out_self)
{
    struct epoll_backend *backend = calloc(1, sizeof(*backend));
    if (backend == NULL) {
        return -ENOMEM;
    }
    backend->loop = loop;
    backend->epoll_fd = -1;
    backend->wake_fd = -1;
    int rc = epoll_setup(backend);
    if (rc < 0) {
        epoll_destroy(backend);
        return rc;
    }
    *out_self = backend;
    return 0;
}

static int epoll_attach(void *self)
{
    RG_ASSERT(self != NULL);
    return 0;
}

static void epoll_detach(void *self)
{
    RG_ASSERT(self != NULL);
}

static int epoll_register(struct epoll_backend *backend, struct rg_socket *socket, int fd)
{
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
        .data.ptr = socket,
    };
    if (epoll_ctl(backend->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        return -errno;
    }
    socket->fd = fd;
    return 0;
}

static int epoll_socket_open(void *self, struct rg_socket *socket, int family)
{
    struct epoll_backend *backend = self;
    int fd = rg_fd_open_tcp(family, SOCK_NONBLOCK);
    if (fd < 0) {
        return fd;
    }
    int rc = epoll_register(backend, socket, fd);
    if (rc < 0) {
        rg_fd_close(fd, false);
        return rc;
    }
    /* Registering an unconnected socket reports a hang-up; it says nothing about the connection. */
    return 0;
}

static int epoll_socket_adopt(void *self, struct rg_socket *socket, int fd)
{
    rg_fd_prepare(fd);
    return epoll_register(self, socket, fd);
}

static void epoll_socket_output(void *self, const struct rg_socket *socket, uint64_t taken,
                                struct rg_socket_output *out_output)
{
    RG_ASSERT(self != NULL);
    rg_fd_output(socket->fd, taken, out_output);
}

static void epoll_socket_shutdown(void *self, struct rg_socket *socket)
{
    RG_ASSERT(self != NULL);
    (void)shutdown(socket->fd, SHUT_RDWR);
}

static void epoll_socket_close(void *self, struct rg_socket *socket, bool reset)
{
    RG_ASSERT(self != NULL);
    /* Closing the last descriptor of a socket removes it from the epoll set. A child of fork may
     * hold another one, so it is removed by hand. */
    struct epoll_backend *backend = self;
    (void)epoll_ctl(backend->epoll_fd, EPOLL_CTL_DEL, socket->fd, NULL);
    rg_fd_close(socket->fd, reset);
}

static bool socket_can(const struct rg_socket *socket, const struct rg_op *op)
{
    bool writes = op->kind == RG_OP_CONNECT || op->kind == RG_OP_SEND;
    return writes ? socket->writable : socket->readable;
}

static void connect_start(struct epoll_backend *backend, struct rg_op *op)
{
    struct rg_socket *socket = op->socket;
    socket->writable = socket->readable = socket->hung_up = false;
    /* EALREADY, EISCONN: it was started by a ring that has failed since. */
    int rc = connect(socket->fd, op->data, (socklen_t)op->size);
    if (rc == 0 || errno == EISCONN) {
        socket->writable = true;
        rg_loop_op_ready(backend->loop, op, 0);
    } else if (errno != EINPROGRESS && errno != EALREADY && errno != EINTR) {
        rg_loop_op_ready(backend->loop, op, -errno);
    }
}

static void epoll_start(void *self, struct rg_op *op)
{
    struct epoll_backend *backend = self;
    if (op->kind == RG_OP_CONNECT) {
        connect_start(backend, op);
    } else if (op->kind == RG_OP_READ_FILE || op->kind == RG_OP_SEND ||
               socket_can(op->socket, op)) {
        /* A request almost always fits the socket's buffer, and a file is most likely in the page
         * cache: try before waiting. */
        rg_loop_op_ready(backend->loop, op, 0);
    }
}

static void epoll_cancel(void *self, struct rg_op *op)
{
    struct epoll_backend *backend = self;
    rg_loop_op_ready(backend->loop, op, -ECANCELED);
}

static int32_t connect_result(const struct rg_socket *socket)
{
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(socket->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0) {
        return -errno;
    }
    return -error;
}

/* True: the op's result is final. */
static bool finish_send(struct rg_op *op)
{
    struct rg_socket *socket = op->socket;
    int32_t sent = rg_fd_send(socket->fd, (const uint8_t *)op->data + op->progress,
                              op->size - op->progress, op->more);
    /* Unlike receiving, a hang-up does not matter here: the peer may have ended its own side and
     * read on, and an error would have been the result. */
    if (sent == -EAGAIN) {
        socket->writable = false;
        return false;
    }
    if (sent < 0) {
        op->result = sent;
        return true;
    }
    op->progress += (uint32_t)sent;
    op->result = (int32_t)op->progress;
    if (op->progress < op->size) {
        /* A short send means a full buffer; the edge comes when it has drained. */
        socket->writable = false;
        return false;
    }
    return true;
}

static bool finish_recv(struct epoll_backend *backend, struct rg_op *op)
{
    struct rg_socket *socket = op->socket;
    void *data = op->kind == RG_OP_RECV ? backend->scratch : op->data;
    op->result = rg_fd_recv(socket->fd, data, op->size);
    if (op->result == -EAGAIN) {
        socket->readable = false;
        return false;
    }
    op->data = data;
    if (op->result > 0 && (size_t)op->result < op->size) {
        socket->readable = socket->hung_up;
    }
    return true;
}

static bool finish_accept(struct rg_op *op)
{
    op->result = rg_fd_accept(op->socket->fd, SOCK_NONBLOCK);
    if (op->result == -EAGAIN) {
        op->socket->readable = false;
        return false;
    }
    return true;
}

/* op->backend_state: what is in memory was tried. */
static bool finish_read(struct epoll_backend *backend, struct rg_op *op)
{
    if (op->backend_state != 0 || rg_file_read_cached(op)) {
        return true;
    }
    op->backend_state = 1;
    op->state = RG_OP_INFLIGHT;
    rg_file_reader_start(backend->files, op);
    return false;
}

static bool epoll_finish(void *self, struct rg_op *op)
{
    struct epoll_backend *backend = self;
    if (op->result < 0) {
        return true;
    }
    bool final = true;
    switch ((enum rg_op_kind)op->kind) {
    case RG_OP_CONNECT:
        op->result = connect_result(op->socket);
        break;
    case RG_OP_SEND:
        final = finish_send(op);
        break;
    case RG_OP_RECV:
    case RG_OP_RECV_INTO:
        final = finish_recv(backend, op);
        break;
    case RG_OP_ACCEPT:
        final = finish_accept(op);
        break;
    case RG_OP_READ_FILE:
        return finish_read(backend, op);
    }
    if (!final) {
        op->state = RG_OP_INFLIGHT;
        if (socket_can(op->socket, op)) {
            rg_loop_op_ready(backend->loop, op, 0);
        }
    }
    return final;
}

static void socket_notice(struct epoll_backend *backend, struct rg_socket *socket, uint32_t events)
{
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        socket->hung_up = true;
    }
    socket->readable |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    socket->writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
    struct rg_op *reading = socket->reading, *writing = socket->writing;
    if (socket->readable && reading != NULL && reading->state == RG_OP_INFLIGHT) {
        rg_loop_op_ready(backend->loop, reading, 0);
    }
    if (socket->writable && writing != NULL && writing->state == RG_OP_INFLIGHT) {
        rg_loop_op_ready(backend->loop, writing, 0);
    }
}

static void epoll_flush(void *self)
{
    RG_ASSERT(self != NULL);
}

/* Rounded up, so that a timer is due when the wait for it ends. */
static int timeout_ms(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns == UINT64_MAX) {
        return -1;
    }
    if (deadline_ns <= now_ns) {
        return 0;
    }
    uint64_t ms = (deadline_ns - now_ns + RG_NS_PER_MS - 1) / RG_NS_PER_MS;
    return (int)RG_MIN(ms, (uint64_t)INT32_MAX);
}

static void epoll_wait_events(void *self, uint64_t deadline_ns)
{
    struct epoll_backend *backend = self;
    int timeout = timeout_ms(deadline_ns, deadline_ns == 0 ? 0 : rg_now_ns());
    int count = epoll_wait(backend->epoll_fd, backend->events, EPOLL_EVENTS_MAX, timeout);
    RG_ASSERT(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; i++) {
        struct rg_socket *socket = backend->events[i].data.ptr;
        if (socket != NULL) {
            socket_notice(backend, socket, backend->events[i].events);
        }
    }
    struct rg_op *op = rg_file_reader_take(backend->files);
    while (op != NULL) {
        struct rg_op *next = op->ready_next;
        rg_loop_op_ready(backend->loop, op, op->result);
        op = next;
    }
}

static uint64_t epoll_now_ns(void *self)
{
    RG_ASSERT(self != NULL);
    return rg_now_ns();
}

const struct rg_backend_ops rg_epoll_backend = {
    .name = "epoll",
    .create = epoll_create_backend,
    .attach = epoll_attach,
    .detach = epoll_detach,
    .destroy = epoll_destroy,
    .socket_open = epoll_socket_open,
    .socket_adopt = epoll_socket_adopt,
    .socket_output = epoll_socket_output,
    .socket_shutdown = epoll_socket_shutdown,
    .socket_close = epoll_socket_close,
    .start = epoll_start,
    .cancel = epoll_cancel,
    .finish = epoll_finish,
    .flush = epoll_flush,
    .wait = epoll_wait_events,
    .wake = epoll_wake,
    .now_ns = epoll_now_ns,
};
