/* The server as a whole: accepting, limits, timeouts and destruction; and over TLS with a client
 * that others wrote (curl). */
#include "tests/support/clock.h"
#include "tests/support/server.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BODY_SIZE_MAX RG_MIB(8)
/* Longer than a busy machine's pauses; it passes by the clock that is set ahead. */
#define IDLE_NS (20 * RG_NS_PER_S)

static void test_a_client_that_goes_away_leaves_nothing_behind(void)
{
    rg_test_server_start();
    struct linger reset = {.l_onoff = 1};
    for (int i = 0; i < 12; i++) {
        int fd = rg_test_peer_open();
        if (i % 4 == 0) {
            rg_test_peer_say(fd, "PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
        } else if (i % 4 == 1) {
            rg_test_peer_get(fd, BODY_SIZE_MAX, "");
            RG_CHECK(rg_test_peer_read_body(fd, 0, 0) == 0);
        } else if (i % 4 == 2) {
            rg_test_peer_get(fd, 10, "x-delay-ms: 60000\r\n");
        } else {
            rg_test_peer_say(fd, "GET /1 HT");
        }
        rg_test_loop_turn(rg_test_server.loop);
        if (i >= 6) {
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        }
        close(fd);
    }
    rg_test_server_check_released(9);
    RG_AWAIT(rg_test_server_stats()->connections_open == 0);
    rg_test_server_stop();
}

static void test_requests_that_stall_and_idle_connections_are_closed(void)
{
    rg_test_server_start_with(&(struct rg_test_server){.idle_timeout_ns = IDLE_NS});
    int idle = rg_test_peer_open();
    rg_test_peer_get(idle, 1, "");
    rg_test_peer_expect(idle, 1);
    int stalled = rg_test_peer_open();
    rg_test_peer_say(stalled, "PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc");
    rg_test_loop_turn(rg_test_server.loop);
    rg_test_clock_skip(rg_test_server.loop, IDLE_NS + RG_NS_PER_MS);
    RG_CHECK_EQ(rg_test_peer_expect_end(idle), 0);
    RG_CHECK_EQ(rg_test_peer_expect_end(stalled), 0);
    RG_CHECK_EQ(rg_test_server_stats()->timeout_count, 1);
    /* A head that comes in drops is no progress. */
    int slow = rg_test_peer_open();
    static const char head[] = "GET / HTTP/1.1\r\nHost: abcdef";
    for (int i = 0; i < 27; i++) {
        if (send(slow, &head[i], 1, MSG_NOSIGNAL) < 0) {
            break;
        }
        rg_test_clock_skip(rg_test_server.loop, IDLE_NS / 12);
    }
    int end = rg_test_peer_expect_end(slow);
    RG_CHECK(end == 0 || end == ECONNRESET || end == EPIPE);
    close(slow);
    close(idle);
    close(stalled);
    rg_test_server_check_released(2);
    rg_test_server_stop();
}

static void test_destroy_with_open_calls_releases_them(void)
{
    rg_test_server_start();
    int fds[60];
    for (int i = 0; i < 60; i++) {
        fds[i] = rg_test_peer_open();
        if (i % 5 == 0) {
            rg_test_peer_get(fds[i], UINT64_C(1) << 40, "");
        } else if (i % 5 == 1) {
            rg_test_peer_get(fds[i], 10, "x-delay-ms: 100000\r\n");
        } else if (i % 5 == 2) {
            rg_test_peer_say(fds[i], "PUT /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc");
        } else if (i % 5 == 3) {
            rg_test_peer_get(fds[i], 10, "");
            rg_test_peer_expect(fds[i], 10);
        }
    }
    RG_AWAIT(rg_test_calls.begun == 48 && rg_test_calls.released == 12);
    rg_test_server_stop();
    RG_CHECK_EQ(rg_test_calls.released, 48);
    for (int i = 0; i < 60; i++) {
        close(fds[i]);
    }
}

static void test_a_thousand_connections_at_once(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2100) {
        limit.rlim_cur = RG_MIN(limit.rlim_max, 4096);
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < 2100) {
        rg_test_skip("only %llu descriptors", (unsigned long long)limit.rlim_cur);
    }
    rg_test_server_start();
    static int fds[1000];
    for (int i = 0; i < 1000; i++) {
        fds[i] = rg_test_peer_open();
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 1000; i++) {
            rg_test_peer_get(fds[i], 20000, "");
        }
        for (int i = 0; i < 1000; i++) {
            rg_test_peer_expect(fds[i], 20000);
        }
    }
    RG_CHECK_EQ(rg_test_server_stats()->connections_open, 1000);
    for (int i = 0; i < 1000; i++) {
        close(fds[i]);
    }
    rg_test_server_check_released(3000);
    rg_test_server_stop();
}

