/* Putting the emulator together, and taking it apart; see emulator.h. */
#include "emulator/emulator.h"

#include "emulator/certificate.h"
#include "emulator/handler.h"
#include "emulator/wire/text.h"
#include "http/tls_context.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST_SIZE_MAX 256
#define LISTEN_BACKLOG 4096
#define BITS_PER_MEGABIT 1e6
#define RATE_MAX 1e9
/* The loops need few buffers of their own: bodies lie in the store. */
#define LOOPS_MEMORY_MAX RG_MIB(64)

struct rg_emulator {
    struct rg_store *store;
    struct rg_handler *handler;
    struct rg_certificate *certificate;
    struct rg_tls_context *tls;
    struct rg_runtime *runtime;
    struct rg_server *
        *servers; /* One for each loop; NULL for a loop whose server could not be made. */
    int listen_fd;
    char endpoint[HOST_SIZE_MAX + 32];
};

struct address {
    char host[HOST_SIZE_MAX];
    char port[6];
};

static int fail(char *error, size_t error_size, const char *option, const char *value,
                const char *form)
{
    snprintf(error, error_size, "%s must be %s, got \"%s\"", option, form, value);
    return -EINVAL;
}

/* HOST:PORT, with brackets around an IPv6 address. */
static bool parse_listen(const char *text, struct address *out)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text) {
        return false;
    }
    size_t host_size = (size_t)(colon - text);
    bool brackets = text[0] == '[' && text[host_size - 1] == ']';
    text += brackets;
    host_size -= brackets ? 2 : 0;
    int64_t port;
    if (host_size == 0 || host_size >= sizeof(out->host) || strlen(colon + 1) > 5 ||
        rg_text_parse_int64(rg_text_slice(colon + 1), &port) < 0 || port > UINT16_MAX ||
        (!brackets && memchr(text, ':', host_size) != NULL)) {
        return false;
    }
    memcpy(out->host, text, host_size);
    out->host[host_size] = '\0';
    strcpy(out->port, colon + 1);
    return true;
}

/* Whether "localhost" leads to the socket. Of the loopback addresses only 127.0.0.1 is sure to
 * be what "localhost" means: elsewhere in 127.0.0.0/8, or where ::1 has another name, a client
 * would find nobody. */
static bool is_localhost(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        uint32_t ip = ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
        return ip == INADDR_LOOPBACK || ip == INADDR_ANY;
    }
    const struct in6_addr *ip = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_UNSPECIFIED(ip);
}

static int bind_socket(const struct addrinfo *info)
{
    int one = 1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, LISTEN_BACKLOG) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

/* The endpoint that clients are told. "localhost" is preferred: every certificate has it, and
 * everybody can resolve it. */
static int format_endpoint(struct rg_emulator *emulator, const struct address *address, bool plain)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    if (getsockname(emulator->listen_fd, (struct sockaddr *)&bound, &size) < 0) {
        return -errno;
    }
    /* The port is at the same offset in the addresses of both families. */
    unsigned port = ntohs(((const struct sockaddr_in *)(const void *)&bound)->sin_port);
    bool local = is_localhost((const struct sockaddr *)&bound);
    bool brackets = !local && strchr(address->host, ':') != NULL;
    snprintf(emulator->endpoint, sizeof(emulator->endpoint), "%s://%s%s%s:%u",
             plain ? "http" : "https", brackets ? "[" : "", local ? "localhost" : address->host,
             brackets ? "]" : "", port);
    return 0;
}

static int open_socket(struct rg_emulator *emulator, const struct address *address, bool plain)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(address->host, address->port, &hints, &found);
    if (rc != 0) {
        return rc == EAI_SYSTEM ? -errno : -EADDRNOTAVAIL;
    }
    rc = bind_socket(found);
    freeaddrinfo(found);
    if (rc < 0) {
        return rc;
    }
    emulator->listen_fd = rc;
    return format_endpoint(emulator, address, plain);
}

/* A positive number up to `max`. */
static bool parse_rate(const char *text, double max, double *out_value)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0) || value > max) {
        return false;
    }
    *out_value = value;
    return true;
}

static int parse_model(struct rg_handler_options *out, const struct rg_emulator_options *options,
                       char *error, size_t error_size)
{
    double mbps = 0;
    if (options->latency_ms != NULL && rg_latency_parse(options->latency_ms, &out->latency) < 0) {
        return fail(error, error_size, "--latency-ms", options->latency_ms,
                    "P50 or P50:P99 in milliseconds, as in 30:120, with P99 not below P50");
    }
    if (options->conn_mbps != NULL && !parse_rate(options->conn_mbps, RATE_MAX, &mbps)) {
        return fail(error, error_size, "--conn-mbps", options->conn_mbps,
                    "a positive number of megabits per second, as in 400");
    }
    if (options->rate_limit != NULL &&
        !parse_rate(options->rate_limit, RATE_MAX, &out->requests_per_second)) {
        return fail(error, error_size, "--rate-limit", options->rate_limit,
                    "a positive number of requests per second, as in 5000");
    }
    out->bytes_per_second = mbps > 0 ? (uint64_t)fmax(mbps * BITS_PER_MEGABIT / 8, 1) : 0;
    return 0;
}

