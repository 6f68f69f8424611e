/* System calls on sockets: errors as values, no SIGPIPE, RST when asked, and what a child closes.
 */
#include "runtime/socket.h"

#include "tests/support/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int listen_anywhere(struct sockaddr_in *out_address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    RG_CHECK_EQ(bind(fd, (struct sockaddr *)&address, size), 0);
    RG_CHECK_EQ(listen(fd, 8), 0);
    RG_CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *out_address = address;
    return fd;
}

/* A connection to ourselves: fds[0] was opened by rg_fd_open_tcp. */
static void make_connection(int fds[static 2])
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    fds[0] = rg_fd_open_tcp(AF_INET, 0);
    RG_CHECK(fds[0] >= 0);
    RG_CHECK_EQ(connect(fds[0], (struct sockaddr *)&address, sizeof(address)), 0);
    fds[1] = rg_fd_accept(listener, 0);
    RG_CHECK(fds[1] >= 0);
    close(listener);
}

static void test_where_connections_begin(void)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    struct rg_local local = {.address_size = sizeof(struct sockaddr_in)};
    struct sockaddr_in *own = (struct sockaddr_in *)&local.address;
    own->sin_family = AF_INET;
    own->sin_addr.s_addr = htonl(0x7f000005);
    int fd = rg_fd_open_tcp(AF_INET, 0);
    RG_CHECK_EQ(rg_fd_bind(fd, AF_INET, &local), 0);
    RG_CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    socklen_t size = sizeof(address);
    RG_CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    RG_CHECK_EQ(ntohl(address.sin_addr.s_addr), 0x7f000005);
    rg_fd_close(fd, true);
    fd = rg_fd_open_tcp(AF_INET, 0);
    RG_CHECK_EQ(rg_fd_bind(fd, AF_INET6, &local), -EAFNOSUPPORT);
    own->sin_addr.s_addr = htonl(0xc000024d);
    RG_CHECK_EQ(rg_fd_bind(fd, AF_INET, &local), -EADDRNOTAVAIL);
    struct rg_local device = {.device = "nosuchdev0"};
    RG_CHECK_EQ(rg_fd_bind(fd, AF_INET, &device), -ENODEV);
    rg_fd_close(fd, false);
    close(listener);
}

static void wait_readable(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLIN};
    RG_CHECK_EQ(poll(&one, 1, 10000), 1);
}

static void test_nothing_blocks_and_errors_are_values(void)
{
    int fds[2];
    char byte;
    make_connection(fds);
    RG_CHECK_EQ(rg_fd_recv(fds[0], &byte, 1), -EAGAIN);
    RG_CHECK_EQ(rg_fd_send(fds[1], "x", 1, false), 1);
    wait_readable(fds[0]);
    RG_CHECK_EQ(rg_fd_recv(fds[0], &byte, 1), 1);
    RG_CHECK_EQ(byte, 'x');
    int32_t sent;
    char block[4096] = {0};
    do {
        sent = rg_fd_send(fds[0], block, sizeof(block), false);
    } while (sent > 0);
    RG_CHECK_EQ(sent, -EAGAIN);
    rg_fd_close(fds[0], false);
    close(fds[1]);
}

/* The system sends them all the same after a while, so it is tried until it was seen in time. */
static void test_bytes_before_more_wait_for_it(void)
{
    int fds[2], unsent = 0;
    char got[8];
    make_connection(fds);
    while (unsent != 4) {
        RG_CHECK_EQ(rg_fd_send(fds[0], "head", 4, true), 4);
        RG_CHECK_EQ(ioctl(fds[0], SIOCOUTQNSD, &unsent), 0);
        RG_CHECK_EQ(rg_fd_send(fds[0], "body", 4, false), 4);
        RG_CHECK_EQ(recv(fds[1], got, sizeof(got), MSG_WAITALL), 8);
        RG_CHECK_MEM(got, sizeof(got), "headbody", 8);
    }
    rg_fd_close(fds[0], false);
    close(fds[1]);
}

