/* One connection of the server, from the outside: requests in every shape and order; answers early,
 * slow, cut and stalled. */
#include "tests/support/clock.h"
#include "tests/support/server.h"
#include "tests/support/test.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BODY_SIZE_MAX RG_MIB(8)
/* Longer than a busy machine's pauses; it passes by the clock that is set ahead. */
#define IDLE_NS (20 * RG_NS_PER_S)

static void test_keep_alive_serves_one_after_the_other(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    static const uint64_t sizes[] = {0, 1, 100, 16384, 102400, 131072, 262144, 1 << 20, 5000000};
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
            rg_test_peer_get(fd, sizes[i], "");
            rg_test_peer_expect(fd, sizes[i]);
        }
    }
    RG_CHECK_EQ(rg_test_server_stats()->accepted_count, 1);
    RG_CHECK_EQ(rg_test_server_stats()->request_count, 3 * RG_ARRAY_LEN(sizes));
    close(fd);
    rg_test_server_check_released(3 * RG_ARRAY_LEN(sizes));
    rg_test_server_stop();
}

static void test_pipelined_requests_are_answered_in_order(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    char text[8192];
    size_t size = 0;
    for (int i = 0; i < 100; i++) {
        size += (size_t)snprintf(text + size, sizeof(text) - size,
                                 "GET /%d HTTP/1.1\r\nHost: a\r\n\r\n", i * 700);
    }
    rg_test_peer_send(fd, text, size);
    for (uint64_t i = 0; i < 100; i++) {
        rg_test_peer_expect(fd, i * 700);
    }
    /* Cut anywhere, with bodies between. */
    const char *upload = "PUT /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
                         "GET /4 HTTP/1.1\r\nHost: a\r\n\r\nGET /5 HTTP/1.1\r\n";
    for (size_t cut = 1; cut < strlen(upload); cut += 3) {
        rg_test_peer_send(fd, upload, cut);
        rg_test_loop_turn(rg_test_server.loop);
        rg_test_peer_say(fd, upload + cut);
        rg_test_peer_expect(fd, 3);
        rg_test_peer_expect(fd, 4);
        rg_test_peer_say(fd, "Host: a\r\n\r\n");
        rg_test_peer_expect(fd, 5);
    }
    close(fd);
    rg_test_server_stop();
}

static void test_a_request_may_come_byte_by_byte(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    const char *text = "PUT /7 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: 1\r\n\r\n";
    for (const char *at = text; *at != '\0'; at++) {
        rg_test_peer_send(fd, at, 1);
        rg_test_loop_turn(rg_test_server.loop);
    }
    struct rg_test_answer answer;
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    RG_CHECK_EQ(answer.received, 5);
    RG_CHECK_EQ(rg_test_peer_read_body(fd, 0, 7), 7);
    close(fd);
    rg_test_server_stop();
}

static uint64_t sum_of(const uint8_t *data, size_t size)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < size; i++) {
        sum = sum * 31 + data[i];
    }
    return sum;
}

static void test_uploads_arrive_whole(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    for (size_t size = 1; size <= RG_TEST_BLOB_SIZE; size = size * 3 + 1) {
        char head[128];
        snprintf(head, sizeof(head), "PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
                 size);
        rg_test_peer_say(fd, head);
        rg_test_peer_send(fd, rg_test_blob, size);
        struct rg_test_answer answer;
        RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
        RG_CHECK_EQ(answer.received, size);
        RG_CHECK_EQ(answer.sum, sum_of(rg_test_blob, size));
        RG_CHECK_EQ(rg_test_peer_read_body(fd, 0, 2), 2);
    }
    close(fd);
    rg_test_server_stop();
}

