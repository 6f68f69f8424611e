/* Each part of the body holds a request. It is written out in the strict form that our parser
 * accepts, and carried out as a call within the call; see batch.h. Lines of parts may end in LF
 * alone. */
#include "emulator/api/json/batch.h"

#include "emulator/request/body.h"
#include "emulator/request/nested.h"
#include "emulator/wire/multipart.h"
#include "http/url.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

#define RESPONSE_BOUNDARY "batch_ringest-9f1c7d3e5b2a4860"
#define CONTENT_ID_SIZE_MAX 256
#define PAYER_FIELD "x-goog-user-project"

/* Of the whole request, for its parts. Of the fields that the service takes over from it, the payer
 * is the one that matters here. */
struct outer {
    struct rg_h1_slice host, payer; /* Empty: none. */
};

/* What a part holds. */
struct part {
    struct rg_h1_slice content_id; /* Empty: none. */
    struct rg_text head;           /* The head of a part's request, in the strict form. */
    struct rg_h1_slice body;
};

static struct rg_h1_slice trim(struct rg_h1_slice text)
{
    while (text.size > 0 && strchr(" \t\r\n", text.data[0]) != NULL) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && strchr(" \t\r\n", text.data[text.size - 1]) != NULL) {
        text.size--;
    }
    return text;
}

/* Takes a line off the front, without its end. False when nothing is left. */
static bool take_line(struct rg_h1_slice *text, struct rg_h1_slice *out_line)
{
    if (text->size == 0) {
        return false;
    }
    const char *end = memchr(text->data, '\n', text->size);
    uint32_t size = end != NULL ? (uint32_t)(end - text->data) : text->size;
    *out_line = (struct rg_h1_slice){text->data, size};
    if (size > 0 && text->data[size - 1] == '\r') {
        out_line->size--;
    }
    uint32_t taken = size + (end != NULL);
    text->data += taken;
    text->size -= taken;
    return true;
}

/* The value of a field line; `data` is NULL when the field has another name. */
static struct rg_h1_slice field_value(struct rg_h1_slice line, const char *name)
{
    uint32_t size = (uint32_t)strlen(name);
    if (line.size <= size || line.data[size] != ':' || strncasecmp(line.data, name, size) != 0) {
        return (struct rg_h1_slice){NULL, 0};
    }
    return trim((struct rg_h1_slice){line.data + size + 1, line.size - size - 1});
}

/* Fields that say how the request is framed. They are dropped: the body is framed anew. */
static bool is_framing(struct rg_h1_slice line)
{
    static const char *const names[] = {"host", "content-length", "transfer-encoding", "connection",
                                        "expect"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        if (field_value(line, names[i]).data != NULL) {
            return true;
        }
    }
    return false;
}

/* Writes out "METHOD TARGET", which a version may follow. */
static bool append_request_line(struct rg_text *head, struct rg_h1_slice line)
{
    const char *space = memchr(line.data, ' ', line.size);
    if (space == NULL) {
        return false;
    }
    uint32_t method_size = (uint32_t)(space - line.data);
    struct rg_h1_slice target = {space + 1, line.size - method_size - 1};
    const char *end = memchr(target.data, ' ', target.size);
    target.size = end != NULL ? (uint32_t)(end - target.data) : target.size;
    rg_text_append(head, line.data, method_size + 1);
    rg_text_append(head, target.data, target.size);
    rg_text_append_str(head, " HTTP/1.1\r\nHost: ");
    return true;
}

/* False when there is no request in it. */
static bool parse_part(struct rg_h1_slice text, const struct outer *outer, struct part *out)
{
    struct rg_h1_slice line;
    bool has_payer = outer->payer.size == 0;
    while (take_line(&text, &line) && line.size > 0) {
        struct rg_h1_slice id = field_value(line, "content-id");
        out->content_id = id.data != NULL ? id : out->content_id;
    }
    do { /* Some clients put more than one empty line there. */
        if (!take_line(&text, &line)) {
            return false;
        }
    } while (line.size == 0);
    if (!append_request_line(&out->head, line)) {
        return false;
    }
    rg_text_append(&out->head, outer->host.data, outer->host.size);
    rg_text_append_str(&out->head, "\r\n");
    while (take_line(&text, &line) && line.size > 0) {
        if (!is_framing(line)) {
            rg_text_append(&out->head, line.data, line.size);
            rg_text_append_str(&out->head, "\r\n");
            has_payer = has_payer || field_value(line, PAYER_FIELD).data != NULL;
        }
    }
    if (!has_payer) {
        rg_text_append_str(&out->head, PAYER_FIELD ": ");
        rg_text_append(&out->head, outer->payer.data, outer->payer.size);
        rg_text_append_str(&out->head, "\r\n");
    }
    out->body = trim(text);
    rg_text_printf(&out->head, "Content-Length: %u\r\n\r\n", out->body.size);
    return !out->head.failed;
}

/* Why a request may not be part of a batch; NULL: it may. */
static const char *refusal_of(const struct rg_api_request *request)
{
    if (!rg_api_request_is_json(request) || request->media ||
        request->route == RG_ROUTE_JSON_UPLOAD || request->route == RG_ROUTE_JSON_BATCH) {
        return "A batch holds calls of the JSON API that move no media.";
    }
    return NULL;
}

