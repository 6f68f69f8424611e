/* The emulator on a loop of its own, and one connection to it by which rules are made, counts asked
 * for and objects looked at; see emulated.h. */
#include "tests/support/emulated.h"

#include "emulator/emulator.h"
#include "http/h1_decoder.h"
#include "tests/support/server.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#include <unistd.h>

#define HEAD_SIZE_MAX RG_KIB(16)
#define EVERY UINT32_MAX

static const char *const kinds[] = {
#define XX(name, members) members,
    RG_EMULATED_KINDS(XX)
#undef XX
};
static const char *const actions[] = {
#define XX(name, members) members,
    RG_EMULATED_ACTIONS(XX)
#undef XX
};

struct rg_emulated {
    struct rg_emulator *emulator;
    int fd;
    uint64_t watches[RG_EMULATED_KIND_COUNT]; /* The rules that count. */
    char head[RG_KIB(4)];
    unsigned status;
    uint8_t *body; /* Of the last answer, with a 0 behind it. */
    uint64_t body_size;
};

/* Reads an answer's head byte by byte, and then its body. */
static void read_answer(struct rg_emulated *emulated)
{
    char text[HEAD_SIZE_MAX];
    struct rg_h1_head head;
    size_t size = 0;
    int rc;
    do {
        RG_CHECK(size < sizeof(text));
        RG_CHECK_EQ(rg_test_peer_recv(emulated->fd, text + size, 1), 1);
        rc = rg_h1_parse_response(&head, false, text, ++size, 0);
    } while (rc == -EAGAIN);
    RG_CHECK(rc > 0);
    emulated->status = head.status;
    emulated->body_size = head.status == 204 ? 0 : head.content_length;
    free(emulated->body);
    emulated->body = malloc(emulated->body_size + 1);
    RG_CHECK(emulated->body != NULL);
    for (uint64_t done = 0; done < emulated->body_size;) {
        ssize_t got =
            rg_test_peer_recv(emulated->fd, emulated->body + done, emulated->body_size - done);
        RG_CHECK(got > 0);
        done += (uint64_t)got;
    }
    emulated->body[emulated->body_size] = 0;
}

static void ask(struct rg_emulated *emulated, const char *method, const char *target,
                const void *body, size_t size)
{
    char head[512];
    int head_size =
        snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n",
                 method, target, size);
    RG_CHECK(head_size > 0 && (size_t)head_size < sizeof(head));
    rg_test_peer_send(emulated->fd, head, (size_t)head_size);
    rg_test_peer_send(emulated->fd, body, size);
    read_answer(emulated);
}

/* The text behind a member's name in the answer. */
static const char *member(const struct rg_emulated *emulated, const char *name)
{
    const char *at = strstr((const char *)emulated->body, name);
    RG_CHECK(at != NULL);
    return at + strlen(name);
}

static uint64_t rule_begin(struct rg_emulated *emulated, const char *match, const char *action,
                           uint32_t nth)
{
    char json[512];
    int size = snprintf(json, sizeof(json), "{%s,%s,\"nth\":%u,\"times\":%u}", match, action,
                        RG_MAX(nth, 1u), nth == 0 ? EVERY : 1);
    RG_CHECK(size > 0 && (size_t)size < sizeof(json));
    ask(emulated, "POST", "/fault_rule", json, (size_t)size);
    RG_CHECK_EQ(emulated->status, 200);
    return strtoull(member(emulated, "\"id\":\""), NULL, 10);
}

/* Of the rules that would strike a request only the first does, so those that only count come
 * last. */
static void rules_begin(struct rg_emulated *emulated, const struct rg_emulated_fault *faults)
{
    for (; faults != NULL && faults->kind != RG_EMULATED_KIND_COUNT; faults++) {
        if (faults->action == RG_EMULATED_GOOD) {
            continue;
        }
        rule_begin(emulated, kinds[faults->kind], actions[faults->action], faults->nth);
        if (faults->action == RG_EMULATED_DONE_GONE) {
            rule_begin(emulated, kinds[RG_EMULATED_ASK], actions[RG_EMULATED_GONE], 0);
        }
    }
    for (unsigned i = 0; i < RG_EMULATED_KIND_COUNT; i++) {
        emulated->watches[i] = rule_begin(emulated, kinds[i], actions[RG_EMULATED_GOOD], 0);
    }
}

