/* The scripted Cloud Storage: see sim_gcs.h. The life of a connection's session: bytes are gathered
 * until a request is complete -> it is done, in the books -> the whole answer is composed -> it is
 * delivered, in pieces and perhaps not to its end -> the next request. */
#include "tests/support/sim_gcs.h"

#include "gcs/wire/checksum.h"
#include "http/h1_decoder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX 6
#define RETRY_AFTER_S_MAX 3
#define HANG_UP_NS_MAX (20 * RG_NS_PER_MS)
#define LISTED_GENERATION 5000
#define RESULTS_MAX 1000
#define NUMBER_NONE UINT64_MAX

struct rg_sim_gcs {
    struct rg_sim *sim;
    struct rg_sim_gcs_options options;
    uint64_t size_seed;
    struct rg_sim_gcs_object *objects;
    uint64_t trouble_counts[RG_SIM_GCS_TROUBLE_COUNT];
};

/* What has come on a connection and was not used yet. */
struct session {
    uint8_t *data;
    size_t size;
};

/* A complete request, and the answer while it is composed. */
struct exchange {
    struct rg_sim_gcs *gcs;
    struct rg_sim_end *end;
    const struct rg_h1_head *head;
    const uint8_t *body;
    struct rg_sim_gcs_object *object; /* NULL: it is about none */
    uint32_t index;
    uint64_t range_first, range_last; /* of a media read; NUMBER_NONE: not given */
    bool close;
    size_t body_at; /* where in the answer the body begins */
    FILE *out;
    char *answer;
    size_t answer_size;
};

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

uint64_t rg_sim_gcs_size(const struct rg_sim_gcs *gcs, uint32_t index, int64_t generation)
{
    uint64_t number = mix(gcs->size_seed, mix(index, (uint64_t)generation));
    uint64_t limit = gcs->options.object_size_max;
    /* A quarter are small, down to none at all. */
    limit = number % 4 == 0 ? RG_MIN(limit, (uint64_t)16) : limit;
    return (number >> 8) % (limit + 1);
}

void rg_sim_gcs_fill(uint32_t index, int64_t generation, uint64_t offset, uint8_t *out, size_t size)
{
    uint64_t seed = mix(index, (uint64_t)generation);
    for (size_t i = 0; i < size; i++) {
        uint64_t at = offset + i;
        out[i] = (uint8_t)((seed >> at % 8 * 8) + at / 8 * 37 + at / 2048);
    }
}

void rg_sim_gcs_listed_name(uint32_t number, char out_name[static RG_SIM_GCS_NAME_SIZE_MAX])
{
    snprintf(out_name, RG_SIM_GCS_NAME_SIZE_MAX, "listed/%06" PRIu32, number);
}

uint64_t rg_sim_gcs_listed_size(uint32_t number)
{
    return UINT64_C(5000000000) * number;
}

void rg_sim_gcs_token(uint32_t number, char out_token[static RG_SIM_GCS_NAME_SIZE_MAX])
{
    snprintf(out_token, RG_SIM_GCS_NAME_SIZE_MAX, "from=%" PRIu32 "&+", number);
}

static int hex_value(char digit)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = memchr(digits, digit, sizeof(digits) - 1);
    return at != NULL ? (int)(at - digits) : -1;
}

/* Decodes the percent-encoding of [from, end). What does not fit is cut off: no name of ours is. */
static void decode(const char *from, const char *end, char out[static RG_SIM_GCS_NAME_SIZE_MAX])
{
    size_t size = 0;
    while (from < end && size < RG_SIM_GCS_NAME_SIZE_MAX - 1) {
        bool escaped =
            *from == '%' && end - from > 2 && hex_value(from[1]) >= 0 && hex_value(from[2]) >= 0;
        out[size++] = escaped ? (char)(hex_value(from[1]) * 16 + hex_value(from[2])) : *from;
        from += escaped ? 3 : 1;
    }
    out[size] = '\0';
}

/* The value of a parameter of the query. False: there is none. */
static bool query_find(const struct rg_h1_slice *target, const char *name,
                       char out[static RG_SIM_GCS_NAME_SIZE_MAX])
{
    const char *end = target->data + target->size;
    const char *at = memchr(target->data, '?', target->size);
    size_t name_size = strlen(name);
    while (at != NULL) {
        at++;
        const char *next = memchr(at, '&', (size_t)(end - at));
        const char *value_end = next != NULL ? next : end;
        if ((size_t)(value_end - at) > name_size && memcmp(at, name, name_size) == 0 &&
            at[name_size] == '=') {
            decode(at + name_size + 1, value_end, out);
            return true;
        }
        at = next;
    }
    return false;
}