static void append_response(struct rg_text *out, struct rg_nested *nested,
                            struct rg_h1_slice content_id)
{
    const struct rg_call *state = rg_call_of(&nested->call);
    rg_text_append_str(out, "--" RESPONSE_BOUNDARY "\r\nContent-Type: application/http\r\n");
    if (content_id.size > 0 && content_id.size <= CONTENT_ID_SIZE_MAX) {
        bool angle = content_id.data[0] == '<';
        rg_text_printf(out, "Content-ID: %sresponse-%.*s\r\n", angle ? "<" : "",
                       (int)(content_id.size - angle), content_id.data + angle);
    }
    rg_text_append_str(out, "\r\n");
    rg_text_append(out, nested->encoder.data, nested->encoder.size);
    rg_text_append(out, state->text.data, (size_t)state->response.body_size);
    rg_text_append_str(out, "\r\n");
}

static void run_part(struct rg_server_call *call, struct rg_nested *nested, struct rg_h1_slice text,
                     const struct outer *outer)
{
    struct part part = {.content_id = {"", 0}};
    rg_nested_start(nested, call);
    rg_call_of(&nested->call)->json = true;
    if (!parse_part(text, outer, &part)) {
        rg_reply_error(&nested->call, RG_API_BAD_REQUEST, "A part of the batch has no request.");
    } else if (!rg_nested_parse(nested, &part.head)) {
        rg_reply_error(&nested->call, RG_API_BAD_REQUEST, "A request in the batch is malformed.");
    } else if (refusal_of(&nested->request) != NULL) {
        rg_reply_error(&nested->call, RG_API_BAD_REQUEST, "%s", refusal_of(&nested->request));
    } else {
        rg_nested_run(nested, part.body);
    }
    RG_ASSERT(rg_call_of(&nested->call)->object.type == NULL);
    append_response(&rg_call_of(call)->text, nested, part.content_id);
    rg_call_release(&nested->call);
    rg_text_fini(&part.head);
}

/* The text up to the next line that is the boundary, which is taken off the front with it. False
 * when there is no further boundary. */
static bool take_part(struct rg_h1_slice *rest, struct rg_h1_slice boundary,
                      struct rg_h1_slice *out_part, bool *out_last)
{
    struct rg_h1_slice line;
    const char *start = rest->data;
    while (take_line(rest, &line)) {
        struct rg_h1_slice text = trim(line);
        if (text.size < boundary.size + 2 || memcmp(text.data, "--", 2) != 0 ||
            memcmp(text.data + 2, boundary.data, boundary.size) != 0) {
            continue;
        }
        struct rg_h1_slice tail = {text.data + 2 + boundary.size, text.size - 2 - boundary.size};
        *out_last = rg_text_equals(tail, "--");
        if (tail.size == 0 || *out_last) {
            *out_part = (struct rg_h1_slice){start, (uint32_t)(line.data - start)};
            return true;
        }
    }
    return false;
}

static void run_parts(struct rg_server_call *call, struct rg_h1_slice body,
                      struct rg_h1_slice boundary, const struct outer *outer)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_nested *nested = malloc(sizeof(*nested));
    struct rg_h1_slice part;
    bool last = false;
    size_t count = 0;
    if (nested == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    bool opened =
        take_part(&body, boundary, &part, &last); /* Skip what comes before the first part. */
    while (opened && !last && count < RG_BATCH_CALLS_MAX &&
           take_part(&body, boundary, &part, &last)) {
        run_part(call, nested, part, outer);
        count++;
    }
    free(nested);
    if (!opened || !last) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "The batch has more than 100 calls, or no closing boundary.");
        return;
    }
    rg_text_append_str(&state->text, "--" RESPONSE_BOUNDARY "--\r\n");
    rg_reply_text(call, 200, "multipart/mixed; boundary=" RESPONSE_BOUNDARY);
}

static void finish_batch(struct rg_server_call *call, const struct rg_api_request *request,
                         struct rg_h1_slice body)
{
    const struct rg_h1_slice *type = rg_h1_find(request->head, "content-type");
    const struct rg_h1_slice *host = rg_h1_find(request->head, "host");
    const struct rg_h1_slice *payer = rg_h1_find(request->head, PAYER_FIELD);
    const struct outer outer = {.host = host != NULL ? *host : rg_text_slice("localhost"),
                                .payer = payer != NULL ? *payer : rg_text_slice("")};
    struct rg_h1_slice boundary = {NULL, 0};
    if (type != NULL) {
        boundary = rg_multipart_boundary(*type);
    }
    if (boundary.size == 0 || boundary.size > RG_MULTIPART_BOUNDARY_SIZE_MAX) {
        rg_reply_error(call, RG_API_BAD_REQUEST,
                       "A batch needs Content-Type: multipart/mixed with a boundary.");
        return;
    }
    run_parts(call, body, boundary, &outer);
}

void rg_batch_start(struct rg_server_call *call, const struct rg_api_request *request)
{
    rg_body_collect(call, request, RG_BATCH_SIZE_MAX, finish_batch);
}
