/* Drives the emulator's handler without sockets: the bytes of a request go in, the bytes of the
 * response come out. It stands where the HTTP server does, so it defines rg_server_head and
 * rg_server_respond: one file of a test program includes it, and that program has no server. */
#ifndef RG_TESTS_EMULATOR_DRIVER_H
#define RG_TESTS_EMULATOR_DRIVER_H

#include "emulator/handler.h"
#include "emulator/wire/text.h"
#include "http/h1_decoder.h"
#include "tests/support/test.h"

#include <stdarg.h>

#define RG_DRIVER_PIECE_WHOLE SIZE_MAX

/* A call in the hands of the driver. */
struct rg_driver_call {
    struct rg_server_call call;
    struct rg_h1_head request_head;
    struct rg_h1_encoder encoder;
    char head_bytes[RG_SERVER_HEAD_SIZE_MAX];
    struct rg_server_response response;
    bool responded;
};

/* What came back. `head` borrows from `bytes`. */
struct rg_driver_reply {
    unsigned status;
    struct rg_h1_head head;
    char bytes[RG_SERVER_HEAD_SIZE_MAX];
    struct rg_text body; /* With a NUL behind it. */
    struct rg_server_response response;
};

struct rg_h1_encoder *rg_server_head(struct rg_server_call *call)
{
    struct rg_driver_call *driver = RG_CONTAINER_OF(call, struct rg_driver_call, call);
    RG_CHECK(!driver->responded);
    return &driver->encoder;
}

void rg_server_respond(struct rg_server_call *call, const struct rg_server_response *response)
{
    struct rg_driver_call *driver = RG_CONTAINER_OF(call, struct rg_driver_call, call);
    RG_CHECK(!driver->responded);
    RG_CHECK(driver->encoder.error == 0 && driver->encoder.size > 0);
    driver->response = *response;
    driver->responded = true;
}

/* Hands over the head, and then the body in pieces of `piece` bytes until there is an answer. */
static inline void rg_driver_feed(struct rg_driver_call *driver, struct rg_handler *api,
                                  const void *request, size_t size, size_t piece)
{
    memset(&driver->call, 0, sizeof(driver->call));
    driver->responded = false;
    rg_h1_encoder_init(&driver->encoder, driver->head_bytes, sizeof(driver->head_bytes));
    int head_size = rg_h1_parse_request(&driver->request_head, request, size, 0);
    if (head_size <= 0) {
        rg_test_fail(__FILE__, __LINE__, "the request is malformed: %s",
                     rg_h1_error_text(driver->request_head.error));
    }
    driver->call.head = &driver->request_head;
    driver->call.context = api;
    driver->call.now_ns = 1;
    RG_CHECK_EQ(rg_handler_events.begin(&driver->call), 0);
    driver->call.head = NULL;
    const uint8_t *body = (const uint8_t *)request + head_size;
    for (size_t left = size - (size_t)head_size; left > 0 && !driver->responded;) {
        size_t count = RG_MIN(left, piece);
        RG_CHECK_EQ(rg_handler_events.body(&driver->call, body, count), 0);
        body += count;
        left -= count;
    }
}

/* The first half of an exchange, up to the answer. */
static inline void rg_driver_open(struct rg_driver_call *driver, struct rg_handler *api,
                                  const void *request, size_t size, size_t piece)
{
    rg_driver_feed(driver, api, request, size, piece);
    if (!driver->responded) {
        rg_handler_events.end(&driver->call);
    }
    RG_CHECK(driver->responded);
}

/* The second half: takes the answer. */
static inline void rg_driver_close(struct rg_driver_call *driver, struct rg_driver_reply *reply)
{
    bool head_request = rg_text_equals(driver->request_head.method, "HEAD");
    memset(reply, 0, sizeof(*reply));
    memcpy(reply->bytes, driver->head_bytes, driver->encoder.size);
    int size =
        rg_h1_parse_response(&reply->head, head_request, reply->bytes, driver->encoder.size, 0);
    RG_CHECK_EQ(size, driver->encoder.size);
    reply->status = reply->head.status;
    reply->response = driver->response;
    for (uint64_t offset = 0; offset < driver->response.body_size;) {
        const uint8_t *data;
        size_t count = rg_handler_events.produce(&driver->call, offset, &data);
        RG_CHECK(count > 0 && count <= driver->response.body_size - offset);
        rg_text_append(&reply->body, data, count);
        offset += count;
    }
    rg_handler_events.release(&driver->call);
    rg_text_append(&reply->body, "", 1);
    RG_CHECK(!reply->body.failed);
    reply->body.size--;
    if (!head_request && reply->status != 204 && reply->status != 304 &&
        reply->head.framing != RG_H1_BODY_CHUNKED) {
        RG_CHECK(reply->head.has_content_length);
        RG_CHECK_EQ(reply->head.content_length, driver->response.body_size);
    }
}

static inline void rg_driver_reply_fini(struct rg_driver_reply *reply)
{
    rg_text_fini(&reply->body);
}

static inline void rg_driver_exchange(struct rg_handler *api, const void *request, size_t size,
                                      size_t piece, struct rg_driver_reply *reply)
{
    struct rg_driver_call driver;
    rg_driver_open(&driver, api, request, size, piece);
    rg_driver_close(&driver, reply);
}

