/* The io_uring backend: one ring per loop, owned by the loop's thread.
 *
 * Flags: SINGLE_ISSUER and DEFER_TASKRUN make completions run in batches on the owner's own enter
 * (1.7 times the rate of the default flags), SUBMIT_ALL keeps one bad entry from stranding the
 * rest. They need Linux 6.1; below it the epoll backend serves.
 *
 * A ring is set up and taken down by the loop's own thread. Taking one down interrupts blocking
 * system calls of whoever set it up (seen on Linux 6.18: EINTR with no signal sent), and the
 * program's own threads shall not notice us.
 *
 * The ring waits for a socket to be readable, and the receive itself is a plain system call when
 * its owner is about to run; after one that was filled the next does not wait. So all sockets share
 * one buffer, which is still in the cache when the next one is received into it. Letting the kernel
 * choose from a buffer ring saves the system call, but a batch of 20 to 30 receives then goes
 * through as many buffers before the first is decrypted: measured with 64 connections it makes no
 * difference at 4 KiB and costs 15 % more CPU time per body at 100 KiB over TLS.
 *
 * A socket that has brought little for a while has a multishot poll, which saves an entry for each
 * receive: 2 to 4 % of a put of 4 KiB. It tells of each arrival once, like an edge of epoll, and so
 * what it said is kept until a receive comes back short. A socket that brings much has a one-shot
 * poll for each receive: the other would also tell of what the last receive took, 8 % at 3 MiB
 * (docs/internals/io-uring.md).
 *
 * A send is a system call when its op is about to run, as with epoll, and only what does not fit
 * the socket's buffer goes through the ring. As an entry it would be seen to be done a pass later
 * than it is, and the answer waited for a pass later: 11.4 against 9.0 us per GET of 4 KiB. Sent
 * where it is started, between the requests of a batch that are made one after the other, each
 * request would find less of its code and memory in the cache (1.5 % of a put of 4 KiB).
 *
 * A file is read like a socket: by a system call when its owner is about to run, as far as the page
 * cache has it, and through the ring where it does not. Read when they are submitted, the pieces of
 * several files are no longer in the CPU's cache when they are looked at.
 *
 * Every op has at most one entry in flight, and its address is the entry's user data. (A multishot
 * poll is of no op: it has memory of its own, which stays until its last completion.) A cancel
 * entry has the same address with RG_URING_CANCEL_TAG; an op that is being cancelled becomes ready
 * when both entries have completed, so that no completion names an op that is gone. Sockets are in
 * blocking mode, because io_uring would otherwise hand -EAGAIN to us instead of waiting itself.
 *
 * A ring that was made may fail later: a filter is installed that forbids it, or memory runs out
 * and a completion is lost. The loop then continues with epoll (uring_spare.c). */
#include "runtime/uring.h"
#include "runtime/clock.h"
#include "runtime/descriptor.h"
#include "runtime/errors.h"
#include "runtime/file_reader.h"
#include "runtime/socket.h"
#include "runtime/thread.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define SQ_ENTRIES 1024
/* Every completion that can arrive between two passes: one receive and one send per connection. The
 * kernel keeps what does not fit, at a price. */
#define CQ_ENTRIES 16384
#define CQ_ENTRIES_MIN 2048
/* Completions taken in one pass; timers and mail must have their turn. */
#define DRAIN_MAX 512

/* How often in a row the kernel may say that it is short of something, and how long a pass waits
 * then before it asks again. */
#define SHORTAGES_MAX 1000
#define SHORTAGE_PAUSE_NS (1 * RG_NS_PER_MS)

/* The same where epoll cannot be used either. */
#define WRECK_PAUSE_MS 10

#define RING_FLAGS                                                                                 \
    (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |         \
     IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP)

/* Linux 6.15; liburing has names for them since 2.10. */
#define ENTER_NO_IOWAIT (1U << 7)
#define FEATURE_NO_IOWAIT (1U << 17)

