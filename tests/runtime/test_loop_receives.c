/* What a wait for a socket must not miss, whatever a backend has remembered of it, through the
 * event loop and both of its real backends. */
#include "tests/runtime/loop_case.h"

/* `sizes` of receives against 1000 bytes and an end that were there before the socket was adopted,
 * or before the op was started: the one edge that tells of both is not told twice. */
static void check_data_and_end(size_t size_max, bool adopt_first, bool tcp)
{
    int fds[2];
    (tcp ? make_tcp_pair : make_pair)(fds);
    struct probe probe;
    uint8_t data[1000], got[1000];
    fill_random(data, sizeof(data));
    if (adopt_first) {
        probe_adopt(&probe, fds[0]);
        rg_loop_pass(loop, 0);
    }
    write_all(fds[1], data, sizeof(data));
    close(fds[1]);
    if (adopt_first) {
        rg_loop_pass(loop, 0);
    } else {
        probe_adopt(&probe, fds[0]);
    }
    probe.sink = got;
    while (probe.received < sizeof(data)) {
        unsigned before = probe.done_count;
        probe_recv(&probe, size_max);
        PASS_UNTIL(probe.done_count > before);
        RG_CHECK(probe.result > 0);
    }
    RG_CHECK_MEM(got, probe.received, data, sizeof(data));
    for (int i = 0; i < 2; i++) {
        unsigned before = probe.done_count;
        probe_recv(&probe, size_max);
        PASS_UNTIL(probe.done_count > before);
        RG_CHECK_EQ(probe.result, 0);
    }
    probe_close(&probe);
}

static void test_an_end_that_comes_with_data_is_told_after_it(void)
{
    static const size_t sizes[] = {1, 999, 1000, 1001, RG_RECV_SIZE_MAX};
    setup();
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        for (int shape = 0; shape < 4; shape++) {
            check_data_and_end(sizes[i], shape % 2 == 0, shape / 2 == 0);
        }
    }
    teardown();
}

static void test_data_and_end_between_a_short_receive_and_the_next(void)
{
    setup();
    int fds[2];
    make_tcp_pair(fds);
    struct probe probe;
    probe_adopt(&probe, fds[0]);
    probe_recv(&probe, 100);
    write_all(fds[1], "one", 3);
    PASS_UNTIL(probe.done_count == 1);
    RG_CHECK_EQ(probe.result, 3);
    write_all(fds[1], "three", 5);
    close(fds[1]);
    probe_recv(&probe, 100);
    PASS_UNTIL(probe.done_count == 2);
    RG_CHECK_EQ(probe.result, 5);
    probe_recv(&probe, 100);
    PASS_UNTIL(probe.done_count == 3);
    RG_CHECK_EQ(probe.result, 0);
    probe_close(&probe);
    teardown();
}

/* What has come is told once, perhaps while nobody waits, and no wait for it may sleep. */
static void test_data_between_a_short_receive_and_the_next(void)
{
    setup();
    int fds[2];
    make_tcp_pair(fds);
    struct probe probe;
    probe_adopt(&probe, fds[0]);
    for (unsigned i = 0; i < 12; i++) {
        probe_recv(&probe, 100);
        if (i == 0) {
            rg_loop_pass(loop, 0);
            write_all(fds[1], "x", 1);
        }
        PASS_UNTIL(probe.done_count == i + 1);
        RG_CHECK_EQ(probe.result, 1);
        write_all(fds[1], "x", 1);
        for (unsigned passes = 0; passes < i % 4; passes++) {
            rg_loop_pass(loop, 0);
        }
    }
    probe_close(&probe);
    close(fds[1]);
    teardown();
}

