/* Servers by script: see scripted_server.h. */
#include "tests/support/scripted_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_SIZE_MAX RG_KIB(64)
#define CHUNK_SIZE RG_KIB(64)

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define UNWATCHED __attribute__((no_sanitize("thread", "address", "undefined")))
#else
#define UNWATCHED
#endif

/* Of rg_script_byte, which is not called for each: tests make gigabytes of them. The memory is its
 * own alone: what leaves it goes through memcpy and memcmp, which are watched. */
UNWATCHED static void bytes_make(uint8_t *bytes, uint64_t offset, size_t size)
{
    uint64_t product = offset * RG_SCRIPT_FACTOR;
    for (size_t i = 0; i < size; i++, product += RG_SCRIPT_FACTOR) {
        bytes[i] = (uint8_t)(product >> 56);
    }
}

void rg_script_fill(void *data, uint64_t offset, uint64_t size)
{
    uint8_t bytes[RG_KIB(4)];
    for (uint64_t done = 0, part; done < size; done += part) {
        part = RG_MIN(size - done, (uint64_t)sizeof(bytes));
        bytes_make(bytes, offset + done, part);
        memcpy((uint8_t *)data + done, bytes, part);
    }
}

uint64_t rg_script_differs(const void *data, uint64_t offset, uint64_t size)
{
    uint8_t bytes[RG_KIB(4)];
    const uint8_t *got = data;
    for (uint64_t done = 0, part; done < size; done += part) {
        part = RG_MIN(size - done, (uint64_t)sizeof(bytes));
        bytes_make(bytes, offset + done, part);
        if (memcmp(got + done, bytes, part) != 0) {
            while (got[done] == rg_script_byte(offset + done)) {
                done++;
            }
            return done;
        }
    }
    return size;
}

struct peer {
    struct rg_scripted_server *server;
    const struct rg_step *script;
    pthread_t thread;
    int fd; /* -1: closed */
    struct sockaddr_in address;
    SSL *ssl;
    char head[HEAD_SIZE_MAX]; /* of the request read last, and what came behind it */
    size_t head_size, input_size;
    bool failed; /* the peer is gone, or the server stops */
};

struct rg_scripted_server {
    struct rg_script_options options;
    SSL_CTX *context;
    int listener, stop_event;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t mutex;  /* of what follows, and of each peer's fd */
    pthread_cond_t changed; /* of `gates` and `stopping` */
    uint32_t gates;         /* bits of those that are open */
    struct peer *peers[RG_SCRIPT_CONNECTIONS_MAX];
    uint32_t peer_count, ended_count, request_count;
    char *heads[RG_SCRIPT_REQUESTS_MAX], *bodies[RG_SCRIPT_REQUESTS_MAX];
    bool stopping;
};

static bool is_stopping(struct rg_scripted_server *server)
{
    pthread_mutex_lock(&server->mutex);
    bool stopping = server->stopping;
    pthread_mutex_unlock(&server->mutex);
    return stopping;
}

static void pause_ms(struct peer *peer, uint32_t ms)
{
    struct pollfd stop = {.fd = peer->server->stop_event, .events = POLLIN};
    if (ms > 0 && poll(&stop, 1, (int)ms) != 0) {
        peer->failed = true;
    }
}

static void gate_wait(struct peer *peer, uint64_t gate)
{
    struct rg_scripted_server *server = peer->server;
    RG_ASSERT(gate < RG_SCRIPT_GATES_MAX);
    pthread_mutex_lock(&server->mutex);
    while ((server->gates >> gate & 1) == 0 && !server->stopping) {
        pthread_cond_wait(&server->changed, &server->mutex);
    }
    peer->failed |= server->stopping;
    pthread_mutex_unlock(&server->mutex);
}