/* Up to here a receive brought little. So many of them in a row, and the socket gets a multishot
 * poll; one that brought more, and it goes. */
#define LITTLE RG_KIB(16)
#define LITTLE_IN_A_ROW 8

/* Aligned, so that none of the tags of an address is set. */
_Alignas(8) char rg_uring_wake_tag, rg_uring_unpoll_tag;

/* A forked child closes the descriptor, and does not inherit the mapping: that alone would keep the
 * ring, and with it every socket, alive there. */
static int ring_init(struct io_uring *ring, uint32_t cq_entries)
{
    struct io_uring_params params = {.flags = RING_FLAGS, .cq_entries = cq_entries};
    rg_fd_hold();
    int rc = io_uring_queue_init_params(SQ_ENTRIES, ring, &params);
    if (rc == 0) {
        rg_fd_track(ring->ring_fd);
        (void)io_uring_ring_dontfork(ring);
    }
    rg_fd_release();
    return rc;
}

void rg_uring_exit(struct io_uring *ring)
{
    rg_fd_hold();
    rg_fd_forget(ring->ring_fd);
    io_uring_queue_exit(ring);
    rg_fd_release();
}

/* Large queues were physically contiguous before Linux 6.10 and can fail on a fragmented host. */
static int ring_init_shrinking(struct io_uring *ring)
{
    int rc = -ENOMEM;
    for (uint32_t entries = CQ_ENTRIES; rc == -ENOMEM && entries >= CQ_ENTRIES_MIN; entries /= 2) {
        rc = ring_init(ring, entries);
    }
    return rc;
}

/* On a thread of its own, for what taking a ring down does to the thread that set it up. */
static void *probe_thread(void *context)
{
    int *rc = context;
    struct io_uring ring;
    *rc = ring_init_shrinking(&ring);
    if (*rc == 0) {
        rg_uring_exit(&ring);
    }
    return NULL;
}

int rg_uring_probe(const char **out_reason)
{
    pthread_t thread;
    int result;
    int rc = rg_thread_start(&thread, 0, probe_thread, &result);
    if (rc == 0) {
        pthread_join(thread, NULL);
        rc = result;
    }
    if (rc < 0) {
        *out_reason = rg_errors_ring_setup_text(-rc);
    }
    return rc;
}

static int uring_create(struct rg_loop *loop, void **out_self)
{
    struct rg_uring *backend = calloc(1, sizeof(*backend));
    if (backend == NULL) {
        return -ENOMEM;
    }
    backend->loop = loop;
    backend->grave.fd = -1;
    rg_list_init(&backend->sockets);
    rg_list_init(&backend->reads);
    rg_list_init(&backend->polls);
    rg_list_init(&backend->polls_idle);
    rg_op_init(&backend->grave_op, rg_uring_grave_done);
    rg_fd_hold();
    backend->wake_fd = rg_fd_track(eventfd(0, EFD_CLOEXEC));
    int rc = backend->wake_fd < 0 ? -errno : 0;
    rg_fd_release();
    rc = rc == 0 ? rg_scratch_map(&backend->scratch) : rc;
    if (rc < 0) {
        rg_fd_drop(backend->wake_fd);
        free(backend);
        return rc;
    }
    *out_self = backend;
    return 0;
}

/* Gives the ring one end of a pipe, by registering it as a file. */
static int grave_dig(struct rg_uring *backend)
{
    int ends[2];
    rg_fd_hold();
    int rc = pipe2(ends, O_CLOEXEC) < 0 ? -errno : 0;
    if (rc == 0) {
        rg_fd_track(ends[0]);
        rg_fd_track(ends[1]);
    }
    rg_fd_release();
    if (rc < 0) {
        return rc;
    }
    rc = io_uring_register_files(&backend->ring, &ends[1], 1);
    rg_fd_drop(ends[1]);
    if (rc < 0) {
        rg_fd_drop(ends[0]);
        return rc;
    }
    backend->grave.fd = ends[0];
    return 0;
}

