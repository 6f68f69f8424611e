/* See nested.h. */
#include "emulator/request/nested.h"

void rg_nested_start(struct rg_nested *nested, struct rg_server_call *outer)
{
    struct rg_call *state = rg_call_of(&nested->call);
    memset(&nested->call, 0, sizeof(nested->call));
    nested->call.context = outer->context;
    nested->call.now_ns = outer->now_ns;
    nested->call.loop_index = outer->loop_index;
    rg_h1_encoder_init(&nested->encoder, nested->head_bytes, sizeof(nested->head_bytes));
    state->keep_alive = true;
    state->nested_head = &nested->encoder;
}

bool rg_nested_parse(struct rg_nested *nested, const struct rg_text *head)
{
    int size = rg_h1_parse_request(&nested->head, head->data, head->size, 0);
    return size > 0 && rg_api_request_parse(&nested->request, &nested->head) == 0;
}

void rg_nested_run(struct rg_nested *nested, struct rg_h1_slice body)
{
    struct rg_call *state = rg_call_of(&nested->call);
    state->json = rg_api_request_is_json(&nested->request);
    state->head_request = rg_api_request_is(&nested->request, "HEAD");
    nested->call.head = &nested->head;
    rg_service_of(&nested->call)->route(&nested->call, &nested->request);
    nested->call.head = NULL;
    if (!state->replied && body.size > 0) {
        state->receiver->receive(&nested->call, (const uint8_t *)body.data, body.size);
    }
    if (!state->replied) {
        state->receiver->finish(&nested->call);
    }
    RG_ASSERT(state->replied);
}
