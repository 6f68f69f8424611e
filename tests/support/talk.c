/* See talk.h. */
#include "tests/support/talk.h"

#include "tests/support/test.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = RG_TALK_TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    RG_CHECK_EQ(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

uint16_t rg_talk_port(const char *endpoint)
{
    return (uint16_t)atoi(strrchr(endpoint, ':') + 1);
}

bool rg_talk_is_whole(const struct rg_talk *talk)
{
    return talk->status != 0 && talk->body_size == talk->content_length;
}

/* Takes what has come so far apart. */
static void take_apart(struct rg_talk *talk, char *bytes, size_t size)
{
    bytes[size] = '\0';
    const char *end = strstr(bytes, "\r\n\r\n");
    if (end == NULL) {
        return;
    }
    const char *length = strstr(bytes, "Content-Length: ");
    talk->status = (unsigned)atoi(bytes + 9);
    talk->body_size = size - (size_t)(end + 4 - bytes);
    talk->content_length = length != NULL && length < end ? strtoull(length + 16, NULL, 10) : 0;
    snprintf(talk->head, sizeof(talk->head), "%.*s", (int)(end + 2 - bytes), bytes);
    snprintf(talk->text, sizeof(talk->text), "%s", end + 4);
}

/* Reads to the end of the answer, which for HEAD is that of its head, or of the connection.
 * Interrupted calls are repeated: a thread that had a ring may be woken to clean up behind it. */
static void read_answer(struct rg_talk *talk, int fd, bool head_only)
{
    char *bytes = malloc(RG_TALK_ANSWER_MAX);
    size_t size = 0;
    ssize_t count = 1;
    while (count > 0 && !(head_only && talk->status != 0) && !rg_talk_is_whole(talk)) {
        do {
            count = recv(fd, bytes + size, RG_TALK_ANSWER_MAX - 1 - size, 0);
        } while (count < 0 && errno == EINTR);
        talk->error = count < 0 ? errno : 0;
        size += count > 0 ? (size_t)count : 0;
        take_apart(talk, bytes, size);
    }
    free(bytes);
}

/* 0, or why not all of it was taken. */
static int send_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size > 0) {
        ssize_t count = send(fd, at, size, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return errno;
        }
        at += count;
        size -= (size_t)count;
    }
    return 0;
}

void rg_talk(struct rg_talk *talk, uint16_t port, const struct rg_talk_request *request)
{
    char head[2048];
    int size =
        snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n%s\r\n",
                 request->method, request->target, request->body_size,
                 request->fields != NULL ? request->fields : "");
    RG_CHECK(size > 0 && (size_t)size < sizeof(head));
    *talk = (struct rg_talk){0};
    int fd = connect_to(port);
    char *filler = NULL;
    if (request->body == NULL && request->body_size > 0) {
        filler = malloc(request->body_size);
        memset(filler, 'x', request->body_size);
    }
    int send_error = send_all(fd, head, (size_t)size);
    if (send_error == 0) {
        send_error = send_all(fd, filler != NULL ? filler : request->body, request->body_size);
    }
    free(filler);
    read_answer(talk, fd, strcmp(request->method, "HEAD") == 0);
    if (talk->status == 0 && talk->error == 0) {
        talk->error = send_error; /* A reset is told once, to whoever comes first. */
    }
    close(fd);
}

void rg_talk_retry_test_begin(uint16_t port, const char *method, const char *instructions, char *id)
{
    char json[512];
    struct rg_talk talk;
    int size =
        snprintf(json, sizeof(json), "{\"instructions\":{\"%s\":[%s]}}", method, instructions);
    RG_CHECK(size > 0 && (size_t)size < sizeof(json));
    rg_talk(&talk, port,
            &(struct rg_talk_request){"POST", "/retry_test", "Content-Type: application/json\r\n",
                                      json, (size_t)size});
    RG_CHECK_EQ(talk.status, 200);
    const char *at = strstr(talk.text, "\"id\":\"");
    RG_CHECK(at != NULL);
    snprintf(id, RG_TALK_ID_SIZE, "%.*s", (int)strcspn(at + 6, "\""), at + 6);
}

static void ask_about(struct rg_talk *talk, uint16_t port, const char *method, const char *id)
{
    char target[128];
    snprintf(target, sizeof(target), "/retry_test/%s", id);
    rg_talk(talk, port, &(struct rg_talk_request){.method = method, .target = target});
    RG_CHECK_EQ(talk->status, 200);
}

bool rg_talk_retry_test_is_complete(uint16_t port, const char *id)
{
    struct rg_talk talk;
    ask_about(&talk, port, "GET", id);
    return strstr(talk.text, "\"completed\":true") != NULL;
}

void rg_talk_retry_test_end(uint16_t port, const char *id)
{
    struct rg_talk talk;
    ask_about(&talk, port, "DELETE", id);
}

static unsigned long long number_of(const char *json, const char *name)
{
    char key[32];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(json, key);
    RG_CHECK(at != NULL);
    return strtoull(at + strlen(key), NULL, 10);
}

static void take_rule(const struct rg_talk *talk, struct rg_talk_rule *rule)
{
    RG_CHECK_EQ(talk->status, 200);
    const char *last = strstr(talk->text, "\"last\":\"");
    rule->seen = number_of(talk->text, "seen");
    rule->struck = number_of(talk->text, "struck");
    last = last != NULL ? last + strlen("\"last\":\"") : "";
    snprintf(rule->last, sizeof(rule->last), "%.*s", (int)strcspn(last, "\""), last);
}

void rg_talk_rule_begin(uint16_t port, const char *json, struct rg_talk_rule *out_rule)
{
    char body[1024];
    struct rg_talk talk;
    int size = snprintf(body, sizeof(body), "{%s}", json);
    RG_CHECK(size > 0 && (size_t)size < sizeof(body));
    rg_talk(&talk, port,
            &(struct rg_talk_request){"POST", "/fault_rule", "Content-Type: application/json\r\n",
                                      body, (size_t)size});
    take_rule(&talk, out_rule);
    const char *id = strstr(talk.text, "\"id\":\"");
    RG_CHECK(id != NULL);
    snprintf(out_rule->id, sizeof(out_rule->id), "%.*s", (int)strcspn(id + 6, "\""), id + 6);
}

static void talk_about_rule(uint16_t port, const char *method, const char *query,
                            struct rg_talk_rule *rule)
{
    char target[128];
    struct rg_talk talk;
    snprintf(target, sizeof(target), "/fault_rule/%s%s", rule->id, query);
    rg_talk(&talk, port, &(struct rg_talk_request){.method = method, .target = target});
    take_rule(&talk, rule);
}

void rg_talk_rule_ask(uint16_t port, struct rg_talk_rule *rule)
{
    talk_about_rule(port, "GET", "", rule);
}

void rg_talk_rule_wait(uint16_t port, struct rg_talk_rule *rule)
{
    talk_about_rule(port, "GET", "?wait", rule);
    RG_CHECK(rule->struck > 0);
}

void rg_talk_rule_end(uint16_t port, struct rg_talk_rule *rule)
{
    talk_about_rule(port, "DELETE", "", rule);
}