static int uring_attach(void *self)
{
    struct rg_uring *backend = self;
    RG_ASSERT(!backend->attached);
    int rc = ring_init_shrinking(&backend->ring);
    if (rc < 0) {
        return rc;
    }
    rc = grave_dig(backend);
    if (rc < 0) {
        rg_uring_exit(&backend->ring);
        return rc;
    }
    /* The ring's descriptor is not registered, which would save a table look-up per enter: a filter
     * that forbids every call to the ring also forbids to undo that, and the ring, what it does and
     * the sockets in it would stay as long as the thread. */
    backend->attached = true;
    return 0;
}

static void uring_detach(void *self)
{
    struct rg_uring *backend = self;
    if (backend->attached) {
        backend->attached = false;
        rg_uring_exit(&backend->ring);
    }
}

static void uring_destroy(void *self)
{
    struct rg_uring *backend = self;
    RG_ASSERT(!backend->attached);
    if (backend->spare != NULL) {
        rg_epoll_backend.destroy(backend->spare);
    }
    rg_uring_polls_free(backend);
    rg_fd_drop(backend->grave.fd);
    /* The loop ended with the read of wake_fd in flight: its eight bytes are in `backend`, and ring
     * teardown is asynchronous. The counter is never written again, so nothing is stored there. */
    rg_fd_drop(backend->wake_fd);
    rg_scratch_unmap(backend->scratch);
    free(backend);
}

/* The ring, or the system, has no room for now: a drain or time may mend that. */
static void note_shortage(struct rg_uring *backend, int rc)
{
    if (++backend->shortages > SHORTAGES_MAX) {
        backend->broken = rc;
    } else if (backend->shortages > 1) {
        struct timespec pause = rg_timespec_from_ns(SHORTAGE_PAUSE_NS);
        (void)nanosleep(&pause, NULL);
    }
}

/* What io_uring_enter says. */
static void note_entered(struct rg_uring *backend, int rc)
{
    enum rg_errors_ring meaning = rc < 0 ? rg_errors_ring_entered(-rc) : RG_ERRORS_RING_AGAIN;
    if (meaning == RG_ERRORS_RING_SHORT) {
        note_shortage(backend, rc);
        return;
    }
    if (meaning == RG_ERRORS_RING_BROKEN) {
        backend->broken = rc;
    }
    backend->shortages = 0;
}

/* NULL: the ring is broken. */
static struct io_uring_sqe *take_sqe(struct rg_uring *backend)
{
    struct io_uring_sqe *sqe = NULL;
    while (backend->broken == 0 && (sqe = io_uring_get_sqe(&backend->ring)) == NULL) {
        note_entered(backend, io_uring_submit(&backend->ring));
    }
    return sqe;
}

static void wake_arm(struct rg_uring *backend)
{
    struct io_uring_sqe *sqe = backend->wake_armed ? NULL : take_sqe(backend);
    if (sqe != NULL) {
        io_uring_prep_read(sqe, backend->wake_fd, &backend->wake_count, sizeof(uint64_t), 0);
        io_uring_sqe_set_data(sqe, &rg_uring_wake_tag);
        backend->wake_armed = true;
    }
}

void rg_uring_polls_free(struct rg_uring *backend)
{
    struct rg_list *node;
    rg_list_splice_back(&backend->polls_idle, &backend->polls);
    while ((node = rg_list_pop_front(&backend->polls_idle)) != NULL) {
        free(RG_CONTAINER_OF(node, struct rg_uring_poll, node));
    }
    backend->poll_count = 0;
}

/* From here on each arrival at the socket is told, and what is there already. False: a one-shot
 * poll has to do. */
