/* The tables of errors.h.
 *
 * Sources: socket(2), bind(2), socket(7), connect(2), send(2), recv(2), accept(2), tcp(7) and
 * epoll_ctl(2) of the Linux man-pages; io_uring_setup(2) and io_uring_enter(2) of liburing. What
 * ICMP and ICMPv6 say of a way comes back from connect, send, recv and accept as the kernel's
 * tables translate it: icmp_err_convert in net/ipv4/icmp.c, icmpv6_err_convert in
 * net/ipv6/icmp.c. */
#include "runtime/errors.h"

#include <errno.h>

enum meaning {
    UNLISTED = 0,
    UNREACHABLE, /* nothing can be reached there */
    FAILED,      /* a server may be there; another attempt may succeed */
    SHORT,       /* this process or the system is short of something */
};

/* Send and receive say the same: `transfer`. */
struct row {
    int os_error;
    uint8_t open, connect, transfer, accept, resolve; /* enum meaning */
};

static const struct row rows[] = {
    /* No server at this port, or a firewall's answer. */
    {ECONNREFUSED, UNLISTED, UNREACHABLE, FAILED, UNLISTED, FAILED},
    /* No route: usual for IPv6 where there is only IPv4. */
    {ENETUNREACH, UNLISTED, UNREACHABLE, FAILED, FAILED, FAILED},
    /* A router says so, or no machine on this network answers. */
    {EHOSTUNREACH, UNLISTED, UNREACHABLE, FAILED, FAILED, FAILED},
    /* The device is down; or there is no such device. */
    {ENETDOWN, UNLISTED, UNREACHABLE, FAILED, FAILED, FAILED},
    {ENODEV, FAILED, UNLISTED, UNLISTED, UNLISTED, UNLISTED},
    /* No address of ours goes with it, or no port is free; the local address is not ours. */
    {EADDRNOTAVAIL, FAILED, UNREACHABLE, UNLISTED, UNLISTED, FAILED},
    /* A rule of the machine's own (netfilter, a security module), or ICMPv6's. */
    {EACCES, FAILED, UNREACHABLE, FAILED, UNLISTED, FAILED},
    {EPERM, FAILED, UNREACHABLE, FAILED, FAILED, FAILED},
    /* The address of ours is taken. */
    {EADDRINUSE, FAILED, FAILED, UNLISTED, UNLISTED, UNLISTED},
    /* This machine has no such family, or the server has no address of the local one's. */
    {EAFNOSUPPORT, FAILED, FAILED, UNLISTED, UNLISTED, FAILED},
    /* An address that needs a device to be named. */
    {EINVAL, FAILED, FAILED, UNLISTED, UNLISTED, UNLISTED},
    /* No port of ours is free; no thread for a look-up. */
    {EAGAIN, UNLISTED, FAILED, UNLISTED, UNLISTED, SHORT},
    {ECONNRESET, UNLISTED, FAILED, FAILED, UNLISTED, FAILED},
    {ECONNABORTED, UNLISTED, FAILED, FAILED, FAILED, FAILED},
    {ETIMEDOUT, UNLISTED, FAILED, FAILED, UNLISTED, FAILED},
    {EPIPE, UNLISTED, FAILED, FAILED, UNLISTED, FAILED},
    /* It was reset, and somebody has been told. */
    {ENOTCONN, UNLISTED, UNLISTED, FAILED, UNLISTED, FAILED},
    {ENETRESET, UNLISTED, FAILED, FAILED, UNLISTED, FAILED},
    /* From here on as ICMP says. */
    {EHOSTDOWN, UNLISTED, FAILED, FAILED, FAILED, FAILED},
    {ENONET, UNLISTED, FAILED, FAILED, FAILED, FAILED},
    {ENOPROTOOPT, UNLISTED, FAILED, FAILED, FAILED, FAILED},
    {EOPNOTSUPP, UNLISTED, FAILED, FAILED, FAILED, FAILED},
    {EPROTO, UNLISTED, FAILED, FAILED, FAILED, FAILED},
    {EMSGSIZE, UNLISTED, FAILED, FAILED, UNLISTED, FAILED},
    /* The system is short of memory, or of room for packets. */
    {ENOBUFS, SHORT, FAILED, FAILED, SHORT, SHORT},
    {ENOMEM, SHORT, FAILED, FAILED, SHORT, SHORT},
    /* Descriptors; on a connected socket, for the epoll that takes a ring's place. */
    {EMFILE, SHORT, FAILED, FAILED, SHORT, SHORT},
    {ENFILE, SHORT, FAILED, FAILED, SHORT, SHORT},
    /* The user watches as much by epoll as is allowed. */
    {ENOSPC, SHORT, FAILED, FAILED, SHORT, UNLISTED},
    /* Nobody knows how much was sent (runtime/uring_spare.c); a file of the resolver's. */
    {EIO, UNLISTED, UNLISTED, FAILED, UNLISTED, FAILED},
    {ENOENT, UNLISTED, UNLISTED, UNLISTED, UNLISTED, FAILED},
    {EINTR, UNLISTED, UNLISTED, UNLISTED, UNLISTED, FAILED},
};