void rg_scripted_server_open(struct rg_scripted_server *server, uint32_t gate)
{
    RG_ASSERT(gate < RG_SCRIPT_GATES_MAX);
    pthread_mutex_lock(&server->mutex);
    server->gates |= UINT32_C(1) << gate;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

void rg_scripted_server_shut(struct rg_scripted_server *server, uint32_t gate)
{
    RG_ASSERT(gate < RG_SCRIPT_GATES_MAX);
    pthread_mutex_lock(&server->mutex);
    server->gates &= ~(UINT32_C(1) << gate);
    pthread_mutex_unlock(&server->mutex);
}

static void peer_send(struct peer *peer, const void *data, size_t size)
{
    const char *next = data;
    while (size > 0 && !peer->failed) {
        ssize_t sent = peer->ssl != NULL ? SSL_write(peer->ssl, next, (int)size)
                                         : send(peer->fd, next, size, MSG_NOSIGNAL);
        if (sent <= 0) {
            peer->failed = true;
            return;
        }
        next += sent;
        size -= (size_t)sent;
    }
}

static void peer_send_step(struct peer *peer, const struct rg_step *step, const char *data,
                           size_t size)
{
    size_t piece = step->piece != 0 ? step->piece : size;
    while (size > 0 && !peer->failed) {
        size_t part = RG_MIN(piece, size);
        peer_send(peer, data, part);
        data += part;
        size -= part;
        if (size > 0) {
            pause_ms(peer, step->ms);
        }
    }
}

static void peer_send_bytes(struct peer *peer, const struct rg_step *step, uint64_t offset,
                            uint64_t size)
{
    static_assert(CHUNK_SIZE <= INT32_MAX, "fits SSL_write");
    char *chunk = malloc(CHUNK_SIZE);
    while (size > 0 && !peer->failed) {
        size_t part = (size_t)RG_MIN(size, (uint64_t)CHUNK_SIZE);
        rg_script_fill(chunk, offset, part);
        peer_send_step(peer, step, chunk, part);
        offset += part;
        size -= part;
    }
    free(chunk);
}

/* Up to `size` bytes; 0: the peer has ended. */
static size_t peer_receive(struct peer *peer, char *data, size_t size)
{
    ssize_t got =
        peer->ssl != NULL ? SSL_read(peer->ssl, data, (int)size) : recv(peer->fd, data, size, 0);
    if (got <= 0) {
        peer->failed = true;
        pthread_mutex_lock(&peer->server->mutex);
        peer->server->ended_count++;
        pthread_mutex_unlock(&peer->server->mutex);
        return 0;
    }
    return (size_t)got;
}

/* Returns the number of the request. */
static uint32_t head_record(struct peer *peer)
{
    struct rg_scripted_server *server = peer->server;
    pthread_mutex_lock(&server->mutex);
    RG_ASSERT(server->request_count < RG_SCRIPT_REQUESTS_MAX);
    uint32_t number = server->request_count++;
    server->heads[number] = strndup(peer->head, peer->head_size);
    pthread_mutex_unlock(&server->mutex);
    return number;
}

/* Keeps the beginning of a request's body, as a text. */
static void body_record(struct peer *peer, uint32_t number, const char *data, size_t size)
{
    struct rg_scripted_server *server = peer->server;
    pthread_mutex_lock(&server->mutex);
    if (server->bodies[number] == NULL) {
        server->bodies[number] = calloc(1, RG_SCRIPT_BODY_KEPT_MAX + 1);
    }
    char *body = server->bodies[number];
    size_t kept = strnlen(body, RG_SCRIPT_BODY_KEPT_MAX);
    memcpy(body + kept, data, RG_MIN(size, RG_SCRIPT_BODY_KEPT_MAX - kept));
    pthread_mutex_unlock(&server->mutex);
}

/* The value of a field of the head that was read last; NULL: there is none. */
static const char *head_find(const struct peer *peer, const char *name)
{
    size_t name_size = strlen(name);
    const char *line = strstr(peer->head, "\r\n");
    while (line != NULL && line < peer->head + peer->head_size - 2) {
        line += 2;
        if (strncasecmp(line, name, name_size) == 0 && line[name_size] == ':') {
            return line + name_size + 1 + strspn(line + name_size + 1, " ");
        }
        line = strstr(line, "\r\n");
    }
    return NULL;
}

static void body_read(struct peer *peer, const struct rg_step *step, uint32_t number)
{
    const char *length = head_find(peer, "content-length");
    uint64_t left = length != NULL ? strtoull(length, NULL, 10) : 0;
    size_t here = (size_t)RG_MIN(left, (uint64_t)(peer->input_size - peer->head_size));
    body_record(peer, number, peer->head + peer->head_size, here);
    memmove(peer->head + peer->head_size, peer->head + peer->head_size + here,
            peer->input_size - peer->head_size - here);
    peer->input_size -= here;
    left -= here;
    char *chunk = malloc(CHUNK_SIZE);
    size_t piece = step->piece != 0 ? RG_MIN(step->piece, CHUNK_SIZE) : CHUNK_SIZE;
    while (left > 0 && !peer->failed) {
        size_t got = peer_receive(peer, chunk, (size_t)RG_MIN(left, (uint64_t)piece));
        body_record(peer, number, chunk, got);
        left -= got;
        pause_ms(peer, step->ms);
    }
    free(chunk);
}

static void peer_read(struct peer *peer, const struct rg_step *step)
{
    memmove(peer->head, peer->head + peer->head_size, peer->input_size - peer->head_size);
    peer->input_size -= peer->head_size;
    peer->head_size = 0;
    for (;;) {
        peer->head[peer->input_size] = '\0';
        const char *end = strstr(peer->head, "\r\n\r\n");
        if (end != NULL) {
            peer->head_size = (size_t)(end - peer->head) + 4;
            break;
        }
        RG_ASSERT(peer->input_size + 1 < HEAD_SIZE_MAX);
        size_t got =
            peer_receive(peer, peer->head + peer->input_size, HEAD_SIZE_MAX - 1 - peer->input_size);
        if (got == 0) {
            return;
        }
        peer->input_size += got;
    }
    uint32_t number = head_record(peer);
    if (step->kind == RG_STEP_READ) {
        body_read(peer, step, number);
    }
}

static void object_send(struct peer *peer, const struct rg_step *step, bool ranges)
{
    uint64_t first = 0, last = step->size - 1;
    const char *range = ranges ? head_find(peer, "range") : NULL;
    int fields = range != NULL ? sscanf(range, "bytes=%" SCNu64 "-%" SCNu64, &first, &last) : 0;
    char head[1024];
    if (fields > 0 && first >= step->size) {
        snprintf(head, sizeof(head),
                 "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n");
        peer_send(peer, head, strlen(head));
        return;
    }
    last = RG_MIN(last, step->size - 1);
    uint64_t size = step->size == 0 ? 0 : last - first + 1;
    char content_range[96] = "";
    if (fields > 0) {
        snprintf(content_range, sizeof(content_range),
                 "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", first, last,
                 step->size);
    }
    snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nContent-Length: %" PRIu64 "\r\n%s%s\r\n",
             fields > 0 ? "206 Partial Content" : "200 OK", size, content_range,
             step->text != NULL ? step->text : "");
    peer_send(peer, head, strlen(head));
    uint64_t part = step->body_max != 0 ? RG_MIN(step->body_max - 1, size) : size;
    peer_send_bytes(peer, step, first, part);
}