static void test_connections_beyond_the_limit_wait_their_turn(void)
{
    rg_test_server_start_with(&(struct rg_test_server){.connections_max = 2});
    int first = rg_test_peer_open();
    int second = rg_test_peer_open();
    int third = rg_test_peer_open();
    rg_test_peer_get(first, 1, "");
    rg_test_peer_get(second, 2, "");
    rg_test_peer_get(third, 3, "");
    rg_test_peer_expect(first, 1);
    rg_test_peer_expect(second, 2);
    struct pollfd wait = {.fd = third, .events = POLLIN};
    RG_CHECK_EQ(poll(&wait, 1, 100), 0);
    close(first);
    rg_test_peer_expect(third, 3);
    close(second);
    close(third);
    rg_test_server_stop();
}

static void test_accepting_goes_on_when_descriptors_come_back(void)
{
    rg_test_server_start();
    int first = rg_test_peer_open();
    rg_test_peer_get(first, 1, "");
    rg_test_peer_expect(first, 1);
    int second = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = (rlim_t)second + 1;
    setrlimit(RLIMIT_NOFILE, &none);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons(rg_test_server.port),
    };
    uint64_t since_ms = rg_test_now_ms();
    int rc = connect(second, (struct sockaddr *)&address, sizeof(address));
    RG_AWAIT(rg_test_server_stats()->accept_failure_count >= 4);
    setrlimit(RLIMIT_NOFILE, &before);
    RG_CHECK_EQ(rc, 0);
    rg_test_peer_get(second, 5, "");
    rg_test_peer_expect(second, 5);
    /* Tried again every 50 ms, not all the time. */
    uint64_t failure_count = rg_test_server_stats()->accept_failure_count;
    RG_CHECK(failure_count <= (rg_test_now_ms() - since_ms) / 50 + 2);
    close(first);
    close(second);
    rg_test_server_stop();
}

/* Runs a command whose output is compared; skips when the program is not there. */
static void check_command(const char *command, const char *want)
{
    char out[512] = {0};
    FILE *pipe = popen(command, "r");
    RG_CHECK(pipe != NULL);
    size_t size = fread(out, 1, sizeof(out) - 1, pipe);
    int status = pclose(pipe);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        rg_test_server_stop();
        rg_test_skip("curl is not installed");
    }
    RG_CHECK_EQ(status, 0);
    out[size] = '\0';
    RG_CHECK_STR(out, want);
}

static struct rg_test_pki pki;

static void server_start_tls(void)
{
    rg_test_pki_init(&pki);
    rg_test_server_start_with(&(struct rg_test_server){.tls = rg_test_server_context(&pki.leaf)});
}

static void server_stop_tls(void)
{
    struct rg_tls_context *tls = rg_test_server.tls;
    rg_test_server_stop();
    rg_tls_context_close(tls);
    rg_test_pki_fini(&pki);
}