/* Fills what both systems have room for; the number of bytes. */
static uint64_t fill(int fd)
{
    static const uint8_t block[RG_KIB(64)];
    uint64_t taken = 0;
    int32_t sent;
    while ((sent = rg_fd_send(fd, block, sizeof(block), false)) > 0) {
        taken += (uint64_t)sent;
    }
    RG_CHECK_EQ(sent, -EAGAIN);
    return taken;
}

static struct rg_socket_output output_of(int fd, uint64_t taken)
{
    struct rg_socket_output output;
    rg_fd_output(fd, taken, &output);
    return output;
}

/* TCP, of which the system counts what was acknowledged, and a pair of which it does not. */
static void test_what_the_peer_has_taken_is_seen(void)
{
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        int fds[2];
        if (is_tcp) {
            make_connection(fds);
        } else {
            RG_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        }
        RG_CHECK_EQ(output_of(fds[0], 0).pending, 0);
        uint64_t taken = fill(fds[0]);
        struct rg_socket_output first = output_of(fds[0], taken), second;
        RG_CHECK(first.pending > 0);
        static uint8_t block[RG_KIB(64)];
        uint64_t got = 0;
        while (got < taken) {
            ssize_t part = recv(fds[1], block, sizeof(block), 0);
            RG_CHECK(part > 0);
            got += (uint64_t)part;
        }
        RG_AWAIT(output_of(fds[0], taken).pending == 0);
        second = output_of(fds[0], taken);
        RG_CHECK(second.acknowledged > first.acknowledged);
        RG_CHECK(second.acknowledged >= taken);
        /* What has come stays come. */
        RG_CHECK(output_of(fds[0], taken).acknowledged == second.acknowledged);
        rg_fd_close(fds[0], false);
        close(fds[1]);
    }
}

static void test_a_closed_peer_is_an_error_and_no_signal(void)
{
    int fds[2];
    make_connection(fds);
    rg_fd_close(fds[0], true);
    wait_readable(fds[1]);
    char byte;
    RG_CHECK_EQ(rg_fd_recv(fds[1], &byte, 1), -ECONNRESET);
    RG_CHECK_EQ(rg_fd_send(fds[1], "x", 1, false), -EPIPE);
    close(fds[1]);
}

static void test_an_orderly_close_is_seen_as_the_end(void)
{
    int fds[2];
    make_connection(fds);
    rg_fd_close(fds[0], false);
    wait_readable(fds[1]);
    char byte;
    RG_CHECK_EQ(rg_fd_recv(fds[1], &byte, 1), 0);
    close(fds[1]);
}

static void test_accepting_without_a_peer_does_not_block(void)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    RG_CHECK_EQ(rg_fd_accept(listener, 0), -EAGAIN);
    close(listener);
}

/* The peer sees the end although the child, which inherited the descriptor, lives on. */
static void test_a_child_lets_go_of_sockets(void)
{
    int fds[2], hold[2];
    make_connection(fds);
    RG_CHECK_EQ(pipe(hold), 0);
    pid_t child = fork();
    RG_CHECK(child >= 0);
    if (child == 0) {
        char byte;
        close(hold[1]);
        _exit(read(hold[0], &byte, 1) == 0 && fcntl(fds[0], F_GETFD) < 0 ? 0 : 1);
    }
    close(hold[0]);
    /* The child may not have come that far when we close, which only delays the end. */
    rg_fd_close(fds[0], false);
    wait_readable(fds[1]);
    char byte;
    RG_CHECK_EQ(rg_fd_recv(fds[1], &byte, 1), 0);
    close(hold[1]);
    int status;
    RG_CHECK_EQ(waitpid(child, &status, 0), child);
    RG_CHECK_EQ(status, 0);
    close(fds[1]);
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_where_connections_begin),
        RG_TEST(test_nothing_blocks_and_errors_are_values),
        RG_TEST(test_bytes_before_more_wait_for_it),
        RG_TEST(test_what_the_peer_has_taken_is_seen),
        RG_TEST(test_a_closed_peer_is_an_error_and_no_signal),
        RG_TEST(test_an_orderly_close_is_seen_as_the_end),
        RG_TEST(test_accepting_without_a_peer_does_not_block),
        RG_TEST(test_a_child_lets_go_of_sockets),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
