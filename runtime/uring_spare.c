/* How a loop continues with epoll when its ring has failed: see uring.c.
 *
 * The ring is closed, every socket is handed to an epoll backend, and what was in flight begins
 * again there: a wait for a socket, and a connection, of which the kernel knows how far it is. Two
 * things cannot. A send of which the kernel may have done a part: its connection is ended. And a
 * read of a file, into memory that the kernel may still write to: it begins again when the ring is
 * gone, which is told by the *grave*, one end of a pipe of which the ring has the other. */
#include "runtime/errors.h"
#include "runtime/log.h"
#include "runtime/socket.h"
#include "runtime/uring.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

/* Takes what the ring has told, and closes it. The kernel then takes it down in its own time. */
static void ring_bury(struct rg_uring *backend)
{
    rg_uring_drain(backend, UINT32_MAX);
    /* What lies in the queue has not reached the kernel. */
    const struct io_uring_sq *sq = &backend->ring.sq;
    for (unsigned i = __atomic_load_n(sq->khead, __ATOMIC_ACQUIRE); i != sq->sqe_tail; i++) {
        uintptr_t data = (uintptr_t)sq->sqes[i & sq->ring_mask].user_data;
        if ((data & RG_URING_TAGS) == 0 && data != (uintptr_t)&rg_uring_wake_tag &&
            data != (uintptr_t)&rg_uring_unpoll_tag) {
            ((struct rg_op *)data)->backend_state &= (uint8_t)~RG_URING_ENTERED;
        }
    }
    backend->attached = false;
    rg_uring_exit(&backend->ring);
    rg_uring_polls_free(backend);
    for (struct rg_list *node = backend->sockets.next; node != &backend->sockets;
         node = node->next) {
        RG_CONTAINER_OF(node, struct rg_socket, node)->poll = NULL;
    }
    for (struct rg_op *op = backend->loop->ready_head; op != NULL; op = op->ready_next) {
        op->backend_state |= RG_URING_OLD;
    }
}

/* An op in flight continues with epoll, or ends. `error`: epoll cannot be used either. */
static void op_move(struct rg_uring *backend, struct rg_op *op, int error)
{
    if (op == NULL || op->state != RG_OP_INFLIGHT) {
        return;
    }
    uint8_t before = op->backend_state;
    op->backend_state = 0;
    if ((before & RG_URING_RESULT_KNOWN) != 0) {
        op->backend_state = RG_URING_OLD | (before & RG_URING_TRIED);
        rg_loop_op_ready(backend->loop, op, op->result);
        return;
    }
    bool in_kernel = op->kind == RG_OP_SEND && (before & RG_URING_ENTERED) != 0;
    if (in_kernel) {
        /* Nobody knows how much of it is on its way; the rest must not follow. Nor may it be read
         * from memory that is its owner's again, who cancelled it, before the ring is gone. */
        (void)shutdown(op->socket->fd, SHUT_RDWR);
    }
    if (op->cancelled) {
        rg_loop_op_ready(backend->loop, op, -ECANCELED);
    } else if (in_kernel) {
        rg_loop_op_ready(backend->loop, op, -EIO);
    } else if (error != 0) {
        rg_loop_op_ready(backend->loop, op, error);
    } else if (op->kind == RG_OP_CONNECT || op->kind == RG_OP_SEND) {
        rg_epoll_backend.start(backend->spare, op);
    }
}

static void socket_move(struct rg_uring *backend, struct rg_socket *socket)
{
    int fd = socket->fd;
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    rg_list_remove(&socket->node);
    socket->readable = socket->writable = socket->hung_up = false;
    int rc = rg_epoll_backend.socket_adopt(backend->spare, socket, fd);
    if (rc < 0) {
        /* It will hear of nothing: whatever is tried on it ends at once. */
        (void)shutdown(fd, SHUT_RDWR);
        socket->readable = socket->writable = socket->hung_up = true;
    }
    op_move(backend, socket->reading, rc);
    op_move(backend, socket->writing, rc);
}

/* Reads that the kernel never had begin again at once; the others when the ring is gone, because it
 * may still write to their memory. */
static void reads_move(struct rg_uring *backend)
{
    struct rg_list reads;
    rg_list_init(&reads);
    rg_list_splice_back(&reads, &backend->reads);
    struct rg_list *node;
    while ((node = rg_list_pop_front(&reads)) != NULL) {
        struct rg_op *op = RG_CONTAINER_OF(node, struct rg_op, node);
        if ((op->backend_state & RG_URING_ENTERED) != 0) {
            rg_list_push_back(&backend->reads, &op->node);
            continue;
        }
        op->backend_state = 0;
        rg_epoll_backend.start(backend->spare, op);
    }
}

/* The ring is gone, and with it the other end of the pipe. */
void rg_uring_grave_done(struct rg_op *grave_op)
{
    struct rg_uring *backend = RG_CONTAINER_OF(grave_op, struct rg_uring, grave_op);
    for (struct rg_list *node = backend->reads.next; node != &backend->reads; node = node->next) {
        RG_CONTAINER_OF(node, struct rg_op, node)->backend_state &= (uint8_t)~RG_URING_ENTERED;
    }
    reads_move(backend);
}

/* Waits for the ring's end; here and now only where epoll has no room for one descriptor more. */
static void grave_watch(struct rg_uring *backend)
{
    struct rg_socket *grave = &backend->grave;
    if (rg_epoll_backend.socket_adopt(backend->spare, grave, grave->fd) == 0) {
        rg_op_recv_into(backend->loop, &backend->grave_op, grave, &backend->grave_byte,
                        sizeof(backend->grave_byte));
        return;
    }
    struct pollfd end = {.fd = grave->fd, .events = POLLIN};
    while (poll(&end, 1, -1) < 0) {
        RG_ASSERT(errno == EINTR);
    }
    rg_uring_grave_done(&backend->grave_op);
}

/* Makes the epoll backend that takes over. 0 or a negative errno. */
static int spare_create(struct rg_uring *backend)
{
    void *spare = NULL;
    int rc = rg_epoll_backend.create(backend->loop, &spare);
    if (rc < 0) {
        return rc;
    }
    rc = rg_epoll_add_wake(spare, backend->wake_fd);
    if (rc < 0) {
        rg_epoll_backend.destroy(spare);
        return rc;
    }
    backend->spare = spare;
    return 0;
}

void rg_uring_take_over(struct rg_uring *backend)
{
    if (backend->attached) {
        ring_bury(backend);
    }
    int rc = spare_create(backend);
    struct rg_list *sockets = &backend->sockets, *next;
    if (rc < 0) {
        for (struct rg_list *node = sockets->next; node != sockets; node = node->next) {
            struct rg_socket *socket = RG_CONTAINER_OF(node, struct rg_socket, node);
            op_move(backend, socket->reading, rc);
            op_move(backend, socket->writing, rc);
        }
        return;
    }
    rg_scratch_unmap(backend->scratch);
    backend->scratch = NULL;
    while ((next = rg_list_pop_front(sockets)) != NULL) {
        socket_move(backend, RG_CONTAINER_OF(next, struct rg_socket, node));
    }
    reads_move(backend);
    if (!rg_list_empty(&backend->reads)) {
        grave_watch(backend);
    }
    const char *reason = rg_errors_ring_broken_text(-backend->broken);
    atomic_store(&backend->loop->fallback_reason, reason);
    rg_log(RG_LOG_WARN, "loop %u continues with epoll: %s (errno %d)", backend->loop->index, reason,
           -backend->broken);
}