static uint64_t query_number(const struct rg_h1_slice *target, const char *name)
{
    char text[RG_SIM_GCS_NAME_SIZE_MAX];
    return query_find(target, name, text) ? strtoull(text, NULL, 10) : NUMBER_NONE;
}

static void object_find(struct exchange *exchange, const char *name)
{
    char wanted[RG_SIM_GCS_NAME_SIZE_MAX];
    unsigned long index = strtoul(name, NULL, 10);
    struct rg_sim_gcs *gcs = exchange->gcs;
    if (index >= gcs->options.object_count) {
        return;
    }
    rg_sim_gcs_name((uint32_t)index, wanted);
    if (strcmp(wanted, name) == 0) {
        exchange->index = (uint32_t)index;
        exchange->object = &gcs->objects[index];
    }
}

static void head_begin(struct exchange *exchange, unsigned status)
{
    struct rg_sim_gcs *gcs = exchange->gcs;
    if (strikes(gcs, RG_SIM_GCS_INTERIM)) {
        fputs("HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n", exchange->out);
    }
    fprintf(exchange->out, "HTTP/1.1 %u Simulated\r\nServer: simulated\r\n", status);
    if (strikes(gcs, RG_SIM_GCS_CLOSE)) {
        exchange->close = true;
        fputs("Connection: close\r\n", exchange->out);
    }
}

static void head_end(struct exchange *exchange)
{
    fputs("\r\n", exchange->out);
    fflush(exchange->out);
    exchange->body_at = exchange->answer_size;
}

