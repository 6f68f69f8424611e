/* The floor under a client's CPU time per GET: what a client on this machine cannot do without, and
 * nothing of ringest. One thread, epoll or another way of receiving (floor_ways.c), keep-alive
 * connections with one request in flight each, always for the same object.
 *
 * Plain: the bytes are received into one hot buffer and thrown away.
 *
 * TLS (--tls): the receive path of ringest as a bare sketch. BoringSSL shakes hands and seals the
 * requests; records are received into the hot buffer and opened by EVP_AEAD straight into a slab,
 * taken last in, first out when the first bytes arrive, and CRC32C is computed and compared.
 * TLS 1.3 with AES-128-GCM only, and no certificate is verified: this is a measuring rod for a
 * server that one has started oneself, not a client.
 *
 * All answers are taken to be as long as the first, which is fetched and parsed before the clock
 * starts. Handshakes are not measured. What has arrived of an answer when the time is over counts
 * for its part. */
#include "perf/floor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <isa-l/crc.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/hkdf.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 4096
#define REQUEST_SIZE_MAX 4096
#define HEAD_SIZE_MAX 16384

#define RECORD_HEADER_SIZE 5
#define KEY_SIZE 16
#define NONCE_SIZE 12
#define TAG_SIZE 16
enum { CONTENT_HANDSHAKE = 22, CONTENT_DATA = 23 };

/* Buffers of one size, last in, first out. */
struct stack {
    size_t size;
    uint32_t count;
    uint8_t *buffers[CONNECTIONS_MAX];
};

static struct {
    bool crc_checked; /* always with TLS */
    bool tls, json, cipher;
    uint32_t connections;
    double seconds;
    const struct floor_way *way;
    uint64_t requests; /* to end after so many; UINT64_MAX: after `seconds` */
    struct sockaddr_in address;
    SSL_CTX *context;
    char request[REQUEST_SIZE_MAX];
    size_t request_size;
    /* What the first answer was. */
    uint64_t head_size, answer_size;
    uint32_t crc;
    uint64_t finished;
    struct stack slabs, cuts;
} run = {.connections = 64, .seconds = 3, .requests = UINT64_MAX};

static uint8_t hot[FLOOR_HEAD_ROOM + FLOOR_HOT_SIZE];

void floor_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("floor: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* The pages are there before the clock starts, as they are in any program that has run for a while.
 */
static void stack_fill(struct stack *stack, size_t size)
{
    stack->size = (size + 4095) & ~(size_t)4095;
    size_t total = stack->size * run.connections;
    uint8_t *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        floor_die("%zu bytes of memory: %s", total, strerror(errno));
    }
    madvise(memory, total, MADV_HUGEPAGE);
    memset(memory, 1, total);
    for (uint32_t i = 0; i < run.connections; i++) {
        stack->buffers[stack->count++] = memory + i * stack->size;
    }
}

static uint8_t *stack_pop(struct stack *stack)
{
    return stack->buffers[--stack->count];
}

static void stack_push(struct stack *stack, uint8_t *buffer)
{
    stack->buffers[stack->count++] = buffer;
}

static uint32_t crc_update(uint32_t crc, uint8_t *data, size_t size)
{
    return ~crc32_iscsi(data, (int)size, ~crc);
}

/* RFC 8446 section 7.1, without a context. */
static void expand_label(uint8_t *out, size_t size, const uint8_t *secret, const char *label)
{
    uint8_t info[32] = {0, (uint8_t)size, (uint8_t)(6 + strlen(label))};
    int label_size = snprintf((char *)info + 3, sizeof(info) - 3, "tls13 %s", label);
    if (!HKDF_expand(out, size, EVP_sha256(), secret, FLOOR_SECRET_SIZE, info,
                     (size_t)(3 + label_size + 1))) {
        floor_die("HKDF failed");
    }
}

/* BoringSSL's key log has the secret that the server seals with as its third word, in hex. */
static void note_secret(const SSL *ssl, const char *line)
{
    static const char label[] = "SERVER_TRAFFIC_SECRET_0 ";
    struct floor_conn *conn = SSL_get_app_data(ssl);
    if (strncmp(line, label, sizeof(label) - 1) != 0) {
        return;
    }
    const char *hex = strrchr(line, ' ') + 1;
    for (size_t i = 0; i < FLOOR_SECRET_SIZE && strlen(hex) == 2 * FLOOR_SECRET_SIZE; i++) {
        sscanf(hex + 2 * i, "%2hhx", &conn->secret[i]);
    }
}

