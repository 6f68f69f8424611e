/* A server for tests: see server.h. */
#include "tests/support/server.h"

#include "tests/support/test.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <time.h>
#include <unistd.h>

uint8_t rg_test_blob[RG_TEST_BLOB_SIZE];
struct rg_test_calls rg_test_calls;
struct rg_test_server rg_test_server;

struct state {
    struct rg_server_response response;
    uint64_t received, sum;
    bool early_in_body, refuse_in_body, upload;
};

static struct state *state_of(struct rg_server_call *call)
{
    return (struct state *)(void *)call->state;
}

static uint64_t field(const struct rg_h1_head *head, const char *name, uint64_t fallback)
{
    const struct rg_h1_slice *value = rg_h1_find(head, name);
    return value != NULL ? strtoull(value->data, NULL, 10) : fallback;
}

static void encode(struct rg_server_call *call, unsigned status, uint64_t content_length)
{
    const struct state *state = state_of(call);
    struct rg_h1_encoder *head = rg_server_head(call);
    rg_h1_encoder_init(head, head->data, head->capacity);
    rg_h1_encode_status(head, status, "Status");
    rg_h1_encode_header_u64(head, "Content-Length", content_length);
    rg_h1_encode_header_u64(head, "x-received", state->received);
    rg_h1_encode_header_u64(head, "x-sum", state->sum);
    RG_ASSERT(rg_h1_encode_end(head) > 0);
}

static void respond(struct rg_server_call *call, unsigned status, uint64_t content_length)
{
    encode(call, status, content_length);
    rg_server_respond(call, &state_of(call)->response);
}

static bool target_is(const struct rg_h1_head *head, const char *target)
{
    return head->target.size == strlen(target) &&
           memcmp(head->target.data, target, head->target.size) == 0;
}

static int test_begin(struct rg_server_call *call)
{
    const struct rg_h1_head *head = call->head;
    struct state *state = state_of(call);
    RG_ASSERT(call->context == rg_test_blob && state->received == 0);
    if (target_is(head, "/refuse")) {
        return -ECANCELED;
    }
    rg_test_calls.begun++;
    state->response = (struct rg_server_response){
        .body_size = strtoull(head->target.data + 1, NULL, 10),
        .delay_ns = field(head, "x-delay-ms", 0) * RG_NS_PER_MS,
        .bytes_per_second = field(head, "x-rate", 0),
        .cut_after = field(head, "x-cut", UINT64_MAX),
        .stall_after = field(head, "x-stall", UINT64_MAX),
        .stall_ns = field(head, "x-stall-ms", 0) * RG_NS_PER_MS,
        .close = rg_h1_find(head, "x-close") != NULL,
        .reset = rg_h1_find(head, "x-reset") != NULL,
        .cut_head = rg_h1_find(head, "x-cut-head") != NULL,
        .held = rg_h1_find(head, "x-held") != NULL,
    };
    state->early_in_body = target_is(head, "/early-body");
    state->refuse_in_body = target_is(head, "/refuse-body");
    state->upload = head->method.size == 3 && memcmp(head->method.data, "PUT", 3) == 0;
    if (head->method.size == 4 && memcmp(head->method.data, "HEAD", 4) == 0) {
        uint64_t size = state->response.body_size;
        state->response.body_size = 0;
        respond(call, 200, size);
    } else if (target_is(head, "/early")) {
        respond(call, 413, 0);
    }
    return 0;
}

static int test_body(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct state *state = state_of(call);
    RG_ASSERT(size > 0 && call->head == NULL);
    rg_test_calls.body_calls++;
    rg_test_calls.body_bytes += size;
    for (size_t i = 0; i < size; i++) {
        state->sum = state->sum * 31 + data[i];
    }
    state->received += size;
    if (state->refuse_in_body) {
        return -ECANCELED;
    }
    if (state->early_in_body) {
        respond(call, 413, 0);
    }
    return 0;
}