static void answer_text(struct exchange *exchange, unsigned status, const char *field,
                        const char *text, size_t size)
{
    head_begin(exchange, status);
    fprintf(exchange->out, "Content-Type: application/json\r\n%sContent-Length: %zu\r\n", field,
            size);
    head_end(exchange);
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

static void write_crc(FILE *out, uint32_t crc)
{
    char text[RG_CRC32C_TEXT_SIZE];
    rg_crc32c_format(crc, text);
    fwrite(text, 1, sizeof(text), out);
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

static void answer_media_bytes(struct exchange *exchange, uint8_t *data, uint64_t first,
                               uint64_t size)
{
    struct rg_sim_gcs *gcs = exchange->gcs;
    bool chunked = strikes(gcs, RG_SIM_GCS_CHUNKED);
    bool until_close = !chunked && strikes(gcs, RG_SIM_GCS_UNTIL_CLOSE);
    uint8_t *part = data + first;
    if (size > 0 && strikes(gcs, RG_SIM_GCS_CORRUPT)) {
        uint8_t bit = (uint8_t)(1u << rg_sim_random_below(gcs->sim, 8));
        part[rg_sim_random_below(gcs->sim, size)] ^= bit;
    }
    if (chunked) {
        fputs("Transfer-Encoding: chunked\r\n", exchange->out);
    } else if (!until_close) {
        fprintf(exchange->out, "Content-Length: %" PRIu64 "\r\n", size);
    }
    head_end(exchange);
    if (chunked) {
        write_chunked(exchange, part, size);
    } else {
        fwrite(part, 1, size, exchange->out);
    }
    exchange->close |= until_close;
}

static void answer_media(struct exchange *exchange)
{
    struct rg_sim_gcs *gcs = exchange->gcs;
    struct rg_sim_gcs_object *object = exchange->object;
    uint64_t size = rg_sim_gcs_size(gcs, exchange->index, object->generation);
    bool part = exchange->range_first != NUMBER_NONE;
    uint64_t first = part ? exchange->range_first : 0;
    if (part && first >= size) {
        answer_error(exchange, 416, "");
        return;
    }
    uint64_t end = size;
    if (part && exchange->range_last != NUMBER_NONE) {
        end = RG_MIN(end, exchange->range_last + 1);
    }
    if (part && end - first > 1 && strikes(gcs, RG_SIM_GCS_SHORT_RANGE)) {
        end = first + 1 + rg_sim_random_below(gcs->sim, end - first - 1);
    }
    uint8_t *data = malloc(size + 1);
    RG_ASSERT(data != NULL);
    rg_sim_gcs_fill(exchange->index, object->generation, 0, data, size);
    head_begin(exchange, part ? 206 : 200);
    fprintf(exchange->out,
            "x-goog-generation: %" PRId64 "\r\nx-goog-stored-content-length: %" PRIu64
            "\r\nx-goog-hash: crc32c=",
            object->generation, size);
    write_crc(exchange->out, rg_crc32c(0, data, size));
    fputs("\r\n", exchange->out);
    if (part) {
        fprintf(exchange->out, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n",
                first, end - 1, size);
    }
    answer_media_bytes(exchange, data, first, end - first);
    free(data);
    object->generation += strikes(gcs, RG_SIM_GCS_REPLACE);
}

static void do_media(struct exchange *exchange)
{
    const struct rg_h1_slice *range = rg_h1_find(exchange->head, "range");
    uint64_t generation = query_number(&exchange->head->target, "generation");
    struct rg_sim_gcs_object *object = exchange->object;
    if (object == NULL || object->generation == 0 ||
        (generation != NUMBER_NONE && generation != (uint64_t)object->generation)) {
        answer_error(exchange, 404, "");
        return;
    }
    exchange->range_first = exchange->range_last = NUMBER_NONE;
    if (range != NULL) {
        char text[RG_SIM_GCS_NAME_SIZE_MAX] = "";
        memcpy(text, range->data, RG_MIN((size_t)range->size, sizeof(text) - 1));
        (void)sscanf(text, "bytes=%" SCNu64 "-%" SCNu64, &exchange->range_first,
                     &exchange->range_last);
        if (exchange->range_last < exchange->range_first) {
            exchange->range_first = NUMBER_NONE;
        }
    }
    answer_media(exchange);
}

static void do_upload(struct exchange *exchange)
{
    struct rg_sim_gcs_object *object = exchange->object;
    uint64_t match = query_number(&exchange->head->target, "ifGenerationMatch");
    if (object == NULL) {
        answer_error(exchange, 400, "");
        return;
    }
    if (match != NUMBER_NONE && match != (uint64_t)object->generation) {
        answer_error(exchange, 412, "");
        return;
    }
    size_t size = (size_t)exchange->head->content_length;
    uint64_t expected_size =
        rg_sim_gcs_size(exchange->gcs, exchange->index, RG_SIM_GCS_GENERATION_FIRST);
    uint8_t *expected = malloc(expected_size + 1);
    RG_ASSERT(expected != NULL);
    rg_sim_gcs_fill(exchange->index, RG_SIM_GCS_GENERATION_FIRST, 0, expected, expected_size);
    object->bad_put_count += size != expected_size || memcmp(exchange->body, expected, size) != 0;
    free(expected);
    object->put_count++;
    object->generation =
        object->generation != 0 ? object->generation + 1 : RG_SIM_GCS_GENERATION_FIRST;
    char crc[RG_CRC32C_TEXT_SIZE + 1] = "", text[256];
    rg_crc32c_format(rg_crc32c(0, exchange->body, size), crc);
    int text_size = snprintf(text, sizeof(text),
                             "{\"kind\":\"storage#object\",\"generation\":\"%" PRId64
                             "\",\"size\":\"%zu\",\"crc32c\":\"%s\"}",
                             object->generation, size, crc);
    answer_text(exchange, 200, "", text, (size_t)text_size);
}

static void list_write(struct exchange *exchange, FILE *out)
{
    const struct rg_h1_slice *target = &exchange->head->target;
    char token[RG_SIM_GCS_NAME_SIZE_MAX], name[RG_SIM_GCS_NAME_SIZE_MAX];
    unsigned first = 0;
    if (query_find(target, "pageToken", token)) {
        (void)sscanf(token, "from=%u", &first);
    }
    uint64_t count_max = RG_MIN(query_number(target, "maxResults"), (uint64_t)RESULTS_MAX);
    uint64_t end = RG_MIN(first + count_max, (uint64_t)exchange->gcs->options.listed_count);
    fputs("{\"kind\":\"storage#objects\"", out);
    if (end < exchange->gcs->options.listed_count) {
        rg_sim_gcs_token((uint32_t)end, token);
        fprintf(out, ",\"nextPageToken\":\"%s\"", token);
    }
    for (uint64_t i = first; i < end; i++) {
        rg_sim_gcs_listed_name((uint32_t)i, name);
        fprintf(out,
                "%s{\"name\":\"%s\",\"size\":\"%" PRIu64 "\",\"generation\":\"%" PRIu64
                "\",\"crc32c\":\"",
                i == first ? ",\"items\":[" : ",", name, rg_sim_gcs_listed_size((uint32_t)i),
                LISTED_GENERATION + i);
        write_crc(out, (uint32_t)i);
        fputs(i + 1 == end ? "\"}]" : "\"}", out);
    }
    fputs("}", out);
}

static void do_list(struct exchange *exchange)
{
    const struct rg_sim_gcs_options *options = &exchange->gcs->options;
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    RG_ASSERT(out != NULL);
    if (options->list != NULL) {
        options->list(options->list_context, exchange->head->target, out);
    } else {
        list_write(exchange, out);
    }
    fclose(out);
    answer_text(exchange, 200, "", text, size);
    free(text);
}

static bool slice_begins(const struct rg_h1_slice *slice, const char *text)
{
    size_t size = strlen(text);
    return slice->size >= size && memcmp(slice->data, text, size) == 0;
}

/* Finds what the request is about, and whether it had to wait. */
static void object_of_request(struct exchange *exchange, const char *path, bool upload)
{
    const struct rg_h1_slice *target = &exchange->head->target;
    char name[RG_SIM_GCS_NAME_SIZE_MAX] = "";
    if (upload) {
        (void)query_find(target, "name", name);
    } else {
        const char *end = memchr(target->data, '?', target->size);
        size_t path_size = strlen(path);
        size_t size = end != NULL ? (size_t)(end - target->data) : target->size;
        if (size <= path_size + 1) {
            return;
        }
        decode(target->data + path_size + 1, target->data + size, name);
    }
    object_find(exchange, name);
    struct rg_sim_gcs_object *object = exchange->object;
    if (object != NULL) {
        object->request_count++;
        object->early_count += rg_sim_now_ns(exchange->gcs->sim) < object->not_before_ns;
    }
}

static void request_do(struct exchange *exchange)
{
    static const char upload[] = "/upload/storage/v1/b/" RG_SIM_GCS_BUCKET "/o";
    static const char objects[] = "/storage/v1/b/" RG_SIM_GCS_BUCKET "/o";
    const struct rg_h1_slice *target = &exchange->head->target;
    bool is_upload = slice_begins(&exchange->head->method, "POST");
    const char *path = is_upload ? upload : objects;
    if (!slice_begins(target, path)) {
        answer_error(exchange, 404, "");
        return;
    }
    object_of_request(exchange, path, is_upload);
    if (answer_unwell(exchange)) {
        return;
    }
    if (is_upload) {
        do_upload(exchange);
    } else if (target->size > sizeof(objects) - 1 && target->data[sizeof(objects) - 1] == '/') {
        do_media(exchange);
    } else {
        do_list(exchange);
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

static void request_answer(struct rg_sim_end *end, const struct rg_h1_head *head,
                           const uint8_t *body)
{
    struct exchange exchange = {
        .gcs = rg_sim_end_context(end),
        .end = end,
        .head = head,
        .body = body,
    };
    exchange.out = open_memstream(&exchange.answer, &exchange.answer_size);
    RG_ASSERT(exchange.out != NULL);
    request_do(&exchange);
    fclose(exchange.out);
    answer_deliver(&exchange);
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
    request_answer(end, &head, session->data + head_size);
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

struct rg_sim_gcs *rg_sim_gcs_create(struct rg_sim *sim, const struct rg_sim_gcs_options *options)
{
    RG_ASSERT(options->stored_count <= options->object_count && options->object_count > 0);
    struct rg_sim_gcs *gcs = calloc(1, sizeof(*gcs));
    RG_ASSERT(gcs != NULL);
    gcs->sim = sim;
    gcs->options = *options;
    gcs->size_seed = rg_sim_random_below(sim, UINT64_MAX);
    gcs->objects = calloc(options->object_count, sizeof(*gcs->objects));
    RG_ASSERT(gcs->objects != NULL);
    for (uint32_t i = 0; i < options->stored_count; i++) {
        gcs->objects[i].generation = RG_SIM_GCS_GENERATION_FIRST;
    }
    return gcs;
}

void rg_sim_gcs_destroy(struct rg_sim_gcs *gcs)
{
    if (gcs != NULL) {
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