static void peer_hold(struct peer *peer)
{
    char *chunk = malloc(CHUNK_SIZE);
    while (!peer->failed && peer_receive(peer, chunk, CHUNK_SIZE) > 0) {
    }
    free(chunk);
}

/* In the clear, in the place of TLS or before it. What the peer began with is read first, so that
 * closing does not become an RST. */
static void peer_send_clear(struct peer *peer, const void *data, size_t size)
{
    char hello[4096];
    if (recv(peer->fd, hello, sizeof(hello), 0) <= 0 ||
        send(peer->fd, data, size, MSG_NOSIGNAL) != (ssize_t)size) {
        peer->failed = true;
    }
}

/* FIN, and everything that still comes is taken, so that no RST follows. */
static void peer_fin(struct peer *peer)
{
    shutdown(peer->fd, SHUT_WR);
    char drop[512];
    while (recv(peer->fd, drop, sizeof(drop), 0) > 0) {
    }
}

static void step_end(struct peer *peer, enum rg_step_kind kind)
{
    if (kind == RG_STEP_RESET) {
        struct linger linger = {.l_onoff = 1};
        setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        return;
    }
    if (kind == RG_STEP_END && peer->ssl != NULL) {
        SSL_shutdown(peer->ssl);
    }
    peer_fin(peer);
}

