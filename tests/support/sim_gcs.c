/* See sim_gcs.h. The life of a connection's session: bytes are gathered until a request is complete
 * -> it is noted in the books -> the emulator answers it, as a call within a call -> its answer is
 * written out, with what goes wrong -> it is delivered, in pieces and perhaps not to its end -> the
 * next request. */
#include "tests/support/sim_gcs.h"

#include "emulator/handler.h"
#include "emulator/request/nested.h"
#include "emulator/request/reply.h"
#include "emulator/store/writer.h"
#include "gcs/wire/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECES_MAX 6
#define RETRY_AFTER_S_MAX 3
#define HANG_UP_NS_MAX (20 * RG_NS_PER_MS)
/* When simulations begin, in seconds since 1970. */
#define EPOCH_S 1700000000

struct rg_sim_gcs {
    struct rg_sim *sim;
    struct rg_sim_gcs_options options;
    struct rg_store *store;
    struct rg_handler *handler;
    struct rg_bucket *bucket;
    uint64_t size_seed;
    struct rg_sim_gcs_object *objects;
    uint64_t trouble_counts[RG_SIM_GCS_TROUBLE_COUNT];
};

/* What has come on a connection and was not used yet. */
struct session {
    uint8_t *data;
    size_t size;
};

/* A complete request, and the answer while it is written out. */
struct exchange {
    struct rg_sim_gcs *gcs;
    struct rg_sim_end *end;
    struct rg_nested *nested;         /* the emulator's call */
    struct rg_sim_gcs_object *object; /* NULL: it is about none */
    uint32_t index;
    bool close;
    size_t body_at; /* where in the answer the body begins */
    FILE *out;
    char *answer;
    size_t answer_size;
};

/* The simulation that the emulator's clock is of; NULL: it is the machine's. */
static struct rg_sim *clock_sim;

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock_sim == NULL) {
        return __real_clock_gettime(clock, out);
    }
    uint64_t now_ns = rg_sim_now_ns(clock_sim);
    *out = (struct timespec){.tv_sec = (time_t)(EPOCH_S + now_ns / RG_NS_PER_S),
                             .tv_nsec = (long)(now_ns % RG_NS_PER_S)};
    return 0;
}

