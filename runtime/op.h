/* Operations: the one way in which the layers above reach the kernel.
 *
 * Vocabulary. A *socket* is a file descriptor and what its backend has to remember about it. An
 * *op* is one operation on a socket; it is embedded in its owner, so that its address is all the
 * kernel needs to carry. A *backend* is one of io_uring, epoll, or the simulation of the tests; all
 * three keep the same contract:
 *
 *   - An op is idle, in flight, or ready. Starting it (rg_op_recv and so on) makes it in flight; it
 *     never calls the owner back from there, however quickly it finishes.
 *   - The backend only notes what finished and puts the op on the loop's ready list. After the
 * drain the loop calls op->done(op) for each, once, with op->result: a count, or a negative errno.
 *   - From then on the op is idle and may be started again, also from within `done`.
 *   - Bytes of rg_op_recv lie at op->data and are valid until `done` returns. The buffer belongs to
 *     the loop and is hot in the cache because it is used again at once, so copy or decrypt out of
 * it.
 *   - An op that was cancelled finishes all the same: with -ECANCELED, or with what it had
 * achieved.
 *   - The memory of an op, and what it points to, must stay until `done` was called: the kernel may
 *     write there.
 *
 * A socket has at most one op in flight in each direction: reading (recv, accept) and writing
 * (connect, send). Everything here runs on the loop's own thread, except rg_loop_wake. */
#ifndef RG_RUNTIME_OP_H
#define RG_RUNTIME_OP_H

#include "runtime/base.h"

#include <sys/socket.h>

struct rg_loop;
struct rg_op;

enum rg_op_kind {
    RG_OP_CONNECT,
    RG_OP_ACCEPT,
    RG_OP_RECV,      /* into the buffer that all sockets of the loop share */
    RG_OP_RECV_INTO, /* into the owner's memory */
    RG_OP_SEND,
    RG_OP_READ_FILE, /* of no socket: a piece of a regular file into the owner's memory */
};

enum rg_op_state { RG_OP_IDLE = 0, RG_OP_INFLIGHT, RG_OP_READY };

struct rg_socket {
    int fd;
    /* What a backend knows without asking: epoll by edge; io_uring, without writable, by an edge or
     * a receive that was filled. */
    bool readable, writable, hung_up;
    uint8_t little;    /* io_uring: so many receives in a row brought little */
    uint32_t lingered; /* rg_linger_note's: the window of its last op, and whether it wrote */
    struct rg_uring_poll *poll; /* io_uring: what tells of each arrival; NULL: nothing does */
    uint64_t taken;             /* bytes of sends that are done */
    /* Ops in flight; NULL when there is none. */
    struct rg_op *reading, *writing;
    struct rg_list node; /* the backend's */
    void *sim;           /* the simulated connection, in tests */
};

struct rg_op {
    struct rg_op *ready_next;
    void (*done)(struct rg_op *op); /* set once by the owner */
    struct rg_socket *socket;       /* NULL: READ_FILE */
    uint8_t kind, state;
    bool cancelled;        /* asked for since the op was started; lasts over partial progress */
    uint8_t backend_state; /* the backend's own; 0 when the op is started */
    int32_t result;
    /* RECV: out, where the bytes are. RECV_INTO and SEND: in, where they go to or come from.
     * CONNECT: in, the struct sockaddr. */
    void *data;
    size_t size;
    uint32_t progress; /* bytes of a SEND that earlier system calls took */
    bool more;         /* SEND: in, see rg_op_send_more */
    int file;          /* READ_FILE */
    bool waited;       /* out: for a disk */
    int file_direct;   /* READ_FILE: for what the page cache has not; -1: the same file */
    uint64_t offset;
    size_t lead, needed; /* READ_FILE: of its bytes, [lead, needed) are wanted */
    struct rg_list node; /* READ_FILE: the backend's */
};

/* The largest single receive, and the size of the loop's buffer for it. Receives of 16 KiB cost
 * half as much again per byte as receives of 128 KiB and more (docs/internals/io-uring.md). */
#define RG_RECV_SIZE_MAX RG_KIB(256)
/* The largest single send or receive into the owner's memory: bounds what one connection can do in
 * one pass of the loop. */
#define RG_OP_SIZE_MAX RG_MIB(1)

void rg_op_init(struct rg_op *op, void (*done)(struct rg_op *op));

static inline bool rg_op_idle(const struct rg_op *op)
{
    return op->state == RG_OP_IDLE;
}

/* Connects to *address, which must stay until the op is done. result: 0. */
void rg_op_connect(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket,
                   const struct sockaddr *address, socklen_t address_size);
/* Takes one connection off a listening socket. result: the new file descriptor. */
void rg_op_accept(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket);
/* Receives up to size_max bytes into the loop's buffer. result: bytes; 0: the peer ended its side.
 */
void rg_op_recv(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket, size_t size_max);
/* Receives up to `size` bytes to `data`. */
void rg_op_recv_into(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket, void *data,
                     size_t size);
