/* OpenSSL's command-line program as the peer, over a loopback socket: what neither BoringSSL nor we
 * wrote must understand us. Skipped where there is no `openssl`. */
#include "http/tls.h"
#include "tests/support/test.h"
#include "tests/support/tls_ends.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MS 10000
#define ARGS_MAX 32

static struct rg_test_pki pki;
static struct rg_tls_context *context, *server_context;
static struct rg_test_end end;
static char cert_path[RG_TEST_PATH_SIZE], key_path[RG_TEST_PATH_SIZE];
static uint8_t input[RG_KIB(64)];

/* A listening socket on a free port of 127.0.0.1. */
static int listen_somewhere(uint16_t *out_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_ASSERT(fd >= 0);
    RG_ASSERT(bind(fd, (struct sockaddr *)&address, size) == 0);
    RG_ASSERT(listen(fd, 4) == 0);
    RG_ASSERT(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *out_port = ntohs(address.sin_port);
    return fd;
}

/* -1 while nobody listens. */
static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_ASSERT(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Starts openssl with the arguments; `in` (or /dev/null) is its standard input. */
static pid_t start_openssl(const char *const *args, int in, int out)
{
    pid_t pid = fork();
    RG_ASSERT(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(in >= 0 ? in : null, STDIN_FILENO);
        dup2(out >= 0 ? out : null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execvp("openssl", (char *const *)args);
        _exit(127);
    }
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
}

static void send_out(int fd)
{
    for (size_t at = 0; at < end.out.size;) {
        ssize_t ret = send(fd, end.out.data + at, end.out.size - at, MSG_NOSIGNAL);
        RG_CHECK(ret > 0);
        at += (size_t)ret;
    }
    end.out.size = 0;
}

/* Waits for bytes and leaves them in `in`; false at the end of the stream. */
static bool receive(int fd, struct rg_tls_in *in)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    RG_CHECK_EQ(poll(&wait, 1, TIMEOUT_MS), 1);
    ssize_t ret = recv(fd, input, sizeof(input), 0);
    *in = (struct rg_tls_in){input, ret > 0 ? (size_t)ret : 0};
    return ret > 0;
}

static void shake(int fd, struct rg_tls_in *in)
{
    int ret = 0;
    *in = (struct rg_tls_in){input, 0};
    while ((ret = rg_tls_handshake(&end.tls, in, &end.out)) == -EAGAIN) {
        send_out(fd);
        RG_CHECK(receive(fd, in));
    }
    if (ret != 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", rg_tls_failure_text(&end.tls));
    }
    send_out(fd);
}

/* Opens until the peer ends or `size` bytes are there. Returns how many. */
static size_t read_plain(int fd, struct rg_tls_in *in, uint8_t *out, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t ret = rg_tls_open(&end.tls, in, out + done, size - done, &end.out);
        if (ret == -ENODATA || (ret == 0 && !receive(fd, in))) {
            break;
        }
        RG_CHECK(ret >= 0);
        done += (size_t)ret;
    }
    return done;
}

/* Whether nothing of what was written to a pipe lies in it. */
static bool is_read(int pipe_end)
{
    int unread = 0;
    RG_CHECK_EQ(ioctl(pipe_end, FIONREAD, &unread), 0);
    return unread == 0;
}

/* Connects to a fresh `openssl s_server -rev`, which answers each line with its reverse. */
static void check_echo_with(const char *version, const char *option, const char *suite)
{
    char where[32], answer[20001], line[20001];
    uint16_t port = 0;
    struct rg_tls_in in;
    struct rg_tls_peer peer;
    close(listen_somewhere(&port));
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    const char *args[ARGS_MAX] = {"openssl", "s_server", "-accept", where,  "-cert",
                                  cert_path, "-key",     key_path,  "-rev", "-quiet",
                                  version,   option,     suite,     NULL};
    pid_t pid = start_openssl(args, -1, -1);
    int fd = -1;
    RG_AWAIT((fd = connect_to(port)) >= 0);
    rg_test_end_reset(&end);
    RG_CHECK_EQ(rg_tls_peer_init(&peer, context, "localhost"), 0);
    RG_CHECK_EQ(rg_tls_init_client(&end.tls, &end.loop, &peer), 0);
    shake(fd, &in);
    printf("  %s %s%s\n", rg_tls_version(&end.tls), rg_tls_cipher(&end.tls),
           rg_test_own_records(&end) ? ", own records" : "");
    RG_CHECK_EQ(rg_test_own_records(&end), strcmp(version, "-tls1_3") == 0);
    for (int round = 0; round < 20; round++) {
        size_t size = 1 + rg_test_random_below(15000);
        for (size_t i = 0; i < size; i++) {
            line[i] = (char)('a' + rg_test_random_below(26));
        }
        line[size] = '\n';
        RG_CHECK_EQ(rg_tls_seal(&end.tls, line, size + 1, &end.out), size + 1);
        send_out(fd);
        RG_CHECK_EQ(read_plain(fd, &in, (uint8_t *)answer, size + 1), size + 1);
        for (size_t i = 0; i < size; i++) {
            RG_CHECK_EQ(answer[i], line[size - 1 - i]);
        }
    }
    RG_CHECK_EQ(rg_tls_close_notify(&end.tls, &end.out), 0);
    send_out(fd);
    rg_tls_fini(&end.tls);
    rg_tls_peer_fini(&peer);
    close(fd);
    stop(pid);
}

static void test_a_server_with_each_suite_of_tls13(void)
{
    check_echo_with("-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256");
    check_echo_with("-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384");
    check_echo_with("-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256");
}

static void test_a_server_with_tls12(void)
{
    check_echo_with("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256");
    check_echo_with("-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305");
}

/* openssl s_client sends us what it reads on its standard input and prints what we answer. "k" and
 * "K" on lines of their own make it change its key, the latter asking for ours. */
static void check_client_with(const char *version)
{
    char where[32], answer[64] = "";
    uint16_t port = 0;
    int stdin_pipe[2], stdout_pipe[2];
    struct rg_tls_in in;
    int listening = listen_somewhere(&port);
    RG_CHECK_EQ(pipe2(stdin_pipe, O_CLOEXEC), 0);
    RG_CHECK_EQ(pipe2(stdout_pipe, O_CLOEXEC), 0);
    snprintf(where, sizeof(where), "127.0.0.1:%u", port);
    const char *args[ARGS_MAX] = {
        "openssl",
        "s_client",
        "-connect",
        where,
        "-CAfile",
        pki.ca_path,
        "-verify_return_error",
        "-servername",
        "localhost",
        "-alpn",
        "http/1.1",
        "-quiet",
        "-no_ign_eof",
        version,
        NULL,
    };
    pid_t pid = start_openssl(args, stdin_pipe[0], stdout_pipe[1]);
    close(stdin_pipe[0]);
    close(stdout_pipe[1]);
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    RG_CHECK(fd >= 0);
    rg_test_end_reset(&end);
    RG_CHECK_EQ(rg_tls_init_server(&end.tls, &end.loop, server_context), 0);
    shake(fd, &in);
    RG_CHECK(rg_tls_alpn(&end.tls));
    RG_CHECK_EQ(write(stdin_pipe[1], "hello\n", 6), 6);
    RG_CHECK_EQ(read_plain(fd, &in, (uint8_t *)answer, 6), 6);
    RG_CHECK_STR(answer, "hello\n");
    if (strcmp(version, "-tls1_3") == 0) {
        /* A command is one only where it is all that a read finds. */
        RG_CHECK_EQ(write(stdin_pipe[1], "k\n", 2), 2);
        RG_AWAIT(is_read(stdin_pipe[1]));
        RG_CHECK_EQ(write(stdin_pipe[1], "K\n", 2), 2);
        RG_AWAIT(is_read(stdin_pipe[1]));
        RG_CHECK_EQ(write(stdin_pipe[1], "again\n", 6), 6);
        memset(answer, 0, sizeof(answer));
        RG_CHECK_EQ(read_plain(fd, &in, (uint8_t *)answer, 6), 6);
        RG_CHECK_STR(answer, "again\n");
        RG_CHECK_EQ(rg_test_own_records(&end) ? end.tls.record.sequence : 0, 1);
    }
    RG_CHECK_EQ(rg_tls_seal(&end.tls, "welcome\n", 8, &end.out), 8);
    RG_CHECK_EQ(rg_tls_close_notify(&end.tls, &end.out), 0);
    send_out(fd);
    memset(answer, 0, sizeof(answer));
    RG_CHECK_EQ(read(stdout_pipe[0], answer, sizeof(answer) - 1), 8);
    RG_CHECK_STR(answer, "welcome\n");
    rg_tls_fini(&end.tls);
    close(fd);
    close(listening);
    close(stdin_pipe[1]);
    close(stdout_pipe[0]);
    stop(pid);
}

static void test_a_client_with_tls13_that_changes_keys(void)
{
    check_client_with("-tls1_3");
}

static void test_a_client_with_tls12(void)
{
    check_client_with("-tls1_2");
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_a_server_with_each_suite_of_tls13),
        RG_TEST(test_a_server_with_tls12),
        RG_TEST(test_a_client_with_tls13_that_changes_keys),
        RG_TEST(test_a_client_with_tls12),
    };
    if (system("openssl version >/dev/null 2>&1") != 0) {
        printf("skipped: there is no openssl program here\n0 passed, 0 failed, %zu skipped\n",
               RG_ARRAY_LEN(tests));
        return 77;
    }
    rg_test_pki_init(&pki);
    rg_test_file_make(pki.leaf.cert_pem, cert_path);
    rg_test_file_make(pki.leaf.key_pem, key_path);
    context = rg_test_client_context(&pki, false);
    server_context = rg_test_server_context(&pki.leaf);
    rg_test_end_init(&end);
    int ret = rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
    rg_test_end_fini(&end);
    rg_tls_context_close(server_context);
    rg_tls_context_close(context);
    unlink(cert_path);
    unlink(key_path);
    rg_test_pki_fini(&pki);
    return ret;
}