struct rg_emulated *rg_emulated_start(const struct rg_emulated_fault *faults)
{
    char error[256];
    struct rg_emulated *emulated = calloc(1, sizeof(*emulated));
    const struct rg_emulator_options options = {
        .threads = 1, .plain = true, .strict_buckets = true, .memory_max = RG_MIB(512)};
    int rc = rg_emulator_open(&emulated->emulator, &options, error, sizeof(error));
    if (rc == -EPERM) {
        rg_test_skip("io_uring is not to be had here");
    }
    if (rc < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    emulated->fd = rg_test_peer_open_at(rg_talk_port(rg_emulated_endpoint(emulated)));
    rg_emulated_bucket(emulated, true);
    rules_begin(emulated, faults);
    return emulated;
}

void rg_emulated_stop(struct rg_emulated *emulated)
{
    close(emulated->fd);
    rg_emulator_close(emulated->emulator);
    free(emulated->body);
    free(emulated);
}

const char *rg_emulated_endpoint(const struct rg_emulated *emulated)
{
    return rg_emulator_endpoint(emulated->emulator);
}

static void watch_ask(struct rg_emulated *emulated, enum rg_emulated_kind kind)
{
    char target[64];
    snprintf(target, sizeof(target), "/fault_rule/%llu",
             (unsigned long long)emulated->watches[kind]);
    ask(emulated, "GET", target, NULL, 0);
    RG_CHECK_EQ(emulated->status, 200);
}

uint32_t rg_emulated_count(struct rg_emulated *emulated, enum rg_emulated_kind kind)
{
    watch_ask(emulated, kind);
    return (uint32_t)strtoul(member(emulated, "\"seen\":"), NULL, 10);
}

/* Takes one character of a JSON string, and its escape. */
static char unescape(const char **at)
{
    char c = *(*at)++;
    if (c != '\\') {
        return c;
    }
    c = *(*at)++;
    return c == 'r' ? '\r' : c == 'n' ? '\n' : c;
}

const char *rg_emulated_head(struct rg_emulated *emulated, enum rg_emulated_kind kind)
{
    size_t size = 0;
    watch_ask(emulated, kind);
    const char *at = member(emulated, "\"head\":");
    if (*at++ == '"') {
        while (*at != '"') {
            RG_CHECK(size < sizeof(emulated->head) - 1);
            emulated->head[size++] = unescape(&at);
        }
    }
    emulated->head[size] = '\0';
    return emulated->head;
}

uint32_t rg_emulated_objects(struct rg_emulated *emulated)
{
    uint32_t count = 0;
    ask(emulated, "GET", "/storage/v1/b/bucket/o?fields=items(name)", NULL, 0);
    const char *at = (const char *)emulated->body;
    while ((at = strstr(at, "\"name\":")) != NULL) {
        at++;
        count++;
    }
    return count;
}

uint32_t rg_emulated_uploads(struct rg_emulated *emulated)
{
    ask(emulated, "GET", "/unfinished_uploads", NULL, 0);
    return (uint32_t)(strtoul(member(emulated, "\"resumable\":"), NULL, 10) +
                      strtoul(member(emulated, "\"multipart\":"), NULL, 10));
}

const uint8_t *rg_emulated_content(struct rg_emulated *emulated, const char *name,
                                   uint64_t *out_size)
{
    char target[256];
    snprintf(target, sizeof(target), "/bucket/%s", name);
    ask(emulated, "GET", target, NULL, 0);
    *out_size = emulated->status == 200 ? emulated->body_size : *out_size;
    return emulated->status == 200 ? emulated->body : NULL;
}

void rg_emulated_put(struct rg_emulated *emulated, const char *name, const void *data, size_t size)
{
    char target[256];
    snprintf(target, sizeof(target), "/bucket/%s", name);
    ask(emulated, "PUT", target, data, size);
    RG_CHECK_EQ(emulated->status, 200);
}

void rg_emulated_bucket(struct rg_emulated *emulated, bool is_there)
{
    ask(emulated, is_there ? "PUT" : "DELETE", "/bucket", NULL, 0);
    RG_CHECK_EQ(emulated->status, is_there ? 200 : 204);
}
