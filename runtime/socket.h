/* What the io_uring and the epoll backend do alike with a descriptor. */
#ifndef RG_RUNTIME_SOCKET_H
#define RG_RUNTIME_SOCKET_H

#include "runtime/op.h"

#include <net/if.h>

/* Where connections begin: an address of this machine, or one of its network devices, or both.
 * Zeroed: as the system chooses. */
struct rg_local {
    struct sockaddr_storage address;
    socklen_t address_size; /* 0: none */
    char device[IFNAMSIZ];  /* empty: none */
};

/* A new TCP socket with TCP_NODELAY. `type_flags` are added to SOCK_STREAM. Returns the descriptor,
 * or a negative errno. This one, those that are accepted and those that are prepared are noted for
 * a forked child (runtime/descriptor.h) until rg_fd_close. */
int rg_fd_open_tcp(int family, int type_flags);
/* Takes over a descriptor that was opened elsewhere. */
void rg_fd_prepare(int fd);
/* Before connecting to an address of the family. -EAFNOSUPPORT: the local address is of another
 * family; or what the system says. */
int rg_fd_bind(int fd, int family, const struct rg_local *local);
/* How far what was sent through a TCP socket has come. */
void rg_fd_output(int fd, uint64_t taken, struct rg_socket_output *out_output);
/* With `reset`, the peer sees RST. */
void rg_fd_close(int fd, bool reset);
/* The buffer of RG_RECV_SIZE_MAX bytes that all sockets of a loop receive into; touched now, not
 * inherited over fork. Unmapping NULL is harmless. */
int rg_scratch_map(uint8_t **out_scratch);
void rg_scratch_unmap(uint8_t *scratch);
/* -errno of the call, or its result. None of them blocks, and none raises SIGPIPE; the socket to
 * accept from is non-blocking. */
int32_t rg_fd_recv(int fd, void *data, size_t size);
/* `more`: see rg_op_send_more. */
int32_t rg_fd_send(int fd, const void *data, size_t size, bool more);
int32_t rg_fd_accept(int fd, int flags);

#endif
