/* Token servers of a table: see token_server.h. */
#include "tests/support/token_server.h"

#include <arpa/inet.h>
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

#define REQUEST_SIZE_MAX RG_KIB(128)
#define ANSWER_SIZE_MAX RG_KIB(256)

struct rg_token_server {
    struct rg_token_route routes[RG_TOKEN_ROUTES_MAX];
    size_t route_count;
    SSL_CTX *context;
    int listener, stop_event, release_event;
    uint16_t port;
    char url[64];
    pthread_t thread;
    pthread_mutex_t mutex; /* of what follows */
    unsigned asked[RG_TOKEN_ROUTES_MAX];
    unsigned fail_status;
    char *requests[RG_TOKEN_REQUESTS_MAX];
    uint32_t request_count, peer_count;
    struct peer *peers[RG_TOKEN_REQUESTS_MAX];
};

struct peer {
    struct rg_token_server *server;
    pthread_t thread;
    int fd;
    SSL *ssl;
    char input[REQUEST_SIZE_MAX + 1];
    size_t size;
};

static bool pause_ms(struct rg_token_server *server, int ms)
{
    struct pollfd stop = {.fd = server->stop_event, .events = POLLIN};
    return poll(&stop, 1, ms) == 0;
}

/* False: the server is being stopped. */
static bool hold(struct rg_token_server *server)
{
    struct pollfd polled[2] = {{.fd = server->release_event, .events = POLLIN},
                               {.fd = server->stop_event, .events = POLLIN}};
    poll(polled, 2, -1);
    return polled[1].revents == 0;
}

