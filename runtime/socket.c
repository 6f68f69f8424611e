/* System calls on sockets that both real backends make: see socket.h. */
#include "runtime/socket.h"

#include "runtime/descriptor.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static void no_delay(int fd)
{
    /* A request is one write and must not wait for an acknowledgement. Fails on sockets that are
     * not TCP (pairs in tests), where it does not matter. */
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void rg_fd_prepare(int fd)
{
    RG_ASSERT(fd >= 0);
    rg_fd_hold();
    rg_fd_track(fd);
    rg_fd_release();
    no_delay(fd);
}

int rg_fd_open_tcp(int family, int type_flags)
{
    RG_ASSERT(family == AF_INET || family == AF_INET6);
    rg_fd_hold();
    int fd = rg_fd_track(socket(family, SOCK_STREAM | SOCK_CLOEXEC | type_flags, 0));
    int rc = fd < 0 ? -errno : fd;
    rg_fd_release();
    if (fd >= 0) {
        no_delay(fd);
    }
    return rc;
}

int rg_fd_bind(int fd, int family, const struct rg_local *local)
{
    RG_ASSERT(fd >= 0);
    size_t device_size = strlen(local->device);
    if (device_size > 0 &&
        setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, local->device, (socklen_t)device_size) < 0) {
        return -errno;
    }
    if (local->address_size == 0) {
        return 0;
    }
    if (local->address.ss_family != family) {
        return -EAFNOSUPPORT;
    }
    /* The port is chosen when connecting, so that there are as many as per destination. */
    int on = 1;
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    const struct sockaddr *address = (const struct sockaddr *)&local->address;
    return bind(fd, address, local->address_size) < 0 ? -errno : 0;
}

/* SIOCOUTQ counts what is not acknowledged, sent or not (tcp(7)). That alone does not tell
 * progress: what leaves the queue is replaced, and a reader with a steady pace is then seen with
 * the same number each time. Linux counts what was acknowledged (4.1 and later); others (gVisor) do
 * not. */
void rg_fd_output(int fd, uint64_t taken, struct rg_socket_output *out_output)
{
    RG_ASSERT(fd >= 0);
    int pending = 0;
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    if (ioctl(fd, SIOCOUTQ, &pending) < 0) {
        pending = 0;
    }
    bool counts = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                  size >= offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof(uint64_t);
    uint64_t left = taken - RG_MIN((uint64_t)pending, taken);
    *out_output = (struct rg_socket_output){
        .acknowledged = counts && info.tcpi_bytes_acked > 0 ? info.tcpi_bytes_acked : left,
        .pending = (uint32_t)pending,
    };
}

void rg_fd_close(int fd, bool reset)
{
    RG_ASSERT(fd >= 0);
    if (reset) {
        struct linger linger = {.l_onoff = 1, .l_linger = 0};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    }
    rg_fd_drop(fd);
}

int rg_scratch_map(uint8_t **out_scratch)
{
    void *scratch = mmap(NULL, RG_RECV_SIZE_MAX, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (scratch == MAP_FAILED) {
        return -errno;
    }
    (void)madvise(scratch, RG_RECV_SIZE_MAX, MADV_DONTFORK);
    *out_scratch = scratch;
    return 0;
}

void rg_scratch_unmap(uint8_t *scratch)
{
    if (scratch != NULL) {
        munmap(scratch, RG_RECV_SIZE_MAX);
    }
}

int32_t rg_fd_recv(int fd, void *data, size_t size)
{
    RG_ASSERT(size > 0 && size <= INT32_MAX);
    ssize_t got;
    do {
        got = recv(fd, data, size, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : (int32_t)got;
}

int32_t rg_fd_send(int fd, const void *data, size_t size, bool more)
{
    RG_ASSERT(size > 0 && size <= INT32_MAX);
    ssize_t sent;
    do {
        sent = send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : (int32_t)sent;
}

int32_t rg_fd_accept(int fd, int flags)
{
    int accepted;
    rg_fd_hold();
    do {
        accepted = rg_fd_track(accept4(fd, NULL, NULL, SOCK_CLOEXEC | flags));
    } while (accepted < 0 && errno == EINTR);
    int32_t rc = accepted < 0 ? -errno : accepted;
    rg_fd_release();
    return rc;
}
