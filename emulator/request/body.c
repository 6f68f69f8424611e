/* A copy of the head, and the body as it comes in; see body.h. */
#include "emulator/request/body.h"

#include <errno.h>
#include <stdlib.h>

struct rg_body {
    rg_body_finish *finish;
    uint32_t size_max;
    struct rg_text text;
    struct rg_h1_head head; /* Its slices are in `bytes`. */
    struct rg_api_request request;
    char bytes[];
};

static void keep_slice(char **at, struct rg_h1_slice *slice)
{
    memcpy(*at, slice->data, slice->size);
    slice->data = *at;
    *at += slice->size;
}

static struct rg_body *keep(const struct rg_api_request *request)
{
    const struct rg_h1_head *head = request->head;
    size_t size = head->method.size + head->target.size;
    for (uint32_t i = 0; i < head->header_count; i++) {
        size += head->headers[i].name.size + head->headers[i].value.size;
    }
    struct rg_body *body = malloc(sizeof(*body) + size);
    if (body == NULL) {
        return NULL;
    }
    body->text = (struct rg_text){0};
    body->head = *head;
    body->head.reason = (struct rg_h1_slice){"", 0};
    char *at = body->bytes;
    keep_slice(&at, &body->head.method);
    keep_slice(&at, &body->head.target);
    for (uint32_t i = 0; i < head->header_count; i++) {
        keep_slice(&at, &body->head.headers[i].name);
        keep_slice(&at, &body->head.headers[i].value);
    }
    int rc = rg_api_request_parse(&body->request, &body->head);
    RG_ASSERT(rc == 0); /* It was parsed before. */
    return body;
}

static void receive(struct rg_server_call *call, const uint8_t *data, size_t size)
{
    struct rg_body *body = rg_call_of(call)->received;
    if (size > body->size_max - body->text.size) {
        rg_reply_error(call, RG_API_TOO_LARGE, "The body of this request is limited to %u bytes.",
                       body->size_max);
        return;
    }
    rg_text_append(&body->text, data, size);
}

static void finish(struct rg_server_call *call)
{
    struct rg_body *body = rg_call_of(call)->received;
    if (body->text.failed) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    struct rg_h1_slice text = {body->text.data != NULL ? body->text.data : "",
                               (uint32_t)body->text.size};
    body->finish(call, &body->request, text);
}

static void destroy(void *received)
{
    struct rg_body *body = received;
    rg_text_fini(&body->text);
    free(body);
}

static const struct rg_receiver body_receiver = {receive, finish, destroy};

void rg_body_collect(struct rg_server_call *call, const struct rg_api_request *request,
                     uint32_t size_max, rg_body_finish *finish_body)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_body *body = keep(request);
    if (body == NULL) {
        rg_reply_error(call, RG_API_INTERNAL, "Out of memory.");
        return;
    }
    body->finish = finish_body;
    body->size_max = size_max;
    state->receiver = &body_receiver;
    state->received = body;
}