static bool poll_begin(struct rg_uring *backend, struct rg_socket *socket)
{
    struct rg_list *node = rg_list_pop_front(&backend->polls_idle);
    if (node == NULL) {
        return false;
    }
    struct rg_uring_poll *poll = RG_CONTAINER_OF(node, struct rg_uring_poll, node);
    struct io_uring_sqe *sqe = take_sqe(backend);
    if (sqe == NULL) {
        rg_list_push_back(&backend->polls_idle, node);
        return false;
    }
    poll->socket = socket;
    socket->poll = poll;
    rg_list_push_back(&backend->polls, node);
    io_uring_prep_poll_multishot(sqe, socket->fd, POLLIN | POLLRDHUP);
    io_uring_sqe_set_data(sqe, (void *)((uintptr_t)poll | RG_URING_POLL_TAG));
    return true;
}

/* Nothing of it reaches the socket any more; the kernel ends it later, and says so. */
static bool poll_end(struct rg_uring *backend, struct rg_socket *socket)
{
    struct rg_uring_poll *poll = socket->poll;
    if (poll == NULL) {
        return false;
    }
    poll->socket = NULL;
    socket->poll = NULL;
    socket->hung_up = false;
    backend->hurried = true;
    struct io_uring_sqe *sqe = backend->attached ? take_sqe(backend) : NULL;
    if (sqe != NULL) {
        io_uring_prep_cancel64(sqe, (uintptr_t)poll | RG_URING_POLL_TAG, 0);
        io_uring_sqe_set_data(sqe, &rg_uring_unpoll_tag);
        sqe->flags |= IOSQE_CQE_SKIP_SUCCESS;
    }
    return sqe != NULL;
}

/* The socket has something, or has ended: this is said once, and so it is remembered. Without MORE
 * it is the last that is heard: it was ended, or there was no room for a completion. */