static void test_what_a_receive_leaves_is_received_later(void)
{
    static const size_t sizes[] = {400, 400, 200};
    setup();
    for (int passes = 0; passes < 3; passes++) {
        int fds[2];
        make_tcp_pair(fds);
        struct probe probe;
        uint8_t data[1000], got[1000];
        fill_random(data, sizeof(data));
        probe_adopt(&probe, fds[0]);
        probe.sink = got;
        for (unsigned i = 0; i < RG_ARRAY_LEN(sizes); i++) {
            probe_recv(&probe, 400);
            if (i == 0) {
                rg_loop_pass(loop, 0);
                write_all(fds[1], data, sizeof(data));
            }
            PASS_UNTIL(probe.done_count == i + 1);
            RG_CHECK_EQ(probe.result, sizes[i]);
            for (int pass = 0; pass < passes; pass++) {
                rg_loop_pass(loop, 0);
            }
        }
        RG_CHECK_MEM(got, probe.received, data, sizeof(data));
        /* The end, too, which comes while nobody waits. */
        close(fds[1]);
        for (int pass = 0; pass < passes; pass++) {
            rg_loop_pass(loop, 0);
        }
        for (unsigned i = 0; i < 2; i++) {
            probe_recv(&probe, 400);
            PASS_UNTIL(probe.done_count == 4 + i);
            RG_CHECK_EQ(probe.result, 0);
        }
        probe_close(&probe);
    }
    teardown();
}

/* Receives in a row that bring little, and then one that brings much, and so on. */
static void test_a_socket_brings_much_and_little_by_turns(void)
{
    enum { BIG = RG_KIB(200) };
    setup();
    int fds[2];
    make_tcp_pair(fds);
    struct probe a, b;
    probe_adopt(&a, fds[0]);
    probe_adopt(&b, fds[1]);
    uint8_t *data = malloc(BIG);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 12; i++) {
            fill_random(data, 100);
            transfer(&a, &b, data, 100);
        }
        fill_random(data, BIG);
        transfer(&a, &b, data, BIG);
        transfer(&b, &a, data, BIG);
    }
    free(data);
    probe_close(&a);
    probe_close(&b);
    teardown();
}

/* A socket at the same place in memory with the same descriptor hears nothing of the one before,
 * whose end the peer sees at once. */
static void test_nothing_of_a_closed_socket_reaches_the_next(void)
{
    setup();
    struct probe probe;
    int before = -1;
    for (int i = 0; i < 20; i++) {
        int fds[2];
        make_tcp_pair(fds);
        RG_CHECK(before < 0 || fds[0] == before);
        before = fds[0];
        probe_adopt(&probe, fds[0]);
        probe_recv(&probe, 100);
        rg_loop_pass(loop, 0);
        rg_loop_pass(loop, 0);
        RG_CHECK_EQ(probe.done_count, 0);
        RG_CHECK(!probe.socket.readable);
        rg_op_cancel(loop, &probe.op);
        PASS_UNTIL(probe.done_count == 1);
        RG_CHECK_EQ(probe.result, -ECANCELED);
        /* An arrival that the loop has not heard of. */
        write_all(fds[1], "x", i % 2);
        bool reset = i % 2 == 1 || i % 4 == 0;
        rg_socket_close(loop, &probe.socket, reset);
        char byte;
        ssize_t got = recv(fds[1], &byte, 1, MSG_DONTWAIT);
        RG_CHECK_EQ(got < 0 ? -errno : got, reset ? -ECONNRESET : 0);
        close(fds[1]);
    }
    teardown();
}

#define TESTS(XX)                                                                                  \
    XX(test_an_end_that_comes_with_data_is_told_after_it)                                          \
    XX(test_data_and_end_between_a_short_receive_and_the_next)                                     \
    XX(test_data_between_a_short_receive_and_the_next)                                             \
    XX(test_what_a_receive_leaves_is_received_later)                                               \
    XX(test_a_socket_brings_much_and_little_by_turns)                                              \
    XX(test_nothing_of_a_closed_socket_reaches_the_next)

TESTS(LOOP_CASE)

int main(int argc, char **argv)
{
    static const struct rg_test epoll_tests[] = {TESTS(LOOP_CASE_EPOLL)};
    static const struct rg_test uring_tests[] = {TESTS(LOOP_CASE_URING)};
    return loop_case_main(argc, argv, epoll_tests, uring_tests, RG_ARRAY_LEN(epoll_tests));
}
