/* The connections of the fake service: what they read goes to its store, and the answer back; see
 * fake_gcs.h. */
#include "tests/support/fake_gcs.h"

#include "tests/support/fake_gcs_store.h"
#include "tests/support/test.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024

struct connection {
    struct rg_fake_gcs *fake;
    pthread_t thread;
    int fd;
};

struct rg_fake_gcs {
    const struct rg_fake_fault *faults;
    int listener;
    char endpoint[64];
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    struct connection connections[CONNECTIONS_MAX];
    uint32_t connection_count;
    bool stopping;
    uint32_t counts[RG_FAKE_KIND_COUNT];
    char heads[RG_FAKE_KIND_COUNT][RG_FAKE_HEAD_SIZE_MAX];
    struct rg_fake_store store;
    uint32_t parallel, parallel_max;
};

/* Reads a head, and what came of the body behind it. */
static bool head_read(const struct connection *connection, struct rg_fake_request *request,
                      struct rg_fake_blob *input)
{
    size_t scanned = 0;
    for (;;) {
        int rc = input->size == 0
                     ? -EAGAIN
                     : rg_h1_parse_request(&request->head, input->data, input->size, scanned);
        if (rc > 0) {
            size_t size = RG_MIN((size_t)rc, sizeof(request->text) - 1);
            memcpy(request->text, input->data, size);
            request->text[size] = '\0';
            /* Slices into what will stay. */
            (void)rg_h1_parse_request(&request->head, request->text, size, 0);
            rg_fake_blob_append(&request->body, input->data + rc, input->size - (size_t)rc);
            input->size = 0;
            return true;
        }
        if (rc != -EAGAIN) {
            return false;
        }
        char piece[16384];
        ssize_t got = recv(connection->fd, piece, sizeof(piece), 0);
        if (got <= 0) {
            return false;
        }
        rg_fake_blob_append(input, piece, (uint64_t)got);
    }
}

static bool body_read(const struct connection *connection, struct rg_fake_request *request)
{
    uint64_t total = request->head.content_length, have = request->body.size;
    request->body.data = realloc(request->body.data, total + 1);
    while (have < total) {
        ssize_t got = recv(connection->fd, request->body.data + have, total - have, 0);
        if (got <= 0) {
            return false;
        }
        have += (uint64_t)got;
    }
    request->body.size = have;
    return true;
}

static void split_target(struct rg_fake_request *request)
{
    const struct rg_h1_slice *target = &request->head.target;
    const char *query = memchr(target->data, '?', target->size);
    size_t path_size = query != NULL ? (size_t)(query - target->data) : target->size;
    snprintf(request->method, sizeof(request->method), "%.*s", (int)request->head.method.size,
             request->head.method.data);
    snprintf(request->path, sizeof(request->path), "%.*s", (int)path_size, target->data);
    snprintf(request->query, sizeof(request->query), "%.*s",
             query != NULL ? (int)(target->size - path_size - 1) : 0,
             query != NULL ? query + 1 : "");
}

static enum rg_fake_action action_of(struct rg_fake_gcs *fake,
                                     const struct rg_fake_request *request)
{
    uint32_t nth = ++fake->counts[request->kind];
    for (const struct rg_fake_fault *fault = fake->faults;
         fault != NULL && fault->kind != RG_FAKE_KIND_COUNT; fault++) {
        if (fault->kind == request->kind && (fault->nth == 0 || fault->nth == nth)) {
            return fault->action;
        }
    }
    return RG_FAKE_GOOD;
}