static void notice_poll(struct rg_uring *backend, struct rg_uring_poll *poll,
                        const struct io_uring_cqe *cqe)
{
    struct rg_socket *socket = poll->socket;
    if ((cqe->flags & IORING_CQE_F_MORE) == 0) {
        if (socket != NULL) {
            socket->poll = NULL;
        }
        rg_list_remove(&poll->node);
        rg_list_push_back(&backend->polls_idle, &poll->node);
    }
    if (socket == NULL) {
        return;
    }
    if (cqe->res < 0) {
        socket->little = 0; /* The kernel cannot do it: not again at once. */
    } else if ((cqe->res & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
        socket->hung_up = true;
    }
    socket->readable = true;
    struct rg_op *op = socket->reading;
    if (op != NULL && op->state == RG_OP_INFLIGHT) {
        rg_loop_op_ready(backend->loop, op, 0);
    }
}

static void socket_add(struct rg_uring *backend, struct rg_socket *socket, int fd)
{
    socket->fd = fd;
    rg_list_push_back(&backend->sockets, &socket->node);
    struct rg_uring_poll *poll = NULL;
    if (++backend->socket_count > backend->poll_count &&
        (poll = calloc(1, sizeof(*poll))) != NULL) {
        backend->poll_count++;
        rg_list_push_back(&backend->polls_idle, &poll->node);
    }
}

static int uring_socket_open(void *self, struct rg_socket *socket, int family)
{
    struct rg_uring *backend = self;
    if (backend->spare != NULL) {
        return rg_epoll_backend.socket_open(backend->spare, socket, family);
    }
    int fd = rg_fd_open_tcp(family, 0);
    if (fd < 0) {
        return fd;
    }
    socket_add(backend, socket, fd);
    return 0;
}

static int uring_socket_adopt(void *self, struct rg_socket *socket, int fd)
{
    struct rg_uring *backend = self;
    if (backend->spare != NULL) {
        return rg_epoll_backend.socket_adopt(backend->spare, socket, fd);
    }
    rg_fd_prepare(fd);
    socket_add(backend, socket, fd);
    return 0;
}

static void uring_socket_output(void *self, const struct rg_socket *socket, uint64_t taken,
                                struct rg_socket_output *out_output)
{
    RG_ASSERT(self != NULL);
    rg_fd_output(socket->fd, taken, out_output);
}

static void uring_socket_shutdown(void *self, struct rg_socket *socket)
{
    RG_ASSERT(self != NULL);
    /* By system call: the SHUTDOWN op would always go through a worker thread. */
    (void)shutdown(socket->fd, SHUT_RDWR);
}

static void uring_socket_close(void *self, struct rg_socket *socket, bool reset)
{
    struct rg_uring *backend = self;
    if (backend->spare != NULL) {
        rg_epoll_backend.socket_close(backend->spare, socket, reset);
        return;
    }
    rg_list_remove(&socket->node);
    backend->socket_count--;
    /* The poll holds the socket: the peer would not see its end before the next pass. A shortage is
     * for that pass to note and to wait for: here each of many that close would wait. */
    if (poll_end(backend, socket)) {
        int rc = io_uring_submit_and_get_events(&backend->ring);
        if (rc >= 0 || rg_errors_ring_entered(-rc) != RG_ERRORS_RING_SHORT) {
            note_entered(backend, rc);
        }
    }
    rg_fd_close(socket->fd, reset);
}

/* True: the result is final; all is sent, or nothing more can be. */
static bool send_now(struct rg_op *op)
{
    op->backend_state = RG_URING_TRIED;
    op->result = rg_fd_send(op->socket->fd, op->data, op->size, op->more);
    if (op->result == -EAGAIN) {
        return false;
    }
    op->progress = op->result > 0 ? (uint32_t)op->result : 0;
    return op->result < 0 || op->progress == op->size;
}

/* Its entry does nothing but wait. */
static bool waits_for_socket(const struct rg_op *op)
{
    return op->kind == RG_OP_RECV || op->kind == RG_OP_RECV_INTO || op->kind == RG_OP_ACCEPT;
}

/* Of a socket that brings little at a time, so that a receive has no entry of its own. */
static bool waits_for_edge(struct rg_uring *backend, struct rg_socket *socket)
{
    return socket->poll != NULL ||
           (socket->little >= LITTLE_IN_A_ROW && poll_begin(backend, socket));
}

static void uring_start(void *self, struct rg_op *op)
{
    struct rg_uring *backend = self;
    if (backend->spare != NULL) {
        rg_epoll_backend.start(backend->spare, op);
        return;
    }
    bool receives = op->kind == RG_OP_RECV || op->kind == RG_OP_RECV_INTO;
    bool tries = (op->kind == RG_OP_READ_FILE || op->kind == RG_OP_SEND) && op->backend_state == 0;
    if (tries || (receives && op->socket->readable)) {
        rg_loop_op_ready(backend->loop, op, 0);
        return;
    }
    if (receives && waits_for_edge(backend, op->socket)) {
        return;
    }
    if (op->kind == RG_OP_READ_FILE) {
        rg_list_push_back(&backend->reads, &op->node);
    }
    struct io_uring_sqe *sqe = take_sqe(backend);
    if (sqe == NULL) {
        /* It begins in the next pass, by epoll. */
        return;
    }
    int fd = op->kind == RG_OP_READ_FILE ? op->file : op->socket->fd;
    switch ((enum rg_op_kind)op->kind) {
    case RG_OP_CONNECT:
        io_uring_prep_connect(sqe, fd, op->data, (socklen_t)op->size);
        break;
    case RG_OP_ACCEPT:
        /* Listening sockets are non-blocking because several loops share one: wait here, accept
         * when the owner is about to run. */
        io_uring_prep_poll_add(sqe, fd, POLLIN);
        break;
    case RG_OP_RECV:
    case RG_OP_RECV_INTO:
        io_uring_prep_poll_add(sqe, fd, POLLIN | POLLRDHUP);
        break;
    case RG_OP_SEND:
        /* MSG_WAITALL: the kernel itself continues after a short send. */
        io_uring_prep_send(sqe, fd, (const uint8_t *)op->data + op->progress,
                           op->size - op->progress,
                           MSG_NOSIGNAL | MSG_WAITALL | (op->more ? MSG_MORE : 0));
        break;
    case RG_OP_READ_FILE:
        io_uring_prep_read(sqe, fd, op->data, (unsigned)op->size, op->offset);
        break;
    }
    io_uring_sqe_set_data(sqe, op);
    op->backend_state |= RG_URING_ENTERED;
    backend->hurried |= !waits_for_socket(op);
}

static void uring_cancel(void *self, struct rg_op *op)
{
    struct rg_uring *backend = self;
    if (backend->spare != NULL) {
        rg_epoll_backend.cancel(backend->spare, op);
        return;
    }
    if (op->socket->poll != NULL && op == op->socket->reading) {
        rg_loop_op_ready(backend->loop, op, -ECANCELED);
        return;
    }
    if ((op->backend_state & (RG_URING_CANCEL_INFLIGHT | RG_URING_RESULT_KNOWN)) == 0) {
        struct io_uring_sqe *sqe = take_sqe(backend);
        if (sqe == NULL) {
            return; /* Whoever takes over finds that it was cancelled. */
        }
        op->backend_state |= RG_URING_CANCEL_INFLIGHT;
        backend->hurried = true;
        io_uring_prep_cancel(sqe, op, 0);
        io_uring_sqe_set_data(sqe, (void *)((uintptr_t)op | RG_URING_CANCEL_TAG));
    }
}

/* The kernel does not find an entry (-ENOENT, -EALREADY) that is just between waiting and running,
 * and which may wait once more after that: then ask again. */
static void notice_cancel(struct rg_uring *backend, struct rg_op *op, int32_t result)
{
    RG_ASSERT((op->backend_state & RG_URING_CANCEL_INFLIGHT) != 0);
    op->backend_state &= (uint8_t)~RG_URING_CANCEL_INFLIGHT;
    if ((op->backend_state & RG_URING_RESULT_KNOWN) != 0) {
        rg_loop_op_ready(backend->loop, op, op->result);
    } else if (result < 0) {
        uring_cancel(backend, op);
    }
}

static void notice(struct rg_uring *backend, const struct io_uring_cqe *cqe)
{
    void *data = io_uring_cqe_get_data(cqe);
    if (data == &rg_uring_wake_tag) {
        backend->wake_armed = false;
        return;
    }
    if (data == &rg_uring_unpoll_tag) {
        return; /* It had ended before. */
    }
    if (((uintptr_t)data & RG_URING_POLL_TAG) != 0) {
        notice_poll(backend, (void *)((uintptr_t)data & ~RG_URING_TAGS), cqe);
        return;
    }
    struct rg_op *op = (struct rg_op *)((uintptr_t)data & ~RG_URING_CANCEL_TAG);
    if (data != op) {
        notice_cancel(backend, op, cqe->res);
        return;
    }
    if (op->kind == RG_OP_READ_FILE) {
        rg_list_remove(&op->node);
    }
    if ((op->backend_state & RG_URING_CANCEL_INFLIGHT) != 0) {
        op->backend_state |= RG_URING_RESULT_KNOWN;
        op->result = cqe->res;
        return;
    }
    rg_loop_op_ready(backend->loop, op, cqe->res);
}

static bool finish_recv(struct rg_uring *backend, struct rg_op *op)
{
    if (op->kind == RG_OP_RECV) {
        op->data = backend->scratch;
    }
    struct rg_socket *socket = op->socket;
    op->result = rg_fd_recv(socket->fd, op->data, op->size);
    if (op->result == -EAGAIN) {
        socket->readable = false;
        return false;
    }
    if (op->result > (int32_t)LITTLE) {
        socket->little = 0;
        (void)poll_end(backend, socket);
    } else if (op->result > 0 && socket->little < LITTLE_IN_A_ROW) {
        socket->little++;
    }
    /* A receive that was filled has most likely left some: then the next one need not wait. An edge
     * is told once, of an end too, and behind a short receive there is only an end. */
    socket->readable = socket->hung_up || (op->result > 0 && (size_t)op->result == op->size) ||
                       (op->result <= 0 && socket->poll != NULL);
    return true;
}

/* False: it has to go through the ring, or was interrupted there. */
static bool finish_read(struct rg_op *op)
{
    if (op->backend_state == 0) {
        op->backend_state = RG_URING_TRIED;
        return rg_file_read_cached(op);
    }
    return op->result != -EINTR && op->result != -EAGAIN;
}

/* The same for a send. One that has ended without being made, in rg_uring_take_over, is not made.
 */
static bool finish_send(struct rg_op *op)
{
    if (op->result >= 0 && op->backend_state == 0) {
        return send_now(op);
    }
    if (op->result <= 0) {
        return true;
    }
    op->progress += (uint32_t)op->result;
    op->result = (int32_t)op->progress;
    return op->progress == op->size;
}

static bool uring_finish(void *self, struct rg_op *op)
{
    struct rg_uring *backend = self;
    bool final = true, old = (op->backend_state & RG_URING_OLD) != 0;
    if (backend->spare != NULL) {
        bool known = old && (op->kind == RG_OP_SEND || op->kind == RG_OP_READ_FILE);
        if (!known) {
            op->backend_state = old ? 0 : op->backend_state;
            return rg_epoll_backend.finish(backend->spare, op);
        }
    }
    op->backend_state &= (uint8_t)~RG_URING_OLD;
    if ((op->kind == RG_OP_RECV || op->kind == RG_OP_RECV_INTO) && op->result >= 0) {
        final = finish_recv(backend, op);
    } else if (op->kind == RG_OP_ACCEPT && op->result >= 0) {
        op->result = rg_fd_accept(op->socket->fd, 0);
        final = op->result != -EAGAIN;
    } else if (op->kind == RG_OP_SEND) {
        final = finish_send(op);
    } else if (op->kind == RG_OP_READ_FILE) {
        final = finish_read(op);
    }
    if (!final) {
        op->state = RG_OP_INFLIGHT;
        op->backend_state &= backend->spare == NULL ? RG_URING_TRIED : 0;
        uring_start(backend, op);
    }
    return final;
}

/* Waits for sockets need not begin before the sleep: what has come by then is found at once, and
 * the ring is entered once instead of twice. */
static void uring_flush(void *self)
{
    struct rg_uring *backend = self;
    if (backend->hurried && backend->broken == 0) {
        backend->hurried = false;
        note_entered(backend, io_uring_submit(&backend->ring));
    }
}

/* Hands over what is in the queue, as io_uring_submit does, and waits for a completion. A wait for
 * a ring with entries in flight counts as one for a disk: an idle loop would be seen as iowait of
 * its CPU, and as pressure on I/O (/proc/pressure/io). liburing 2.3 cannot say that it is none. */
static int submit_and_wait(struct io_uring *ring, struct __kernel_timespec *timeout)
{
    struct io_uring_sq *sq = &ring->sq;
    sq->sqe_head = sq->sqe_tail;
    __atomic_store_n(sq->ktail, sq->sqe_tail, __ATOMIC_RELEASE);
    unsigned count = sq->sqe_tail - __atomic_load_n(sq->khead, __ATOMIC_ACQUIRE);
    unsigned flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
    if ((ring->features & FEATURE_NO_IOWAIT) != 0) {
        flags |= ENTER_NO_IOWAIT;
    }
    struct io_uring_getevents_arg wait = {.ts = (uintptr_t)timeout};
    return io_uring_enter2((unsigned)ring->ring_fd, count, 1, flags, (sigset_t *)&wait,
                           sizeof(wait));
}

static void wait_until(struct rg_uring *backend, uint64_t deadline_ns)
{
    struct __kernel_timespec timeout, *wait = NULL;
    if (deadline_ns != UINT64_MAX) {
        uint64_t now_ns = rg_now_ns();
        uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        timeout.tv_sec = (int64_t)(left_ns / RG_NS_PER_S);
        timeout.tv_nsec = (long long)(left_ns % RG_NS_PER_S);
        wait = &timeout;
    }
    note_entered(backend, submit_and_wait(&backend->ring, wait));
}

/* The kernel has something left that the ring was not told of: since Linux 6.13 a call tells of 20
 * (IO_LOCAL_TW_DEFAULT_MAX), and one that has slept of as much as it waited for, which is one. Once
 * in a while that is said though nothing is left, until the next comes: who adds says so later. */
static bool has_left(const struct io_uring *ring)
{
    return (__atomic_load_n(ring->sq.kflags, __ATOMIC_RELAXED) & IORING_SQ_TASKRUN) != 0;
}

/* A pass takes what is there, as it does with epoll. Otherwise each sleep would make two passes,
 * and wake whoever takes completions twice; and a loop that lingers would sleep before every 20. */
static void uring_enter(struct rg_uring *backend, uint64_t deadline_ns)
{
    struct io_uring *ring = &backend->ring;
    backend->hurried = false;
    if (deadline_ns == 0) {
        note_entered(backend, io_uring_submit_and_get_events(ring));
    } else {
        wait_until(backend, deadline_ns);
    }
    unsigned before = 0, ready = io_uring_cq_ready(ring);
    while (backend->broken == 0 && ready > before && ready < DRAIN_MAX && has_left(ring)) {
        note_entered(backend, io_uring_get_events(ring));
        before = ready;
        ready = io_uring_cq_ready(ring);
    }
}

void rg_uring_drain(struct rg_uring *backend, uint32_t count_max)
{
    uint32_t head, count = 0;
    struct io_uring_cqe *cqe;
    io_uring_for_each_cqe(&backend->ring, head, cqe)
    {
        notice(backend, cqe);
        if (++count == count_max) {
            break;
        }
    }
    io_uring_cq_advance(&backend->ring, count);
    rg_metric_add(&backend->loop->metrics.cqes, count);
}

static void uring_wait(void *self, uint64_t deadline_ns)
{
    struct rg_uring *backend = self;
    if (backend->broken == 0) {
        RG_ASSERT(backend->attached);
        wake_arm(backend);
    }
    if (backend->broken == 0) {
        uring_enter(backend, deadline_ns);
        rg_uring_drain(backend, DRAIN_MAX);
    }
    if (RG_LIKELY(backend->broken == 0)) {
        return;
    }
    if (backend->spare == NULL) {
        rg_uring_take_over(backend);
        deadline_ns = 0;
    }
    if (backend->spare != NULL) {
        rg_epoll_backend.wait(backend->spare, deadline_ns);
    } else {
        struct pollfd wake = {.fd = backend->wake_fd, .events = POLLIN};
        (void)poll(&wake, 1, WRECK_PAUSE_MS);
    }
}

static void uring_wake(void *self)
{
    struct rg_uring *backend = self;
    (void)eventfd_write(backend->wake_fd, 1);
}

static uint64_t uring_now_ns(void *self)
{
    RG_ASSERT(self != NULL);
    return rg_now_ns();
}

const struct rg_backend_ops rg_uring_backend = {
    .name = "uring",
    .create = uring_create,
    .attach = uring_attach,
    .detach = uring_detach,
    .destroy = uring_destroy,
    .socket_open = uring_socket_open,
    .socket_adopt = uring_socket_adopt,
    .socket_output = uring_socket_output,
    .socket_shutdown = uring_socket_shutdown,
    .socket_close = uring_socket_close,
    .start = uring_start,
    .cancel = uring_cancel,
    .finish = uring_finish,
    .flush = uring_flush,
    .wait = uring_wait,
    .wake = uring_wake,
    .now_ns = uring_now_ns,
};
