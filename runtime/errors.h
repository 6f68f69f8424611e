/* What an error of a system call means for us: one table for each call of a socket that the kernel
 * may refuse for reasons outside this program. Pure.
 *
 * A number that is not in the table is RG_STATUS_UNEXPECTED and is not tried again: EBADF, EFAULT
 * or EINVAL are faults of this program, and a new one of the kernel's is not for us to guess. The
 * number stays in the completion's os_error. */
#ifndef RG_RUNTIME_ERRORS_H
#define RG_RUNTIME_ERRORS_H

#include "runtime/base.h"

#include <ringest/error.h>

enum rg_errors_call {
    RG_ERRORS_CONNECT = 0,
    RG_ERRORS_SEND,
    RG_ERRORS_RECEIVE,
    RG_ERRORS_CALL_COUNT,
};

/* The status of a call that failed with this errno, which is positive. */
enum rg_status rg_errors_status(enum rg_errors_call call, int os_error);
/* Whether connect() said so because nobody was there to be spoken to: no way to the address, or no
 * server that listens at it. Not where somebody may be there: ECONNRESET, ETIMEDOUT. */
bool rg_errors_unreachable(int os_error);

#endif
