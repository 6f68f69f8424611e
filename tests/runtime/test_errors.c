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
        if (!listed[os_error]) {
            RG_CHECK_EQ(rg_errors_status(RG_ERRORS_CONNECT, os_error), RG_STATUS_UNEXPECTED);
            RG_CHECK_EQ(rg_errors_status(RG_ERRORS_SEND, os_error), RG_STATUS_UNEXPECTED);
            RG_CHECK_EQ(rg_errors_status(RG_ERRORS_RECEIVE, os_error), RG_STATUS_UNEXPECTED);
            RG_CHECK(!rg_errors_unreachable(os_error));
        }
    }
}

static bool is_among(int os_error, const int *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == os_error) {
            return true;
        }
    }
    return false;
}
#define IS_AMONG(os_error, ...)                                                                    \
    is_among((os_error), (const int[]){__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static void test_sockets_that_cannot_be_opened(void)
{
    for (int os_error = 1; os_error < 200; os_error++) {
        enum rg_status want = RG_STATUS_UNEXPECTED;
        if (IS_AMONG(os_error, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC)) {
            want = RG_STATUS_NO_RESOURCES;
        } else if (IS_AMONG(os_error, EADDRNOTAVAIL, EADDRINUSE, EAFNOSUPPORT, EACCES, EPERM,
                            ENODEV, EINVAL)) {
            want = RG_STATUS_CONNECT;
        }
        RG_CHECK_EQ(rg_errors_status(RG_ERRORS_OPEN, os_error), want);
    }
}

/* accept(2) names those that are of the connection, and those that say that something is short. */
static void test_connections_that_cannot_be_accepted(void)
{
    for (int os_error = 1; os_error < 200; os_error++) {
        enum rg_status want = RG_STATUS_UNEXPECTED;
        if (IS_AMONG(os_error, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOSPC)) {
            want = RG_STATUS_NO_RESOURCES;
        } else if (IS_AMONG(os_error, ECONNABORTED, EPROTO, ENETDOWN, ENOPROTOOPT, EHOSTDOWN,
                            ENONET, EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH, EPERM)) {
            want = RG_STATUS_CONNECTION_LOST;
        }
        RG_CHECK_EQ(rg_errors_status(RG_ERRORS_ACCEPT, os_error), want);
    }
}

static void test_rings_that_say_no(void)
{
    for (int os_error = 1; os_error < 200; os_error++) {
        enum rg_errors_ring want = RG_ERRORS_RING_BROKEN;
        if (IS_AMONG(os_error, ETIME, EINTR)) {
            want = RG_ERRORS_RING_AGAIN;
        } else if (IS_AMONG(os_error, EAGAIN, ENOMEM, EBUSY)) {
            want = RG_ERRORS_RING_SHORT;
        }
        RG_CHECK_EQ(rg_errors_ring_entered(os_error), want);
        RG_CHECK(*rg_errors_ring_setup_text(os_error) != '\0');
        RG_CHECK(want == RG_ERRORS_RING_AGAIN || *rg_errors_ring_broken_text(os_error) != '\0');
        RG_CHECK_EQ(rg_errors_ring_unavailable(os_error),
                    IS_AMONG(os_error, EPERM, EACCES, ENOSYS, EINVAL));
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
        RG_TEST(test_sockets_that_cannot_be_opened),
        RG_TEST(test_connections_that_cannot_be_accepted),
        RG_TEST(test_rings_that_say_no),
        RG_TEST(test_faults_of_this_program_are_not_tried_again),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