static void step_run(struct peer *peer, const struct rg_step *step)
{
    switch (step->kind) {
    case RG_STEP_READ:
    case RG_STEP_READ_HEAD:
        peer_read(peer, step);
        break;
    case RG_STEP_SEND:
        peer_send_step(peer, step, step->text, strlen(step->text));
        break;
    case RG_STEP_SEND_BYTES:
        peer_send_bytes(peer, step, step->offset, step->size);
        break;
    case RG_STEP_SEND_OBJECT:
    case RG_STEP_SEND_OBJECT_WHOLE:
        object_send(peer, step, step->kind == RG_STEP_SEND_OBJECT);
        break;
    case RG_STEP_FLOOD:
        while (!peer->failed) {
            peer_send(peer, step->text, strlen(step->text));
        }
        break;
    case RG_STEP_SLEEP:
        pause_ms(peer, step->ms);
        break;
    case RG_STEP_GATE:
        gate_wait(peer, step->size);
        break;
    case RG_STEP_DEAF:
        pause_ms(peer, INT32_MAX);
        break;
    case RG_STEP_ALERT: {
        uint8_t alert[] = {21, 3, 3, 0, 2, 2, (uint8_t)step->size};
        peer_send_clear(peer, alert, sizeof(alert));
        break;
    }
    case RG_STEP_CLEAR:
        peer_send_clear(peer, step->text, strlen(step->text));
        break;
    default:
        peer_hold(peer);
        break;
    }
}

static void script_run(struct peer *peer)
{
    const struct rg_step *step = peer->script;
    while (!peer->failed) {
        if (step->kind == RG_STEP_AGAIN) {
            step = peer->script;
            continue;
        }
        if (step->kind == RG_STEP_END || step->kind == RG_STEP_CUT || step->kind == RG_STEP_RESET) {
            step_end(peer, step->kind);
            return;
        }
        step_run(peer, step++);
    }
}

/* True for what a script may begin with in the place of the TLS handshake. */
static bool comes_before_tls(enum rg_step_kind kind)
{
    return kind == RG_STEP_CUT || kind == RG_STEP_RESET || kind == RG_STEP_ALERT ||
           kind == RG_STEP_CLEAR || kind == RG_STEP_DEAF;
}

static void *peer_main(void *context)
{
    struct peer *peer = context;
    struct rg_scripted_server *server = peer->server;
    /* BoringSSL writes to its socket without MSG_NOSIGNAL. Only for this thread: that the library
     * raises no SIGPIPE is for the others to see. */
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    if (server->context != NULL && !comes_before_tls(peer->script->kind)) {
        peer->ssl = SSL_new(server->context);
        RG_ASSERT(peer->ssl != NULL);
        SSL_set_fd(peer->ssl, peer->fd);
        pause_ms(peer, server->options.handshake_delay_ms);
        peer->failed = peer->failed || SSL_accept(peer->ssl) != 1;
    }
    script_run(peer);
    SSL_free(peer->ssl);
    ERR_clear_error();
    pthread_mutex_lock(&server->mutex);
    close(peer->fd);
    peer->fd = -1;
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

static void peer_start(struct rg_scripted_server *server, int fd)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    RG_ASSERT(peer != NULL && server->peer_count < RG_SCRIPT_CONNECTIONS_MAX);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    uint32_t script = RG_MIN(server->peer_count, server->options.script_count - 1);
    peer->server = server;
    peer->script = server->options.scripts[script];
    peer->fd = fd;
    socklen_t size = sizeof(peer->address);
    (void)getpeername(fd, (struct sockaddr *)&peer->address, &size);
    server->peers[server->peer_count++] = peer;
    RG_ASSERT(pthread_create(&peer->thread, NULL, peer_main, peer) == 0);
}

static void *server_main(void *context)
{
    struct rg_scripted_server *server = context;
    while (!is_stopping(server)) {
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_mutex_lock(&server->mutex);
        if (fd >= 0 && !server->stopping) {
            peer_start(server, fd);
        } else if (fd >= 0) {
            close(fd);
        }
        pthread_mutex_unlock(&server->mutex);
        if (fd < 0) {
            /* Descriptors may be short: some tests make them so. */
            struct pollfd stop = {.fd = server->stop_event, .events = POLLIN};
            poll(&stop, 1, 10);
        }
    }
    return NULL;
}

static void context_open(struct rg_scripted_server *server)
{
    const struct rg_script_options *options = &server->options;
    if (options->certificate == NULL) {
        return;
    }
    server->context = SSL_CTX_new(TLS_server_method());
    RG_ASSERT(server->context != NULL);
    SSL_CTX_set_min_proto_version(server->context, TLS1_VERSION);
    if (options->tls_version_max != 0) {
        SSL_CTX_set_max_proto_version(server->context, options->tls_version_max);
    }
    RG_ASSERT(SSL_CTX_use_certificate(server->context, options->certificate->x509) == 1);
    RG_ASSERT(SSL_CTX_use_PrivateKey(server->context, options->certificate->key) == 1);
    if (options->client_ca != NULL) {
        X509_STORE *store = SSL_CTX_get_cert_store(server->context);
        RG_ASSERT(X509_STORE_add_cert(store, options->client_ca->x509) == 1);
        SSL_CTX_set_verify(server->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                           NULL);
    }
}