static void test_end(struct rg_server_call *call)
{
    struct state *state = state_of(call);
    rg_test_calls.ended++;
    respond(call, 200, state->response.body_size);
}

/* Nothing of what was encoded first is sent. */
static bool test_resume(struct rg_server_call *call, struct rg_server_response *response)
{
    RG_ASSERT(response->held);
    rg_test_calls.resume_calls++;
    if (!rg_test_calls.let_go) {
        return false;
    }
    response->body_size++;
    encode(call, 200, response->body_size);
    return true;
}

static size_t test_produce(struct rg_server_call *call, uint64_t offset, const uint8_t **out_data)
{
    RG_ASSERT(offset < state_of(call)->response.body_size);
    *out_data = rg_test_blob + offset % RG_TEST_BLOB_SIZE;
    return RG_TEST_BLOB_SIZE - offset % RG_TEST_BLOB_SIZE;
}

static void test_release(struct rg_server_call *call)
{
    RG_ASSERT(call->context == rg_test_blob);
    rg_test_calls.released++;
}

static const struct rg_server_handler handler = {
    .begin = test_begin,
    .body = test_body,
    .end = test_end,
    .resume = test_resume,
    .produce = test_produce,
    .release = test_release,
};

static void create_run(void *context)
{
    struct rg_test_server *f = context;
    struct rg_server_options options = {
        .handler = &handler,
        .context = rg_test_blob,
        .tls = f->tls,
        .connections_max = f->connections_max,
        .idle_timeout_ns = f->idle_timeout_ns,
        .listen_fd = f->listen_fd,
    };
    RG_ASSERT(rg_server_create(&f->server, f->loop, &options) == 0);
}

static void server_gone(void *context)
{
    struct rg_test_server *f = context;
    sem_post(&f->gone);
}

static void destroy_run(void *context)
{
    struct rg_test_server *f = context;
    rg_server_destroy(f->server, server_gone, f);
    f->server = NULL;
}

static void stats_run(void *context)
{
    struct rg_test_server *f = context;
    rg_server_stats(f->server, &f->stats);
}

const struct rg_server_stats *rg_test_server_stats(void)
{
    rg_loop_call(rg_test_server.loop, stats_run, &rg_test_server);
    return &rg_test_server.stats;
}

