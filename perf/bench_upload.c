/* What an upload costs the client: CPU seconds per gigabyte over TLS, from memory and from a file,
 * and by how much the client grows. The argument is the size in MiB.
 *
 * The other side is a process of its own that reads and forgets, on the first CPU; the client is on
 * the last one. It answers as a multipart upload needs it, and says of the object what the client
 * is to hear: the checksum of what was to be sent. */
#include "emulator/certificate.h"
#include "gcs/wire/checksum.h"
#include "runtime/clock.h"

#include <ringest/upload.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SINK_BUFFER RG_KIB(256)
#define PATIENCE_NS (300 * RG_NS_PER_S)

struct shared {
    uint64_t size;
    uint32_t crc;
};

static struct shared *shared;

static void check(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "bench_upload: %s failed\n", what);
        exit(1);
    }
}

static void pin(int cpu)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    (void)sched_setaffinity(0, sizeof(cpus), &cpus);
}

static void answer(SSL *ssl, const char *head)
{
    char text[1024], crc[RG_CRC32C_TEXT_SIZE + 1] = "", body[512] = "";
    rg_crc32c_format(shared->crc, crc);
    if (strncmp(head, "GET", 3) == 0) {
        snprintf(body, sizeof(body),
                 "{\"name\":\"o\",\"size\":\"%" PRIu64 "\",\"generation\":\"1\",\"crc32c\":\"%s\"}",
                 shared->size, crc);
    } else if (strstr(head, "?uploads ") != NULL) {
        snprintf(body, sizeof(body), "<R><UploadId>u</UploadId></R>");
    } else if (strncmp(head, "POST", 4) == 0) {
        snprintf(body, sizeof(body), "<R/>");
    }
    int size = snprintf(text, sizeof(text),
                        "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: %zu\r\n\r\n%s",
                        strlen(body), body);
    (void)SSL_write(ssl, text, size);
}

/* Reads one request. False: there is none. */
static bool request_read(SSL *ssl, char *buffer)
{
    size_t have = 0;
    char *end = NULL;
    while (end == NULL) {
        int got = SSL_read(ssl, buffer + have, (int)(SINK_BUFFER - have - 1));
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
        buffer[have] = '\0';
        end = strstr(buffer, "\r\n\r\n");
    }
    char head[8192];
    snprintf(head, sizeof(head), "%.*s", (int)(end - buffer), buffer);
    const char *length = strstr(head, "Content-Length: ");
    uint64_t left = length != NULL ? strtoull(length + 16, NULL, 10) : 0;
    size_t early = have - (size_t)(end + 4 - buffer);
    left -= RG_MIN(left, (uint64_t)early);
    while (left > 0) {
        int got = SSL_read(ssl, buffer, (int)RG_MIN(left, (uint64_t)SINK_BUFFER));
        if (got <= 0) {
            return false;
        }
        left -= (uint64_t)got;
    }
    answer(ssl, head);
    return true;
}

static void *sink_connection(void *context)
{
    SSL *ssl = context;
    char *buffer = malloc(SINK_BUFFER);
    if (SSL_accept(ssl) == 1) {
        while (request_read(ssl, buffer)) {
        }
    }
    free(buffer);
    close(SSL_get_fd(ssl));
    SSL_free(ssl);
    return NULL;
}

static _Noreturn void sink_run(int listener, const struct rg_certificate *certificate)
{
    SSL_CTX *ssl_context = SSL_CTX_new(TLS_method());
    BIO *chain = BIO_new_mem_buf(rg_certificate_chain_pem(certificate), -1);
    BIO *key = BIO_new_mem_buf(rg_certificate_key_pem(certificate), -1);
    check(SSL_CTX_use_certificate(ssl_context, PEM_read_bio_X509(chain, NULL, NULL, NULL)) == 1 &&
              SSL_CTX_use_PrivateKey(ssl_context, PEM_read_bio_PrivateKey(key, NULL, NULL, NULL)) ==
                  1,
          "the server's certificate");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    pin(0);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        SSL *ssl = SSL_new(ssl_context);
        pthread_t thread = 0;
        check(fd >= 0 && SSL_set_fd(ssl, fd) == 1 &&
                  pthread_create(&thread, NULL, sink_connection, ssl) == 0,
              "accepting");
        pthread_detach(thread);
    }
}

static double resident_mib(void)
{
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        (void)!fscanf(file, "%lu %lu", &total, &resident);
        fclose(file);
    }
    return (double)resident * 4096 / (1 << 20);
}