static bool strikes(struct rg_sim_gcs *gcs, enum rg_sim_gcs_trouble trouble)
{
    uint32_t share = gcs->options.troubles[trouble];
    if (share == 0 || rg_sim_random_below(gcs->sim, RG_SIM_ALWAYS) >= share) {
        return false;
    }
    gcs->trouble_counts[trouble]++;
    return true;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void rg_sim_gcs_name(uint32_t index, char out_name[static RG_SIM_GCS_NAME_SIZE_MAX])
{
    /* Not one that can be sent as it is. */
    snprintf(out_name, RG_SIM_GCS_NAME_SIZE_MAX, "%" PRIu32 "/a name? 100%% + \xc3\xbc", index);
}

uint64_t rg_sim_gcs_size(const struct rg_sim_gcs *gcs, uint32_t index, uint32_t version)
{
    uint64_t number = mix(gcs->size_seed, mix(index, version));
    uint64_t limit = gcs->options.object_size_max;
    /* A quarter are small, down to none at all. */
    limit = number % 4 == 0 ? RG_MIN(limit, (uint64_t)16) : limit;
    return (number >> 8) % (limit + 1);
}

void rg_sim_gcs_fill(uint32_t index, uint32_t version, uint64_t offset, uint8_t *out, size_t size)
{
    uint64_t seed = mix(index, version);
    for (size_t i = 0; i < size; i++) {
        uint64_t at = offset + i;
        out[i] = (uint8_t)((seed >> at % 8 * 8) + at / 8 * 37 + at / 2048);
    }
}

void rg_sim_gcs_listed_name(uint32_t number, char out_name[static RG_SIM_GCS_NAME_SIZE_MAX])
{
    snprintf(out_name, RG_SIM_GCS_NAME_SIZE_MAX, RG_SIM_GCS_LISTED "%08" PRIu32, number);
}

static void object_find(struct exchange *exchange, struct rg_h1_slice name)
{
    char wanted[RG_SIM_GCS_NAME_SIZE_MAX];
    unsigned long index = name.size > 0 ? strtoul(name.data, NULL, 10) : ULONG_MAX;
    struct rg_sim_gcs *gcs = exchange->gcs;
    if (index >= gcs->options.object_count) {
        return;
    }
    rg_sim_gcs_name((uint32_t)index, wanted);
    if (rg_text_equals(name, wanted)) {
        exchange->index = (uint32_t)index;
        exchange->object = &gcs->objects[index];
    }
}

/* Writes out a head without its end, with fields of ours. `framing` replaces its Content-Length. */
static void head_write(struct exchange *exchange, const char *head, size_t size,
                       const char *framing)
{
    static const char length[] = "\r\nContent-Length: ";
    struct rg_sim_gcs *gcs = exchange->gcs;
    if (strikes(gcs, RG_SIM_GCS_INTERIM)) {
        fputs("HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n", exchange->out);
    }
    const char *at = framing != NULL ? memmem(head, size, length, sizeof(length) - 1) : NULL;
    size_t before = at != NULL ? (size_t)(at + 2 - head) : size - 2;
    fwrite(head, 1, before, exchange->out);
    if (at != NULL) {
        const char *behind = (const char *)memchr(at + 2, '\n', size - before) + 1;
        fwrite(behind, 1, size - 2 - (size_t)(behind - head), exchange->out);
        fputs(framing, exchange->out);
    }
    if (strikes(gcs, RG_SIM_GCS_CLOSE)) {
        exchange->close = true;
        fputs("Connection: close\r\n", exchange->out);
    }
    fputs("\r\n", exchange->out);
    fflush(exchange->out);
    exchange->body_at = exchange->answer_size;
}

static void answer_text(struct exchange *exchange, unsigned status, const char *field,
                        const char *text, size_t size)
{
    char head[256];
    int head_size = snprintf(head, sizeof(head),
                             "HTTP/1.1 %u Simulated\r\nContent-Type: application/json\r\n%s"
                             "Content-Length: %zu\r\n\r\n",
                             status, field, size);
    head_write(exchange, head, (size_t)head_size, NULL);
    fwrite(text, 1, size, exchange->out);
}

static void answer_error(struct exchange *exchange, unsigned status, const char *field)
{
    char text[256];
    int size = snprintf(text, sizeof(text),
                        "{\"error\":{\"code\":%u,\"message\":\"simulated %u\",\"errors\":[]}}",
                        status, status);
    answer_text(exchange, status, field, text, (size_t)size);
}

/* True: the server would rather not, and said so. */
static bool answer_unwell(struct exchange *exchange)
{
    struct rg_sim_gcs *gcs = exchange->gcs;
    static const unsigned errors[] = {500, 502, 504};
    if (strikes(gcs, RG_SIM_GCS_ERROR)) {
        answer_error(exchange, errors[rg_sim_random_below(gcs->sim, RG_ARRAY_LEN(errors))], "");
        return true;
    }
    if (!strikes(gcs, RG_SIM_GCS_THROTTLE)) {
        return false;
    }
    char field[64];
    uint64_t after_s = 1 + rg_sim_random_below(gcs->sim, RETRY_AFTER_S_MAX);
    snprintf(field, sizeof(field), "Retry-After: %" PRIu64 "\r\n", after_s);
    if (exchange->object != NULL) {
        exchange->object->not_before_ns = rg_sim_now_ns(gcs->sim) + after_s * RG_NS_PER_S;
    }
    answer_error(exchange, rg_sim_random_below(gcs->sim, 2) == 0 ? 429 : 503, field);
    return true;
}

static void write_chunked(struct exchange *exchange, const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t part = 1 + rg_sim_random_below(exchange->gcs->sim, size);
        fprintf(exchange->out, "%zx\r\n", part);
        fwrite(data, 1, part, exchange->out);
        fputs("\r\n", exchange->out);
        data += part;
        size -= part;
    }
    fputs("0\r\n\r\n", exchange->out);
}

