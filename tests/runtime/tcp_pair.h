/* Two ends of a TCP connection on this machine, for tests that need no server. */
#ifndef RG_TESTS_RUNTIME_TCP_PAIR_H
#define RG_TESTS_RUNTIME_TCP_PAIR_H

#include "tests/support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* A port that listens (with a backlog of 0 or more) or is only taken. The caller closes it. */
static inline int listen_loopback(int backlog, struct sockaddr_in *out_address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    RG_CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    if (backlog >= 0) {
        RG_CHECK_EQ(listen(fd, backlog), 0);
    }
    socklen_t size = sizeof(address);
    RG_CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *out_address = address;
    return fd;
}

/* Both are in blocking mode; the caller closes them. */
static inline void make_tcp_pair(int out_fds[2])
{
    struct sockaddr_in address;
    int listener = listen_loopback(1, &address);
    out_fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK_EQ(connect(out_fds[0], (struct sockaddr *)&address, sizeof(address)), 0);
    do {
        out_fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    } while (out_fds[1] < 0 && errno == EAGAIN);
    RG_CHECK(out_fds[1] >= 0);
    close(listener);
}

#endif