static void reset(const struct connection *connection)
{
    struct linger linger = {.l_onoff = 1};
    setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

static bool answer_send(const struct connection *connection, const struct rg_fake_answer *answer)
{
    char text[sizeof(*answer) + 256];
    bool bodiless = answer->status == 204;
    int size =
        snprintf(text, sizeof(text), "HTTP/1.1 %u Status\r\n%s", answer->status, answer->fields);
    if (!bodiless) {
        size += snprintf(text + size, sizeof(text) - (size_t)size, "Content-Length: %zu\r\n",
                         strlen(answer->body));
    }
    size +=
        snprintf(text + size, sizeof(text) - (size_t)size, "\r\n%s", bodiless ? "" : answer->body);
    return send(connection->fd, text, (size_t)size, MSG_NOSIGNAL) == size;
}

/* Waits for the other end. */
static void hang(const struct connection *connection)
{
    char byte;
    while (recv(connection->fd, &byte, 1, 0) > 0) {
    }
}

static void refuse(struct rg_fake_answer *answer, enum rg_fake_action action)
{
    static const unsigned statuses[] = {
        [RG_FAKE_503] = 503, [RG_FAKE_403] = 403, [RG_FAKE_400] = 400,     [RG_FAKE_404] = 404,
        [RG_FAKE_405] = 405, [RG_FAKE_501] = 501, [RG_FAKE_404_XML] = 404,
    };
    rg_fake_reply(answer, statuses[action]);
    if (action == RG_FAKE_404_XML) {
        snprintf(answer->body, sizeof(answer->body),
                 "<?xml version='1.0'?><Error><Code>NoSuchBucket</Code>"
                 "<Message>The specified bucket does not exist.</Message></Error>");
    }
}

/* False: the connection ends. */
static bool act(struct connection *connection, struct rg_fake_request *request)
{
    struct rg_fake_gcs *fake = connection->fake;
    struct rg_fake_answer answer = {0};
    bool read = request->action != RG_FAKE_RESET_HEAD && body_read(connection, request);
    bool refused = request->action >= RG_FAKE_503 && request->action <= RG_FAKE_404_XML;
    pthread_mutex_lock(&fake->lock);
    fake->parallel -= request->kind == RG_FAKE_PART;
    if (read && request->action != RG_FAKE_RESET && request->action != RG_FAKE_HANG && !refused) {
        rg_fake_perform(&fake->store, request, &answer);
    }
    pthread_mutex_unlock(&fake->lock);
    if (refused) {
        refuse(&answer, request->action);
    }
    if (!read || request->action == RG_FAKE_RESET || request->action == RG_FAKE_LOST) {
        reset(connection);
        return false;
    }
    if (request->action == RG_FAKE_HANG || request->action == RG_FAKE_DONE_HANG) {
        hang(connection);
        return false;
    }
    return answer_send(connection, &answer);
}

static void *connection_thread(void *context)
{
    struct connection *connection = context;
    struct rg_fake_gcs *fake = connection->fake;
    struct rg_fake_request *request = calloc(1, sizeof(*request));
    struct rg_fake_blob input = {0};
    bool going = true;
    while (going && head_read(connection, request, &input)) {
        split_target(request);
        pthread_mutex_lock(&fake->lock);
        request->kind = rg_fake_kind_of(request);
        request->action = action_of(fake, request);
        strcpy(fake->heads[request->kind], request->text);
        fake->parallel += request->kind == RG_FAKE_PART;
        fake->parallel_max = RG_MAX(fake->parallel_max, fake->parallel);
        pthread_mutex_unlock(&fake->lock);
        going = act(connection, request);
        rg_fake_blob_free(&request->body);
    }
    rg_fake_blob_free(&request->body);
    rg_fake_blob_free(&input);
    free(request);
    pthread_mutex_lock(&fake->lock);
    close(connection->fd);
    connection->fd = -1;
    pthread_mutex_unlock(&fake->lock);
    return NULL;
}

static void *accept_thread(void *context)
{
    struct rg_fake_gcs *fake = context;
    int fd;
    while ((fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        pthread_mutex_lock(&fake->lock);
        RG_ASSERT(fake->connection_count < CONNECTIONS_MAX);
        struct connection *connection = &fake->connections[fake->connection_count];
        *connection = (struct connection){.fake = fake, .fd = fd};
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        fake->connection_count++;
        RG_ASSERT(pthread_create(&connection->thread, NULL, connection_thread, connection) == 0);
        pthread_mutex_unlock(&fake->lock);
    }
    return NULL;
}

struct rg_fake_gcs *rg_fake_gcs_start(const struct rg_fake_fault *faults)
{
    struct rg_fake_gcs *fake = calloc(1, sizeof(*fake));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    fake->faults = faults;
    fake->store.generation = 1000;
    pthread_mutex_init(&fake->lock, NULL);
    fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    RG_ASSERT(bind(fake->listener, (struct sockaddr *)&address, size) == 0);
    RG_ASSERT(listen(fake->listener, 128) == 0);
    RG_ASSERT(getsockname(fake->listener, (struct sockaddr *)&address, &size) == 0);
    snprintf(fake->endpoint, sizeof(fake->endpoint), "http://127.0.0.1:%u",
             ntohs(address.sin_port));
    RG_ASSERT(pthread_create(&fake->thread, NULL, accept_thread, fake) == 0);
    return fake;
}

void rg_fake_gcs_stop(struct rg_fake_gcs *fake)
{
    shutdown(fake->listener, SHUT_RDWR);
    pthread_join(fake->thread, NULL);
    close(fake->listener);
    pthread_mutex_lock(&fake->lock);
    for (uint32_t i = 0; i < fake->connection_count; i++) {
        if (fake->connections[i].fd >= 0) {
            shutdown(fake->connections[i].fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&fake->lock);
    for (uint32_t i = 0; i < fake->connection_count; i++) {
        pthread_join(fake->connections[i].thread, NULL);
    }
    for (uint32_t i = 0; i < RG_FAKE_OBJECTS_MAX; i++) {
        rg_fake_blob_free(&fake->store.objects[i].content);
    }
    for (uint32_t i = 0; i < fake->store.upload_count; i++) {
        rg_fake_upload_forget(&fake->store.uploads[i]);
    }
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

const char *rg_fake_gcs_endpoint(const struct rg_fake_gcs *fake)
{
    return fake->endpoint;
}

uint32_t rg_fake_gcs_count(struct rg_fake_gcs *fake, enum rg_fake_kind kind)
{
    pthread_mutex_lock(&fake->lock);
    uint32_t count = fake->counts[kind];
    pthread_mutex_unlock(&fake->lock);
    return count;
}

uint32_t rg_fake_gcs_objects(struct rg_fake_gcs *fake)
{
    uint32_t count = 0;
    pthread_mutex_lock(&fake->lock);
    for (uint32_t i = 0; i < RG_FAKE_OBJECTS_MAX; i++) {
        count += fake->store.objects[i].generation != 0;
    }
    pthread_mutex_unlock(&fake->lock);
    return count;
}

/* A session that has made its object stays open only to say so. */
uint32_t rg_fake_gcs_uploads(struct rg_fake_gcs *fake)
{
    uint32_t count = 0;
    pthread_mutex_lock(&fake->lock);
    for (uint32_t i = 0; i < fake->store.upload_count; i++) {
        count += fake->store.uploads[i].open && fake->store.uploads[i].if_generation_match >= -1;
    }
    pthread_mutex_unlock(&fake->lock);
    return count;
}

const uint8_t *rg_fake_gcs_content(struct rg_fake_gcs *fake, const char *name, uint64_t *out_size)
{
    pthread_mutex_lock(&fake->lock);
    const struct rg_fake_object *object = rg_fake_object_find(&fake->store, name);
    const uint8_t *data = NULL;
    if (object != NULL) {
        *out_size = object->content.size;
        data = object->content.data != NULL ? object->content.data : (const uint8_t *)"";
    }
    pthread_mutex_unlock(&fake->lock);
    return data;
}

void rg_fake_gcs_put(struct rg_fake_gcs *fake, const char *name, const void *data, size_t size)
{
    struct rg_fake_blob content = {0};
    rg_fake_blob_append(&content, data, size);
    pthread_mutex_lock(&fake->lock);
    rg_fake_object_store(&fake->store, name, content);
    pthread_mutex_unlock(&fake->lock);
}

const char *rg_fake_gcs_head(struct rg_fake_gcs *fake, enum rg_fake_kind kind)
{
    return fake->heads[kind];
}

uint32_t rg_fake_gcs_parallel(struct rg_fake_gcs *fake)
{
    return fake->parallel_max;
}