/* The body of an object, perhaps damaged, or framed in another way. */
static void answer_media(struct exchange *exchange, uint8_t *data, size_t size)
{
    struct rg_sim_gcs *gcs = exchange->gcs;
    const struct rg_h1_encoder *head = &exchange->nested->encoder;
    bool chunked = strikes(gcs, RG_SIM_GCS_CHUNKED);
    bool until_close = !chunked && strikes(gcs, RG_SIM_GCS_UNTIL_CLOSE);
    if (size > 0 && strikes(gcs, RG_SIM_GCS_CORRUPT)) {
        uint8_t bit = (uint8_t)(1u << rg_sim_random_below(gcs->sim, 8));
        data[rg_sim_random_below(gcs->sim, size)] ^= bit;
    }
    head_write(exchange, head->data, head->size,
               chunked       ? "Transfer-Encoding: chunked\r\n"
               : until_close ? ""
                             : NULL);
    if (chunked) {
        write_chunked(exchange, data, size);
    } else {
        fwrite(data, 1, size, exchange->out);
    }
    exchange->close |= until_close;
}

/* Copies the body of the emulator's answer. Returns owned. */
static uint8_t *body_take(struct rg_nested *nested, size_t *out_size)
{
    size_t size = (size_t)rg_call_of(&nested->call)->response.body_size;
    uint8_t *body = malloc(size + 1);
    RG_ASSERT(body != NULL);
    for (size_t done = 0; done < size;) {
        const uint8_t *data;
        size_t count = rg_handler_events.produce(&nested->call, done, &data);
        memcpy(body + done, data, count);
        done += count;
    }
    *out_size = size;
    return body;
}

/* False: the path or the query is not well encoded. */
static bool nested_begin(struct rg_sim_gcs *gcs, struct rg_nested *nested,
                         const struct rg_text *head)
{
    struct rg_server_call outer = {.context = gcs->handler, .now_ns = rg_sim_now_ns(gcs->sim)};
    rg_nested_start(nested, &outer);
    return rg_nested_parse(nested, head);
}

static void version_note(struct rg_sim_gcs *gcs, uint32_t index, int64_t generation)
{
    struct rg_sim_gcs_object *book = &gcs->objects[index];
    book->generations =
        reallocarray(book->generations, book->version_count + 1, sizeof(*book->generations));
    RG_ASSERT(book->generations != NULL);
    book->generations[book->version_count++] = generation;
}

/* Stores the next version of an object. */
static void version_store(struct rg_sim_gcs *gcs, uint32_t index)
{
    static const struct rg_store_conditions conditions;
    struct rg_store_object_info info = {.content_type = "text/plain"};
    struct rg_store_writer *writer;
    uint32_t version = gcs->objects[index].version_count + 1;
    uint64_t size = rg_sim_gcs_size(gcs, index, version);
    char name[RG_SIM_GCS_NAME_SIZE_MAX];
    uint8_t *data = malloc(size + 1);
    RG_ASSERT(data != NULL);
    rg_sim_gcs_name(index, name);
    rg_sim_gcs_fill(index, version, 0, data, size);
    int rc = rg_store_writer_create(&writer, gcs->store, rg_text_slice(RG_SIM_GCS_BUCKET),
                                    rg_text_slice(name), size);
    RG_ASSERT(rc == 0);
    rc = rg_store_writer_append(writer, data, size);
    RG_ASSERT(rc == 0);
    rc = rg_store_writer_commit(writer, &conditions, &info, &info);
    RG_ASSERT(rc == 0);
    version_note(gcs, index, info.generation);
    free(data);
}

/* The generation that is stored now. */
static int64_t generation_find(struct rg_sim_gcs *gcs, uint32_t index)
{
    struct rg_store_object object;
    char name[RG_SIM_GCS_NAME_SIZE_MAX];
    rg_sim_gcs_name(index, name);
    int rc = rg_bucket_open_object(gcs->bucket, rg_text_slice(name), &object);
    RG_ASSERT(rc == 0);
    int64_t generation = object.info.generation;
    rg_store_object_close(&object);
    return generation;
}

