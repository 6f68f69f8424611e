/* See descriptor.h. */
#include "runtime/descriptor.h"

#include "runtime/fork.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

/* Descriptors above this are not noted; the default hard limit of Linux distributions. */
#define TRACKED_FDS_MAX (1 << 20)

/* A bit per descriptor. */
static _Atomic uint64_t tracked[TRACKED_FDS_MAX / 64];

/* In a forked child, before any hook of runtime/fork.h. Async-signal-safe. */
static void close_tracked(void)
{
    for (int word = 0; word < (int)RG_ARRAY_LEN(tracked); word++) {
        uint64_t bits = atomic_exchange_explicit(&tracked[word], 0, memory_order_relaxed);
        while (bits != 0) {
            close(word * 64 + __builtin_ctzll(bits));
            bits &= bits - 1;
        }
    }
}

void rg_fd_hold(void)
{
    rg_fork_hold();
    rg_fork_set_first(close_tracked);
}

void rg_fd_release(void)
{
    rg_fork_release();
}

int rg_fd_track(int fd)
{
    if (fd >= 0 && fd < TRACKED_FDS_MAX) {
        atomic_fetch_or_explicit(&tracked[fd / 64], UINT64_C(1) << (fd % 64), memory_order_relaxed);
    }
    return fd;
}

void rg_fd_forget(int fd)
{
    if (fd >= 0 && fd < TRACKED_FDS_MAX) {
        atomic_fetch_and_explicit(&tracked[fd / 64], ~(UINT64_C(1) << (fd % 64)),
                                  memory_order_relaxed);
    }
}

void rg_fd_drop(int fd)
{
    if (fd >= 0) {
        rg_fd_hold();
        rg_fd_forget(fd);
        close(fd);
        rg_fd_release();
    }
}

int rg_fd_copy(int fd)
{
    RG_ASSERT(fd >= 0);
    rg_fd_hold();
    int copy = rg_fd_track(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    int rc = copy < 0 ? -errno : copy;
    rg_fd_release();
    return rc;
}
