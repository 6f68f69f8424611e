/* What an error of a system call means for us: one table for the calls on sockets, and one for
 * rings. They list what the kernel may say for reasons outside this program. Pure.
 *
 * A number that is not in the table is RG_STATUS_UNEXPECTED and is not tried again, or the end of a
 * ring: EBADF, EFAULT or EINVAL are faults of this program, and a new one of the kernel's is not
 * for us to guess. The number stays in the completion's os_error.
 *
 * Reads of files have no table. A file system may say any number (network file systems do), and
 * all mean the same: RG_STATUS_SOURCE, with the number. */
#ifndef RG_RUNTIME_ERRORS_H
#define RG_RUNTIME_ERRORS_H

#include "runtime/base.h"

#include <ringest/error.h>

enum rg_errors_call {
    RG_ERRORS_OPEN = 0, /* socket, and bind to a local address or device; memory beside it */
    RG_ERRORS_CONNECT,
    RG_ERRORS_SEND,
    RG_ERRORS_RECEIVE,
    RG_ERRORS_ACCEPT,
    RG_ERRORS_RESOLVE, /* whatever getaddrinfo did when it said EAI_SYSTEM */
    RG_ERRORS_CALL_COUNT,
};

/* The status of a call that failed with this errno, which is positive. For accept,
 * RG_STATUS_CONNECTION_LOST says that only the connection is lost that was to be accepted: the next
 * one may be fine. */
enum rg_status rg_errors_status(enum rg_errors_call call, int os_error);
/* Whether connect() failed because nothing can be reached: no route to the address, or no server
 * that listens. False if a server may be there: ECONNRESET, ETIMEDOUT. */
bool rg_errors_unreachable(int os_error);

/* What io_uring_enter says of the ring. */
enum rg_errors_ring {
    RG_ERRORS_RING_BROKEN = 0, /* neither a drain nor time can mend it */
    RG_ERRORS_RING_SHORT,      /* of memory, or of room for completions */
    RG_ERRORS_RING_AGAIN,      /* nothing is wrong */
};
enum rg_errors_ring rg_errors_ring_entered(int os_error);
/* Why a ring in use is given up: static text. */
const char *rg_errors_ring_broken_text(int os_error);
/* What io_uring_setup most likely means: static text. */
const char *rg_errors_ring_setup_text(int os_error);
/* True where this machine does not let us have rings, however much memory there is. */
bool rg_errors_ring_unavailable(int os_error);

#endif