static void test_chunked_uploads_arrive_whole(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    rg_test_peer_say(fd, "PUT /0 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    size_t done = 0;
    while (done < RG_TEST_BLOB_SIZE) {
        size_t wanted = 1 + (size_t)rg_test_random_below(20000);
        size_t size = RG_MIN(RG_TEST_BLOB_SIZE - done, wanted);
        char line[32];
        snprintf(line, sizeof(line), "%zx\r\n", size);
        rg_test_peer_say(fd, line);
        rg_test_peer_send(fd, rg_test_blob + done, size);
        rg_test_peer_say(fd, "\r\n");
        done += size;
    }
    rg_test_peer_say(fd, "0\r\n\r\n");
    struct rg_test_answer answer;
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    RG_CHECK_EQ(answer.received, RG_TEST_BLOB_SIZE);
    RG_CHECK_EQ(answer.sum, sum_of(rg_test_blob, RG_TEST_BLOB_SIZE));
    rg_test_peer_get(fd, 10, "");
    rg_test_peer_expect(fd, 10);
    close(fd);
    rg_test_server_stop();
}

static void test_a_client_that_waits_is_told_to_continue(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    rg_test_peer_say(fd, "PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                         "Expect: 100-continue\r\n\r\n");
    RG_CHECK_EQ(rg_test_peer_expect_status(fd), 100);
    rg_test_peer_say(fd, "abc");
    rg_test_peer_expect(fd, 1);
    /* One that does not wait need not be told. */
    rg_test_peer_say(fd, "PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                         "Expect: 100-continue\r\n\r\nabc");
    rg_test_peer_expect(fd, 1);
    close(fd);
    rg_test_server_stop();
}

static void test_an_early_answer_spares_the_body(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    /* Not told to continue, the client need not send it; what follows could be anything. */
    rg_test_peer_say(fd, "PUT /early HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"
                         "Expect: 100-continue\r\n\r\n");
    RG_CHECK_EQ(rg_test_peer_expect_status(fd), 413);
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
    RG_CHECK_EQ(rg_test_calls.body_calls, 0);
    rg_test_server_stop();
}

static void test_a_small_body_behind_an_early_answer_is_dropped(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    rg_test_peer_say(fd, "PUT /early HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    RG_CHECK_EQ(rg_test_peer_expect_status(fd), 413);
    rg_test_server_check_released(1);
    rg_test_peer_send(fd, rg_test_blob, 100000);
    rg_test_peer_get(fd, 5, "");
    rg_test_peer_expect(fd, 5);
    /* The same with chunks, and answered within the body. */
    rg_test_peer_say(fd, "PUT /early-body HTTP/1.1\r\nHost: a\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    RG_CHECK_EQ(rg_test_peer_expect_status(fd), 413);
    rg_test_peer_say(fd, "4\r\ndefg\r\n0\r\n\r\n");
    rg_test_peer_get(fd, 6, "");
    rg_test_peer_expect(fd, 6);
    RG_CHECK_EQ(rg_test_calls.body_bytes, 3);
    RG_CHECK_EQ(rg_test_calls.ended, 2);
    close(fd);
    rg_test_server_stop();
}

static void test_a_large_body_behind_an_early_answer_ends_the_connection(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    rg_test_peer_say(fd, "PUT /early HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    /* Bytes that are on the way must not turn into an RST that destroys the answer. */
    for (int i = 0; i < 10; i++) {
        rg_test_peer_send(fd, rg_test_blob, RG_TEST_BLOB_SIZE);
    }
    RG_CHECK_EQ(rg_test_peer_expect_status(fd), 413);
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    rg_test_peer_send(fd, rg_test_blob, RG_TEST_BLOB_SIZE);
    close(fd);
    rg_test_server_check_released(1);
    rg_test_server_stop();
}

static void test_endless_chunks_behind_an_early_answer_end_the_connection(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    rg_test_peer_say(fd, "PUT /early HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    RG_CHECK_EQ(rg_test_peer_expect_status(fd), 413);
    char line[] = "10000\r\n";
    for (int i = 0; i < 20; i++) {
        rg_test_peer_say(fd, line);
        rg_test_peer_send(fd, rg_test_blob, 0x10000);
        rg_test_peer_say(fd, "\r\n");
    }
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
    rg_test_server_stop();
}

static void test_head_requests_get_no_body(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    rg_test_peer_say(fd, "HEAD /5000 HTTP/1.1\r\nHost: a\r\n\r\n"
                         "GET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
    struct rg_test_answer answer;
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    RG_CHECK_EQ(answer.content_length, 5000);
    rg_test_peer_expect(fd, 3);
    close(fd);
    rg_test_server_stop();
}

static void check_refused(const char *text, size_t size, unsigned status)
{
    int fd = rg_test_peer_open();
    struct rg_test_answer answer;
    rg_test_peer_send(fd, text, size);
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    RG_CHECK_EQ(answer.status, status);
    RG_CHECK(answer.close);
    uint8_t byte = 0;
    for (uint64_t left = answer.content_length; left > 0; left--) {
        RG_CHECK_EQ(rg_test_peer_recv(fd, &byte, 1), 1);
    }
    RG_CHECK_EQ(byte, '\n');
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
}

static void test_malformed_requests_are_refused_and_counted(void)
{
    static const struct {
        const char *text;
        unsigned status;
    } cases[] = {
        {"nonsense\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
        {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
        {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400},
        {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400},
    };
    rg_test_server_start();
    for (size_t i = 0; i < RG_ARRAY_LEN(cases); i++) {
        check_refused(cases[i].text, strlen(cases[i].text), cases[i].status);
    }
    RG_CHECK_EQ(rg_test_server_stats()->malformed_count, RG_ARRAY_LEN(cases));
    rg_test_server_check_released(1);
    /* Behind a good one. */
    int fd = rg_test_peer_open();
    rg_test_peer_say(fd, "GET /5 HTTP/1.1\r\nHost: a\r\n\r\nGET /5 HTTP/9\r\n\r\n");
    rg_test_peer_expect(fd, 5);
    RG_CHECK(rg_test_peer_expect_status(fd) >= 400);
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
    rg_test_server_stop();
}

static void test_heads_that_are_too_large_are_refused(void)
{
    rg_test_server_start();
    static char text[RG_KIB(200)];
    int start = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\nx: ");
    memset(text + start, 'y', sizeof(text) - (size_t)start);
    check_refused(text, sizeof(text), 431);
    memset(text, 'y', sizeof(text));
    memcpy(text, "GET /", 5);
    check_refused(text, RG_KIB(40), 414);
    rg_test_server_stop();
}

static void test_a_slow_reader_gets_everything(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    int small = 65536;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    rg_test_peer_get(fd, BODY_SIZE_MAX, "");
    /* Until nothing more fits into what the kernel keeps for us. */
    int unread = 0, before;
    do {
        before = unread;
        rg_test_loop_turn(rg_test_server.loop);
        RG_CHECK_EQ(ioctl(fd, FIONREAD, &unread), 0);
    } while (unread == 0 || unread != before);
    rg_test_peer_expect(fd, BODY_SIZE_MAX);
    close(fd);
    rg_test_server_stop();
}

static void test_a_reader_that_stops_is_cut(void)
{
    rg_test_server_start_with(&(struct rg_test_server){.idle_timeout_ns = 1000 * RG_NS_PER_MS});
    int fd = rg_test_peer_open();
    rg_test_peer_get(fd, UINT64_C(1) << 40, "");
    rg_test_server_check_released(1);
    RG_CHECK_EQ(rg_test_server_stats()->timeout_count, 1);
    close(fd);
    rg_test_server_stop();
}

/* Nothing has come for the client, whatever the server had to do. */
static void check_silent(int fd)
{
    rg_test_loop_turn(rg_test_server.loop);
    RG_CHECK_EQ(recv(fd, &(char){0}, 1, MSG_DONTWAIT), -1);
    RG_CHECK_EQ(errno, EAGAIN);
}

static void test_a_delay_holds_back_the_first_byte(void)
{
    /* A delay beyond the idle timeout is ours and not the client's. */
    rg_test_server_start_with(&(struct rg_test_server){.idle_timeout_ns = IDLE_NS});
    int fd = rg_test_peer_open();
    rg_test_peer_get(fd, 1000, "x-delay-ms: 200000\r\n");
    RG_AWAIT(rg_test_calls.ended == 1);
    for (int i = 0; i < 4; i++) {
        check_silent(fd);
        rg_test_clock_skip(rg_test_server.loop, 50 * RG_NS_PER_S);
    }
    rg_test_peer_expect(fd, 1000);
    close(fd);
    rg_test_server_stop();
}

static void test_a_held_response_waits_to_be_let_go(void)
{
    /* No limit of the server's counts meanwhile. */
    rg_test_server_start_with(&(struct rg_test_server){.idle_timeout_ns = IDLE_NS});
    int fd = rg_test_peer_open();
    rg_test_peer_get(fd, 1000, "x-held: 1\r\n");
    rg_test_peer_get(fd, 10, "");
    RG_AWAIT(rg_test_calls.resume_calls > 0);
    for (int i = 0; i < 4; i++) {
        rg_test_clock_skip(rg_test_server.loop, IDLE_NS);
        uint32_t before = rg_test_calls.resume_calls;
        RG_AWAIT(rg_test_calls.resume_calls > before);
        check_silent(fd);
    }
    rg_test_calls.let_go = true;
    rg_test_peer_expect(fd, 1001);
    rg_test_peer_expect(fd, 10);
    close(fd);
    rg_test_server_check_released(2);
    rg_test_server_stop();
}

static void test_a_held_response_ends_with_its_connection(void)
{
    rg_test_server_start();
    for (int round = 0; round < 3; round++) {
        int fd = rg_test_peer_open();
        rg_test_peer_get(fd, 1000, "x-held: 1\r\n");
        uint32_t before = rg_test_calls.resume_calls;
        RG_AWAIT(rg_test_calls.resume_calls > before);
        if (round < 2) { /* The last one is left to the server's end. */
            close(fd);
            rg_test_server_check_released((uint32_t)round + 1);
        }
    }
    rg_test_server_stop();
}

static void test_a_rate_is_kept_smoothly(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    uint64_t start = rg_test_now_ms();
    rg_test_peer_get(fd, 500000, "x-rate: 250000\r\n");
    struct rg_test_answer answer;
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    for (uint64_t offset = 0; offset < 500000; offset += 50000) {
        RG_CHECK_EQ(rg_test_peer_read_body(fd, offset, 50000), 50000);
        RG_CHECK(rg_test_now_ms() - start + 15 >= (offset + 50000) / 250);
    }
    /* One byte at a time at the lowest rates. */
    start = rg_test_now_ms();
    rg_test_peer_get(fd, 4, "x-rate: 20\r\n");
    rg_test_peer_expect(fd, 4);
    RG_CHECK(rg_test_now_ms() - start >= 140);
    close(fd);
    rg_test_server_stop();
}

static void check_cut(uint64_t size, uint64_t after, bool reset)
{
    char fields[64];
    snprintf(fields, sizeof(fields), "x-cut: %llu\r\n%s", (unsigned long long)after,
             reset ? "x-reset: 1\r\n" : "");
    int fd = rg_test_peer_open();
    rg_test_peer_get(fd, size, fields);
    struct rg_test_answer answer;
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    if (reset) {
        /* The RST may overtake bytes that were not read yet. */
        RG_CHECK(rg_test_peer_read_body(fd, 0, size) <= after);
    } else {
        RG_CHECK_EQ(rg_test_peer_read_body(fd, 0, size), after);
        RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    }
    close(fd);
}

static void test_a_response_can_be_cut(void)
{
    rg_test_server_start();
    check_cut(1000, 0, false);
    check_cut(1000, 999, false);
    check_cut(1 << 20, 300000, false);
    check_cut(BODY_SIZE_MAX, 5000000, true);
    rg_test_server_check_released(4);
    rg_test_server_stop();
}

static void test_a_response_can_be_cut_by_reset(void)
{
    rg_test_server_start();
    for (int i = 0; i < 20; i++) {
        int fd = rg_test_peer_open();
        rg_test_peer_get(fd, 1000, "x-cut: 500\r\nx-reset: 1\r\n");
        struct pollfd wait = {.fd = fd, .events = POLLRDHUP};
        RG_CHECK_EQ(poll(&wait, 1, RG_TEST_CLIENT_TIMEOUT_S * 1000), 1);
        int error = 0;
        socklen_t size = sizeof(error);
        RG_CHECK_EQ(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
        RG_CHECK_EQ(error, ECONNRESET);
        close(fd);
    }
    rg_test_server_check_released(20);
    rg_test_server_stop();
}

static void test_a_response_can_be_cut_before_its_head(void)
{
    static const char *const fields[] = {"x-cut-head: 1\r\n", "x-cut-head: 1\r\nx-reset: 1\r\n"};
    static const int ends[] = {0, ECONNRESET};
    rg_test_server_start();
    for (size_t i = 0; i < RG_ARRAY_LEN(ends); i++) {
        int fd = rg_test_peer_open();
        rg_test_peer_get(fd, 1000, fields[i]);
        RG_CHECK_EQ(rg_test_peer_expect_end(fd), ends[i]);
        close(fd);
    }
    rg_test_server_check_released(2);
    rg_test_server_stop();
}

static void test_a_response_can_stall(void)
{
    rg_test_server_start_with(&(struct rg_test_server){.idle_timeout_ns = IDLE_NS});
    int fd = rg_test_peer_open();
    rg_test_peer_get(fd, 400000, "x-stall: 150000\r\nx-stall-ms: 200000\r\n");
    struct rg_test_answer answer;
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    RG_CHECK_EQ(rg_test_peer_read_body(fd, 0, 150000), 150000);
    for (int i = 0; i < 4; i++) {
        check_silent(fd);
        rg_test_clock_skip(rg_test_server.loop, 50 * RG_NS_PER_S);
    }
    RG_CHECK_EQ(rg_test_peer_read_body(fd, 150000, 250000), 250000);
    close(fd);
    rg_test_server_stop();
}

static void test_a_handler_can_refuse(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    rg_test_peer_say(fd, "GET /refuse HTTP/1.1\r\nHost: a\r\n\r\n");
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
    RG_CHECK_EQ(rg_test_calls.begun, 0);
    fd = rg_test_peer_open();
    rg_test_peer_say(fd, "PUT /refuse-body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
    rg_test_server_check_released(1);
    rg_test_server_stop();
}

static void test_connections_are_closed_when_either_side_says_so(void)
{
    rg_test_server_start();
    int fd = rg_test_peer_open();
    rg_test_peer_get(fd, 5, "x-close: 1\r\n");
    rg_test_peer_expect(fd, 5);
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
    fd = rg_test_peer_open();
    rg_test_peer_get(fd, 5, "Connection: close\r\n");
    rg_test_peer_expect(fd, 5);
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
    fd = rg_test_peer_open();
    rg_test_peer_say(fd, "GET /6 HTTP/1.0\r\n\r\nwhat is this");
    rg_test_peer_expect(fd, 6);
    RG_CHECK_EQ(rg_test_peer_expect_end(fd), 0);
    close(fd);
    rg_test_server_stop();
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_keep_alive_serves_one_after_the_other),
        RG_TEST(test_pipelined_requests_are_answered_in_order),
        RG_TEST(test_a_request_may_come_byte_by_byte),
        RG_TEST(test_uploads_arrive_whole),
        RG_TEST(test_chunked_uploads_arrive_whole),
        RG_TEST(test_a_client_that_waits_is_told_to_continue),
        RG_TEST(test_an_early_answer_spares_the_body),
        RG_TEST(test_a_small_body_behind_an_early_answer_is_dropped),
        RG_TEST(test_a_large_body_behind_an_early_answer_ends_the_connection),
        RG_TEST(test_endless_chunks_behind_an_early_answer_end_the_connection),
        RG_TEST(test_head_requests_get_no_body),
        RG_TEST(test_malformed_requests_are_refused_and_counted),
        RG_TEST(test_heads_that_are_too_large_are_refused),
        RG_TEST(test_a_slow_reader_gets_everything),
        RG_TEST(test_a_reader_that_stops_is_cut),
        RG_TEST(test_a_delay_holds_back_the_first_byte),
        RG_TEST(test_a_held_response_waits_to_be_let_go),
        RG_TEST(test_a_held_response_ends_with_its_connection),
        RG_TEST(test_a_rate_is_kept_smoothly),
        RG_TEST(test_a_response_can_be_cut),
        RG_TEST(test_a_response_can_be_cut_by_reset),
        RG_TEST(test_a_response_can_be_cut_before_its_head),
        RG_TEST(test_a_response_can_stall),
        RG_TEST(test_a_handler_can_refuse),
        RG_TEST(test_connections_are_closed_when_either_side_says_so),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