/* A request whose connection is lost before its body is complete. */
static inline void rg_driver_cut(struct rg_handler *api, const void *request, size_t size)
{
    struct rg_driver_call driver;
    rg_driver_feed(&driver, api, request, size, RG_DRIVER_PIECE_WHOLE);
    RG_CHECK(!driver.responded);
    rg_handler_events.release(&driver.call);
}

/* Sends a text. The reply is fini'd and filled again, so that one variable serves a test. */
RG_PRINTF(3, 4)
static inline void rg_driver_send(struct rg_handler *api, struct rg_driver_reply *reply,
                                  const char *format, ...)
{
    va_list args;
    char *text;
    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    RG_CHECK(size > 0);
    rg_driver_reply_fini(reply);
    rg_driver_exchange(api, text, (size_t)size, RG_DRIVER_PIECE_WHOLE, reply);
    free(text);
}

/* NULL when there is no such field. The text is valid until the next call. */
static inline const char *rg_driver_field(const struct rg_driver_reply *reply,
                                          const char *lower_case_name)
{
    static _Thread_local char text[1024];
    const struct rg_h1_slice *value = rg_h1_find(&reply->head, lower_case_name);
    if (value == NULL) {
        return NULL;
    }
    snprintf(text, sizeof(text), "%.*s", (int)value->size, value->data);
    return text;
}

/* What most tests have: one API over a store of 4 MiB, and the last answer. */
static uint64_t driver_memory_max = RG_MIB(4);
static struct rg_store *store;
static struct rg_handler *api;
static struct rg_driver_reply reply;

static inline void open_api(const char *const *synthetic, size_t count)
{
    char error[256] = "";
    struct rg_store_options options = {
        .synthetic = synthetic, .synthetic_count = count, .memory_max = driver_memory_max};
    if (rg_store_open(&store, &options, error, sizeof(error)) < 0) {
        rg_test_fail(__FILE__, __LINE__, "%s", error);
    }
    struct rg_handler_options api_options = {
        .store = store, .loop_count = 1, .tls = true, .seed = 1};
    RG_CHECK_EQ(rg_handler_create(&api, &api_options), 0);
}

static inline void close_api(void)
{
    rg_driver_reply_fini(&reply);
    rg_handler_destroy(api);
    rg_store_close(store);
}

static inline void put_xml(const char *path, const char *data)
{
    rg_driver_send(api, &reply, "PUT %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s", path,
                   strlen(data), data);
    RG_CHECK_EQ(reply.status, 200);
}

static inline void get(const char *target)
{
    rg_driver_send(api, &reply, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", target);
}

static inline void send_json(const char *method, const char *target, const char *json)
{
    rg_driver_send(api, &reply, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n%s",
                   method, target, strlen(json), json);
}

static inline void check_body_has(const char *text)
{
    if (strstr(reply.body.data, text) == NULL) {
        rg_test_fail(__FILE__, __LINE__, "'%s' is not in '%s'", text, reply.body.data);
    }
}

static inline void check_field(const char *name, const char *want)
{
    const char *got = rg_driver_field(&reply, name);
    RG_CHECK_STR(got != NULL ? got : "(none)", want);
}

static inline void check_body_lacks(const char *text)
{
    if (strstr(reply.body.data, text) != NULL) {
        rg_test_fail(__FILE__, __LINE__, "'%s' is in '%s'", text, reply.body.data);
    }
}

/* That the object is described with this MD5 wherever it is; NULL: with none. It lies in the bucket
 * "bucket", and its name needs no escapes. */
static inline void check_md5(const char *name, const char *md5)
{
    char target[256], member[64], hash[64];
    snprintf(member, sizeof(member), "\"md5Hash\":\"%s\"", md5 != NULL ? md5 : "");
    snprintf(hash, sizeof(hash), ",md5=%s", md5 != NULL ? md5 : "");
    static const char *const places[] = {"/", "?prefix="};
    for (size_t i = 0; i < RG_ARRAY_LEN(places); i++) {
        snprintf(target, sizeof(target), "/storage/v1/b/bucket/o%s%s", places[i], name);
        get(target);
        RG_CHECK_EQ(reply.status, 200);
        if (md5 != NULL) {
            check_body_has(member);
        } else {
            check_body_lacks("md5Hash");
        }
    }
    snprintf(target, sizeof(target), "/bucket/%s", name);
    get(target);
    const char *found = strchr(rg_driver_field(&reply, "x-goog-hash"), ',');
    RG_CHECK_STR(found != NULL ? found : "", md5 != NULL ? hash : "");
}

/* What `name` holds in the JSON of the last answer, as a string. */
static inline void json_member(const char *name, char *out, size_t out_size)
{
    char key[64];
    snprintf(key, sizeof(key), "\"%s\":\"", name);
    const char *at = strstr(reply.body.data, key);
    RG_CHECK(at != NULL);
    at += strlen(key);
    snprintf(out, out_size, "%.*s", (int)strcspn(at, "\""), at);
}

/* bucket/o with metadata of every kind. */
static inline void put_with_metadata(void)
{
    rg_driver_send(api, &reply,
                   "PUT /bucket/o HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
                   "Cache-Control: no-store\r\nx-goog-meta-one: 1\r\nx-goog-meta-Two: 2\r\n"
                   "x-goog-storage-class: NEARLINE\r\nContent-Length: 4\r\n\r\ndata");
    RG_CHECK_EQ(reply.status, 200);
}

#endif