static uint32_t default_threads(void)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0) {
        return 1;
    }
    return (uint32_t)RG_MIN(RG_MAX(CPU_COUNT(&cpus), 1), RG_EMULATOR_THREADS_MAX);
}

static int open_tls(struct rg_emulator *emulator, const struct rg_emulator_options *options,
                    const struct address *address, char *error, size_t error_size)
{
    int rc = rg_certificate_open(&emulator->certificate, options->tls_dir, address->host, error,
                                 error_size);
    if (rc < 0) {
        return rc;
    }
    struct rg_tls_server_options tls = {
        .cert_pem = rg_certificate_chain_pem(emulator->certificate),
        .cert_size = strlen(rg_certificate_chain_pem(emulator->certificate)),
        .key_pem = rg_certificate_key_pem(emulator->certificate),
        .key_size = strlen(rg_certificate_key_pem(emulator->certificate)),
    };
    return rg_tls_context_open_server(&emulator->tls, &tls, error, error_size);
}

/* Makes a server on its loop's thread. */
struct server_start {
    struct rg_emulator *emulator;
    uint32_t index;
    int rc;
};

static void start_server(void *context)
{
    struct server_start *start = context;
    struct rg_emulator *emulator = start->emulator;
    struct rg_server_options options = {
        .handler = &rg_handler_events,
        .context = emulator->handler,
        .tls = emulator->tls,
        .connections_max = RG_EMULATOR_CONNECTIONS_MAX,
        .idle_timeout_ns = RG_EMULATOR_IDLE_TIMEOUT_NS,
        .listen_fd = emulator->listen_fd,
    };
    start->rc = rg_server_create(&emulator->servers[start->index],
                                 emulator->runtime->loops[start->index], &options);
}

static int start_servers(struct rg_emulator *emulator)
{
    uint32_t count = emulator->runtime->loop_count;
    emulator->servers = calloc(count, sizeof(*emulator->servers));
    if (emulator->servers == NULL) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct server_start start = {.emulator = emulator, .index = i};
        rg_loop_call(emulator->runtime->loops[i], start_server, &start);
        if (start.rc < 0) {
            return start.rc;
        }
    }
    return 0;
}

/* Ends a server: its loop is asked to, and this thread waits until it has. */
struct server_stop {
    struct rg_server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
};

static void server_stopped(void *context)
{
    struct server_stop *stop = context;
    pthread_mutex_lock(&stop->lock);
    stop->done = true;
    pthread_cond_signal(&stop->changed);
    pthread_mutex_unlock(&stop->lock);
}

static void stop_server(void *context)
{
    struct server_stop *stop = context;
    rg_server_destroy(stop->server, server_stopped, stop);
}

static void stop_servers(struct rg_emulator *emulator)
{
    for (uint32_t i = 0; emulator->servers != NULL && i < emulator->runtime->loop_count; i++) {
        if (emulator->servers[i] == NULL) {
            continue;
        }
        struct server_stop stop = {.server = emulator->servers[i],
                                   .lock = PTHREAD_MUTEX_INITIALIZER,
                                   .changed = PTHREAD_COND_INITIALIZER};
        rg_loop_call(emulator->runtime->loops[i], stop_server, &stop);
        pthread_mutex_lock(&stop.lock);
        while (!stop.done) {
            pthread_cond_wait(&stop.changed, &stop.lock);
        }
        pthread_mutex_unlock(&stop.lock);
    }
    free(emulator->servers);
}

static int open_loops(struct rg_emulator *emulator, uint32_t threads)
{
    struct rg_runtime_options options;
    rg_runtime_options_init(&options);
    options.threads = threads;
    options.memory_max = LOOPS_MEMORY_MAX;
    int rc = rg_runtime_open(&emulator->runtime, &options);
    return rc < 0 ? rc : start_servers(emulator);
}

static const char *listen_text_of(const struct rg_emulator_options *options)
{
    return options->listen != NULL ? options->listen : RG_EMULATOR_LISTEN_DEFAULT;
}