/* An upload that took effect. */
static void upload_note(struct exchange *exchange, struct rg_h1_slice body)
{
    uint64_t size = rg_sim_gcs_size(exchange->gcs, exchange->index, 1);
    uint8_t *expected = malloc(size + 1);
    RG_ASSERT(expected != NULL);
    rg_sim_gcs_fill(exchange->index, 1, 0, expected, size);
    exchange->object->put_count++;
    exchange->object->bad_put_count += body.size != size || memcmp(body.data, expected, size) != 0;
    free(expected);
    version_note(exchange->gcs, exchange->index, generation_find(exchange->gcs, exchange->index));
}

/* Makes the range that a read asks for shorter. */
static void range_shorten(struct exchange *exchange, char text[static 64])
{
    struct rg_h1_head *head = &exchange->nested->head;
    struct rg_sim_gcs *gcs = exchange->gcs;
    uint64_t first, size;
    for (uint32_t i = 0; i < head->header_count && exchange->object->version_count > 0; i++) {
        struct rg_h1_slice *value = &head->headers[i].value;
        uint64_t stored = rg_sim_gcs_size(gcs, exchange->index, exchange->object->version_count);
        if (rg_h1_find(head, "range") == value &&
            rg_api_request_range(&exchange->nested->request, stored, &first, &size) == 1 &&
            size > 1 && strikes(gcs, RG_SIM_GCS_SHORT_RANGE)) {
            size = 1 + rg_sim_random_below(gcs->sim, size - 1);
            snprintf(text, 64, "bytes=%" PRIu64 "-%" PRIu64, first, first + size - 1);
            *value = rg_text_slice(text);
        }
    }
}

/* Lets the emulator answer. */
static void request_run(struct exchange *exchange, struct rg_h1_slice body)
{
    struct rg_nested *nested = exchange->nested;
    bool is_upload = nested->request.route == RG_ROUTE_JSON_UPLOAD;
    char range[64];
    if (exchange->object != NULL) {
        range_shorten(exchange, range);
    }
    rg_nested_run(nested, body);
    size_t size;
    uint8_t *answer = body_take(nested, &size);
    unsigned status = rg_reply_status(&nested->call);
    if (rg_call_of(&nested->call)->object.type != NULL) {
        answer_media(exchange, answer, size);
        if (exchange->object != NULL && strikes(exchange->gcs, RG_SIM_GCS_REPLACE)) {
            version_store(exchange->gcs, exchange->index);
        }
    } else {
        head_write(exchange, nested->encoder.data, nested->encoder.size, NULL);
        fwrite(answer, 1, size, exchange->out);
    }
    free(answer);
    if (is_upload && status == 200 && exchange->object != NULL) {
        upload_note(exchange, body);
    }
}

static void answer_list(struct exchange *exchange)
{
    const struct rg_sim_gcs_options *options = &exchange->gcs->options;
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    RG_ASSERT(out != NULL);
    options->list(options->list_context, exchange->nested->head.target, out);
    fclose(out);
    answer_text(exchange, 200, "", text, size);
    free(text);
}

/* Finds what the request is about, and whether it had to wait. */
static void request_note(struct exchange *exchange)
{
    const struct rg_api_request *request = &exchange->nested->request;
    bool is_upload = request->route == RG_ROUTE_JSON_UPLOAD;
    object_find(exchange, is_upload ? request->params[RG_PARAM_NAME] : request->object);
    struct rg_sim_gcs_object *object = exchange->object;
    if (object != NULL) {
        object->request_count++;
        object->early_count += rg_sim_now_ns(exchange->gcs->sim) < object->not_before_ns;
    }
}

static void end_close(void *context)
{
    rg_sim_close(context);
}

/* Sends the first `size` bytes of the answer, whole or in pieces; returns when the last goes. */
static uint64_t answer_send(struct exchange *exchange, size_t size)
{
    struct rg_sim_gcs *gcs = exchange->gcs;
    uint64_t pieces = 1, delay_ns = 0;
    if (gcs->options.pause_ns_max > 0 && strikes(gcs, RG_SIM_GCS_SLOW)) {
        pieces = 1 + rg_sim_random_below(gcs->sim, PIECES_MAX);
        delay_ns = rg_sim_random_below(gcs->sim, gcs->options.pause_ns_max);
    }
    for (size_t at = 0; at < size;) {
        size_t piece = pieces-- > 1 ? rg_sim_random_below(gcs->sim, size - at) : size - at;
        rg_sim_write_after(exchange->end, delay_ns, exchange->answer + at, piece);
        at += piece;
        if (at < size) {
            delay_ns += rg_sim_random_below(gcs->sim, gcs->options.pause_ns_max);
        }
    }
    return delay_ns;
}

