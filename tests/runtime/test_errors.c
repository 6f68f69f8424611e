/* What errors of system calls mean: each row, and numbers that are in none. */
#include "runtime/errors.h"
#include "tests/support/test.h"

static void test_every_row(void)
{
    static const struct {
        int os_error;
        enum rg_status connect, transfer;
        bool unreachable;
    } rows[] = {
        {ECONNREFUSED, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, true},
        {ENETUNREACH, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, true},
        {EHOSTUNREACH, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, true},
        {ENETDOWN, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, true},
        {EADDRNOTAVAIL, RG_STATUS_CONNECT, RG_STATUS_UNEXPECTED, true},
        {EACCES, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, true},
        {EPERM, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, true},
        {EADDRINUSE, RG_STATUS_CONNECT, RG_STATUS_UNEXPECTED, false},
        {EAFNOSUPPORT, RG_STATUS_CONNECT, RG_STATUS_UNEXPECTED, false},
        {EINVAL, RG_STATUS_CONNECT, RG_STATUS_UNEXPECTED, false},
        {EAGAIN, RG_STATUS_CONNECT, RG_STATUS_UNEXPECTED, false},
        {ECONNRESET, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ECONNABORTED, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ETIMEDOUT, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {EPIPE, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ENOTCONN, RG_STATUS_UNEXPECTED, RG_STATUS_CONNECTION_LOST, false},
        {ENETRESET, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {EHOSTDOWN, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ENONET, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ENOPROTOOPT, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {EOPNOTSUPP, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {EPROTO, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {EMSGSIZE, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ENOBUFS, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ENOMEM, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {EMFILE, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ENFILE, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {ENOSPC, RG_STATUS_CONNECT, RG_STATUS_CONNECTION_LOST, false},
        {EIO, RG_STATUS_UNEXPECTED, RG_STATUS_CONNECTION_LOST, false},
    };
    bool listed[200] = {false};
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        int os_error = rows[i].os_error;
        listed[os_error] = true;
        RG_CHECK_EQ(rg_errors_status(RG_ERRORS_CONNECT, os_error), rows[i].connect);
        RG_CHECK_EQ(rg_errors_status(RG_ERRORS_SEND, os_error), rows[i].transfer);
        RG_CHECK_EQ(rg_errors_status(RG_ERRORS_RECEIVE, os_error), rows[i].transfer);
        RG_CHECK_EQ(rg_errors_unreachable(os_error), rows[i].unreachable);
    }
    for (int os_error = 1; os_error < (int)RG_ARRAY_LEN(listed); os_error++) {
        for (unsigned call = 0; call < RG_ERRORS_CALL_COUNT && !listed[os_error]; call++) {
            RG_CHECK_EQ(rg_errors_status((enum rg_errors_call)call, os_error),
                        RG_STATUS_UNEXPECTED);
            RG_CHECK(!rg_errors_unreachable(os_error));
        }
    }
}

static void test_faults_of_this_program_are_not_tried_again(void)
{
    static const int faults[] = {EBADF, EFAULT, ENOTSOCK, EINVAL, EDESTADDRREQ, EISCONN};
    for (size_t i = 0; i < RG_ARRAY_LEN(faults); i++) {
        enum rg_status status = rg_errors_status(RG_ERRORS_SEND, faults[i]);
        RG_CHECK_EQ(status, RG_STATUS_UNEXPECTED);
        RG_CHECK(!rg_status_retryable(status));
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_every_row),
        RG_TEST(test_faults_of_this_program_are_not_tried_again),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