/* Finds what is wrong with the options before anything is opened. */
static int parse_options(const struct rg_emulator_options *options, struct rg_handler_options *api,
                         struct address *address, char *error, size_t error_size)
{
    const char *listen_text = listen_text_of(options);
    *api = (struct rg_handler_options){
        .tls = !options->plain,
        .loop_count = options->threads != 0 ? options->threads : default_threads(),
        .seed = options->seed,
    };
    if (api->loop_count > RG_EMULATOR_THREADS_MAX) {
        snprintf(error, error_size, "--threads must be from 1 to %d, got %u",
                 RG_EMULATOR_THREADS_MAX, api->loop_count);
        return -EINVAL;
    }
    if (!parse_listen(listen_text, address)) {
        return fail(error, error_size, "--listen", listen_text,
                    "HOST:PORT, as in 127.0.0.1:0 or [::1]:8443");
    }
    return parse_model(api, options, error, error_size);
}

static int open_store(struct rg_emulator *emulator, const struct rg_emulator_options *options,
                      char *error, size_t error_size)
{
    const struct rg_store_options store = {
        .root = options->root,
        .memory_max = options->memory_max,
        .synthetic = options->synthetic,
        .synthetic_count = options->synthetic_count,
        .buckets = options->buckets,
        .bucket_count = options->bucket_count,
        .strict_buckets = options->strict_buckets,
    };
    return rg_store_open(&emulator->store, &store, error, error_size);
}

static int open_all(struct rg_emulator *emulator, const struct rg_emulator_options *options,
                    char *error, size_t error_size)
{
    struct address address;
    struct rg_handler_options api;
    int rc = parse_options(options, &api, &address, error, error_size);
    rc = rc == 0 ? open_store(emulator, options, error, error_size) : rc;
    if (rc < 0) {
        return rc;
    }
    rc = open_socket(emulator, &address, options->plain);
    if (rc < 0) {
        snprintf(error, error_size, "--listen '%s': %s", listen_text_of(options), strerror(-rc));
        return rc;
    }
    rc = options->plain ? 0 : open_tls(emulator, options, &address, error, error_size);
    if (rc < 0) {
        return rc;
    }
    api.store = emulator->store;
    rc = rg_handler_create(&emulator->handler, &api);
    rc = rc == 0 ? open_loops(emulator, api.loop_count) : rc;
    if (rc < 0) {
        snprintf(error, error_size, "cannot start %u event loops: %s", api.loop_count,
                 rc == -EPERM ? "io_uring is forbidden here; unset RINGEST_BACKEND"
                              : strerror(-rc));
    }
    return rc;
}

int rg_emulator_open(struct rg_emulator **out_emulator, const struct rg_emulator_options *options,
                     char *error, size_t error_size)
{
    struct rg_emulator *emulator = calloc(1, sizeof(*emulator));
    if (emulator == NULL) {
        snprintf(error, error_size, "out of memory");
        return -ENOMEM;
    }
    emulator->listen_fd = -1;
    int rc = open_all(emulator, options, error, error_size);
    if (rc < 0) {
        rg_emulator_close(emulator);
        return rc;
    }
    *out_emulator = emulator;
    return 0;
}

void rg_emulator_close(struct rg_emulator *emulator)
{
    if (emulator == NULL) {
        return;
    }
    if (emulator->runtime != NULL) {
        stop_servers(emulator);
        rg_runtime_close(emulator->runtime);
    }
    rg_tls_context_close(emulator->tls);
    rg_certificate_close(emulator->certificate);
    if (emulator->listen_fd >= 0) {
        close(emulator->listen_fd);
    }
    rg_handler_destroy(emulator->handler);
    rg_store_close(emulator->store);
    free(emulator);
}

const char *rg_emulator_endpoint(const struct rg_emulator *emulator)
{
    return emulator->endpoint;
}

const char *rg_emulator_ca_path(const struct rg_emulator *emulator)
{
    return emulator->certificate != NULL ? rg_certificate_ca_path(emulator->certificate) : NULL;
}

int rg_emulator_format_ready(const struct rg_emulator *emulator, char *out, size_t out_size)
{
    struct rg_text text = {0};
    const char *ca = rg_emulator_ca_path(emulator);
    rg_text_append_str(&text, "{\"endpoint\":");
    rg_text_append_json(&text, emulator->endpoint, strlen(emulator->endpoint));
    rg_text_append_str(&text, ",\"ca\":");
    if (ca != NULL) {
        rg_text_append_json(&text, ca, strlen(ca));
    } else {
        rg_text_append_str(&text, "null");
    }
    rg_text_printf(&text, ",\"pid\":%d}", (int)getpid());
    int rc = text.failed ? -ENOMEM : text.size >= out_size ? -ENOSPC : (int)text.size;
    if (rc > 0) {
        memcpy(out, text.data, text.size);
        out[text.size] = '\0';
    }
    rg_text_fini(&text);
    return rc;
}