/* Where each call's column is, and what FAILED and SHORT are there. */
static const struct {
    size_t column;
    uint8_t failed, short_of; /* enum rg_status */
} calls[] = {
    [RG_ERRORS_OPEN] = {offsetof(struct row, open), RG_STATUS_CONNECT, RG_STATUS_NO_RESOURCES},
    [RG_ERRORS_CONNECT] = {offsetof(struct row, connect), RG_STATUS_CONNECT, RG_STATUS_CONNECT},
    [RG_ERRORS_SEND] = {offsetof(struct row, transfer), RG_STATUS_CONNECTION_LOST,
                        RG_STATUS_CONNECTION_LOST},
    [RG_ERRORS_RECEIVE] = {offsetof(struct row, transfer), RG_STATUS_CONNECTION_LOST,
                           RG_STATUS_CONNECTION_LOST},
    [RG_ERRORS_ACCEPT] = {offsetof(struct row, accept), RG_STATUS_CONNECTION_LOST,
                          RG_STATUS_NO_RESOURCES},
    [RG_ERRORS_RESOLVE] = {offsetof(struct row, resolve), RG_STATUS_RESOLVE, RG_STATUS_RESOLVE},
};
static_assert(RG_ARRAY_LEN(calls) == RG_ERRORS_CALL_COUNT, "every call has a column");

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
    uint8_t meaning = row != NULL ? ((const uint8_t *)row)[calls[call].column] : UNLISTED;
    if (meaning == UNLISTED) {
        return RG_STATUS_UNEXPECTED;
    }
    return (enum rg_status)(meaning == SHORT ? calls[call].short_of : calls[call].failed);
}

bool rg_errors_unreachable(int os_error)
{
    const struct row *row = row_of(os_error);
    return row != NULL && row->connect == UNREACHABLE;
}

enum ring_meaning {
    RING_UNLISTED = 0,
    RING_NOTHING, /* waited in vain, or was interrupted */
    RING_FORBIDDEN,
    RING_MISSING,
    RING_OLD,
    RING_MEMORY,
    RING_DESCRIPTORS,
    RING_DROPPED, /* a completion, for want of memory: some op would never end */
    RING_MEANING_COUNT,
};

static const struct ring_row {
    int os_error;
    uint8_t setup, enter; /* enum ring_meaning */
} ring_rows[] = {
    {ETIME, RING_UNLISTED, RING_NOTHING},
    {EINTR, RING_UNLISTED, RING_NOTHING}, /* a signal, a debugger, another ring's end */
    {EAGAIN, RING_UNLISTED, RING_MEMORY}, /* for a request */
    {EBUSY, RING_UNLISTED, RING_MEMORY},  /* completions that did not fit are to be drained first */
    {ENOMEM, RING_MEMORY, RING_MEMORY},
    {EPERM, RING_FORBIDDEN, RING_FORBIDDEN}, /* a filter, perhaps younger than the ring */
    {EACCES, RING_FORBIDDEN, RING_FORBIDDEN},
    {ENOSYS, RING_MISSING, RING_FORBIDDEN},
    {EINVAL, RING_OLD, RING_UNLISTED},
    {EMFILE, RING_DESCRIPTORS, RING_UNLISTED},
    {ENFILE, RING_DESCRIPTORS, RING_UNLISTED},
    {EBADR, RING_UNLISTED, RING_DROPPED},
};

static const struct {
    const char *setup, *enter;
} ring_texts[] = {
    [RING_UNLISTED] = {"io_uring could not be set up", "io_uring failed while it was in use"},
    [RING_FORBIDDEN] = {"io_uring is forbidden here (a container's seccomp profile, or the sysctl "
                        "kernel.io_uring_disabled)",
                        "io_uring was forbidden while it was in use (a seccomp filter)"},
    [RING_MISSING] = {"this kernel, or the sandbox around it, has no io_uring", NULL},
    [RING_OLD] = {"this kernel's io_uring is too old; Linux 6.1 or newer is needed", NULL},
    [RING_MEMORY] = {"too little memory may be locked for a ring (ulimit -l)",
                     "io_uring had no memory left for its completions"},
    [RING_DESCRIPTORS] = {"no file descriptor is left for a ring (ulimit -n)", NULL},
    [RING_DROPPED] = {NULL, "io_uring had no memory left for its completions"},
};
static_assert(RG_ARRAY_LEN(ring_texts) == RING_MEANING_COUNT, "every meaning has its texts");

static const struct ring_row *ring_row_of(int os_error)
{
    static const struct ring_row unlisted = {0};
    RG_ASSERT(os_error > 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(ring_rows); i++) {
        if (ring_rows[i].os_error == os_error) {
            return &ring_rows[i];
        }
    }
    return &unlisted;
}

enum rg_errors_ring rg_errors_ring_entered(int os_error)
{
    uint8_t meaning = ring_row_of(os_error)->enter;
    if (meaning == RING_NOTHING) {
        return RG_ERRORS_RING_AGAIN;
    }
    return meaning == RING_MEMORY ? RG_ERRORS_RING_SHORT : RG_ERRORS_RING_BROKEN;
}

const char *rg_errors_ring_broken_text(int os_error)
{
    const char *text = ring_texts[ring_row_of(os_error)->enter].enter;
    RG_ASSERT(text != NULL);
    return text;
}

const char *rg_errors_ring_setup_text(int os_error)
{
    const char *text = ring_texts[ring_row_of(os_error)->setup].setup;
    RG_ASSERT(text != NULL);
    return text;
}

bool rg_errors_ring_unavailable(int os_error)
{
    uint8_t meaning = ring_row_of(os_error)->setup;
    return meaning == RING_FORBIDDEN || meaning == RING_MISSING || meaning == RING_OLD;
}
