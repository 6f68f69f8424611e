/* The end of a call; see call.h. */
#include "emulator/request/call.h"

void rg_call_release(struct rg_server_call *call)
{
    struct rg_call *state = rg_call_of(call);
    rg_store_object_close(&state->object);
    rg_text_fini(&state->text);
    if (state->receiver != NULL) {
        state->receiver->destroy(state->received);
    }
    state->receiver = NULL;
    RG_ASSERT(state->object.type == NULL);
    RG_ASSERT(state->text.data == NULL);
}