static int listen_loopback(uint16_t *out_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    RG_CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    RG_CHECK_EQ(listen(fd, 1024), 0);
    socklen_t size = sizeof(address);
    RG_CHECK_EQ(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *out_port = ntohs(address.sin_port);
    return fd;
}

void rg_test_server_start_with(const struct rg_test_server *options)
{
    for (size_t i = 0; i < RG_TEST_BLOB_SIZE; i++) {
        rg_test_blob[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + 1);
    }
    rg_test_calls = (struct rg_test_calls){0};
    rg_test_server = *options;
    rg_test_server.connections_max = options->connections_max > 0 ? options->connections_max : 1100;
    if (rg_test_server.idle_timeout_ns == 0) {
        rg_test_server.idle_timeout_ns = 60 * RG_NS_PER_S;
    }
    sem_init(&rg_test_server.gone, 0, 0);
    rg_test_server.listen_fd = listen_loopback(&rg_test_server.port);
    rg_test_server.loop = rg_test_loop_start(0);
    rg_loop_call(rg_test_server.loop, create_run, &rg_test_server);
}

void rg_test_server_start(void)
{
    rg_test_server_start_with(&(struct rg_test_server){0});
}

void rg_test_server_stop(void)
{
    rg_loop_call(rg_test_server.loop, destroy_run, &rg_test_server);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += RG_TEST_CLIENT_TIMEOUT_S;
    RG_CHECK_EQ(sem_timedwait(&rg_test_server.gone, &until), 0);
    rg_test_loop_stop(rg_test_server.loop);
    close(rg_test_server.listen_fd);
    RG_CHECK_EQ(rg_test_calls.released, rg_test_calls.begun);
}

void rg_test_server_check_released(uint32_t want)
{
    RG_AWAIT(rg_test_calls.released >= want);
    RG_CHECK_EQ(rg_test_calls.released, want);
    RG_CHECK_EQ(rg_test_calls.begun, want);
}

int rg_test_peer_open(void)
{
    return rg_test_peer_open_at(rg_test_server.port);
}

int rg_test_peer_open_at(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_CHECK(fd >= 0);
    struct timeval limit = {.tv_sec = RG_TEST_CLIENT_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons(port),
    };
    RG_CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

void rg_test_peer_send(int fd, const void *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t sent = send(fd, (const uint8_t *)data + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        RG_CHECK(sent > 0);
        done += (size_t)sent;
    }
}

void rg_test_peer_say(int fd, const char *text)
{
    rg_test_peer_send(fd, text, strlen(text));
}

/* A thread that has torn down a ring may be interrupted by that without a signal. */
ssize_t rg_test_peer_recv(int fd, void *data, size_t size)
{
    ssize_t got;
    do {
        got = recv(fd, data, size, 0);
    } while (got < 0 && errno == EINTR);
    return got;
}

int rg_test_peer_read_head(int fd, struct rg_test_answer *out_answer)
{
    char data[4096];
    size_t size = 0;
    struct rg_h1_head head;
    for (;;) {
        RG_CHECK(size < sizeof(data));
        ssize_t got = rg_test_peer_recv(fd, data + size, 1);
        if (got <= 0) {
            RG_CHECK_EQ(size, 0);
            return got == 0 ? -ECONNABORTED : -errno;
        }
        int rc = rg_h1_parse_response(&head, false, data, ++size, 0);
        if (rc > 0) {
            break;
        }
        RG_CHECK_EQ(rc, -EAGAIN);
    }
    *out_answer = (struct rg_test_answer){
        .status = head.status,
        .content_length = head.content_length,
        .received = field(&head, "x-received", 0),
        .sum = field(&head, "x-sum", 0),
        .close = !head.keep_alive,
    };
    return 0;
}

uint64_t rg_test_peer_read_body(int fd, uint64_t offset, uint64_t size)
{
    static uint8_t data[RG_KIB(64)];
    uint64_t done = 0;
    while (done < size) {
        ssize_t got = rg_test_peer_recv(fd, data, RG_MIN(sizeof(data), size - done));
        if (got <= 0) {
            return done;
        }
        for (ssize_t i = 0; i < got; i++) {
            RG_CHECK_EQ(data[i], rg_test_blob[(offset + done + (uint64_t)i) % RG_TEST_BLOB_SIZE]);
        }
        done += (uint64_t)got;
    }
    return done;
}

void rg_test_peer_expect(int fd, uint64_t size)
{
    struct rg_test_answer answer;
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    RG_CHECK_EQ(answer.status, 200);
    RG_CHECK_EQ(answer.content_length, size);
    RG_CHECK_EQ(rg_test_peer_read_body(fd, 0, size), size);
}

unsigned rg_test_peer_expect_status(int fd)
{
    struct rg_test_answer answer;
    RG_CHECK_EQ(rg_test_peer_read_head(fd, &answer), 0);
    for (uint64_t left = answer.content_length; left > 0; left--) {
        uint8_t byte;
        RG_CHECK_EQ(rg_test_peer_recv(fd, &byte, 1), 1);
    }
    return answer.status;
}

int rg_test_peer_expect_end(int fd)
{
    uint8_t byte;
    ssize_t got = rg_test_peer_recv(fd, &byte, 1);
    RG_CHECK(got <= 0);
    return got == 0 ? 0 : errno;
}

void rg_test_peer_get(int fd, uint64_t size, const char *fields)
{
    char text[512];
    snprintf(text, sizeof(text), "GET /%llu HTTP/1.1\r\nHost: a\r\n%s\r\n",
             (unsigned long long)size, fields);
    rg_test_peer_say(fd, text);
}

uint64_t rg_test_now_ms(void)
{
    return rg_now_ns() / RG_NS_PER_MS;
}
