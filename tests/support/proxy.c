/* See proxy.h. */
#include "tests/support/proxy.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_SIZE_MAX 4096
#define CHUNK_SIZE RG_KIB(16)

struct tunnel {
    struct rg_test_proxy *proxy;
    pthread_t thread;
    int client, server; /* -1: none */
    SSL *ssl;
};

struct rg_test_proxy {
    struct rg_test_proxy_options options;
    SSL_CTX *context;
    int listener;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t mutex; /* of what follows, and of the tunnels' descriptors */
    bool stopping;
    uint32_t count;
    struct tunnel tunnels[RG_TEST_PROXY_CONNECTIONS_MAX];
    char head[HEAD_SIZE_MAX];
};

static ssize_t client_read(struct tunnel *tunnel, char *data, size_t size)
{
    return tunnel->ssl != NULL ? SSL_read(tunnel->ssl, data, (int)size)
                               : recv(tunnel->client, data, size, 0);
}

static bool client_write(struct tunnel *tunnel, const char *data, size_t size)
{
    ssize_t sent = tunnel->ssl != NULL ? SSL_write(tunnel->ssl, data, (int)size)
                                       : send(tunnel->client, data, size, MSG_NOSIGNAL);
    return sent == (ssize_t)size;
}

static bool server_write(struct tunnel *tunnel, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(tunnel->server, data, size, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool head_read(struct tunnel *tunnel, char head[static HEAD_SIZE_MAX])
{
    size_t size = 0;
    while (size < HEAD_SIZE_MAX - 1) {
        ssize_t got = client_read(tunnel, head + size, 1);
        if (got <= 0) {
            return false;
        }
        head[++size] = '\0';
        if (size >= 4 && strcmp(head + size - 4, "\r\n\r\n") == 0) {
            return true;
        }
    }
    return false;
}

static void answer_send(struct tunnel *tunnel, const char *answer)
{
    size_t size = strlen(answer);
    size_t piece = tunnel->proxy->options.piece != 0 ? tunnel->proxy->options.piece : size;
    for (size_t at = 0; at < size; at += piece) {
        if (!client_write(tunnel, answer + at, RG_MIN(piece, size - at))) {
            return;
        }
    }
}

static bool is_authorized(const struct tunnel *tunnel, const char *head)
{
    const char *wanted = tunnel->proxy->options.authorization;
    char line[512];
    snprintf(line, sizeof(line), "\r\nProxy-Authorization: %s\r\n", wanted != NULL ? wanted : "");
    return wanted == NULL || strstr(head, line) != NULL;
}

/* To the port of this machine that the request names, whatever host it names. */
static bool server_connect(struct tunnel *tunnel, const char *head)
{
    const char *end = strstr(head, " HTTP/1.1\r\n");
    const char *colon = end;
    while (colon != NULL && colon > head && *colon != ':') {
        colon--;
    }
    if (strncmp(head, "CONNECT ", 8) != 0 || colon == NULL) {
        return false;
    }
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(colon + 1)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_mutex_lock(&tunnel->proxy->mutex);
    tunnel->server = fd;
    pthread_mutex_unlock(&tunnel->proxy->mutex);
    return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/* Carries bytes both ways until one side ends. */
static void tunnel_carry(struct tunnel *tunnel)
{
    const struct rg_test_proxy_options *options = &tunnel->proxy->options;
    char chunk[CHUNK_SIZE];
    size_t piece = options->carry_piece != 0 ? options->carry_piece : sizeof(chunk);
    struct pollfd fds[] = {{.fd = tunnel->client, .events = POLLIN},
                           {.fd = tunnel->server, .events = POLLIN}};
    for (;;) {
        bool pending = tunnel->ssl != NULL && SSL_pending(tunnel->ssl) > 0;
        if (!pending && poll(fds, 2, -1) < 0) {
            return;
        }
        if (pending || fds[0].revents != 0) {
            ssize_t got = client_read(tunnel, chunk, piece);
            if (got <= 0 || !server_write(tunnel, chunk, (size_t)got)) {
                return;
            }
        } else if (fds[1].revents != 0) {
            ssize_t got = recv(tunnel->server, chunk, piece, 0);
            if (got <= 0 || !client_write(tunnel, chunk, (size_t)got)) {
                return;
            }
        }
        if (options->carry_ms != 0) {
            usleep(options->carry_ms * 1000);
        }
    }
}

static void tunnel_serve(struct tunnel *tunnel)
{
    struct rg_test_proxy *proxy = tunnel->proxy;
    char head[HEAD_SIZE_MAX] = "";
    if (!head_read(tunnel, head)) {
        return;
    }
    pthread_mutex_lock(&proxy->mutex);
    strcpy(proxy->head, head);
    pthread_mutex_unlock(&proxy->mutex);
    char byte;
    if (proxy->options.stall) {
        (void)client_read(tunnel, &byte, 1);
    } else if (proxy->options.answer != NULL) {
        answer_send(tunnel, proxy->options.answer);
        (void)client_read(tunnel, &byte, 1);
    } else if (!is_authorized(tunnel, head)) {
        answer_send(tunnel, "HTTP/1.1 407 Proxy Authentication Required\r\n"
                            "Proxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n");
    } else if (!server_connect(tunnel, head)) {
        answer_send(tunnel, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
    } else {
        answer_send(tunnel, "HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n");
        tunnel_carry(tunnel);
    }
}

static void *tunnel_main(void *context)
{
    struct tunnel *tunnel = context;
    struct rg_test_proxy *proxy = tunnel->proxy;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    bool ready = true;
    if (proxy->context != NULL) {
        tunnel->ssl = SSL_new(proxy->context);
        SSL_set_fd(tunnel->ssl, tunnel->client);
        ready = SSL_accept(tunnel->ssl) == 1;
    }
    if (ready) {
        tunnel_serve(tunnel);
    }
    SSL_free(tunnel->ssl);
    ERR_clear_error();
    pthread_mutex_lock(&proxy->mutex);
    close(tunnel->client);
    if (tunnel->server >= 0) {
        close(tunnel->server);
    }
    tunnel->client = tunnel->server = -1;
    pthread_mutex_unlock(&proxy->mutex);
    return NULL;
}

static void *proxy_main(void *context)
{
    struct rg_test_proxy *proxy = context;
    for (;;) {
        int fd = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
        pthread_mutex_lock(&proxy->mutex);
        bool stopping = proxy->stopping || fd < 0;
        if (!stopping) {
            RG_ASSERT(proxy->count < RG_TEST_PROXY_CONNECTIONS_MAX);
            struct tunnel *tunnel = &proxy->tunnels[proxy->count++];
            *tunnel = (struct tunnel){.proxy = proxy, .client = fd, .server = -1};
            RG_ASSERT(pthread_create(&tunnel->thread, NULL, tunnel_main, tunnel) == 0);
        } else if (fd >= 0) {
            close(fd);
        }
        pthread_mutex_unlock(&proxy->mutex);
        if (stopping) {
            return NULL;
        }
    }
}

struct rg_test_proxy *rg_test_proxy_start(const struct rg_test_proxy_options *options)
{
    struct rg_test_proxy *proxy = calloc(1, sizeof(*proxy));
    RG_ASSERT(proxy != NULL);
    proxy->options = *options;
    if (options->certificate != NULL) {
        proxy->context = SSL_CTX_new(TLS_server_method());
        RG_ASSERT(SSL_CTX_use_certificate(proxy->context, options->certificate->x509) == 1);
        RG_ASSERT(SSL_CTX_use_PrivateKey(proxy->context, options->certificate->key) == 1);
    }
    pthread_mutex_init(&proxy->mutex, NULL);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    if (options->address != NULL) {
        RG_ASSERT(inet_pton(AF_INET, options->address, &address.sin_addr) == 1);
    }
    address.sin_port = htons(options->port);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    setsockopt(proxy->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (options->receive_buffer != 0) {
        setsockopt(proxy->listener, SOL_SOCKET, SO_RCVBUF, &options->receive_buffer,
                   sizeof(options->receive_buffer));
    }
    RG_ASSERT(bind(proxy->listener, (struct sockaddr *)&address, size) == 0);
    RG_ASSERT(listen(proxy->listener, RG_TEST_PROXY_CONNECTIONS_MAX) == 0);
    RG_ASSERT(getsockname(proxy->listener, (struct sockaddr *)&address, &size) == 0);
    proxy->port = ntohs(address.sin_port);
    RG_ASSERT(pthread_create(&proxy->thread, NULL, proxy_main, proxy) == 0);
    return proxy;
}

void rg_test_proxy_stop(struct rg_test_proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->stopping = true;
    shutdown(proxy->listener, SHUT_RDWR);
    for (uint32_t i = 0; i < proxy->count; i++) {
        if (proxy->tunnels[i].client >= 0) {
            shutdown(proxy->tunnels[i].client, SHUT_RDWR);
        }
        if (proxy->tunnels[i].server >= 0) {
            shutdown(proxy->tunnels[i].server, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&proxy->mutex);
    pthread_join(proxy->thread, NULL);
    for (uint32_t i = 0; i < proxy->count; i++) {
        pthread_join(proxy->tunnels[i].thread, NULL);
    }
    close(proxy->listener);
    SSL_CTX_free(proxy->context);
    pthread_mutex_destroy(&proxy->mutex);
    free(proxy);
}

uint16_t rg_test_proxy_port(const struct rg_test_proxy *proxy)
{
    return proxy->port;
}

uint32_t rg_test_proxy_connections(struct rg_test_proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    uint32_t count = proxy->count;
    pthread_mutex_unlock(&proxy->mutex);
    return count;
}

void rg_test_proxy_head(struct rg_test_proxy *proxy, char *out, size_t size)
{
    pthread_mutex_lock(&proxy->mutex);
    snprintf(out, size, "%s", proxy->head);
    pthread_mutex_unlock(&proxy->mutex);
}