static void answer_deliver(struct exchange *exchange)
{
    struct rg_sim_gcs *gcs = exchange->gcs;
    if (strikes(gcs, RG_SIM_GCS_LOSE_ANSWER)) {
        rg_sim_reset(exchange->end);
        return;
    }
    bool truncate = strikes(gcs, RG_SIM_GCS_TRUNCATE);
    bool stall = !truncate && strikes(gcs, RG_SIM_GCS_STALL);
    size_t size = exchange->answer_size;
    if (truncate || stall) {
        /* Mostly in the body: heads are short. */
        size_t from = rg_sim_random_below(gcs->sim, 4) == 0 ? 0 : exchange->body_at;
        size = from + rg_sim_random_below(gcs->sim, size - from + 1);
    }
    uint64_t delay_ns = answer_send(exchange, size);
    if (stall) {
        return;
    }
    bool hang_up = strikes(gcs, RG_SIM_GCS_HANG_UP);
    if (hang_up) {
        delay_ns += rg_sim_random_below(gcs->sim, HANG_UP_NS_MAX);
    }
    if (hang_up || truncate || exchange->close) {
        rg_sim_after(gcs->sim, delay_ns, end_close, exchange->end);
    }
}

static void request_do(struct exchange *exchange, struct rg_h1_slice body)
{
    bool lists = exchange->nested->request.route == RG_ROUTE_JSON_OBJECTS;
    request_note(exchange);
    if (answer_unwell(exchange)) {
        return;
    }
    if (lists && exchange->gcs->options.list != NULL) {
        answer_list(exchange);
    } else {
        request_run(exchange, body);
    }
}

static void request_answer(struct rg_sim_end *end, const struct rg_text *head,
                           struct rg_h1_slice body)
{
    struct exchange exchange = {.gcs = rg_sim_end_context(end), .end = end};
    exchange.nested = malloc(sizeof(*exchange.nested));
    exchange.out = open_memstream(&exchange.answer, &exchange.answer_size);
    RG_ASSERT(exchange.out != NULL && exchange.nested != NULL);
    if (nested_begin(exchange.gcs, exchange.nested, head)) {
        request_do(&exchange, body);
    } else {
        answer_error(&exchange, 400, "");
    }
    rg_call_release(&exchange.nested->call);
    fclose(exchange.out);
    answer_deliver(&exchange);
    free(exchange.nested);
    free(exchange.answer);
}

/* Answers the first request of the session. False: it is not complete, or none. */
static bool session_advance(struct rg_sim_end *end, struct session *session)
{
    struct rg_h1_head head;
    int head_size = rg_h1_parse_request(&head, session->data, session->size, 0);
    if (head_size < 0) {
        if (head_size != -EAGAIN) {
            rg_sim_reset(end);
        }
        return false;
    }
    size_t rest = session->size - (size_t)head_size;
    if (head.framing == RG_H1_BODY_CHUNKED) {
        rg_sim_reset(end);
        return false;
    }
    size_t body_size = head.framing == RG_H1_BODY_LENGTH ? (size_t)head.content_length : 0;
    if (rest < body_size) {
        return false;
    }
    const struct rg_text text = {.data = (char *)session->data, .size = (size_t)head_size};
    request_answer(
        end, &text,
        (struct rg_h1_slice){(const char *)session->data + head_size, (uint32_t)body_size});
    session->size = rest - body_size;
    memmove(session->data, session->data + head_size + body_size, session->size);
    return session->size > 0;
}

static void gcs_connected(struct rg_sim_end *end)
{
    void **state = rg_sim_end_state(end);
    *state = calloc(1, sizeof(struct session));
    RG_ASSERT(*state != NULL);
}

static void gcs_received(struct rg_sim_end *end, const uint8_t *data, size_t size)
{
    struct session *session = *rg_sim_end_state(end);
    session->data = realloc(session->data, session->size + size);
    RG_ASSERT(session->data != NULL);
    memcpy(session->data + session->size, data, size);
    session->size += size;
    while (session_advance(end, session)) {
    }
}

