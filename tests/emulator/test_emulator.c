/* The whole emulator over real sockets: plain and TLS, all loops, start and end, bad options. */
#include "emulator/emulator.h"
#include "emulator/wire/checksum.h"
#include "tests/support/test.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const synthetic[] = {"data/train/x-:1000:100KiB"};

static struct rg_emulator *open_emulator(const struct rg_emulator_options *options)
{
    struct rg_emulator *emulator;
    char error[512] = "";
    if (rg_emulator_open(&emulator, options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    return emulator;
}

static uint16_t port_of(const struct rg_emulator *emulator)
{
    return (uint16_t)atoi(strrchr(rg_emulator_endpoint(emulator), ':') + 1);
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A blocking connection, with TLS or without. */
struct client {
    int fd;
    SSL *ssl;
};

static ssize_t client_write(struct client *client, const void *data, size_t size)
{
    return client->ssl != NULL ? SSL_write(client->ssl, data, (int)size)
                               : send(client->fd, data, size, MSG_NOSIGNAL);
}

/* Interrupted calls are repeated: a thread that had a ring may be woken to clean up behind it. */
static ssize_t client_read(struct client *client, void *data, size_t size)
{
    ssize_t count;
    do {
        errno = 0;
        count = client->ssl != NULL ? SSL_read(client->ssl, data, (int)size)
                                    : recv(client->fd, data, size, 0);
    } while (count < 0 && errno == EINTR);
    return count;
}

static bool client_handshake(struct client *client)
{
    int rc;
    do {
        errno = 0;
        rc = SSL_connect(client->ssl);
    } while (rc < 0 && errno == EINTR);
    return rc == 1;
}

/* Sends the request and reads the response to its Content-Length. The status; -1: something broke.
 * *out_good says whether the body has the CRC that the head tells. */
static int exchange(struct client *client, const char *request, uint64_t *out_body_size,
                    bool *out_good)
{
    static _Thread_local char bytes[RG_KIB(256)];
    size_t size = 0, head_size = 0, wanted = sizeof(bytes) - 1;
    if (client_write(client, request, strlen(request)) != (ssize_t)strlen(request)) {
        return -1;
    }
    while (size < wanted) {
        ssize_t count = client_read(client, bytes + size, wanted - size);
        if (count <= 0) {
            return -1;
        }
        size += (size_t)count;
        bytes[size] = '\0';
        char *end = head_size == 0 ? strstr(bytes, "\r\n\r\n") : NULL;
        if (end != NULL) {
            head_size = (size_t)(end + 4 - bytes);
            const char *length = strstr(bytes, "Content-Length: ");
            wanted = head_size + (length != NULL ? strtoul(length + 16, NULL, 10) : 0);
        }
    }
    *out_body_size = size - head_size;
    uint32_t crc = rg_checksum_extend(0, bytes + head_size, size - head_size);
    char hash[32] = "crc32c=";
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint64_t bits = (uint64_t)crc << 4;
    for (int i = 0; i < 6; i++) {
        hash[7 + i] = digits[bits >> 6 * (5 - i) & 63];
    }
    *out_good = strstr(bytes, hash) != NULL;
    return atoi(bytes + 9);
}

static void test_the_ready_line_and_the_endpoint(void)
{
    struct rg_emulator *emulator = open_emulator(&(struct rg_emulator_options){.threads = 1});
    char line[512], want[512];
    RG_CHECK(rg_emulator_format_ready(emulator, line, sizeof(line)) > 0);
    snprintf(want, sizeof(want), "{\"endpoint\":\"https://localhost:%u\",\"ca\":\"%s\",\"pid\":%d}",
             port_of(emulator), rg_emulator_ca_path(emulator), (int)getpid());
    RG_CHECK_STR(line, want);
    RG_CHECK_EQ(access(rg_emulator_ca_path(emulator), R_OK), 0);
    RG_CHECK_EQ(rg_emulator_format_ready(emulator, line, 10), -ENOSPC);
    rg_emulator_close(emulator);
    emulator = open_emulator(
        &(struct rg_emulator_options){.threads = 1, .plain = true, .listen = "127.0.0.1:0"});
    RG_CHECK(strncmp(rg_emulator_endpoint(emulator), "http://localhost:", 17) == 0);
    RG_CHECK(rg_emulator_ca_path(emulator) == NULL);
    rg_emulator_close(emulator);
}

static void test_tls_with_the_certificate_verified(void)
{
    struct rg_emulator *emulator = open_emulator(
        &(struct rg_emulator_options){.threads = 1, .synthetic = synthetic, .synthetic_count = 1});
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    RG_CHECK(SSL_CTX_load_verify_locations(context, rg_emulator_ca_path(emulator), NULL) == 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    struct client client = {.fd = connect_to(port_of(emulator)), .ssl = SSL_new(context)};
    RG_CHECK(client.fd >= 0);
    SSL_set_fd(client.ssl, client.fd);
    SSL_set_tlsext_host_name(client.ssl, "localhost");
    SSL_set1_host(client.ssl, "localhost");
    RG_CHECK(client_handshake(&client));
    for (int i = 0; i < 50; i++) {
        char request[128];
        uint64_t size;
        bool good;
        snprintf(request, sizeof(request),
                 "GET /data/train/x-%08d HTTP/1.1\r\nHost: localhost\r\n\r\n", i * 7);
        RG_CHECK_EQ(exchange(&client, request, &size, &good), 200);
        RG_CHECK_EQ(size, 102400);
        RG_CHECK(good);
    }
    SSL_free(client.ssl);
    SSL_CTX_free(context);
    close(client.fd);
    rg_emulator_close(emulator);
}

static atomic_int failures;

static void *use_connections(void *argument)
{
    uint16_t port = *(const uint16_t *)argument;
    for (int c = 0; c < 10; c++) {
        struct client client = {.fd = connect_to(port)};
        for (int i = 0; i < 20 && client.fd >= 0; i++) {
            static const char put[] = "PUT /bucket/shared HTTP/1.1\r\nHost: h\r\n"
                                      "Content-Length: 10\r\n\r\n0123456789";
            static const char get[] = "GET /data/train/x-00000500 HTTP/1.1\r\nHost: h\r\n\r\n";
            uint64_t size;
            bool good;
            if (exchange(&client, i % 2 ? put : get, &size, &good) != 200 ||
                (i % 2 == 0 && (!good || size != 102400))) {
                atomic_fetch_add(&failures, 1);
            }
        }
        if (client.fd < 0) {
            atomic_fetch_add(&failures, 1);
        } else {
            close(client.fd);
        }
    }
    return NULL;
}

static void test_many_connections_over_several_loops(void)
{
    struct rg_emulator *emulator = open_emulator(&(struct rg_emulator_options){
        .threads = 3, .plain = true, .synthetic = synthetic, .synthetic_count = 1});
    uint16_t port = port_of(emulator);
    pthread_t threads[4];
    atomic_store(&failures, 0);
    for (size_t i = 0; i < RG_ARRAY_LEN(threads); i++) {
        RG_CHECK_EQ(pthread_create(&threads[i], NULL, use_connections, &port), 0);
    }
    for (size_t i = 0; i < RG_ARRAY_LEN(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    RG_CHECK_EQ(atomic_load(&failures), 0);
    rg_emulator_close(emulator);
}

/* Whether the other end of a connection of this machine has received all that was sent: by its line
 * in the kernel's table, in which addresses and sizes are hexadecimal (proc(5), /proc/net/tcp). */
static bool is_taken(int fd)
{
    struct sockaddr_in own;
    socklen_t size = sizeof(own);
    RG_CHECK_EQ(getsockname(fd, (struct sockaddr *)&own, &size), 0);
    FILE *table = fopen("/proc/net/tcp", "re");
    RG_CHECK(table != NULL);
    char line[256];
    bool taken = false;
    while (fgets(line, sizeof(line), table) != NULL) {
        unsigned remote_port, unread;
        if (sscanf(line, "%*d: %*x:%*x %*x:%x 01 %*x:%x", &remote_port, &unread) == 2 &&
            remote_port == ntohs(own.sin_port)) {
            taken = unread == 0;
        }
    }
    fclose(table);
    return taken;
}

static void test_closing_cuts_what_is_running(void)
{
    struct rg_emulator *emulator = open_emulator(
        &(struct rg_emulator_options){.threads = 2, .plain = true, .latency_ms = "60000"});
    static const char request[] = "GET /storage/v1/b HTTP/1.1\r\nHost: h\r\n\r\n";
    uint16_t port = port_of(emulator);
    int waiting = connect_to(port), idle = connect_to(port), half = connect_to(port);
    char byte;
    RG_CHECK(waiting >= 0 && idle >= 0 && half >= 0);
    RG_CHECK(send(waiting, request, strlen(request), 0) > 0);
    RG_CHECK(send(half, request, 10, 0) > 0);
    RG_AWAIT(is_taken(waiting) && is_taken(half));
    rg_emulator_close(emulator);
    RG_CHECK(recv(waiting, &byte, 1, 0) <= 0);
    RG_CHECK(recv(idle, &byte, 1, 0) <= 0);
    close(waiting);
    close(idle);
    close(half);
    RG_CHECK_EQ(connect_to(port), -1);
}

static void test_latency_holds_answers_back(void)
{
    struct rg_emulator *emulator = open_emulator(
        &(struct rg_emulator_options){.threads = 1, .plain = true, .latency_ms = "80"});
    struct client client = {.fd = connect_to(port_of(emulator))};
    struct timespec before, after;
    uint64_t size;
    bool good;
    clock_gettime(CLOCK_MONOTONIC, &before);
    RG_CHECK_EQ(exchange(&client, "GET /storage/v1/b HTTP/1.1\r\nHost: h\r\n\r\n", &size, &good),
                200);
    clock_gettime(CLOCK_MONOTONIC, &after);
    double ms = (double)(after.tv_sec - before.tv_sec) * 1e3 +
                (double)(after.tv_nsec - before.tv_nsec) / 1e6;
    RG_CHECK(ms >= 79);
    close(client.fd);
    rg_emulator_close(emulator);
}

static void test_bad_options_are_named(void)
{
    static const char *const bad_synthetic[] = {"data/x:0:1"};
    const struct {
        struct rg_emulator_options options;
        const char *wanted;
    } rows[] = {
        {{.listen = "localhost"}, "got \"localhost\""},
        {{.listen = "::1:80"}, "got \"::1:80\""},
        {{.listen = "127.0.0.1:65536"}, "got \"127.0.0.1:65536\""},
        {{.listen = ":80"}, "got \":80\""},
        {{.listen = "192.0.2.1:0"}, "--listen '192.0.2.1:0'"},
        {{.latency_ms = "fast"}, "got \"fast\""},
        {{.latency_ms = "30:20"}, "30:120"},
        {{.conn_mbps = "-1"}, "got \"-1\""},
        {{.rate_limit = "0"}, "got \"0\""},
        {{.root = "/nowhere/at/all"}, "--root '/nowhere/at/all'"},
        {{.synthetic = bad_synthetic, .synthetic_count = 1}, "--synthetic 'data/x:0:1'"},
        {{.tls_dir = "/nowhere/at/all"}, "/nowhere/at/all"},
        {{.threads = 100000}, "--threads must be from 1 to 256, got 100000"},
    };
    for (size_t i = 0; i < RG_ARRAY_LEN(rows); i++) {
        struct rg_emulator *emulator;
        char error[512] = "";
        if (rg_emulator_open(&emulator, &rows[i].options, error, sizeof(error)) >= 0) {
            rg_test_fail(__FILE__, __LINE__, "row %zu is taken", i);
        }
        if (strstr(error, rows[i].wanted) == NULL) {
            rg_test_fail(__FILE__, __LINE__, "row %zu says: %s", i, error);
        }
    }
}

int main(int argc, char **argv)
{
    static const struct rg_test tests[] = {
        RG_TEST(test_the_ready_line_and_the_endpoint),
        RG_TEST(test_tls_with_the_certificate_verified),
        RG_TEST(test_many_connections_over_several_loops),
        RG_TEST(test_closing_cuts_what_is_running),
        RG_TEST(test_latency_holds_answers_back),
        RG_TEST(test_bad_options_are_named),
    };
    return rg_test_main(argc, argv, tests, RG_ARRAY_LEN(tests));
}