static void test_curl_downloads_over_tls(void)
{
    server_start_tls();
    static const uint64_t sizes[] = {0, 1, 10000, 16384, 102400, 262144, 300001, 3000000};
    for (size_t i = 0; i < RG_ARRAY_LEN(sizes); i++) {
        unsigned long long size = sizes[i];
        char command[512], want[64], path[64], url[64];
        snprintf(path, sizeof(path), "/tmp/ringest-test-server-%d", (int)getpid());
        snprintf(url, sizeof(url), "https://localhost:%d/%llu", rg_test_server.port, size);
        /* Three times over one connection; the bytes of the last are compared. */
        snprintf(command, sizeof(command),
                 "curl -s --cacert %s -o /dev/null -o /dev/null -o %s"
                 " -w '%%{http_code} %%{size_download} %%{num_connects};' %s %s %s",
                 pki.ca_path, path, url, url, url);
        snprintf(want, sizeof(want), "200 %llu 1;200 %llu 0;200 %llu 0;", size, size, size);
        check_command(command, want);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        unlink(path);
        uint8_t byte;
        for (uint64_t at = 0; fd >= 0 && at < sizes[i]; at++) {
            uint64_t step = at % 997 == 0 || at + 1 == sizes[i];
            if (step != 0) {
                RG_CHECK_EQ(pread(fd, &byte, 1, (off_t)at), 1);
                RG_CHECK_EQ(byte, rg_test_blob[at % RG_TEST_BLOB_SIZE]);
            }
        }
        close(fd);
    }
    rg_test_server_check_released(3 * RG_ARRAY_LEN(sizes));
    server_stop_tls();
}

static void test_curl_uploads_over_tls(void)
{
    server_start_tls();
    char command[512];
    static const char *const modes[] = {"", "-H 'Transfer-Encoding: chunked'",
                                        "-H 'Expect: 100-continue'", "--tls-max 1.2"};
    for (size_t i = 0; i < RG_ARRAY_LEN(modes); i++) {
        snprintf(command, sizeof(command),
                 "head -c 2000000 /dev/zero | curl -s --cacert %s %s -o /dev/null"
                 " -w '%%{http_code} %%header{x-received}' -T - https://localhost:%d/10",
                 pki.ca_path, modes[i], rg_test_server.port);
        check_command(command, "200 2000000");
    }
    server_stop_tls();
}

static void test_faults_over_tls(void)
{
    server_start_tls();
    char command[512];
    snprintf(command, sizeof(command),
             "curl -s --cacert %s -o /dev/null -w '%%{size_download}' -H 'x-cut: 300000'"
             " https://localhost:%d/1000000; test $? = 18 || test $? = 56",
             pki.ca_path, rg_test_server.port);
    check_command(command, "300000");
    snprintf(command, sizeof(command),
             "curl -s --cacert %s -o /dev/null -w '%%{size_download}' -H 'x-rate: 2000000'"
             " -H 'x-delay-ms: 50' -H 'x-stall: 1000' -H 'x-stall-ms: 50'"
             " https://localhost:%d/200000",
             pki.ca_path, rg_test_server.port);
    uint64_t start = rg_test_now_ms();
    check_command(command, "200000");
    RG_CHECK(rg_test_now_ms() - start >= 180);
    snprintf(command, sizeof(command),
             "curl -s --cacert %s -o /dev/null -w '%%{http_code}' -H 'Host: a b'"
             " https://localhost:%d/1",
             pki.ca_path, rg_test_server.port);
    check_command(command, "400");
    server_stop_tls();
}

static void test_destroy_over_tls(void)
{
    server_start_tls();
    char command[512];
    snprintf(command, sizeof(command),
             "exec curl -s --cacert %s -o /dev/null --limit-rate 1k https://localhost:%d/100000000",
             pki.ca_path, rg_test_server.port);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    int idle = rg_test_peer_open();
    RG_AWAIT(rg_test_calls.begun > 0 || waitpid(pid, NULL, WNOHANG) != 0);
    rg_test_loop_turn(rg_test_server.loop);
    bool was_begun = rg_test_calls.begun == 1;
    server_stop_tls();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(idle);
    if (!was_begun) {
        rg_test_skip("curl is not installed");
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_client_that_goes_away_leaves_nothing_behind),
        RG_TEST(test_requests_that_stall_and_idle_connections_are_closed),
        RG_TEST(test_destroy_with_open_calls_releases_them),
        RG_TEST(test_a_thousand_connections_at_once),
        RG_TEST(test_connections_beyond_the_limit_wait_their_turn),
        RG_TEST(test_accepting_goes_on_when_descriptors_come_back),
        RG_TEST(test_curl_downloads_over_tls),
        RG_TEST(test_curl_uploads_over_tls),
        RG_TEST(test_faults_over_tls),
        RG_TEST(test_destroy_over_tls),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
