/* What the io_uring backend and its way out share. Private to uring.c and uring_spare.c. */
#ifndef RG_RUNTIME_URING_H
#define RG_RUNTIME_URING_H

#include "runtime/loop.h"

#include <liburing.h>

/* The backend of one loop. */
struct rg_uring {
    struct rg_loop *loop;
    struct io_uring ring;
    uint8_t *scratch; /* RG_RECV_SIZE_MAX bytes, not inherited over fork */
    int wake_fd;
    uint64_t wake_count; /* where the read of wake_fd goes */
    bool wake_armed;
    bool attached;
    bool hurried;           /* an entry that shall begin before the loop sleeps is in the queue */
    struct rg_list sockets; /* all that are open */
    struct rg_list reads;   /* READ_FILE ops that the kernel may have */
    struct rg_list polls;   /* multishot polls that the kernel may have */
    struct rg_list polls_idle; /* of none, and there are poll_count with both */
    uint32_t poll_count, socket_count;
    uint32_t shortages;     /* in a row */
    int broken;             /* the negative errno by which the ring failed; 0: it has not */
    void *spare;            /* the epoll backend that has taken over; NULL: none */
    struct rg_socket grave; /* of a pipe whose other end the ring has */
    struct rg_op grave_op;
    uint8_t grave_byte;
};

/* A multishot poll. It is its entry's user data, and so it stays until the kernel says that it has
 * ended, however long its socket is gone by then. Memory for as many as there are sockets is taken
 * when sockets are opened, and given back with the ring: a receive allocates nothing. */
struct rg_uring_poll {
    struct rg_socket *socket; /* NULL: closed, or waits otherwise now */
    struct rg_list node;
};

/* Bits of user data that are an address of an op, or of a poll. */
#define RG_URING_CANCEL_TAG ((uintptr_t)1)
#define RG_URING_POLL_TAG ((uintptr_t)2)
#define RG_URING_TAGS (RG_URING_CANCEL_TAG | RG_URING_POLL_TAG)
static_assert(_Alignof(struct rg_op) > RG_URING_TAGS &&
                  _Alignof(struct rg_uring_poll) > RG_URING_TAGS,
              "the lowest bits of an address are free");
/* User data of the read of wake_fd, and of the cancellation of a poll. */
extern char rg_uring_wake_tag, rg_uring_unpoll_tag;

/* Bits of op->backend_state. */
enum {
    RG_URING_CANCEL_INFLIGHT = 1,
    RG_URING_RESULT_KNOWN = 2, /* the cancellation's completion is still to come */
    RG_URING_TRIED = 4,        /* a send or a read of a file: as far as it goes without waiting */
    RG_URING_ENTERED = 8,      /* the kernel may have the entry */
    RG_URING_OLD = 16,         /* became ready before epoll took over */
};

/* Takes off completions, so many at most: ops become ready. */
void rg_uring_drain(struct rg_uring *backend, uint32_t count_max);
void rg_uring_exit(struct io_uring *ring);
/* The ring is gone, and nothing more is heard of its polls. */
void rg_uring_polls_free(struct rg_uring *backend);

/* The ring is broken: the loop continues with epoll. Where that is not to be had now, all that is
 * in flight ends, which gives descriptors and memory back, and it is to be tried again in the next
 * pass
 * (`spare` is NULL then). */
void rg_uring_take_over(struct rg_uring *backend);
/* `done` of grave_op. */
void rg_uring_grave_done(struct rg_op *grave_op);

#endif
