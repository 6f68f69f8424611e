/* The table of errors.h.
 *
 * Sources: connect(2), send(2), recv(2) and tcp(7) of the Linux man-pages. What ICMP and ICMPv6 say
 * of a way comes back from all three calls as the kernel's tables translate it: icmp_err_convert in
 * net/ipv4/icmp.c, icmpv6_err_convert in net/ipv6/icmp.c. */
#include "runtime/errors.h"

#include <errno.h>

enum meaning {
    UNLISTED = 0,
    UNREACHABLE, /* nobody is there to be spoken to */
    FAILED,      /* somebody may be there; another attempt may succeed */
};

struct row {
    int os_error;
    uint8_t connect, transfer; /* enum meaning; send and receive say the same */
};

static const struct row rows[] = {
    {ECONNREFUSED, UNREACHABLE, FAILED}, /* no server at this port, or a firewall's answer */
    {ENETUNREACH, UNREACHABLE, FAILED},  /* no route: usual for IPv6 where there is only IPv4 */
    {EHOSTUNREACH, UNREACHABLE, FAILED}, /* a router says so, or nobody answers on this network */
    {ENETDOWN, UNREACHABLE, FAILED},     /* the device is down */
    {EADDRNOTAVAIL, UNREACHABLE,
     UNLISTED},                       /* no address of ours goes with it, or no port is free */
    {EACCES, UNREACHABLE, FAILED},    /* a rule of the machine's own, or ICMPv6's */
    {EPERM, UNREACHABLE, FAILED},     /* a rule of the machine's own: netfilter drops it */
    {EADDRINUSE, FAILED, UNLISTED},   /* the address of ours is taken */
    {EAFNOSUPPORT, FAILED, UNLISTED}, /* this machine has no such family */
    {EINVAL, FAILED, UNLISTED},       /* an address that needs a device to be named */
    {EAGAIN, FAILED, UNLISTED},       /* no port of ours is free */
    {ECONNRESET, FAILED, FAILED},
    {ECONNABORTED, FAILED, FAILED},
    {ETIMEDOUT, FAILED, FAILED},
    {EPIPE, FAILED, FAILED},
    {ENOTCONN, UNLISTED, FAILED}, /* it was reset, and somebody has been told */
    {ENETRESET, FAILED, FAILED},
    {EHOSTDOWN, FAILED, FAILED}, /* from here on as ICMP says */
    {ENONET, FAILED, FAILED},
    {ENOPROTOOPT, FAILED, FAILED},
    {EOPNOTSUPP, FAILED, FAILED},
    {EPROTO, FAILED, FAILED},
    {EMSGSIZE, FAILED, FAILED},
    {ENOBUFS, FAILED, FAILED}, /* the system is short of memory, or of room for packets */
    {ENOMEM, FAILED, FAILED},
    {EMFILE, FAILED, FAILED}, /* descriptors, for the epoll that takes a ring's place */
    {ENFILE, FAILED, FAILED},
    {ENOSPC, FAILED, FAILED}, /* epoll_ctl(2): the user watches as much as is allowed */
    {EIO, UNLISTED, FAILED},  /* nobody knows how much was sent: runtime/uring_spare.c */
};

static const struct row *row_of(int os_error)
{
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        if (rows[i].os_error == os_error) {
            return &rows[i];
        }
    }
    return NULL;
}

enum rg_status rg_errors_status(enum rg_errors_call call, int os_error)
{
    RG_ASSERT(call < RG_ERRORS_CALL_COUNT && os_error > 0);
    const struct row *row = row_of(os_error);
    bool connects = call == RG_ERRORS_CONNECT;
    if (row == NULL || (connects ? row->connect : row->transfer) == UNLISTED) {
        return RG_STATUS_UNEXPECTED;
    }
    return connects ? RG_STATUS_CONNECT : RG_STATUS_CONNECTION_LOST;
}

bool rg_errors_unreachable(int os_error)
{
    const struct row *row = row_of(os_error);
    return row != NULL && row->connect == UNREACHABLE;
}