struct rg_scripted_server *rg_scripted_server_start(const struct rg_script_options *options)
{
    struct rg_scripted_server *server = calloc(1, sizeof(*server));
    RG_ASSERT(server != NULL && options->script_count > 0);
    server->options = *options;
    context_open(server);
    pthread_mutex_init(&server->mutex, NULL);
    pthread_cond_init(&server->changed, NULL);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(options->everywhere ? INADDR_ANY : INADDR_LOOPBACK),
    };
    socklen_t size = sizeof(address);
    server->stop_event = eventfd(0, EFD_CLOEXEC);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_ASSERT(server->stop_event >= 0 && server->listener >= 0);
    if (options->address != NULL) {
        RG_ASSERT(inet_pton(AF_INET, options->address, &address.sin_addr) == 1);
    }
    address.sin_port = htons(options->port);
    int on = 1;
    setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (options->receive_buffer != 0) {
        setsockopt(server->listener, SOL_SOCKET, SO_RCVBUF, &options->receive_buffer,
                   sizeof(options->receive_buffer));
    }
    RG_ASSERT(bind(server->listener, (struct sockaddr *)&address, size) == 0);
    RG_ASSERT(listen(server->listener, RG_SCRIPT_CONNECTIONS_MAX) == 0);
    RG_ASSERT(getsockname(server->listener, (struct sockaddr *)&address, &size) == 0);
    server->port = ntohs(address.sin_port);
    RG_ASSERT(pthread_create(&server->thread, NULL, server_main, server) == 0);
    return server;
}

void rg_scripted_server_stop(struct rg_scripted_server *server)
{
    pthread_mutex_lock(&server->mutex);
    server->stopping = true;
    pthread_cond_broadcast(&server->changed);
    RG_ASSERT(eventfd_write(server->stop_event, 1) == 0);
    shutdown(server->listener, SHUT_RDWR);
    for (uint32_t i = 0; i < server->peer_count; i++) {
        if (server->peers[i]->fd >= 0) {
            shutdown(server->peers[i]->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&server->mutex);
    pthread_join(server->thread, NULL);
    for (uint32_t i = 0; i < server->peer_count; i++) {
        pthread_join(server->peers[i]->thread, NULL);
        free(server->peers[i]);
    }
    for (uint32_t i = 0; i < server->request_count; i++) {
        free(server->heads[i]);
        free(server->bodies[i]);
    }
    close(server->listener);
    close(server->stop_event);
    SSL_CTX_free(server->context);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    free(server);
}

uint16_t rg_scripted_server_port(const struct rg_scripted_server *server)
{
    return server->port;
}

void rg_scripted_server_peer(struct rg_scripted_server *server, uint32_t index,
                             struct sockaddr_in *out_address)
{
    pthread_mutex_lock(&server->mutex);
    RG_ASSERT(index < server->peer_count);
    *out_address = server->peers[index]->address;
    pthread_mutex_unlock(&server->mutex);
}

static uint32_t count_read(struct rg_scripted_server *server, const uint32_t *count)
{
    pthread_mutex_lock(&server->mutex);
    uint32_t value = *count;
    pthread_mutex_unlock(&server->mutex);
    return value;
}

uint32_t rg_scripted_server_connections(struct rg_scripted_server *server)
{
    return count_read(server, &server->peer_count);
}

uint32_t rg_scripted_server_requests(struct rg_scripted_server *server)
{
    return count_read(server, &server->request_count);
}

uint32_t rg_scripted_server_ended(struct rg_scripted_server *server)
{
    return count_read(server, &server->ended_count);
}

const char *rg_scripted_server_head(struct rg_scripted_server *server, uint32_t index)
{
    pthread_mutex_lock(&server->mutex);
    const char *head = index < server->request_count ? server->heads[index] : NULL;
    pthread_mutex_unlock(&server->mutex);
    return head;
}

const char *rg_scripted_server_body(struct rg_scripted_server *server, uint32_t index)
{
    pthread_mutex_lock(&server->mutex);
    const char *body = index < server->request_count ? server->bodies[index] : NULL;
    pthread_mutex_unlock(&server->mutex);
    return body;
}