static bool peer_send(struct peer *peer, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = peer->ssl != NULL ? SSL_write(peer->ssl, data, (int)size)
                                         : send(peer->fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* True when the head and the body that it promises are there. */
static bool is_whole(const struct peer *peer)
{
    const char *end = strstr(peer->input, "\r\n\r\n");
    if (end == NULL) {
        return false;
    }
    const char *length = strcasestr(peer->input, "\r\nContent-Length:");
    size_t body = length != NULL && length < end ? strtoul(length + 17, NULL, 10) : 0;
    return peer->size >= (size_t)(end + 4 - peer->input) + body;
}

static bool peer_read(struct peer *peer)
{
    while (!is_whole(peer)) {
        size_t room = REQUEST_SIZE_MAX - peer->size;
        ssize_t got = peer->ssl != NULL ? SSL_read(peer->ssl, peer->input + peer->size, (int)room)
                                        : recv(peer->fd, peer->input + peer->size, room, 0);
        if (got <= 0) {
            return false;
        }
        peer->size += (size_t)got;
        peer->input[peer->size] = '\0';
    }
    return true;
}

static const struct rg_token_route *route_find(struct rg_token_server *server, const char *request,
                                               unsigned *out_number)
{
    const char *target = strchr(request, ' ') + 1;
    size_t path_size = strcspn(target, " ?"), method_size = (size_t)(target - request) - 1;
    for (size_t i = 0; i < server->route_count; i++) {
        const struct rg_token_route *route = &server->routes[i];
        bool same = strlen(route->path) == path_size && !memcmp(route->path, target, path_size);
        if (route->method != NULL) {
            same = same && strlen(route->method) == method_size &&
                   memcmp(route->method, request, method_size) == 0;
        }
        if (same) {
            *out_number = ++server->asked[i];
            return route;
        }
    }
    return NULL;
}

static void body_expand(const char *body, unsigned number, char *out, size_t capacity)
{
    size_t size = 0;
    for (; *body != '\0' && size + 16 < capacity; body++) {
        if (*body == '#') {
            size += (size_t)sprintf(out + size, "%u", number);
        } else {
            out[size++] = *body;
        }
    }
    out[size] = '\0';
}

static void answer(struct peer *peer, const struct rg_token_route *route, unsigned number)
{
    static const struct rg_token_route absent = {.status = 404};
    route = route != NULL ? route : &absent;
    if (!pause_ms(peer->server, (int)route->delay_ms) || (route->hold && !hold(peer->server))) {
        return;
    }
    if (route->raw != NULL) {
        peer_send(peer, route->raw, strlen(route->raw));
        return;
    }
    bool fails = number > 0 && number <= route->fail_first;
    char *body = malloc(ANSWER_SIZE_MAX), head[1024];
    body_expand(fails || route->body == NULL ? "" : route->body, number, body, ANSWER_SIZE_MAX);
    unsigned status = fails ? route->fail_status : route->status != 0 ? route->status : 200;
    snprintf(head, sizeof(head), "HTTP/1.1 %u x\r\nContent-Length: %zu\r\n%s\r\n", status,
             strlen(body), route->fields != NULL ? route->fields : "");
    if (peer_send(peer, head, strlen(head))) {
        peer_send(peer, body, strlen(body));
    }
    free(body);
}

static void peer_serve(struct peer *peer)
{
    struct rg_token_server *server = peer->server;
    if (!peer_read(peer)) {
        return;
    }
    unsigned number = 0;
    struct rg_token_route failing = {0};
    pthread_mutex_lock(&server->mutex);
    RG_ASSERT(server->request_count < RG_TOKEN_REQUESTS_MAX);
    server->requests[server->request_count++] = strdup(peer->input);
    const struct rg_token_route *route = route_find(server, peer->input, &number);
    failing.status = server->fail_status;
    pthread_mutex_unlock(&server->mutex);
    answer(peer, failing.status != 0 ? &failing : route, number);
}

static void *peer_main(void *context)
{
    struct peer *peer = context;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    bool open = true;
    if (peer->server->context != NULL) {
        peer->ssl = SSL_new(peer->server->context);
        SSL_set_fd(peer->ssl, peer->fd);
        open = SSL_accept(peer->ssl) == 1;
    }
    if (open) {
        peer_serve(peer);
    }
    if (peer->ssl != NULL) {
        SSL_shutdown(peer->ssl);
        SSL_free(peer->ssl);
    }
    ERR_clear_error();
    shutdown(peer->fd, SHUT_WR);
    char drop[256];
    while (recv(peer->fd, drop, sizeof(drop), 0) > 0) {
    }
    return NULL;
}

static void *server_main(void *context)
{
    struct rg_token_server *server = context;
    while (pause_ms(server, 0)) {
        struct pollfd polled[2] = {{.fd = server->listener, .events = POLLIN},
                                   {.fd = server->stop_event, .events = POLLIN}};
        poll(polled, 2, -1);
        int fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        struct peer *peer = calloc(1, sizeof(*peer));
        RG_ASSERT(peer != NULL && server->peer_count < RG_TOKEN_REQUESTS_MAX);
        peer->server = server;
        peer->fd = fd;
        pthread_mutex_lock(&server->mutex);
        server->peers[server->peer_count++] = peer;
        pthread_mutex_unlock(&server->mutex);
        RG_ASSERT(pthread_create(&peer->thread, NULL, peer_main, peer) == 0);
    }
    return NULL;
}

struct rg_token_server *rg_token_server_start(const struct rg_token_server_options *options)
{
    struct rg_token_server *server = calloc(1, sizeof(*server));
    RG_ASSERT(server != NULL && options->route_count <= RG_TOKEN_ROUTES_MAX);
    memcpy(server->routes, options->routes, options->route_count * sizeof(*options->routes));
    server->route_count = options->route_count;
    if (options->certificate != NULL) {
        server->context = SSL_CTX_new(TLS_server_method());
        RG_ASSERT(SSL_CTX_use_certificate(server->context, options->certificate->x509) == 1);
        RG_ASSERT(SSL_CTX_use_PrivateKey(server->context, options->certificate->key) == 1);
    }
    if (options->client_authority != NULL) {
        X509_STORE *store = SSL_CTX_get_cert_store(server->context);
        RG_ASSERT(X509_STORE_add_cert(store, options->client_authority->x509) == 1);
        SSL_CTX_set_verify(server->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                           NULL);
    }
    pthread_mutex_init(&server->mutex, NULL);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    server->stop_event = eventfd(0, EFD_CLOEXEC);
    server->release_event = eventfd(0, EFD_CLOEXEC);
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    RG_ASSERT(bind(server->listener, (struct sockaddr *)&address, size) == 0);
    RG_ASSERT(listen(server->listener, 128) == 0);
    RG_ASSERT(getsockname(server->listener, (struct sockaddr *)&address, &size) == 0);
    server->port = ntohs(address.sin_port);
    snprintf(server->url, sizeof(server->url), "%s://localhost:%u",
             server->context != NULL ? "https" : "http", server->port);
    RG_ASSERT(pthread_create(&server->thread, NULL, server_main, server) == 0);
    return server;
}

void rg_token_server_stop(struct rg_token_server *server)
{
    RG_ASSERT(eventfd_write(server->stop_event, 1) == 0);
    pthread_join(server->thread, NULL);
    for (uint32_t i = 0; i < server->peer_count; i++) {
        shutdown(server->peers[i]->fd, SHUT_RDWR);
        pthread_join(server->peers[i]->thread, NULL);
        close(server->peers[i]->fd);
        free(server->peers[i]);
    }
    for (uint32_t i = 0; i < server->request_count; i++) {
        free(server->requests[i]);
    }
    close(server->listener);
    close(server->stop_event);
    close(server->release_event);
    SSL_CTX_free(server->context);
    pthread_mutex_destroy(&server->mutex);
    free(server);
}

uint16_t rg_token_server_port(const struct rg_token_server *server)
{
    return server->port;
}

const char *rg_token_server_url(const struct rg_token_server *server)
{
    return server->url;
}

void rg_token_server_fail(struct rg_token_server *server, unsigned status)
{
    pthread_mutex_lock(&server->mutex);
    server->fail_status = status;
    pthread_mutex_unlock(&server->mutex);
}

void rg_token_server_release(struct rg_token_server *server)
{
    RG_ASSERT(eventfd_write(server->release_event, 1) == 0);
}

uint32_t rg_token_server_count(struct rg_token_server *server)
{
    pthread_mutex_lock(&server->mutex);
    uint32_t count = server->request_count;
    pthread_mutex_unlock(&server->mutex);
    return count;
}

const char *rg_token_server_request(struct rg_token_server *server, uint32_t index)
{
    pthread_mutex_lock(&server->mutex);
    const char *text = index < server->request_count ? server->requests[index] : NULL;
    pthread_mutex_unlock(&server->mutex);
    return text;
}