static void gcs_gone(struct rg_sim_end *end)
{
    void **state = rg_sim_end_state(end);
    struct session *session = *state;
    free(session->data);
    free(session);
    *state = NULL;
}

static const struct rg_sim_service gcs_service = {
    .connected = gcs_connected,
    .received = gcs_received,
    .gone = gcs_gone,
};

static void emulator_open(struct rg_sim_gcs *gcs)
{
    static const char *const buckets[] = {RG_SIM_GCS_BUCKET};
    char listed[128];
    const char *const synthetic[] = {listed};
    const struct rg_store_options options = {
        .buckets = buckets,
        .bucket_count = 1,
        .strict_buckets = true,
        .synthetic = synthetic,
        .synthetic_count = gcs->options.listed_count > 0,
    };
    snprintf(listed, sizeof(listed), RG_SIM_GCS_BUCKET "/" RG_SIM_GCS_LISTED ":%" PRIu32 ":%d",
             gcs->options.listed_count, RG_SIM_GCS_LISTED_SIZE);
    char error[256];
    int rc = rg_store_open(&gcs->store, &options, error, sizeof(error));
    RG_ASSERT(rc == 0);
    const struct rg_handler_options handler = {.loop_count = 1, .store = gcs->store};
    rc = rg_handler_create(&gcs->handler, &handler);
    RG_ASSERT(rc == 0);
    gcs->bucket = rg_store_find_bucket(gcs->store, rg_text_slice(RG_SIM_GCS_BUCKET));
}

struct rg_sim_gcs *rg_sim_gcs_create(struct rg_sim *sim, const struct rg_sim_gcs_options *options)
{
    RG_ASSERT(options->stored_count <= options->object_count && options->object_count > 0);
    struct rg_sim_gcs *gcs = calloc(1, sizeof(*gcs));
    RG_ASSERT(gcs != NULL && clock_sim == NULL);
    clock_sim = gcs->sim = sim;
    gcs->options = *options;
    gcs->size_seed = rg_sim_random_below(sim, UINT64_MAX);
    gcs->objects = calloc(options->object_count, sizeof(*gcs->objects));
    RG_ASSERT(gcs->objects != NULL);
    emulator_open(gcs);
    for (uint32_t i = 0; i < options->stored_count; i++) {
        version_store(gcs, i);
    }
    return gcs;
}

void rg_sim_gcs_destroy(struct rg_sim_gcs *gcs)
{
    if (gcs != NULL) {
        clock_sim = NULL;
        rg_handler_destroy(gcs->handler);
        rg_store_close(gcs->store);
        for (uint32_t i = 0; i < gcs->options.object_count; i++) {
            free(gcs->objects[i].generations);
        }
        free(gcs->objects);
        free(gcs);
    }
}

void rg_sim_gcs_listen(struct rg_sim_gcs *gcs, const struct sockaddr *address)
{
    rg_sim_listen(gcs->sim, address, &gcs_service, gcs);
}

const struct rg_sim_gcs_object *rg_sim_gcs_object(const struct rg_sim_gcs *gcs, uint32_t index)
{
    RG_ASSERT(index < gcs->options.object_count);
    return &gcs->objects[index];
}

uint64_t rg_sim_gcs_trouble_count(const struct rg_sim_gcs *gcs, enum rg_sim_gcs_trouble trouble)
{
    RG_ASSERT(trouble < RG_SIM_GCS_TROUBLE_COUNT);
    return gcs->trouble_counts[trouble];
}

uint32_t rg_sim_gcs_version(const struct rg_sim_gcs *gcs, uint32_t index, int64_t generation)
{
    const struct rg_sim_gcs_object *object = rg_sim_gcs_object(gcs, index);
    for (uint32_t i = 0; i < object->version_count; i++) {
        if (object->generations[i] == generation) {
            return i + 1;
        }
    }
    return 0;
}

int64_t rg_sim_gcs_first(const struct rg_sim_gcs *gcs, uint32_t index)
{
    const struct rg_sim_gcs_object *object = rg_sim_gcs_object(gcs, index);
    return object->version_count > 0 ? object->generations[0] : 1;
}