static void measure(struct rg_client *client, struct rg_cq *cq, const char *name,
                    const struct rg_upload *upload)
{
    struct rg_completion done;
    struct timespec before, after;
    double resident = resident_mib(), peak = resident;
    int got = 0;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    uint64_t begin_ns = rg_now_ns();
    check(rg_submit_upload(client, cq, upload) == 0, "submitting");
    while (got == 0 && rg_now_ns() < begin_ns + PATIENCE_NS) {
        got = rg_cq_wait(cq, &done, 1, 1, rg_now_ns() + 20 * RG_NS_PER_MS);
        got = got < 0 ? 0 : got;
        peak = RG_MAX(peak, resident_mib());
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    if (got == 1 && done.status != RG_STATUS_OK) {
        fprintf(stderr, "%s\n", done.detail);
    }
    check(got == 1 && done.status == RG_STATUS_OK, name);
    double cpu =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
    double gb = (double)upload->size / 1e9;
    printf("%-7s %.3f CPU s/GB, %.2f GB/s, %+.0f MiB resident\n", name, cpu / gb,
           gb / ((double)(rg_now_ns() - begin_ns) / 1e9), peak - resident);
}

static void client_run(const char *endpoint, const char *ca, uint8_t *data, uint64_t size)
{
    struct rg_runtime *runtime;
    struct rg_runtime_options runtime_options;
    struct rg_client_options options;
    struct rg_client *client;
    struct rg_cq *cq;
    rg_runtime_options_init(&runtime_options);
    runtime_options.threads = 1;
    runtime_options.memory_max = RG_MIB(64);
    rg_client_options_init(&options);
    options.endpoint = endpoint;
    options.ca_file = ca;
    check(rg_runtime_open(&runtime, &runtime_options) == 0, "opening the runtime");
    check(rg_client_open(&client, runtime, &options) == 0, "opening the client");
    check(rg_cq_open(&cq, runtime, 16) == 0, "opening the queue");
    char path[] = "/tmp/ringest-bench-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    check(fd >= 0, "making a file");
    unlink(path);
    for (uint64_t done = 0; done < size;) {
        ssize_t written = write(fd, data + done, RG_MIN(size - done, (uint64_t)RG_MIB(16)));
        check(written > 0, "writing a file");
        done += (uint64_t)written;
    }
    struct rg_upload upload = {.bucket = "bucket",
                               .object = "object",
                               .method = RG_UPLOAD_MULTIPART,
                               .data = data,
                               .fd = fd,
                               .size = size};
    measure(client, cq, "memory", &upload);
    upload.data = NULL;
    measure(client, cq, "file", &upload);
    close(fd);
    rg_cq_close(cq);
    rg_client_close(client);
    rg_runtime_close(runtime);
}

int main(int argc, char **argv)
{
    uint64_t size = argc == 2 ? strtoull(argv[1], NULL, 10) << 20 : 0;
    if (size == 0) {
        fprintf(stderr, "usage: %s MIB\n", argv[0]);
        return 2;
    }
    struct rg_certificate *certificate;
    char error[256], endpoint[64];
    check(rg_certificate_open(&certificate, NULL, NULL, error, sizeof(error)) == 0,
          "making a certificate");
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint8_t *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(shared != MAP_FAILED && data != MAP_FAILED, "taking memory");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(bind(listener, (struct sockaddr *)&address, address_size) == 0 &&
              listen(listener, 64) == 0 &&
              getsockname(listener, (struct sockaddr *)&address, &address_size) == 0,
          "listening");
    snprintf(endpoint, sizeof(endpoint), "https://localhost:%u", ntohs(address.sin_port));
    pid_t sink = fork();
    check(sink >= 0, "forking");
    if (sink == 0) {
        sink_run(listener, certificate);
    }
    pin((int)sysconf(_SC_NPROCESSORS_ONLN) - 1);
    for (uint64_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t word = i * UINT64_C(0x9e3779b97f4a7c15);
        memcpy(data + i, &word, sizeof(word));
    }
    shared->size = size;
    shared->crc = rg_crc32c(0, data, size);
    client_run(endpoint, rg_certificate_ca_path(certificate), data, size);
    kill(sink, SIGKILL);
    waitpid(sink, NULL, 0);
    close(listener);
    munmap(data, size);
    rg_certificate_close(certificate);
    return 0;
}