/* Sends all of data[0..size), which must stay until the op is done. result: size, or an error. */
void rg_op_send(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket, const void *data,
                size_t size);
/* The same for bytes that another send follows at once: the system may wait for it, so that both go
 * in one segment and the peer is woken once. */
void rg_op_send_more(struct rg_loop *loop, struct rg_op *op, struct rg_socket *socket,
                     const void *data, size_t size);
/* Reads up to `size` bytes of a regular file at `offset` to `data`, without holding up the loop
 * where the disk is slow. What the page cache has is read when the owner is about to run, and in
 * the CPU's cache then. result: bytes, also fewer than asked for; 0: the file ends there. It
 * cannot be cancelled: `data` and the descriptor must stay until the op is done. */
void rg_op_read_file(struct rg_loop *loop, struct rg_op *op, int fd, uint64_t offset, void *data,
                     size_t size);
/* The same; but what the page cache has not is read by fd_direct, which was opened with O_DIRECT,
 * and `offset`, `data` and `size` are aligned as it needs. Of these bytes only [lead, needed) are
 * wanted: of what the page cache has, no others are read, and the result is `needed`. With fd -1
 * the page cache is not asked. */
void rg_op_read_file_direct(struct rg_loop *loop, struct rg_op *op, int fd, int fd_direct,
                            uint64_t offset, void *data, size_t size, size_t lead, size_t needed);
/* Asks that an op in flight finishes soon; harmless otherwise. */
void rg_op_cancel(struct rg_loop *loop, struct rg_op *op);

/* Opens a TCP socket for connecting. 0, or -EMFILE, -ENFILE, -ENOBUFS, -ENOMEM, -EAFNOSUPPORT. */
int rg_socket_open(struct rg_loop *loop, struct rg_socket *socket, int family);
/* Takes over a connected or listening descriptor (on success). */
int rg_socket_adopt(struct rg_loop *loop, struct rg_socket *socket, int fd);
/* How far what was sent has come. A send is done when the system has taken all of it, which at a
 * slow peer is long after the one before, and long before the peer's system has it. */
struct rg_socket_output {
    uint64_t acknowledged; /* bytes that the peer's system has, all in all; grows */
    uint32_t pending;      /* bytes that the system has taken, and the peer's has not yet */
};
/* Asks the system. Zeroes where it does not say. */
void rg_socket_output(struct rg_loop *loop, const struct rg_socket *socket,
                      struct rg_socket_output *out_output);
/* Ends both directions now; ops in flight finish. The descriptor stays. */
void rg_socket_shutdown(struct rg_loop *loop, struct rg_socket *socket);
/* Closes the descriptor; with `reset` by RST instead of FIN. No op may be in flight. Harmless for a
 * socket that was never opened (fd < 0). */
void rg_socket_close(struct rg_loop *loop, struct rg_socket *socket, bool reset);

/* What a backend is made of. `self` is what create returned. */
struct rg_backend_ops {
    const char *name;
    int (*create)(struct rg_loop *loop, void **out_self);
    /* On the loop's thread, before anything else, and after everything else. */
    int (*attach)(void *self);
    void (*detach)(void *self);
    void (*destroy)(void *self);
    int (*socket_open)(void *self, struct rg_socket *socket, int family);
    int (*socket_adopt)(void *self, struct rg_socket *socket, int fd);
    /* `taken`: what it has taken so far, as far as is known here. */
    void (*socket_output)(void *self, const struct rg_socket *socket, uint64_t taken,
                          struct rg_socket_output *out_output);
    void (*socket_shutdown)(void *self, struct rg_socket *socket);
    void (*socket_close)(void *self, struct rg_socket *socket, bool reset);
    void (*start)(void *self, struct rg_op *op);
    void (*cancel)(void *self, struct rg_op *op);
    /* Called for a ready op before its owner: does the system call where the backend only knows
     * that it will not block. False: it would have blocked after all, and the op is in flight
     * again. */
    bool (*finish)(void *self, struct rg_op *op);
    /* Called after the owner's `done`: the bytes that finish handed out are of no use any more.
     * NULL where nothing has to be done about it. */
    void (*recycle)(void *self);
    /* Hands what was started to the kernel, without waiting. NULL where time is not real, and a
     * loop that sleeps would only waste it. */
    void (*flush)(void *self);
    /* Waits until something finished or deadline_ns; marks ops ready. */
    void (*wait)(void *self, uint64_t deadline_ns);
    void (*wake)(void *self); /* any thread */
    uint64_t (*now_ns)(void *self);
};

extern const struct rg_backend_ops rg_uring_backend;
extern const struct rg_backend_ops rg_epoll_backend;

/* Tries to set up a ring as the backend would and takes it down again: 0, or the negative errno
 * that io_uring_setup gave, with a static text that says what it most likely means. */
int rg_uring_probe(const char **out_reason);

/* Makes an epoll backend wake for writes to this eventfd, too. 0 or a negative errno. */
int rg_epoll_add_wake(void *self, int fd);

#endif
