/* See strike.h. */
#include "emulator/faults/strike.h"

#include "emulator/request/nested.h"

#include <stdlib.h>
#include <strings.h>

/* Fields that say how the body is framed, or what becomes of the connection. */
static bool is_framing(struct rg_h1_slice name)
{
    static const char *const names[] = {"transfer-encoding", "content-length", "expect",
                                        "connection"};
    for (size_t i = 0; i < RG_ARRAY_LEN(names); i++) {
        if (name.size == strlen(names[i]) && strncasecmp(name.data, names[i], name.size) == 0) {
            return true;
        }
    }
    return false;
}

/* Writes out the head as it will be read again, without its end: the body's size is added when
 * all of it is there. */
static void keep_head(struct rg_strike *strike, const struct rg_h1_head *head)
{
    struct rg_text *text = &strike->head;
    rg_text_printf(text, "%.*s %.*s HTTP/1.1\r\n", (int)head->method.size, head->method.data,
                   (int)head->target.size, head->target.data);
    for (uint32_t i = 0; i < head->header_count; i++) {
        const struct rg_h1_slice *name = &head->headers[i].name, *value = &head->headers[i].value;
        if (!is_framing(*name)) {
            rg_text_printf(text, "%.*s: %.*s\r\n", (int)name->size, name->data, (int)value->size,
                           value->data);
        }
    }
}

struct rg_strike *rg_strike_create(const struct rg_rule_action *action,
                                   const struct rg_api_request *request)
{
    struct rg_strike *strike = calloc(1, sizeof(*strike));
    if (strike == NULL) {
        return NULL;
    }
    strike->action = *action;
    strike->refs = 1;
    rg_list_init(&strike->node);
    if (action->effect == RG_EFFECT_TWICE || action->effect == RG_EFFECT_LATER) {
        keep_head(strike, request->head);
    }
    return strike;
}

void rg_strike_unref_locked(struct rg_strike *strike)
{
    RG_ASSERT(strike->refs > 0);
    if (--strike->refs == 0) {
        rg_text_fini(&strike->head);
        rg_text_fini(&strike->body);
        rg_text_fini(&strike->result);
        free(strike);
    }
}

void rg_strike_enter_locked(struct rg_strike *strike, enum rg_strike_state state)
{
    RG_ASSERT(state != RG_STRIKE_RECEIVING);
    if (strike->state != RG_STRIKE_RELEASED) {
        RG_ASSERT(state > strike->state);
        strike->state = (uint8_t)state;
    }
}

void rg_strike_keep_body(struct rg_strike *strike, const uint8_t *data, size_t size)
{
    strike->too_large = strike->too_large || size > RG_STRIKE_BODY_MAX - strike->body.size;
    if (!strike->too_large) {
        rg_text_append(&strike->body, data, size);
    }
}

void rg_strike_happen(struct rg_strike *strike, struct rg_server_call *call)
{
    struct rg_nested *nested = malloc(sizeof(*nested));
    if (nested == NULL || strike->head.failed || strike->body.failed || strike->too_large) {
        free(nested);
        return;
    }
    rg_text_printf(&strike->head, "Content-Length: %zu\r\n\r\n", strike->body.size);
    rg_nested_start(nested, call);
    bool parsed = rg_nested_parse(nested, &strike->head);
    RG_ASSERT(parsed); /* It was before. */
    rg_nested_run(nested, (struct rg_h1_slice){strike->body.data != NULL ? strike->body.data : "",
                                               (uint32_t)strike->body.size});
    struct rg_call *state = rg_call_of(&nested->call);
    RG_ASSERT(state->object.type == NULL); /* It writes. */
    rg_text_fini(&strike->result);
    rg_text_append(&strike->result, nested->encoder.data, nested->encoder.size);
    strike->result_head_size = nested->encoder.size;
    rg_text_append(&strike->result, state->text.data, (size_t)state->response.body_size);
    rg_call_release(&nested->call);
    free(nested);
}

void rg_strike_take_result(struct rg_strike *strike, struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    struct rg_h1_encoder *head = rg_server_head(call);
    size_t size = strike->result.size - strike->result_head_size;
    if (strike->result_head_size == 0 || strike->result.failed) {
        return;
    }
    rg_text_fini(&state->text);
    rg_h1_encoder_init(head, head->data, head->capacity);
    memcpy(head->data, strike->result.data, strike->result_head_size);
    head->size = strike->result_head_size;
    rg_text_append(&state->text, strike->result.data + strike->result_head_size, size);
    state->response.body_size = state->text.size;
}