static void tls_start(struct floor_conn *conn)
{
    conn->ssl = SSL_new(run.context);
    SSL_set_app_data(conn->ssl, conn);
    SSL_set_fd(conn->ssl, conn->fd);
    SSL_set_tlsext_host_name(conn->ssl, "localhost");
    if (SSL_connect(conn->ssl) != 1) {
        floor_die("TLS handshake: %s", ERR_reason_error_string(ERR_get_error()));
    }
    if (SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(conn->ssl)) != 0x1301) {
        floor_die("the server chose %s, and only TLS_AES_128_GCM_SHA256 is known here",
                  SSL_get_cipher(conn->ssl));
    }
    uint8_t key[KEY_SIZE];
    expand_label(key, sizeof(key), conn->secret, "key");
    expand_label(conn->iv, sizeof(conn->iv), conn->secret, "iv");
    if (!EVP_AEAD_CTX_init(&conn->aead, EVP_aead_aes_128_gcm(), key, sizeof(key), TAG_SIZE, NULL)) {
        floor_die("no AES-128-GCM");
    }
}

/* BoringSSL reads no further than the record it wants, so all that follows the handshake is still
 * in the socket afterwards. */
static void conn_open(struct floor_conn *conn)
{
    int on = 1;
    *conn = (struct floor_conn){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (conn->fd < 0 ||
        connect(conn->fd, (struct sockaddr *)&run.address, sizeof(run.address)) < 0) {
        floor_die("connecting: %s", strerror(errno));
    }
    setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (run.tls) {
        tls_start(conn);
    }
}

static void conn_close(struct floor_conn *conn)
{
    if (conn->ssl != NULL) {
        EVP_AEAD_CTX_cleanup(&conn->aead);
        SSL_free(conn->ssl);
    }
    close(conn->fd);
}

/* A request is small and alone, so the socket always has room for it. */
static void conn_send(struct floor_conn *conn)
{
    ssize_t sent = conn->ssl != NULL ? SSL_write(conn->ssl, run.request, (int)run.request_size)
                                     : send(conn->fd, run.request, run.request_size, MSG_NOSIGNAL);
    if (sent != (ssize_t)run.request_size) {
        floor_die("sending a request: %s", strerror(errno));
    }
}

/* Fetches once, to learn the sizes and the checksum that all answers must have. */
static void learn(void)
{
    struct floor_conn conn;
    static uint8_t head[HEAD_SIZE_MAX + 1];
    size_t size = 0;
    uint8_t *end = NULL;
    conn_open(&conn);
    conn_send(&conn);
    while (end == NULL) {
        uint8_t *to = head + size;
        size_t room = HEAD_SIZE_MAX - size;
        ssize_t got =
            conn.ssl != NULL ? SSL_read(conn.ssl, to, (int)room) : recv(conn.fd, to, room, 0);
        if (got <= 0) {
            floor_die("the server answered nothing that is HTTP");
        }
        size += (size_t)got;
        end = memmem(head, size, "\r\n\r\n", 4);
    }
    head[size] = '\0';
    const char *length = strcasestr((char *)head, "\r\nContent-Length:");
    if (strncmp((char *)head, "HTTP/1.1 200 ", 13) != 0 || length == NULL) {
        floor_die("not a 200 with Content-Length: %.*s", (int)strcspn((char *)head, "\r"), head);
    }
    run.head_size = (uint64_t)(end + 4 - head);
    run.answer_size = run.head_size + strtoull(strchr(length, ':') + 1, NULL, 10);
    run.crc = crc_update(0, end + 4, size - run.head_size);
    for (uint64_t received = size; received < run.answer_size;) {
        ssize_t got = conn.ssl != NULL ? SSL_read(conn.ssl, hot, FLOOR_HOT_SIZE)
                                       : recv(conn.fd, hot, FLOOR_HOT_SIZE, 0);
        if (got <= 0) {
            floor_die("the first answer breaks off");
        }
        run.crc = crc_update(run.crc, hot, (size_t)got);
        received += (uint64_t)got;
    }
    conn_close(&conn);
}

/* The bytes are where they belong; `data` is only looked at. */
static void answer_part(struct floor_conn *conn, uint8_t *data, size_t size)
{
    static const char status[] = "HTTP/1.1 200";
    if (conn->received == 0 && memcmp(data, status, size < 12 ? size : 12) != 0) {
        floor_die("not a 200");
    }
    if (run.crc_checked) {
        uint64_t head_left = conn->received < run.head_size ? run.head_size - conn->received : 0;
        if (size > head_left) {
            conn->crc = crc_update(conn->crc, data + head_left, size - head_left);
        }
    }
    conn->received += size;
    if (conn->received > run.answer_size) {
        floor_die("an answer is longer than the first");
    }
}

static void answer_end(struct floor_conn *conn)
{
    if (run.crc_checked && conn->crc != run.crc) {
        floor_die("CRC32C differs from that of the first answer");
    }
    conn->crc = 0;
    if (run.tls) {
        stack_push(&run.slabs, conn->slab);
        conn->slab = NULL;
    }
    conn->received = 0;
    run.finished++;
    if (run.finished + run.connections <= run.requests) {
        conn_send(conn); /* and the other connections have one under way */
    }
}

/* Opens the record into the slab, behind what is there. Returns its content type and plaintext
 * size; the padding and the type are overwritten by the next record. */
static int record_open(struct floor_conn *conn, const uint8_t *record, size_t size,
                       size_t *out_size)
{
    uint8_t nonce[NONCE_SIZE];
    memcpy(nonce, conn->iv, sizeof(nonce));
    for (int i = 0; i < 8; i++) {
        nonce[NONCE_SIZE - 1 - i] ^= (uint8_t)(conn->sequence >> (8 * i));
    }
    conn->sequence++;
    if (conn->slab == NULL) {
        conn->slab = stack_pop(&run.slabs);
    }
    uint8_t *to = conn->slab + conn->received;
    if (!EVP_AEAD_CTX_open(&conn->aead, to, out_size, run.slabs.size - conn->received, nonce,
                           sizeof(nonce), record + RECORD_HEADER_SIZE, size - RECORD_HEADER_SIZE,
                           record, RECORD_HEADER_SIZE)) {
        floor_die("a record does not open");
    }
    while (*out_size > 0 && to[*out_size - 1] == 0) {
        --*out_size;
    }
    return *out_size > 0 ? to[--*out_size] : 0;
}

static void record_take(struct floor_conn *conn, const uint8_t *record, size_t size)
{
    size_t plain_size;
    int content = record_open(conn, record, size, &plain_size);
    if (content == CONTENT_DATA) {
        answer_part(conn, conn->slab + conn->received, plain_size);
        if (conn->received == run.answer_size) {
            answer_end(conn);
        }
    } else if (content != CONTENT_HANDSHAKE) { /* Session tickets are of no use here. */
        floor_die("an alert, or a record of unknown content %d", content);
    }
}

/* Takes the whole records of data[0..size) and keeps the beginning of the next. */
static void records_take(struct floor_conn *conn, const uint8_t *data, size_t size)
{
    size_t at = 0;
    while (size - at >= RECORD_HEADER_SIZE) {
        size_t record_size = RECORD_HEADER_SIZE + ((size_t)data[at + 3] << 8 | data[at + 4]);
        if (record_size > FLOOR_HEAD_ROOM) {
            floor_die("a record is too large");
        }
        if (record_size > size - at) {
            break;
        }
        record_take(conn, data + at, record_size);
        at += record_size;
    }
    conn->cut_size = size - at;
    if (conn->cut_size > 0) {
        conn->cut = stack_pop(&run.cuts);
        memcpy(conn->cut, data + at, conn->cut_size);
    }
}

/* Makes the record that was cut whole where it lies. Returns how many bytes that took. */
static size_t cut_continue(struct floor_conn *conn, const uint8_t *data, size_t size)
{
    size_t taken = 0, want = 0;
    while (taken < size && (want == 0 || conn->cut_size < want)) {
        bool has_header = conn->cut_size >= RECORD_HEADER_SIZE;
        want = RECORD_HEADER_SIZE;
        want += has_header ? (size_t)conn->cut[3] << 8 | conn->cut[4] : 0;
        size_t missing = want - conn->cut_size;
        size_t part = missing < size - taken ? missing : size - taken;
        memcpy(conn->cut + conn->cut_size, data + taken, part);
        conn->cut_size += part;
        taken += part;
        want = has_header ? want : 0;
    }
    if (want > 0 && conn->cut_size == want) {
        conn->cut_size = 0;
        record_take(conn, conn->cut, want);
        stack_push(&run.cuts, conn->cut);
    }
    return taken;
}

void floor_take(struct floor_conn *conn, uint8_t *data, size_t size, bool has_room)
{
    if (run.tls) {
        size_t before = conn->cut_size;
        if (before > 0 && !has_room) {
            size_t taken = cut_continue(conn, data, size);
            if (taken < size) {
                records_take(conn, data + taken, size - taken);
            }
            return;
        }
        if (before > 0) {
            memcpy(data - before, conn->cut, before);
            stack_push(&run.cuts, conn->cut);
        }
        records_take(conn, data - before, before + size);
    } else {
        answer_part(conn, data, size);
        if (conn->received == run.answer_size) {
            answer_end(conn);
        }
    }
}

bool floor_receive(struct floor_conn *conn)
{
    ssize_t got = recv(conn->fd, hot + FLOOR_HEAD_ROOM, FLOOR_HOT_SIZE, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) {
        return false;
    }
    if (got <= 0) {
        floor_die("receiving: %s", got == 0 ? "the server closed the connection" : strerror(errno));
    }
    floor_take(conn, hot + FLOOR_HEAD_ROOM, (size_t)got, true);
    return got == FLOOR_HOT_SIZE;
}

static void report(const struct floor_conn *conns, double seconds, double cpu)
{
    double requests = (double)run.finished;
    for (uint32_t i = 0; i < run.connections; i++) {
        requests += (double)conns[i].received / (double)run.answer_size;
    }
    uint64_t body_size = run.answer_size - run.head_size;
    printf(run.json ? "{\"requests\":%" PRIu64 ",\"seconds\":%.4f,\"cpu_us_per_request\":%.3f,"
                      "\"requests_per_s\":%.1f,\"gb_per_s\":%.4f,\"body_size\":%" PRIu64
                      ",\"connections\":%" PRIu32 ",\"tls\":%s}\n"
                    : "%" PRIu64
                      " requests in %.2f s, %.2f us of CPU each; %.0f requests/s, %.2f GB/s "
                      "(bodies of %" PRIu64 " bytes, %" PRIu32 " connections, TLS: %s)\n",
           run.finished, seconds, cpu * 1e6 / requests, requests / seconds,
           requests * (double)body_size / 1e9 / seconds, body_size, run.connections,
           run.tls ? "true" : "false");
}

static void measure(struct floor_conn *conns)
{
    for (uint32_t i = 0; i < run.connections; i++) {
        conn_open(&conns[i]);
    }
    run.way->open(conns, run.connections);
    double start = now_s(), cpu_start = cpu_s(), end = start;
    for (uint32_t i = 0; i < run.connections; i++) {
        conn_send(&conns[i]);
    }
    while (run.finished < run.requests && (end < start + run.seconds || run.finished == 0)) {
        run.way->pass();
        end = now_s();
    }
    report(conns, end - start, cpu_s() - cpu_start);
    run.way->close();
    for (uint32_t i = 0; i < run.connections; i++) {
        conn_close(&conns[i]);
    }
}

/* One record after the other in a hot buffer, to tell how fast the cipher itself is. */
static void measure_cipher(void)
{
    static uint8_t plain[16384], sealed[16384 + TAG_SIZE], key[KEY_SIZE], nonce[NONCE_SIZE];
    double rates[3] = {0};
    EVP_AEAD_CTX aead;
    size_t size;
    if (!EVP_AEAD_CTX_init(&aead, EVP_aead_aes_128_gcm(), key, sizeof(key), TAG_SIZE, NULL)) {
        floor_die("no AES-128-GCM");
    }
    for (int kind = 0; kind < 3; kind++) {
        double start = cpu_s(), end = start;
        uint64_t count = 0;
        while (end < start + run.seconds / 3) {
            for (int i = 0; i < 256; i++) {
                bool ok = true;
                if (kind == 0) {
                    ok = EVP_AEAD_CTX_seal(&aead, sealed, &size, sizeof(sealed), nonce,
                                           sizeof(nonce), plain, sizeof(plain), NULL, 0);
                } else if (kind == 1) {
                    ok = EVP_AEAD_CTX_open(&aead, plain, &size, sizeof(plain), nonce, sizeof(nonce),
                                           sealed, sizeof(sealed), NULL, 0);
                } else {
                    run.crc = crc_update(run.crc, plain, sizeof(plain));
                }
                if (!ok) {
                    floor_die("the cipher failed");
                }
            }
            count += 256;
            end = cpu_s();
        }
        rates[kind] = (double)count * sizeof(plain) / 1e9 / (end - start);
    }
    EVP_AEAD_CTX_cleanup(&aead);
    printf(run.json ? "{\"seal_gb_per_s\":%.3f,\"open_gb_per_s\":%.3f,\"crc32c_gb_per_s\":%.3f}\n"
                    : "records of 16384 bytes: AES-128-GCM seals %.1f GB/s and opens %.1f GB/s, "
                      "CRC32C %.1f GB/s\n",
           rates[0], rates[1], rates[2]);
}

static void arguments(int argc, char **argv)
{
    static const struct option options[] = {{"tls", no_argument, NULL, 't'},
                                            {"crc", no_argument, NULL, 'k'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"cipher", no_argument, NULL, 'x'},
                                            {"connections", required_argument, NULL, 'c'},
                                            {"requests", required_argument, NULL, 'r'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"way", required_argument, NULL, 'w'},
                                            {0}};
    static const char usage[] =
        "usage: floor [--tls] [--crc] [--connections N] [--seconds S | --requests N] [--json] "
        "[--way WAY] ADDRESS PORT PATH | floor --cipher [--seconds S] [--json]";
    int option;
    run.way = floor_way_find("epoll");
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'k':
            run.crc_checked = true;
            break;
        case 't':
            run.crc_checked = true;
            run.tls = true;
            break;
        case 'j':
            run.json = true;
            break;
        case 'x':
            run.cipher = true;
            break;
        case 'c':
            run.connections = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'w':
            run.way = floor_way_find(optarg);
            break;
        case 's':
            run.seconds = strtod(optarg, NULL);
            break;
        case 'r':
            run.requests = strtoull(optarg, NULL, 10);
            run.seconds = HUGE_VAL;
            break;
        default:
            floor_die("%s", usage);
        }
    }
    if (argc - optind != (run.cipher ? 0 : 3) || run.connections == 0 ||
        run.connections > CONNECTIONS_MAX || run.requests < run.connections || !(run.seconds > 0)) {
        floor_die("%s", usage);
    }
    if (run.cipher) {
        return;
    }
    run.address = (struct sockaddr_in){.sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)atoi(argv[optind + 1]))};
    if (inet_pton(AF_INET, argv[optind], &run.address.sin_addr) != 1) {
        floor_die("\"%s\" is not an IPv4 address", argv[optind]);
    }
    int size = snprintf(run.request, sizeof(run.request),
                        "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", argv[optind + 2]);
    if (size < 0 || size >= (int)sizeof(run.request)) {
        floor_die("the path is too long");
    }
    run.request_size = (size_t)size;
}

int main(int argc, char **argv)
{
    arguments(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    if (run.cipher) {
        measure_cipher();
        return 0;
    }
    if (run.tls) {
        run.context = SSL_CTX_new(TLS_method());
        SSL_CTX_set_min_proto_version(run.context, TLS1_3_VERSION);
        SSL_CTX_set_verify(run.context, SSL_VERIFY_NONE, NULL);
        SSL_CTX_set_keylog_callback(run.context, note_secret);
    }
    learn();
    if (run.tls) {
        stack_fill(&run.slabs, run.answer_size + FLOOR_HEAD_ROOM);
        stack_fill(&run.cuts, FLOOR_HEAD_ROOM);
    }
    struct floor_conn *conns = calloc(run.connections, sizeof(*conns));
    if (conns == NULL) {
        floor_die("no memory for %" PRIu32 " connections", run.connections);
    }
    measure(conns);
    free(conns);
    SSL_CTX_free(run.context);
    return 0;
}
